package opening

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// CheckDraft compares the headers of --draft-model and of the model at path. What cannot be read is left to the engine,
// but for a head that does not exist: it is opened behind the model.
func CheckDraft(c *config.Config, path string) error {
	head, err := gguf.Brief(c.DraftModel)
	model, errModel := gguf.Brief(path)
	switch eagle := c.Eagle(); {
	case errors.Is(err, fs.ErrNotExist) && eagle:
	case err == nil && head.Eagle != nil && !eagle:
		return fmt.Errorf("--draft-model: %s is an EAGLE-3 head: --spec-type draft-eagle3 uses it", c.DraftModel)
	case err != nil || errModel != nil || !eagle:
		return nil
	default:
		err = head.DraftsFor(&model)
	}
	if err != nil {
		return fmt.Errorf("--draft-model: the EAGLE-3 head %s: %w", c.DraftModel, err)
	}
	return nil
}

// EagleOptions returns the options with which the EAGLE-3 head of --draft-model is opened.
func EagleOptions(c *config.Config) runtime.HeadOptions {
	file := DraftOptions(c)
	return runtime.HeadOptions{ContextTokens: file.ContextTokens, Batch: file.Batch, Sequences: file.Sequences,
		File: &file}
}
