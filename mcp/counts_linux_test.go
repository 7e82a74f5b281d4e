package mcp

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/toolbox"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestCounts: each question is counted by its result, each refusal by its reason.
func TestCounts(t *testing.T) {
	b := boxOf(t, "good", func(s *setup.Server, _ *toolbox.Options) { s.Tools = []string{"echo"} })
	if c := b.Counts("s"); c.Running || c.Starts != 0 {
		t.Errorf("before the first question: %+v", c)
	}
	if _, err := b.List(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	said := json.RawMessage(`{"text":"hi"}`)
	r, err := b.Call(t.Context(), "s", "echo", said)
	if err != nil {
		t.Fatal(err)
	}
	failing := json.RawMessage(`{"text":"fail"}`)
	failed, err := b.Call(t.Context(), "s", "echo", failing)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = b.Call(t.Context(), "s", "hidden", nil)
	_, _ = b.Call(t.Context(), "s", "echo", make([]byte, setup.MaxArguments+1))
	_, _ = b.Call(t.Context(), "other", "echo", nil) // no server's
	b.Refused("s", setup.RefusedUser)
	c := b.Counts("s")
	if c.CallTime <= 0 || c.CallTime > time.Minute {
		t.Errorf("the calls took %v", c.CallTime)
	}
	c.CallTime = 0
	want := toolbox.Counts{Calls: [...]uint64{1, 1, 0, 0, 0}, Lists: [...]uint64{1, 0, 0, 0, 0},
		Refused: [...]uint64{1, 0, 1, 1, 0}, Sent: uint64(len(said) + len(failing)),
		Received: uint64(len(r.Text) + len(failed.Text)), Starts: 1, Running: true}
	if c != want {
		t.Errorf("%+v\nwant %+v", c, want)
	}
	b.Close()
	if c := b.Counts("s"); c.Running {
		t.Error("a closed box's server runs")
	}
}

// TestCountsOfBadCalls: a server that does not answer, a client that leaves, and a server that ends.
func TestCountsOfBadCalls(t *testing.T) {
	b := boxOf(t, "call-never", func(s *setup.Server, _ *toolbox.Options) { s.Timeout = 500 * time.Millisecond })
	if _, err := b.Call(t.Context(), "s", "t", json.RawMessage(`{}`)); err == nil {
		t.Fatal("the call did not fail")
	}
	if c := b.Counts("s"); c.Calls != [...]uint64{0, 0, 0, 1, 0} {
		t.Errorf("%+v; want one that was too slow", c)
	}
	b = boxOf(t, "call-never", nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Call(ctx, "s", "t", json.RawMessage(`{}`))
		ended <- err
	}()
	waitfor.True(t, "the call runs", func() bool { return b.Counts("s").Inside == 1 })
	cancel()
	if err := waitfor.Recv(t, "the call's end", ended); err == nil {
		t.Error("the call did not fail")
	}
	if c := b.Counts("s"); c.Calls != [...]uint64{0, 0, 0, 0, 1} || c.Inside != 0 {
		t.Errorf("%+v; want a canceled one", c)
	}
	b = boxOf(t, "call-dies", nil)
	if _, err := b.Call(t.Context(), "s", "t", json.RawMessage(`{}`)); err == nil {
		t.Fatal("the call did not fail")
	}
	if c := b.Counts("s"); c.Calls != [...]uint64{0, 0, 1, 0, 0} {
		t.Errorf("%+v; want one error", c)
	}
}
