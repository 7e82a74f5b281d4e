package daemon

import (
	"fmt"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// mixOf returns the mix of the adapters of a request that arrives; full: as many others as the engine has are in use.
func (l *loop) mixOf(r *request) (mix uint8, full bool) {
	mix, ok := l.mixes.Take(r.Adapters, func(mix uint8) bool {
		for _, other := range l.requests {
			if other != r && other.Mix == mix {
				return true
			}
		}
		return false
	})
	if len(r.Adapters) > 0 {
		l.m.AdapterRequests.Inc()
	}
	return mix, !ok
}

func tooManyMixes() *wire.Error {
	return &wire.Error{Code: wire.QueueLimit, Message: fmt.Sprintf("requests with %d combinations of adapters and "+
		"scales run or wait; another one must wait for their end", runtime.MaxMixes)}
}
