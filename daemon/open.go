package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/calibration"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/processors"
	"github.com/uma-serve/uma-serve/daemon/recorder"
	"github.com/uma-serve/uma-serve/daemon/tiers"
	"github.com/uma-serve/uma-serve/daemon/viewing"
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
				s.front.failed(r.err)
				s.refuseAll(admission.LoadFailed(r.err))
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
	s.refuseAll(admission.ShuttingDown())
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

// confined reports whether the process is in the sandbox.
func (s *Server) confined() bool { return s.front != nil && s.front.box != nil }

// openModel loads the configured model and reports the progress. It stops when quit is set.
func (s *Server) openModel(ctx context.Context, open Opener, quit *atomic.Bool) (runtime.Engine, error) {
	path, err := s.cfg.ModelFile(ctx, s.log)
	if err != nil {
		return nil, err
	}
	s.modelPath = path
	opening.TellContext(s.cfg, path, s.log)
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
	opening.TellLayers(&cfg, path, s.log)
	draft, err := s.openDraft(&cfg, open, quit) // it is small: its errors are reported before the model is read
	if err != nil {
		return nil, err
	}
	display := opening.NewProgress(path, s.log)
	defer display.Finish()
	o := opening.EngineOptions(&cfg, path)
	o.Progress = opening.ReadWeights(&cfg, path, func(f float32) bool {
		s.about.Read(f)
		s.front.loading(f)
		display.Set(f)
		return !quit.Load()
	}, s.log)
	eng, err := open(o)
	if err != nil {
		draft.Close()
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	caps := eng.Capabilities()
	if err := opening.HiddenDevice(&cfg, &caps, s.confined(), s.log); err != nil {
		eng.Close()
		draft.Close()
		return nil, err
	}
	switch {
	case s.cfg.HeadFile() != "":
		draft, err = s.openHeadFile(&cfg, eng)
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
	if f := s.front; f != nil {
		added = f.start.Added
	}
	m, err := prepare.New(s.cfg, eng, added, func(err error) { s.log.Error("an adapter is left out", "error", err) })
	if err != nil {
		return nil, err
	}
	if f := s.front; f != nil && !f.start.FileName { // answers name the model as requests do
		m.Info.Name = f.start.Model
	} else if f == nil && len(s.cfg.Alias) > 0 {
		m.Info.Name = s.cfg.ModelLabel()
	}
	saved := calibration.Open(s.cfg, opening.ModelFiles(s.modelPath), m, s.log)
	l := newLoop(s.cfg, s.log, eng, s.metrics, m)
	l.journal.live = s.live
	l.model.draft = s.draft
	l.model.draft.StatesOf(l.statesOf)
	if l.prefer = s.overrides.prefer; l.prefer == nil {
		l.prefer = cpus.Prefer
	}
	l.cpu.Open(processors.Options{Engine: eng, Caps: l.model.caps, Log: s.log, Metrics: s.metrics, Epoch: l.epoch,
		Fixed: s.cfg.FixedThreads, Read: s.overrides.counters, Draft: l.model.draft.SetThreads,
		Tell: func(n int, disturbed bool, now time.Time) {
			l.handle(core.Input{Kind: core.Threads, N: n, Disturbed: disturbed}, now)
		}})
	if l.journal.tel, err = opening.Telemetry(s.cfg, m.Info.Name, s.metrics, s.log); err != nil {
		return nil, err
	}
	if l.stores, err = tiers.Open(&tiers.Options{Config: s.cfg, Engine: eng, Info: l.model.info, Log: s.log,
		Metrics: s.metrics, Origin: saved.Origin, Loop: tiersLoop{l}}); err != nil {
		return nil, err
	}
	cfg := opening.CoreConfig(s.cfg, m.Caps, m.Info, saved.Cost)
	// The steps of a fake engine take no time.
	if cfg.ByPrice = m.Caps.Device != runtime.DeviceFake; s.overrides.price != nil {
		cfg.ByPrice = *s.overrides.price
	}
	cfg.Draft = l.model.draft.Core()
	if cfg.Durable = l.stores.Durable(); l.stores.Cache != nil {
		cfg.Stores = l.stores
	}
	if s.cfg.Trace != "" {
		if l.journal.rec, err = recorder.New(s.cfg.Trace, s.log); err != nil {
			return nil, err
		}
		cfg.Planned = l.journal.rec.Step
		cfg.Trace = &core.Trace{Write: l.journal.rec.Lines}
	}
	if l.core, err = core.New(cfg); err != nil {
		return nil, err
	}
	schedConfig := l.core.Scheduler().Config()
	if l.model.viewer = viewing.Of(eng); l.model.viewer != nil {
		l.m.BindImages(func() metrics.Images {
			c := l.model.viewer.ImageCounts()
			return metrics.Images{Encoded: c.Encoded, Heard: c.Heard, Cached: c.Cached, Loaded: c.Loaded,
				Seconds: c.Seconds, CacheBytes: c.CacheSize}
		})
	}
	l.model.itlTarget, l.model.cells = schedConfig.ITLTarget, schedConfig.Cells
	l.journal.rec.Config(&schedConfig)
	if f := s.front; f != nil && f.leases != nil {
		l.takeSeat(f.leases, *f.start.Seat)
	}
	l.saved = saved
	m.Log(s.log)
	s.draft.Log(m.NoSpeculation())
	opening.TellLimits(s.cfg, m, schedConfig.MaxRunning, s.log)
	l.finalised = func(r *request) {
		s.spend(r)
		s.sessions.Remove(r)
		s.room.Leave(r.Owner)
	}
	s.metrics.SetModel(metrics.Model{Name: m.Info.Name, Architecture: m.Info.Architecture,
		Description: m.Info.Description})
	s.about.Has(m)
	s.loop.Store(l)
	s.about.End(nil)
	return l, nil
}
