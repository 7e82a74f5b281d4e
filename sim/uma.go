package sim

import (
	"errors"

	"github.com/uma-serve/uma-serve/sim/latency"
)

func newUma(*Config, latency.Model) (former, error) { return nil, errors.New("later") }
