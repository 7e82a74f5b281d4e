package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
)

// logger is the daemon's slog, as --log-format and --log-level say.
func (c *Config) logger(w io.Writer) *slog.Logger {
	level, _ := c.logLevel() // validated by Load
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// loadReport tells a person at the terminal and systemd how far a model's load is.
type loadReport struct {
	bar      *progressbar.ProgressBar // nil without a terminal
	lastSent time.Time                // to systemd
}

func (s *Server) loadReporter(path string) *loadReport {
	r := &loadReport{}
	if s.cfg.Progress && isatty.IsTerminal(os.Stderr.Fd()) {
		r.bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(30),
			progressbar.OptionSetDescription("loading "+filepath.Base(path)), progressbar.OptionClearOnFinish(),
			progressbar.OptionShowElapsedTimeOnFinish(), progressbar.OptionSetPredictTime(false))
	}
	return r
}

func (r *loadReport) set(fraction float32) {
	if r.bar != nil {
		r.bar.Set(int(fraction * 1000))
	}
	// Half a second between two: systemd logs each, and each also says that the start goes on.
	if now := time.Now(); now.Sub(r.lastSent) > 500*time.Millisecond {
		r.lastSent = now
		daemon.SdNotify(false, fmt.Sprintf("STATUS=loading %.0f%%\nEXTEND_TIMEOUT_USEC=%d", fraction*100, (30*time.Second).Microseconds()))
	}
}

func (r *loadReport) finish() {
	if r.bar != nil {
		r.bar.Finish()
	}
}

func (s *Server) loadProgress() float64 { return float64(s.loaded.Load()) / 1000 }
