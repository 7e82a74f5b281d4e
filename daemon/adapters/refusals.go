package adapters

import (
	"errors"
	"os"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// TooManyMixes returns the error of a request for which no mix is free.
func TooManyMixes() *wire.Error {
	return wire.Errorf(wire.QueueLimit, "requests with %d combinations of adapters and scales run or wait; another "+
		"one must wait for their end", runtime.MaxMixes)
}

// Unloaded returns the error of a request whose adapter was unloaded before it could begin.
func (a *Adapter) Unloaded() *wire.Error {
	return wire.Errorf(wire.ModelNotFound, "the adapter %s was unloaded before the request began", a.Name)
}

// CannotLoad returns the error of an adapter that cannot be loaded.
func CannotLoad(a config.LoRA, err error) *wire.Error {
	if errors.Is(err, ErrTaken) {
		return Taken(a.Name)
	}
	return wire.Errorf(wire.BadRequest, "the adapter %s is not loaded: %s: %v", a.Name, a.File, err)
}

// Taken refuses to load an adapter because another one has its name.
func Taken(name string) *wire.Error {
	return wire.Errorf(wire.BadRequest,
		`an adapter %s is loaded already: unload it first, or set "load_inplace" to true`, name)
}

// None returns the error of an adapter that is not loaded.
func None(name string) *wire.Error {
	return wire.Errorf(wire.ModelNotFound, "no adapter %.100q is loaded; GET /lora-adapters lists them", name)
}

// OpenNamed checks the values of an adapter that a request names, and opens its file.
func OpenNamed(q *wire.LoadAdapter) (*os.File, *wire.Error) {
	a := config.LoRA{Name: q.Name, File: q.File, Scale: q.Scale}
	if err := a.Check(); err != nil {
		return nil, &wire.Error{Code: wire.BadRequest, Message: err.Error()}
	}
	f, err := Open(q.File)
	if err != nil {
		return nil, CannotLoad(a, err)
	}
	return f, nil
}
