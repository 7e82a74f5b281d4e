package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/models/pull/pulltest"
)

// TestPullOnTerminal: a bar for each file with speed and time left, notes above it, and a line that says how to serve
// the model; with NO_COLOR plain lines.
func TestPullOnTerminal(t *testing.T) {
	s, address := pullServer(t, func(r *http.Request) pulltest.Fault {
		if strings.Contains(r.URL.Path, "/resolve/") {
			return pulltest.Slow(10_000, 50*time.Millisecond)
		}
		return nil
	})
	c := openConsole(t, pulling(t, address, t.TempDir(), "hf.co/owner/split", "--connections", "1"))
	c.expect("hf.co/owner/split:Q4_0")
	c.expect("1/2 split-Q4_0-00001-of-00002.")
	c.expect("KiB/s")
	c.expect(" left")
	c.expect("2/2 split-Q4_0-00002-of-00002.")
	c.expect("100% |")
	c.expect("pulled ")
	c.expect("serve it with uma-serve -m ")
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}

	cmd := pulling(t, address, t.TempDir(), "hf.co/owner/name")
	cmd.Env = append(cmd.Env, "NO_COLOR=1")
	c = openConsole(t, cmd)
	c.expect("name-Q4_K_M.gguf: 293 KiB of 293 KiB")
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	<-c.ended
	if seen := c.seen.String(); strings.Contains(seen, "\x1b") {
		t.Errorf("NO_COLOR: %q", seen)
	}

	s.Change(func() {
		s.Fault = func(*http.Request) pulltest.Fault { return pulltest.Slow(1000, 50*time.Millisecond) }
	})
	c = openConsole(t, pulling(t, address, t.TempDir(), "hf.co/owner/name"))
	c.expect("KiB/s")
	c.typeKeys("\x03")
	c.expect("interrupted: ")
	if code := c.exit(); code != exitInterrupted {
		t.Errorf("Ctrl-C: exit status %d", code)
	}
}
