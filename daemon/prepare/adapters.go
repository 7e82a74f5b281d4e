package prepare

import (
	"encoding/binary"

	"github.com/uma-serve/uma-serve/daemon/adapters"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// setAdapters gives the request its adapters and the namespace of its cells. The prompt must be there.
func (m *Model) setAdapters(out *Prepared, w *wire.Request, choice adapters.Choice) *wire.Error {
	from, ok, err := choice.Begins(out.Tokens)
	switch {
	case err != nil:
		return badRequest(err)
	case !ok:
		choice = nil
	}
	out.Adapters, out.MixFrom = choice, from
	key := choice.Key()
	if from > 0 { // cells from there on are the adapter's, those before it are the model's own
		key = binary.LittleEndian.AppendUint32(key, uint32(from))
		out.Activated, out.BaseSalt = true, saltOf(out.Owner, w.CacheSalt, nil)
	}
	out.Salt = saltOf(out.Owner, w.CacheSalt, key)
	return nil
}

func badRequest(err error) *wire.Error {
	return &wire.Error{Code: wire.BadRequest, Message: err.Error()}
}
