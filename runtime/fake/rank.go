package fake

import (
	"errors"

	"github.com/uma-serve/uma-serve/runtime"
)

// Ranking implements runtime.Ranker.
func (e *Engine) Ranking() (*runtime.Ranking, error) {
	if e.cfg.Ranking == nil {
		return nil, errors.New("the fake model ranks no documents")
	}
	return e.cfg.Ranking, nil
}
