package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/calibration"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/processors"
	"github.com/uma-serve/uma-serve/daemon/recorder"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/tiers"
	"github.com/uma-serve/uma-serve/internal/host/cpus"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// load opens the model on another goroutine: health answers "loading" meanwhile, and a signal stops the load. The
// engine is nil after an error, or when a signal or the end of ctx stopped the load.
func (s *Server) load(ctx context.Context, open Opener, signals <-chan os.Signal) (runtime.Engine, error) {
	type loaded struct {
		eng runtime.Engine
		err error
	}
	ready := make(chan loaded, 1)
	var quit atomic.Bool
	loading, stop := context.WithCancel(ctx) // of a download
	defer stop()
	go func() {
		eng, err := s.openModel(loading, open, &quit)
		ready <- loaded{eng, err}
	}()
	tell := time.NewTicker(httpd.TellLoadEvery)
	defer tell.Stop()
wait:
	for {
		select {
		case r := <-ready:
			if r.err != nil {
				s.parts.engine.failed(r.err)
				s.refuseAll(loadFailed(r.err))
			}
			return r.eng, r.err
		case <-tell.C:
			s.tellLoading()
		case <-ctx.Done():
			break wait
		case sig := <-signals:
			s.log.Info("stopping while the model loads", "signal", sig.String())
			break wait
		}
	}
	quit.Store(true)
	stop()
	s.draining.Store(true)
	s.refuseAll(shuttingDown())
	// A loader that waits for a slow disk does not check quit; it ends with the process.
	select {
	case r := <-ready:
		if r.err == nil {
			s.close(r.eng)
		}
	case <-time.After(loadGrace):
	case <-signals:
	}
	return nil, nil
}

// close closes the model's engine and that of the draft model.
func (s *Server) close(eng runtime.Engine) {
	s.draft.Close() // first: it may be the head of eng
	eng.Close()
}

// openModel loads the configured model and reports the progress. It stops when quit is set.
func (s *Server) openModel(ctx context.Context, open Opener, quit *atomic.Bool) (runtime.Engine, error) {
	path, err := s.cfg.ModelFile(ctx, s.log)
	if err != nil {
		return nil, err
	}
	s.modelPath = path
	s.tellContext(path)
	cfg := *s.cfg // others read s.cfg meanwhile
	s.contextNote = cfg.FitMemory(path)
	if err := cfg.CheckMemory(path); err != nil {
		return nil, err
	}
	if s.contextNote != "" {
		level := slog.LevelDebug
		if cfg.CtxSize < gguf.DefaultContext && cfg.CtxSize < s.cfg.ContextTokens(path) {
			level = slog.LevelWarn // an answer with some history needs more
		}
		s.log.Log(ctx, level, "the context", "tokens", cfg.CtxSize, "from", s.contextNote)
	}
	s.tellLayers(&cfg, path)
	draft, err := s.openDraft(&cfg, open, quit) // it is small: its errors are reported before the model is read
	if err != nil {
		return nil, err
	}
	display := s.loadReporter(path)
	defer display.finish()
	o := engineOptions(&cfg, path)
	o.Progress = func(f float32) bool {
		s.loaded.Store(uint32(f * 1000))
		s.parts.engine.loading(f)
		display.set(f)
		return !quit.Load()
	}
	eng, err := open(o)
	if err != nil {
		draft.Close()
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	caps := eng.Capabilities()
	if err := s.hiddenDevice(&cfg, &caps); err != nil {
		eng.Close()
		draft.Close()
		return nil, err
	}
	switch {
	case s.cfg.Eagle():
		draft, err = s.openEagle(&cfg, eng)
	case draft != nil:
		err = draft.Fit(eng, path)
	}
	if err != nil {
		draft.Close()
		eng.Close()
		return nil, err
	}
	if head := s.openHead(eng); draft == nil {
		draft = head
	}
	s.draft = draft
	return eng, nil
}

// startLoop creates the decode loop on an open engine.
func (s *Server) startLoop(eng runtime.Engine) (*loop, error) {
	var added []string
	if e := s.parts.engine; e != nil {
		added = e.start.Added
	}
	m, err := prepare.New(s.cfg, eng, added, func(err error) { s.log.Error("an adapter is left out", "error", err) })
	if err != nil {
		return nil, err
	}
	if e := s.parts.engine; e != nil && !e.start.FileName { // answers name the model as requests do
		m.Info.Name = e.start.Model
	} else if e == nil && len(s.cfg.Alias) > 0 {
		m.Info.Name = s.cfg.ModelLabel()
	}
	saved := calibration.Open(s.cfg, modelFiles(s.modelPath), m, s.log)
	l := newLoop(s.cfg, s.log, eng, s.metrics, m)
	l.live = s.live
	l.draft = s.draft
	l.draft.StatesOf(l.statesOf)
	if l.prefer = s.parts.prefer; l.prefer == nil {
		l.prefer = cpus.Prefer
	}
	l.cpu.Open(processors.Options{Engine: eng, Caps: l.caps, Log: s.log, Metrics: s.metrics, Epoch: l.epoch,
		Fixed: s.cfg.FixedThreads, Read: s.parts.counters, Draft: l.draft.SetThreads,
		Tell: func(n int, disturbed bool, now time.Time) {
			l.handle(core.Input{Kind: core.Threads, N: n, Disturbed: disturbed}, now)
		}})
	if l.tel, err = s.startTelemetry(m.Info.Name); err != nil {
		return nil, err
	}
	if l.stores, err = tiers.Open(&tiers.Options{Config: s.cfg, Engine: eng, Info: l.info, Log: s.log,
		Metrics: s.metrics, Origin: saved.Origin, Loop: tiersLoop{l}}); err != nil {
		return nil, err
	}
	cfg := coreConfig(s.cfg, m.Caps, m.Info, saved.Cost)
	// The steps of a fake engine take no time.
	if cfg.ByPrice = m.Caps.Device != runtime.DeviceFake; s.parts.price != nil {
		cfg.ByPrice = *s.parts.price
	}
	cfg.Draft = l.draft.Core()
	if cfg.Durable = l.stores.Durable(); l.stores.Cache != nil {
		cfg.Stores = l.stores
	}
	if s.cfg.Trace != "" {
		if l.rec, err = recorder.New(s.cfg.Trace, s.log); err != nil {
			return nil, err
		}
		cfg.Planned = l.rec.Step
		cfg.Trace = &core.Trace{Write: l.rec.Lines}
	}
	if l.core, err = core.New(cfg); err != nil {
		return nil, err
	}
	schedConfig := l.core.Scheduler().Config()
	if l.viewer = viewerOf(eng); l.viewer != nil {
		l.m.BindImages(func() metrics.Images {
			c := l.viewer.ImageCounts()
			return metrics.Images{Encoded: c.Encoded, Cached: c.Cached, Seconds: c.Seconds, CacheBytes: c.CacheSize}
		})
	}
	l.itlTarget, l.cells = schedConfig.ITLTarget, schedConfig.Cells
	l.rec.Config(&schedConfig)
	if e := s.parts.engine; e != nil && e.leases != nil {
		l.takeSeat(e.leases, *e.start.Seat)
	}
	l.saved = saved
	m.Log(s.log)
	s.draft.Log(m.NoSpeculation())
	if len(s.cfg.SpecSynthRates) > 0 {
		s.log.Warn("--spec-synth-rates is for measuring: drafts replace what the model says, and answers are not valid")
	}
	if most := schedConfig.MaxRunning; most < s.cfg.Parallel {
		s.log.Warn("--parallel is more than this model's memory has sequences for", "parallel", s.cfg.Parallel,
			"running", most)
	}
	if m.Caps.Seals {
		s.log.Info("this model has a state for each sequence: prompts are shared where they are sealed",
			"architecture", m.Info.Architecture, "state_bytes", m.Info.StateBytes,
			"sequences", m.Caps.MaxSequences)
	}
	if s.cfg.ContextShift && !m.Caps.CanShift {
		s.log.Warn("--context-shift: this model's KV memory cannot shift; a full context ends the answer",
			"architecture", m.Info.Architecture)
	}
	l.finalised = func(r *request) {
		s.spend(r)
		s.sessions.remove(r)
		s.room.leave(r.Owner)
	}
	s.metrics.SetModel(metrics.Model{Name: m.Info.Name, Architecture: m.Info.Architecture,
		Description: m.Info.Description})
	s.file = sync.OnceValue(func() api.File { return report.LoadedFile(m.Info.Path) })
	s.model.Store(m)
	s.loop.Store(l)
	s.opened.end(nil)
	return l, nil
}
