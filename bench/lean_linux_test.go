package bench

import (
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// which must know the encoder's own output: it looks at no more than the head of an event.
func TestWhichReadsWhatTheServerWrites(t *testing.T) {
	frame := func(b []byte) []byte { return b[4:] }
	for _, c := range []struct {
		payload []byte
		kind    wire.EventKind
		i       int
	}{
		{frame(wire.AppendToken(nil, &wire.Token{ID: "12", Text: []byte("x"), Phase: wire.Output})), wire.EventToken,
			12},
		{frame(wire.AppendEOS(nil, &wire.EOS{ID: "3", Reason: wire.Length, Streamed: true})), wire.EventEOS, 3},
		{frame(wire.AppendError(nil, &wire.Error{ID: "3", Code: wire.QueueLimit})), wire.EventUnknown, 0},
	} {
		if kind, i := which(c.payload); kind != c.kind || kind != wire.EventUnknown && i != c.i {
			t.Errorf("%s: %v %d, want %v %d", c.payload, kind, i, c.kind, c.i)
		}
	}
}
