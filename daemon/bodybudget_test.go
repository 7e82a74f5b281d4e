package daemon

import (
	"bytes"
	"net/http/httptest"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestBodyRoom: bodies that come slowly hold a bounded amount of memory, of a user and of all; a body that has come
// gives its room back.
func TestBodyRoom(t *testing.T) {
	s := &Server{cfg: &Config{MaxFrameBytes: 1 << 20}}
	read := func() (int, *wire.Error) {
		body, e := s.readBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/completions", bytes.NewReader(make([]byte, 1<<20))))
		return len(body), e
	}
	for range 2 * maxOwnerBodies >> 20 {
		if n, e := read(); n != 1<<20 || e != nil {
			t.Fatalf("%d bytes, %v", n, e)
		}
	}
	if s.bodies.all != 0 || len(s.bodies.by) != 0 {
		t.Fatalf("%d bytes of %d users are left", s.bodies.all, len(s.bodies.by))
	}
	if !s.bodies.take(0, maxOwnerBodies-1<<19) {
		t.Fatal("no room for the first")
	}
	if _, e := read(); e == nil || e.Code != wire.QueueLimit || e.RetryAfter == 0 {
		t.Errorf("a body beyond the user's room: %v", e)
	}
	if s.bodies.all != maxOwnerBodies-1<<19 {
		t.Errorf("the refused body holds %d bytes", s.bodies.all-(maxOwnerBodies-1<<19))
	}
	for owner := range uint32(3) {
		if !s.bodies.take(owner+1, maxOwnerBodies) {
			t.Errorf("no room for user %d", owner+1)
		}
	}
	if s.bodies.take(9, 1<<20) {
		t.Error("there is room beyond that of all users")
	}
}
