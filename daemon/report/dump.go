package report

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Two dumps: of the metrics, when SIGUSR1 asks for one, and of the decode loop's state after a broken invariant.

// DumpMetrics writes line, a JSON document, to the log.
func DumpMetrics(line []byte, log *slog.Logger) { log.Info("metrics", "json", json.RawMessage(line)) }

// DumpOnSignal dumps the metrics at each SIGUSR1, until stop.
func DumpOnSignal(line func() []byte, log *slog.Logger) (stop func()) {
	asked, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for {
			select {
			case <-asked:
				DumpMetrics(line(), log)
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(asked); close(done) }
}

// State is the JSON document that is written to a file after a broken invariant, besides the trace.
type State struct {
	Panic   string             `json:"panic"`
	Stack   string             `json:"stack"`
	Metrics json.RawMessage    `json:"metrics"`
	Why     *reports.WhyReport `json:"why"`  // all remembered requests, without their texts
	Tree    string             `json:"tree"` // cached prefixes: lengths and hashes
	Cost    json.RawMessage    `json:"cost"`
}

// StateFolder returns the folder for state dumps. The sandbox lets an engine process write there, but not to the folder
// of temporary files.
func StateFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return os.TempDir()
	}
	return filepath.Join(dir, "uma-serve", "state")
}

// write writes d to a new file, which only this user can read, and returns its path.
func (d *State) write() (string, error) {
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return "", err
	}
	dir := StateFolder()
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

// Save completes d with what each of reads finds, without what makes one panic, writes it, and tells the log.
func (d *State) Save(log *slog.Logger, reads ...func()) {
	for _, read := range reads {
		func() {
			defer func() { _ = recover() }()
			read()
		}()
	}
	if path, err := d.write(); err != nil {
		log.Error("a broken invariant; its state cannot be written", "panic", d.Panic, "error", err)
	} else {
		log.Error("a broken invariant: please report it with this file", "panic", d.Panic, "file", path)
	}
}
