package admission

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// LoadFailed returns the error of requests that waited for a model whose load failed.
func LoadFailed(err error) *wire.Error {
	return &wire.Error{Code: wire.InternalFailure, Message: "the model cannot be loaded: " + err.Error()}
}

// StillLoading returns the error of questions about the loop while the model loads. loaded is the fraction that is
// read.
func StillLoading(loaded float64) *wire.Error {
	return &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second,
		Message: fmt.Sprintf(`the model is still loading (%.0f %%); {"type":"health"} says when it is ready`,
			100*loaded)}
}

// ShuttingDown returns the error of requests while the server stops.
func ShuttingDown() *wire.Error {
	return &wire.Error{Code: wire.ShuttingDown, Message: "the server is shutting down; try again when it is back"}
}
