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
	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/gguf"
	"github.com/uma-serve/uma-serve/internal/hostmem"
	"github.com/uma-serve/uma-serve/internal/logq"
	"github.com/uma-serve/uma-serve/internal/ui"
)

// Logger starts the daemon's log on w, as --log-format and --log-level say. It never waits for w: see package logq.
// Close the log before the process ends, or its last lines are lost.
func (c *Config) Logger(w io.Writer) (*logq.Log, *slog.Logger) {
	level, _ := c.logLevel() // validated by Load
	opts := &slog.HandlerOptions{Level: level}
	return logq.New(w, func(w io.Writer) slog.Handler {
		if c.LogFormat == "json" {
			return slog.NewJSONHandler(w, opts)
		}
		return slog.NewTextHandler(w, opts)
	}, logq.Options{})
}

// stderr is where text goes that is no log line: through the log's queue where there is one, so that an unread pipe
// cannot hold up the load of the model either.
func (s *Server) stderr() io.Writer {
	if l := logq.Of(s.log); l != nil {
		return l
	}
	return os.Stderr
}

// contextTokens is the context to open the model at path with; 0 = its training context. Without --ctx-size a model trained
// on less than the default gets what it was trained on: beyond that its answers are noise.
func (c *Config) contextTokens(path string) int {
	if c.given("ctx-size") || c.CtxSize != defaultCtxSize {
		return c.CtxSize
	}
	if info, err := gguf.Inspect(path); err == nil && info.TrainContext >= minCtxSize && info.TrainContext < defaultCtxSize {
		return int(info.TrainContext)
	}
	return c.CtxSize
}

// checkMemory refuses a model that this process or this machine cannot hold.
func (s *Server) checkMemory(path string) error {
	if info, err := gguf.Inspect(path); err == nil && (s.cfg.GPULayers == 0 || !hasDeviceBackend()) {
		if err := s.checkAddressSpace(path, &info); err != nil {
			return err
		}
	}
	return s.cfg.checkMemory(path, int64(hostmem.Read().Available), s.cfg.processor())
}

// processor is this machine's, with the kernels that the options allow.
func (c *Config) processor() gguf.Processor {
	p := gguf.ThisProcessor()
	p.Kernels = p.Kernels && c.Kernels != "ggml"
	return p
}

// checkMemory refuses a model that this machine cannot hold: the engine writes its anonymous memory while it opens,
// and would be killed without a word. That is the KV pool and the repacked copy of weights; with --no-mmap all
// weights. Weights that are mapped are not counted, as they can be paged. What cannot be read here is left to the
// engine's own error.
func (c *Config) checkMemory(path string, available int64, p gguf.Processor) error {
	info, err := gguf.Inspect(path)
	if err != nil || c.GPULayers != 0 && hasDeviceBackend() {
		return nil // on a device with memory of its own cells and weights lie there
	}
	per, err := info.KVBytesPerToken(c.CacheTypeK, c.CacheTypeV)
	if err != nil {
		return err
	}
	cells, from := int64(c.contextTokens(path)), "--ctx-size"
	if cells == 0 {
		cells, from = info.TrainContext, "the model's training context, as --ctx-size is 0"
	}
	weights, what, without := c.anonymousWeights(&info, p)
	if available <= 0 || per <= 0 || cells <= (available-weights)/per && weights <= available {
		return nil
	}
	size := func(n int64) string { return ui.Bytes(uint64(n)) }
	need := fmt.Sprintf("%d cells of %d bytes (%s) need %s", cells, per, from, size(cells*per))
	if weights > 0 {
		need += fmt.Sprintf(", %s %s", what, size(weights))
	}
	advice := ""
	if left := (available - weights) / per / 256 * 256 * 3 / 4; left >= 256 || weights == 0 {
		advice = fmt.Sprintf("use --ctx-size %d or less, or a smaller --cache-type-k and --cache-type-v", max(256, left))
	}
	if weights > 0 {
		if advice != "" {
			advice += ", or "
		} else {
			advice = "use "
		}
		advice += without
	}
	return fmt.Errorf("%s, and %s are available: %s", need, size(available), advice)
}

// anonymousWeights is what the engine holds of the weights in memory that cannot be paged out to their file, what that
// is, and the option without which there is less of it.
func (c *Config) anonymousWeights(info *gguf.Info, p gguf.Processor) (n int64, what, without string) {
	var r gguf.Repacking
	if !c.NoRepack {
		r = info.Repacked(p)
	}
	switch {
	case c.NoMMap:
		// Each tensor lies in memory once, repacked or not, but for embeddings that are looked up and multiplied with.
		return int64(info.TensorBytes - r.Spared + r.Copy), "the weights, read into memory as --no-mmap says,", "no --no-mmap"
	case r.Copy > 0:
		return int64(r.Copy), "the weights repacked for this processor", "--no-repack, which makes prompts slower"
	}
	return 0, "", ""
}

// addressMargin is what the daemon takes of its address space beside weights and KV cells: stacks and malloc arenas of
// its threads (72 MiB each), compute buffers, the logits' buffer. What is touched of it is far less.
const addressMargin = 1 << 30

// checkAddressSpace refuses a model that does not fit the process's limit, if there is one (ulimit -v, LimitAS=): Go's
// runtime and ggml end the process where they cannot have memory.
func (s *Server) checkAddressSpace(path string, info *gguf.Info) error {
	limit, used, limited := hostmem.AddressSpace()
	if !limited {
		return nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil // the engine's own error
	}
	cells := int64(s.cfg.CtxSize)
	if cells == 0 {
		cells = info.TrainContext
	}
	per, _ := info.KVBytesPerToken(s.cfg.CacheTypeK, s.cfg.CacheTypeV)
	var copied uint64
	if !s.cfg.NoRepack {
		copied = info.Repacked(s.cfg.processor()).Copy
	}
	need := used + uint64(st.Size()) + copied + uint64(cells*per) + addressMargin
	if need <= limit {
		return nil
	}
	return fmt.Errorf("the address space is limited to %.1f GiB (ulimit -v, LimitAS=); this model with %d cells needs %.1f GiB: raise the limit, or use a smaller model or --ctx-size",
		float64(limit)/(1<<30), cells, float64(need)/(1<<30))
}

// warnOfDescriptors says so at the start when connections will be refused for want of descriptors before --max-sessions.
func (s *Server) warnOfDescriptors() {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return
	}
	if need := uint64(s.cfg.MaxSessions) + ownDescriptors; uint64(l.Cur) < need {
		s.log.Warn("fewer file descriptors than --max-sessions needs: connections beyond them are refused (ulimit -n, LimitNOFILE=)",
			"descriptors", uint64(l.Cur), "needed", need, "max_sessions", s.cfg.MaxSessions)
	}
}

// ownDescriptors is what the daemon itself has open: sockets, pollers, the model, cache files, the reserve.
const ownDescriptors = 64

// hasDeviceBackend reports whether a backend library that `make cuda` builds lies where the engine looks for one.
func hasDeviceBackend() bool {
	dir := os.Getenv("UMA_BACKEND_DIR")
	if exe, err := os.Executable(); dir == "" && err == nil {
		dir = filepath.Dir(exe)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*ggml-cuda*"))
	return len(found) > 0
}

// loadReport tells a person at the terminal and systemd how far a model's load is.
type loadReport struct {
	bar      *progressbar.ProgressBar // nil without a terminal
	lastSent time.Time                // to systemd
}

func (s *Server) loadReporter(path string) *loadReport {
	r := &loadReport{}
	if s.cfg.Progress && isatty.IsTerminal(os.Stderr.Fd()) {
		r.bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(s.stderr()), progressbar.OptionSetWidth(30),
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
