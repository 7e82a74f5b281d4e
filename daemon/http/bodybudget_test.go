package httpd

import (
	"bytes"
	"net/http/httptest"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestBodyBudget: unfinished bodies take a bounded amount of memory, per user and in all; a complete body releases it.
func TestBodyBudget(t *testing.T) {
	s := &Server{Config: &config.Config{MaxFrameBytes: 1 << 20}}
	read := func() (int, *wire.Error) {
		body, e := s.readBody(httptest.NewRecorder(),
			httptest.NewRequest("POST", "/v1/completions", bytes.NewReader(make([]byte, 1<<20))))
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
	if !s.bodies.reserve(0, maxOwnerBodies-1<<19) {
		t.Fatal("the first body is refused")
	}
	if _, e := read(); e == nil || e.Code != wire.QueueLimit || e.RetryAfter == 0 {
		t.Errorf("a body beyond the user's limit: %v", e)
	}
	if s.bodies.all != maxOwnerBodies-1<<19 {
		t.Errorf("the refused body holds %d bytes", s.bodies.all-(maxOwnerBodies-1<<19))
	}
	for owner := range uint32(3) {
		if !s.bodies.reserve(owner+1, maxOwnerBodies) {
			t.Errorf("the body of user %d is refused", owner+1)
		}
	}
	if s.bodies.reserve(9, 1<<20) {
		t.Error("the limit of all users is exceeded")
	}
}
