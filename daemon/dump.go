package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Two dumps: of the metrics, when SIGUSR1 asks for one, and of the decode loop's state after a broken invariant.

// dumpOnSignal dumps the metrics at each SIGUSR1, until stop.
func (s *Server) dumpOnSignal() (stop func()) {
	asked, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for {
			select {
			case <-asked:
				dumpMetrics(s.metrics.AppendJSON(nil), s.cfg.MetricsFile, s.log)
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(asked); close(done) }
}

// dumpMetrics appends line to the file, or without one writes it to the log.
func dumpMetrics(line []byte, file string, log *slog.Logger) {
	if file == "" {
		log.Info("metrics", "json", json.RawMessage(line))
		return
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		log.Error("--metrics-file", "error", clierr.File(file, err))
	}
}

// stateDump is the JSON document that is written to a file after a broken invariant, besides the trace.
type stateDump struct {
	Panic   string          `json:"panic"`
	Stack   string          `json:"stack"`
	Metrics json.RawMessage `json:"metrics"`
	Why     *wire.WhyReport `json:"why"`  // all remembered requests, without their texts
	Tree    string          `json:"tree"` // cached prefixes: lengths and hashes
	Cost    json.RawMessage `json:"cost"`
}

// dumpState runs as the decode loop's last deferred call. After a panic it writes the loop's state to a new file in
// stateFolder and panics again; the deferred calls before it have completed the --trace.
func (l *loop) dumpState() {
	p := recover()
	if p == nil {
		return
	}
	d := stateDump{Panic: fmt.Sprint(p), Stack: string(debug.Stack()), Metrics: l.m.AppendJSON(nil)}
	for _, read := range []func(){ // each may meet the broken invariant again
		func() { d.Why = l.why(wire.WhyQuestion{Last: wire.MaxLast}, uint32(os.Getuid()), time.Now()) },
		func() { d.Tree = l.core.Tree().Dump() },
		func() { d.Cost, _ = json.Marshal(l.core.Scheduler().Cost()) },
	} {
		func() {
			defer func() { _ = recover() }()
			read()
		}()
	}
	if path, err := d.write(); err != nil {
		l.log.Error("a broken invariant; its state cannot be written", "panic", d.Panic, "error", err)
	} else {
		l.log.Error("a broken invariant: please report it with this file", "panic", d.Panic, "file", path)
	}
	panic(p)
}

// stateFolder returns the folder for state dumps. The sandbox lets an engine process write there, but not to the folder
// of temporary files.
func stateFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return os.TempDir()
	}
	return filepath.Join(dir, "uma-serve", "state")
}

// write writes d to a new file, which only this user can read, and returns its path.
func (d *stateDump) write() (string, error) {
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return "", err
	}
	dir := stateFolder()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "uma-serve-state-*.json")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if e := f.Close(); err == nil {
		err = e
	}
	return f.Name(), err
}
