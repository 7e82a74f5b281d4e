package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestMetricsDump: each SIGUSR1 writes the metrics to the log as JSON.
func TestMetricsDump(t *testing.T) {
	said, log := toBuffer(t)
	r := serveLogging(t, log, fake.Config{})
	if a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 3 }); a.err != nil {
		t.Fatal(a.err)
	}
	r.nothingLeft()
	for n := 1; n <= 2; n++ {
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the log has the line", func() bool {
			return strings.Count(said.String(), `\"tokens_generated_total\":3,`) == n
		})
	}
}

// TestStateDump: a panic of the decode loop leaves its state in a file that only its user can read, in a folder that
// the sandbox leaves open, and goes on.
func TestStateDump(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	dir = report.StateFolder()
	cfg := config.Config{Model: "model.gguf"}
	if !slices.Contains(opening.Policy(&cfg).Write, dir) {
		t.Errorf("an engine process may not write to %s", dir)
	}
	r := serve(t, fake.Config{})
	if a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 3 }); a.err != nil {
		t.Fatal(a.err)
	}
	var again any
	r.inLoop(func(l *loop) {
		defer func() { again = recover() }()
		defer l.dumpState()
		panic("core: 3 cells are held twice")
	})
	if again != "core: 3 cells are held twice" {
		t.Errorf("the panic became %v", again)
	}
	files, err := filepath.Glob(filepath.Join(dir, "uma-serve-state-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if st, err := os.Stat(files[0]); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st.Mode(), err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var d report.State
	if err := json.Unmarshal(b, &d); err != nil || d.Panic != again || !strings.Contains(d.Stack, "dump_test.go") ||
		len(d.Why.Requests) != 1 || !strings.Contains(d.Tree, "cells:") || len(d.Cost) == 0 || len(d.Metrics) == 0 {
		t.Errorf("%v: %s", err, b)
	}
	r.inLoop(func(l *loop) { // without a panic it does nothing
		defer l.dumpState()
	})
}
