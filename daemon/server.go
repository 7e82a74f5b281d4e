package daemon

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/daemon/account"
	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/constrain"
	"github.com/uma-serve/uma-serve/daemon/devices"
	"github.com/uma-serve/uma-serve/daemon/drafts"
	"github.com/uma-serve/uma-serve/daemon/entry"
	"github.com/uma-serve/uma-serve/daemon/kvevents"
	"github.com/uma-serve/uma-serve/daemon/live"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/processors"
	"github.com/uma-serve/uma-serve/daemon/served"
	"github.com/uma-serve/uma-serve/daemon/viewing"
	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/internal/host/cpus"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched/threads"
)

// Opener opens a model: runtime/llama's Open, or a test's.
type Opener func(runtime.Options) (runtime.Engine, error)

// Server is one daemon. Fields before model do not change after New.
type Server struct {
	cfg      *config.Config
	log      *slog.Logger
	metrics  *metrics.Metrics
	in       *entry.Entry
	poller   *ipc.Loop // in's
	room     *admission.Waitroom[job]
	quotas   *admission.Quotas
	sessions admission.Sessions[*request]
	viewing  viewing.Viewing[job]
	grammars *constrain.Cache
	live     *live.Views
	power    *processors.Power

	model atomic.Pointer[prepare.Model] // nil while the model loads
	loop  atomic.Pointer[loop]          // stored after model

	about     *served.About
	modelPath string // set by openModel
	// contextNote says what limits an automatic context; set by openModel.
	contextNote string
	draft       *drafts.Model // likewise; nil: there is none
	noHead      string        // why a head of the model's file makes no drafts; "": it does, or there is none

	draining atomic.Bool

	events *kvevents.Publisher // nil: without --kv-events, and behind a front

	front     *frontLink // nil: this process has no front
	overrides overrides
	signals   chan os.Signal // that ask to stop, and those that an engine process's front sends
}

// job is a parsed request that waits for intake.
type job struct {
	r *request
	w *wire.Request
}

// Owner returns the user whose request it is.
func (j job) Owner() uint32 { return j.r.Owner }

// Lane returns the lane in which it waits.
func (j job) Lane() int {
	switch {
	case j.r.embed != nil && j.r.embed.w.Priority == wire.PriorityBackground,
		j.w != nil && j.w.Priority == wire.PriorityBackground:
		return admission.LaneBackground
	case j.r.embed != nil:
		return admission.LaneTexts
	}
	return admission.LaneAnswers
}

// Run serves until ctx ends or a signal stops it, and returns nil after an orderly stop.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger, open Opener) error {
	if m := cfg.ModelNamed(cfg.Model); m != nil {
		var err error
		if cfg, err = cfg.ForModel(m); err != nil {
			return err
		}
	}
	if err := devices.Check(cfg, log); err != nil {
		return err
	}
	if err := cfg.Locate(ctx, log); err != nil {
		return err
	}
	s, err := New(cfg, log)
	if err != nil {
		return err
	}
	return s.Serve(ctx, open)
}

// overrides replace parts of the system in tests. Zero fields have the defaults.
type overrides struct {
	counters func(ids []int) threads.Counters // of the processors; nil: the system's
	meter    processors.PowerSource           // nil: the system's
	memory   func() hostmem.Memory            // nil: the system's
	price    *bool                            // price cells; nil = if the engine is not the fake one
	prefer   func() error                     // for the decode loop's thread; nil: cpus.Prefer
}

// New binds the sockets, so that a second daemon or a wrong path fails before the model is loaded.
func New(cfg *config.Config, log *slog.Logger) (*Server, error) {
	return newServer(cfg, log, nil, overrides{})
}

func newServer(cfg *config.Config, log *slog.Logger, front *frontLink, p overrides) (*Server, error) {
	s := &Server{
		cfg: cfg, log: log,
		room:      admission.NewWaitroom[job](cfg.MaxQueue+cfg.Parallel, cfg.Limits.UserRequests),
		quotas:    admission.NewQuotas(&cfg.Limits),
		about:     served.New(),
		front:     front,
		overrides: p,
		signals:   make(chan os.Signal, 2),
	}
	o := entry.Options{Handler: s, Elsewhere: s.elsewhere, Check: cfg.CheckHere}
	def, err := prepare.Defaults(cfg)
	if err != nil {
		return nil, err
	}
	o.Defaults = def
	if s.front != nil {
		o.Passed, o.Check = s.front.passed(s), nil
	}
	if s.in, err = entry.Open(cfg, log, o); err != nil {
		return nil, err
	}
	s.poller, s.metrics = s.in.Loop, s.in.Metrics
	s.about.Config, s.about.Loaded, s.about.Draining = cfg, &s.model, &s.draining
	s.about.Begun, s.about.Turn = s.in.Begun, s.viewing.Turn
	if f := s.front; f != nil && !f.start.FileName {
		s.about.Named = f.start.Model
	}
	s.grammars = constrain.NewCache(s.metrics, sync.OnceValue(func() *grammar.Vocabulary {
		m := s.model.Load() // no grammar is compiled before the model is loaded
		return constrain.Vocabulary(m.Vocab, m.Tags.Texts(), m.Calls, m.Tags.Headers(), m.Facts.EOG)
	}), s.compiled)
	s.live = live.New(liveSource{s}, s.metrics)
	account.Declare(s.metrics)
	s.metrics.BindLoadProgress(s.about.LoadProgress)
	s.metrics.BindMemory(func() metrics.Memory {
		m := s.memory()
		return metrics.Memory{Weights: m.Weights, Repacked: m.Repacked, KV: m.KV, Draft: m.Draft,
			GoHeap: m.GoHeap, RSS: m.RSS}
	})
	if cfg.KVEvents != "" && s.front == nil { // a process without a front publishes them itself
		if s.events, err = opening.Events(cfg, s.metrics, log); err != nil {
			s.in.Close()
			return nil, err
		}
	}
	s.power = &processors.Power{Mode: cfg.Power, Source: p.meter, Metrics: s.metrics, Log: log}
	if p.meter == nil {
		s.power.Source = cpus.OpenPower() // before an engine process confines itself
	}
	return s, nil
}

// Ready reports whether the model is loaded and the daemon takes requests.
func (s *Server) Ready() bool { return s.loop.Load() != nil }

// Idle reports whether the model is loaded and the decode loop sleeps without a request.
func (s *Server) Idle() bool {
	l := s.loop.Load()
	return l != nil && l.state.busySince.Load() == 0 && l.state.requests.Load() == 0
}
