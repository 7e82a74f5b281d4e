package lastwords

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestSay: nothing is said within a cut frame, each request of a framed connection hears its error, and a connection
// stays only where its client can go on.
func TestSay(t *testing.T) {
	e := &wire.Error{Code: wire.EngineCrashed, Message: "gone"}
	two := string(wire.AppendError(wire.AppendError(nil, &wire.Error{ID: "a", Code: e.Code, Message: e.Message}),
		&wire.Error{ID: "b", Code: e.Code, Message: e.Message}))
	for _, c := range []struct {
		st    connstate.State
		ids   []string
		say   string
		stays bool
	}{
		{connstate.State{Phase: connstate.Framed, Cut: true}, []string{"a"}, "", false},
		{connstate.State{Phase: connstate.Idle}, nil, "", true},
		{connstate.State{Phase: connstate.Framed}, []string{"a", "b"}, two, true},
		{connstate.State{Phase: connstate.Framed, Unread: true}, []string{"a", "b"}, two, false},
		{connstate.State{Phase: connstate.Lines}, nil, "", true},
		{connstate.State{Phase: connstate.Partial}, nil, "", false},
	} {
		if say, stays := Say(e, c.st, c.ids); string(say) != c.say || stays != c.stays {
			t.Errorf("%+v %q: %q, %v", c.st, c.ids, say, stays)
		}
	}
}
