package front

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/runtime"
)

// What a server of one model does behind a front as without one.

// TestDefaultModelStays: without --idle-unload the default model is never idle for too long, so that it keeps its
// cached prefixes; the others leave after 15 minutes.
func TestDefaultModelStays(t *testing.T) {
	for _, c := range []struct {
		args       []string
		table      time.Duration // of "two"
		def, other time.Duration
	}{
		{nil, -1, 0, 15 * time.Minute},
		{[]string{"--idle-unload", "5m"}, -1, 5 * time.Minute, 5 * time.Minute},
		{[]string{"--idle-unload", "15m"}, -1, 15 * time.Minute, 15 * time.Minute},
		{nil, 0, 0, 0},
		{nil, time.Hour, 0, time.Hour},
	} {
		edit := func(cfg *config.Config) { cfg.Models[1].IdleUnload = c.table }
		r := start(t, Options{}, []string{"one", "two"}, edit, c.args...)
		if def, other := r.def.idle, r.names["two"].idle; def != c.def || other != c.other {
			t.Errorf("%v, table %v: %v and %v, want %v and %v", c.args, c.table, def, other, c.def, c.other)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestDefaultModelLargerThanFreeMemory: with --memory auto it is loaded all the same, as its mapped weights can be
// paged; another one that needs more is refused, and so is any with a limit of its operator's choice.
func TestDefaultModelLargerThanFreeMemory(t *testing.T) {
	needs := func(cfg *config.Config) (config.Demand, error) {
		if filepath.Base(cfg.Model) == "two" {
			return takes(1 << 51), nil
		}
		return takes(1 << 50), nil
	}
	r := start(t, Options{Demand: needs}, []string{"one", "two"}, nil, "--memory", "auto")
	if got, err := whole(r.dial(), request("one", nil)); err != nil || got != "I am one" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := whole(r.dial(), request("two", nil)); err == nil || !strings.Contains(err.Error(), "--memory is") {
		t.Errorf("the other one: %v", err)
	}
	r = start(t, Options{Demand: needs}, []string{"one"}, nil, "--memory", "1TiB")
	if _, err := whole(r.dial(), request("one", nil)); err == nil || !strings.Contains(err.Error(), "raise --memory") {
		t.Errorf("with a limit: %v", err)
	}
}

// TestTraceOfEachProcess: each engine process has a file of --trace for it alone, which uma-sim can read.
func TestTraceOfEachProcess(t *testing.T) {
	dir := t.TempDir()
	r := start(t, Options{}, []string{"one", "two"}, func(c *config.Config) { c.Models[1].Name = "hf.co/two:q8_0" },
		"--trace", filepath.Join(dir, "run.trace"))
	for _, name := range []string{"one", "hf.co/two:q8_0"} {
		if _, err := whole(r.dial(), request(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	first := r.awaitReady("one")
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil { // it is started again with the next request
		t.Fatal(err)
	}
	waitfor.True(t, "the process has ended", func() bool { return r.pid("one") != first })
	if _, err := whole(r.dial(), request("one", nil)); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"run.trace", "run-hf.co_two_q8_0.trace", "run-2.trace"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(b), "arrive") {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}
}

// TestMetricsDump: SIGUSR1 has the front log the metrics of all models.
func TestMetricsDump(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil)
	for _, name := range []string{"one", "two"} {
		if _, err := whole(r.dial(), request(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	var line string
	waitfor.True(t, "the log has a line", func() bool {
		_, after, _ := strings.Cut(r.log.String(), "msg=metrics json=")
		line, _, _ = strings.Cut(after, "\n")
		return line != ""
	})
	text, err := strconv.Unquote(line)
	if err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	var m struct {
		Models map[string]struct {
			Tokens int `json:"tokens_generated_total"`
		}
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Models["one"].Tokens == 0 ||
		m.Models["two"].Tokens == 0 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestNoDeviceWithinTheSandbox: a process that does not find the device that is there without the sandbox says so.
func TestNoDeviceWithinTheSandbox(t *testing.T) {
	found := func(context.Context) (runtime.Backends, error) {
		return runtime.Backends{Names: []string{"CUDA"}, Devices: []runtime.Device{{Name: "CUDA0"}}}, nil
	}
	t.Setenv("FRONT_TEST_LOG", "1") // engine processes write a log
	for _, c := range []struct {
		args []string
		want bool
	}{{nil, true}, {[]string{"--sandbox=false"}, false}, {[]string{"--gpu-layers", "0"}, false}} {
		stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, Options{Stderr: stderr, Devices: found}, []string{"one"}, nil, c.args...)
		r.awaitReady("one")
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		b, err := os.ReadFile(stderr.Name())
		if err := errors.Join(err, stderr.Close()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(b), "the sandbox of the engine process hides the device"); got != c.want {
			t.Errorf("%v: %s", c.args, b)
		}
	}
}

// TestSnapshotFoldersOfSeveralModels: engine processes lock their folders, so that each table has one for itself; the
// only model has that of the daemon, and a model that was found has none.
func TestSnapshotFoldersOfSeveralModels(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	r := start(t, Options{}, []string{"one", "two"}, func(c *config.Config) { c.Models[1].Name = "hf.co/two:q8_0" },
		"--cache-dir", dir, "--cache-ram", "1MiB")
	for _, name := range []string{"one", "hf.co/two:q8_0"} {
		if _, err := whole(r.dial(), request(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "hf.co_two_q8_0"} {
		if _, err := os.Stat(filepath.Join(dir, name, "lock")); err != nil {
			t.Error(err)
		}
	}
	single := filepath.Join(t.TempDir(), "snapshots")
	r = start(t, Options{}, nil, nil, "--cache-dir", single)
	found, err := r.cfg.ForFound("three", "/three")
	if err != nil || r.def.cfg.CacheDir != single || found.CacheDir != "" {
		t.Errorf("%q and %q, %v", r.def.cfg.CacheDir, found.CacheDir, err)
	}
}
