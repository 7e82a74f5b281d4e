package opening

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/internal/logq"
	"github.com/uma-serve/uma-serve/model/gguf"
)

// TellContext logs that the model has fewer learned positions than --ctx-size asks for.
func TellContext(c *config.Config, path string, log *slog.Logger) {
	info, err := gguf.Inspect(path)
	if err == nil && c.Given("ctx-size") && info.Limited(int64(c.CtxSize)) < int64(c.CtxSize) {
		log.Warn("the context is smaller than --ctx-size: the model has a table of learned positions and nothing "+
			"behind it", "ctx-size", c.CtxSize, "positions", info.Positions)
	}
}

// TellLimits logs what a loaded model cannot do of what the options ask for. running is the number of requests that run
// at once.
func TellLimits(c *config.Config, m *prepare.Model, running int, log *slog.Logger) {
	if len(c.SpecSynthRates) > 0 {
		log.Warn("--spec-synth-rates is for measuring: drafts replace what the model says, and answers are not valid")
	}
	if running < c.Parallel {
		log.Warn("--parallel is more than this model's memory has sequences for", "parallel", c.Parallel,
			"running", running)
	}
	if m.Caps.Seals {
		log.Info("this model has a state for each sequence: prompts are shared where they are sealed",
			"architecture", m.Info.Architecture, "state_bytes", m.Info.StateBytes,
			"sequences", m.Caps.MaxSequences)
	}
	if c.ContextShift && !m.Caps.CanShift {
		log.Warn("--context-shift: this model's KV memory cannot shift; a full context ends the answer",
			"architecture", m.Info.Architecture)
	}
}

// Progress shows the progress of a load on the terminal and reports it to systemd.
type Progress struct {
	bar      *progressbar.ProgressBar // nil without a terminal
	lastSent time.Time                // to systemd
}

// NewProgress begins the report of a load; Finish ends it.
func NewProgress(path string, log *slog.Logger) *Progress {
	r := &Progress{}
	if isatty.IsTerminal(os.Stderr.Fd()) {
		r.bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(logq.Writer(log)),
			progressbar.OptionSetWidth(30), progressbar.OptionSetDescription("loading "+filepath.Base(path)),
			progressbar.OptionClearOnFinish(), progressbar.OptionShowElapsedTimeOnFinish(),
			progressbar.OptionSetPredictTime(false))
	}
	return r
}

// Set reports the fraction of the model that is read.
func (r *Progress) Set(fraction float32) {
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

// Finish ends the display.
func (r *Progress) Finish() {
	if r.bar != nil {
		r.bar.Finish()
	}
}
