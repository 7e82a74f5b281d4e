package prepare

import (
	"github.com/uma-serve/uma-serve/daemon/adapters"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// setAdapters gives the request its adapters. The prompt must be there.
func (m *Model) setAdapters(out *Prepared, choice adapters.Choice) *wire.Error {
	from, ok, err := choice.Begins(out.Tokens)
	switch {
	case err != nil:
		return badRequest(err)
	case ok:
		out.Adapters, out.MixFrom = choice, from
	}
	return nil
}

func badRequest(err error) *wire.Error {
	return &wire.Error{Code: wire.BadRequest, Message: err.Error()}
}
