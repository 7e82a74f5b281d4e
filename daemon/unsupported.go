package daemon

import "github.com/uma-serve/uma-serve/ipc/wire"

// unsupported is what w asks for and this daemon cannot do, nil if it can do all of it. It is the only place that refuses
// what the protocol allows.
func unsupported(w *wire.Request) *wire.Error {
	switch {
	case len(w.Tools) > 0 && w.ToolChoice.Mode != wire.ToolNone:
		return &wire.Error{Code: wire.BadRequest, Message: `field "tools" is not supported by this server (tools are not served yet); leave it out`}
	}
	for i := range w.Messages {
		if m := &w.Messages[i]; len(m.ToolCalls) > 0 {
			return &wire.Error{Code: wire.BadRequest, Message: `a message has "tool_calls", which this server does not support yet`}
		}
	}
	return nil
}
