package daemon

import "github.com/uma-serve/uma-serve/ipc/wire"

// unsupported is what w asks for and this daemon cannot do, nil if it can do all of it. It is the only place that refuses
// what the protocol allows.
func unsupported(w *wire.Request) *wire.Error {
	switch {
	case len(w.Tools) > 0 && w.ToolChoice.Mode >= wire.ToolRequired:
		return &wire.Error{Code: wire.BadRequest, Message: `field "tool_choice": this server cannot force a call of a tool yet; use "auto" or "none"`}
	}
	return nil
}
