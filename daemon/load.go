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

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/internal/logq"
	"github.com/uma-serve/uma-serve/model/gguf"
)

// Logger returns a log to w in --log-format and --log-level. Logging never waits for w (package logq). Close the log
// before the process ends, or its last lines are lost.
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

// stderr is the writer for text that is not a log line. It uses the log's queue if there is one: a full pipe must not
// delay the load of the model.
func (s *Server) stderr() io.Writer { return logWriter(s.log) }

func logWriter(log *slog.Logger) io.Writer {
	if l := logq.Of(log); l != nil {
		return l
	}
	return os.Stderr
}

// contextTokens returns the context size to open the model at path with; 0 = its training context. Without --ctx-size,
// a model with a training context below the default gets its training context: beyond it answers are noise. A model
// with learned positions gets no more than its table has.
func (c *Config) contextTokens(path string) int {
	info, err := gguf.Inspect(path)
	switch {
	case err != nil:
		return c.CtxSize
	case c.given("ctx-size") || c.CtxSize != defaultCtxSize:
		return int(info.Limited(int64(c.CtxSize)))
	}
	return int(info.Context())
}

// tellContext logs that the model has fewer learned positions than --ctx-size asks for.
func (s *Server) tellContext(path string) {
	info, err := gguf.Inspect(path)
	if err == nil && s.cfg.given("ctx-size") && info.Limited(int64(s.cfg.CtxSize)) < int64(s.cfg.CtxSize) {
		s.log.Warn("the context is smaller than --ctx-size: the model has a table of learned positions and nothing "+
			"behind it", "ctx-size", s.cfg.CtxSize, "positions", info.Positions)
	}
}

// checkMemory refuses a model that exceeds the process's address space or the machine's memory.
func (s *Server) checkMemory(path string) error {
	if info, err := gguf.Inspect(path); err == nil && (s.cfg.GPULayers == 0 || !hasDeviceBackend()) {
		if err := s.checkAddressSpace(&info); err != nil {
			return err
		}
	}
	return s.cfg.checkMemory(path, int64(hostmem.Read().Available), s.cfg.processor())
}

// processor returns this machine's processor, with the kernels that the options allow.
func (c *Config) processor() gguf.Processor {
	p := gguf.ThisProcessor()
	p.Kernels = p.Kernels && c.Kernels != "ggml"
	return p
}

// checkMemory refuses a model that exceeds the available memory. The engine writes its anonymous memory while it opens,
// and the kernel would kill the process without a message. Anonymous are the KV cells, the repacked copy of weights
// and, with --no-mmap, all weights; mapped weights can be paged and do not count. A file that cannot be inspected is
// left to the engine, which reports the error.
func (c *Config) checkMemory(path string, available int64, p gguf.Processor) error {
	info, err := gguf.Inspect(path)
	if err != nil || c.GPULayers != 0 && hasDeviceBackend() {
		return nil // cells and weights are in the device's memory
	}
	per, err := info.KVBytesPerToken(c.CacheTypeK, c.CacheTypeV)
	if err != nil {
		return err
	}
	cells, from := int64(c.contextTokens(path)), "--ctx-size"
	if cells == 0 {
		cells, from = info.TrainContext, "the model's training context, as --ctx-size is 0"
	}
	need, what, without, err := c.need(&info, cells, p)
	if err != nil {
		return err
	}
	weights := int64(need.Anonymous(!c.NoMMap) - need.KV)
	draft := int64(c.draftNeed(p).Anonymous(!c.NoMMap))
	fixed := weights + draft
	if available <= 0 || per <= 0 || cells <= (available-fixed)/per && fixed <= available {
		return nil
	}
	size := func(n int64) string { return ui.Bytes(uint64(n)) }
	text := fmt.Sprintf("%d cells of %d bytes (%s) need %s", cells, per, from, size(cells*per))
	if weights > 0 {
		text += fmt.Sprintf(", %s %s", what, size(weights))
	}
	if draft > 0 {
		text += fmt.Sprintf(", the draft model %s", size(draft))
	}
	advice := ""
	if left := (available - fixed) / per / 256 * 256 * 3 / 4; left >= 256 || fixed == 0 {
		advice = fmt.Sprintf("use --ctx-size %d or less, or a smaller --cache-type-k and --cache-type-v",
			max(256, left))
	}
	if weights > 0 {
		if advice != "" {
			advice += ", or "
		} else {
			advice = "use "
		}
		advice += without
	}
	return fmt.Errorf("%s, and %s are available: %s", text, size(available), advice)
}

// need returns the memory that the model takes with so many cells, the name of its weights in anonymous memory for an
// error message, and the option that avoids them.
func (c *Config) need(info *gguf.Info, cells int64, p gguf.Processor) (n gguf.Need, what, without string, err error) {
	var r gguf.Repacking
	if !c.NoRepack {
		r = info.Repacked(p)
	}
	switch {
	case c.NoMMap:
		what, without = "the weights, in memory because of --no-mmap,", "no --no-mmap"
	case r.Copy > 0:
		what, without = "the weights repacked for this processor", "--no-repack, which makes prompts slower"
	}
	n, err = info.Need(cells, c.CacheTypeK, c.CacheTypeV, r)
	return n, what, without, err
}

// addressMargin is the address space besides weights and KV cells, in bytes: stacks and malloc arenas of threads (72
// MiB each), compute buffers and the logits' buffer. Far less of it is resident.
const addressMargin = 1 << 30

// checkAddressSpace refuses a model that exceeds the process's limit (ulimit -v, LimitAS=): Go's runtime and ggml end
// the process when an allocation fails.
func (s *Server) checkAddressSpace(info *gguf.Info) error {
	limit, used, limited := hostmem.AddressSpace()
	if !limited {
		return nil
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
	draft := s.cfg.draftNeed(s.cfg.processor())
	need := used + draft.Total() + uint64(info.FileBytes) + copied + uint64(cells*per) + addressMargin
	if need <= limit {
		return nil
	}
	return fmt.Errorf("the address space is limited to %.1f GiB (ulimit -v, LimitAS=); this model with %d cells "+
		"needs %.1f GiB: raise the limit, or use a smaller model or --ctx-size",
		float64(limit)/(1<<30), cells, float64(need)/(1<<30))
}

// warnOfDescriptors warns if the limit of file descriptors is too low for --max-sessions.
func (s *Server) warnOfDescriptors() {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return
	}
	if need := uint64(s.cfg.MaxSessions) + ownDescriptors; uint64(l.Cur) < need {
		s.log.Warn("fewer file descriptors than --max-sessions needs: connections beyond them are refused (ulimit "+
			"-n, LimitNOFILE=)",
			"descriptors", uint64(l.Cur), "needed", need, "max_sessions", s.cfg.MaxSessions)
	}
}

// ownDescriptors is the number of descriptors besides connections: sockets, pollers, the model, cache files, a reserve.
const ownDescriptors = 64

// hasDeviceBackend reports whether the engine will find a back end built as a library (make backend-cuda,
// backend-vulkan).
func hasDeviceBackend() bool {
	found, _ := filepath.Glob(filepath.Join(backendDir(), "libggml-*"))
	return len(found) > 0
}

// backendDir returns the folder in which the engine looks for backend libraries: $UMA_BACKEND_DIR, else that of the
// program.
func backendDir() string {
	dir := os.Getenv("UMA_BACKEND_DIR")
	if exe, err := os.Executable(); dir == "" && err == nil {
		dir = filepath.Dir(exe)
	}
	return dir
}

// loadReport shows the progress of a load on the terminal and reports it to systemd.
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
