package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"

	"github.com/uma-serve/uma-serve/internal/logq"
	"github.com/uma-serve/uma-serve/model/gguf"
)

// tellContext logs that the model has fewer learned positions than --ctx-size asks for.
func (s *Server) tellContext(path string) {
	info, err := gguf.Inspect(path)
	if err == nil && s.cfg.Given("ctx-size") && info.Limited(int64(s.cfg.CtxSize)) < int64(s.cfg.CtxSize) {
		s.log.Warn("the context is smaller than --ctx-size: the model has a table of learned positions and nothing "+
			"behind it", "ctx-size", s.cfg.CtxSize, "positions", info.Positions)
	}
}

// loadReport shows the progress of a load on the terminal and reports it to systemd.
type loadReport struct {
	bar      *progressbar.ProgressBar // nil without a terminal
	lastSent time.Time                // to systemd
}

func (s *Server) loadReporter(path string) *loadReport {
	r := &loadReport{}
	if isatty.IsTerminal(os.Stderr.Fd()) {
		r.bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(logq.Writer(s.log)),
			progressbar.OptionSetWidth(30), progressbar.OptionSetDescription("loading "+filepath.Base(path)),
			progressbar.OptionClearOnFinish(), progressbar.OptionShowElapsedTimeOnFinish(),
			progressbar.OptionSetPredictTime(false))
	}
	return r
}

func (r *loadReport) set(fraction float32) {
	if r.bar != nil {
		r.bar.Set(int(fraction * 1000))
	}
	// Every half second: each message also extends systemd's start timeout, and systemd logs each.
	if now := time.Now(); now.Sub(r.lastSent) > 500*time.Millisecond {
		r.lastSent = now
		daemon.SdNotify(false, fmt.Sprintf("STATUS=loading %.0f%%\nEXTEND_TIMEOUT_USEC=%d", fraction*100,
			(30*time.Second).Microseconds()))
	}
}

func (r *loadReport) finish() {
	if r.bar != nil {
		r.bar.Finish()
	}
}

func (s *Server) loadProgress() float64 { return float64(s.loaded.Load()) / 1000 }
