package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/uma-serve/uma-serve/daemon/account"
	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/constrain"
	"github.com/uma-serve/uma-serve/daemon/devices"
	"github.com/uma-serve/uma-serve/daemon/drafts"
	"github.com/uma-serve/uma-serve/daemon/entry"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/kvevents"
	"github.com/uma-serve/uma-serve/daemon/live"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/processors"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/served"
	"github.com/uma-serve/uma-serve/daemon/viewing"
	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
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

	front   *frontLink // nil: this process has no front
	parts   parts
	signals chan os.Signal // that ask to stop, and those that an engine process's front sends
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

// parts are those that tests replace. Zero fields have the defaults.
type parts struct {
	counters func(ids []int) threads.Counters // of the processors; nil: the system's
	meter    processors.PowerSource           // nil: the system's
	memory   func() hostmem.Memory            // nil: the system's
	price    *bool                            // price cells; nil = if the engine is not the fake one
	prefer   func() error                     // for the decode loop's thread; nil: cpus.Prefer
}

// New binds the sockets, so that a second daemon or a wrong path fails before the model is loaded.
func New(cfg *config.Config, log *slog.Logger) (*Server, error) {
	return newServer(cfg, log, nil, parts{})
}

func newServer(cfg *config.Config, log *slog.Logger, front *frontLink, p parts) (*Server, error) {
	s := &Server{
		cfg: cfg, log: log,
		room:    admission.NewWaitroom[job](cfg.MaxQueue+cfg.Parallel, cfg.Limits.UserRequests),
		quotas:  admission.NewQuotas(&cfg.Limits),
		about:   served.New(),
		front:   front,
		parts:   p,
		signals: make(chan os.Signal, 2),
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
	}), s.unpark)
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

// Serve loads the model, answers requests, and stops in order: on the first SIGTERM, SIGINT or SIGHUP, or when ctx
// ends, it refuses new requests and gives running ones --shutdown-timeout to finish; a second signal stops it at once.
// The socket stays until the end, and clients that connect get the error shutting_down.
func (s *Server) Serve(ctx context.Context, open Opener) error {
	signals := s.signals
	s.notifySignals()
	defer signal.Stop(signals)

	defer report.DumpOnSignal(func() []byte { return s.metrics.AppendJSON(nil) }, s.log)()
	if s.front == nil {
		opening.SlackMonitor(s.log)
	}
	pollerEnded := s.in.Start(httpd.Handler(s.in.Web.Routes(web{s, s.about}, s.live)), s.live.End)
	flush := lastFlush
	defer func() {
		daemon.SdNotify(false, daemon.SdNotifyStopping)
		s.in.Stop(flush)
		if s.events != nil {
			s.events.Close()
		}
	}()

	eng, err := s.load(ctx, open, signals)
	if eng == nil {
		return err
	}
	l, err := s.startLoop(eng)
	if err != nil {
		s.front.failed(err)
		s.refuseAll(admission.LoadFailed(err))
		s.close(eng)
		return err
	}
	s.power.Threads = &l.cpu
	stopPower := s.power.Watch()
	defer stopPower()
	stopEvents := s.reportEvents(l)
	defer stopEvents()
	loopDone := make(chan struct{})
	go func() {
		l.run()
		close(loopDone)
	}()
	intakeDone := make(chan struct{})
	go func() {
		s.intake(l)
		close(intakeDone)
	}()
	s.log.Info("ready", "socket", s.in.Addresses().Socket, "name", s.model.Load().Info.Name, "n_ctx",
		s.model.Load().Caps.ContextTokens, "parallel", s.cfg.Parallel, "policy", s.cfg.Policy, "device",
		s.model.Load().Caps.DeviceName, "took", time.Since(s.in.Begun).Round(time.Millisecond))
	if left := s.model.Load().Caps.LeftOut; len(left) > 0 {
		s.log.Warn("left out of this build, see docs/engines.md", "engine", buildinfo.Engine, "parts",
			strings.Join(left, ", "))
	}
	if f := s.front; f != nil {
		stop := f.ready(s, l)
		defer stop()
	}
	hostDone := make(chan struct{})
	defer close(hostDone)
	go s.watchHostTier(l, hostDone)
	daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS=serving "+s.model.Load().Info.Name)
	stopWatchdog := opening.Watchdog(func(ping func()) {
		if s.health().Status != "stalled" {
			ping()
		}
	})
	defer stopWatchdog()

	var failed error
	select {
	case <-ctx.Done():
	case sig := <-signals:
		if why := s.front.unloading(); why != "" {
			s.log.Info("unloaded: the engine process ends", "why", why)
			break
		}
		s.log.Info("draining: new requests are refused, running ones finish; a second signal stops at once",
			"signal", sig.String(), "timeout", s.cfg.ShutdownTimeout, "requests", l.state.requests.Load())
	case <-pollerEnded:
		failed = s.in.Err()
		s.log.Error("the poller ended", "error", failed)
	}
	s.draining.Store(true)
	s.refuseJobs(s.closeGrammars(), admission.ShuttingDown())
	daemon.SdNotify(false, daemon.SdNotifyStopping+"\nSTATUS=finishing running requests")
	stopBy := time.Now().Add(s.cfg.ShutdownTimeout)
	forRequests, forStores := s.cfg.ShutdownShares(l.stores.Durable())
	l.end.stopBy.Store(time.Now().Add(forRequests + forStores).UnixNano())
	l.mail.Put(command{kind: cmdDrain})
	atOnce := false
	select {
	case <-loopDone:
	case <-time.After(forRequests):
		if n := l.state.requests.Load(); n > 0 {
			s.log.Warn("shutdown timeout: ending the requests that still run", "requests", n)
		}
	case sig := <-signals:
		s.log.Warn("stopping at once", "signal", sig.String())
		atOnce = true
		stopBy = time.Now()
		l.end.stopBy.Store(stopBy.UnixNano())
	}
	l.mail.Put(command{kind: cmdStop})
	eng.Abort()
	if !awaitEnd(loopDone, signals, atOnce, time.Until(stopBy)+stuckGrace) {
		// The engine computes a step that it cannot abort; closing it now would crash.
		s.log.Warn("stopped within a step")
		flush = shortFlush
		return failed
	}
	flush = min(max(time.Until(stopBy), minFlush), lastFlush)
	s.refuseAll(admission.ShuttingDown()) // ends intake
	<-intakeDone
	s.grammars.Wait() // the builders read the vocabulary
	s.front.counted(s.metrics)
	s.close(eng)
	s.log.Info("stopped")
	return failed
}

const (
	lastFlush  = time.Second            // for clients to read their last frames, at the end
	minFlush   = 300 * time.Millisecond // the same when --shutdown-timeout has passed
	shortFlush = 100 * time.Millisecond // the same after a second signal, when the engine does not end
	stuckGrace = 5 * time.Second        // for a step, or a store, that does not end within --shutdown-timeout
	stepGrace  = 500 * time.Millisecond // for the current step, after a second signal
	loadGrace  = time.Second            // for a load to notice that it is stopped
)

// awaitEnd waits for ended for at most limit, after a second signal (atOnce) for at most stepGrace. It reports whether
// ended was closed.
func awaitEnd(ended <-chan struct{}, signals <-chan os.Signal, atOnce bool, limit time.Duration) bool {
	if !atOnce {
		select {
		case <-ended:
			return true
		case <-time.After(limit):
			return false
		case <-signals:
		}
	}
	select {
	case <-ended:
		return true
	case <-time.After(stepGrace):
		return false
	}
}

// notifySignals lets the signals that stop a daemon come to s.signals. An engine process gets those of a terminal from
// its front.
func (s *Server) notifySignals() {
	stop := []os.Signal{syscall.SIGTERM}
	if s.front == nil {
		stop = append(stop, syscall.SIGINT)
		if !signal.Ignored(syscall.SIGHUP) { // by nohup
			stop = append(stop, syscall.SIGHUP)
		}
	}
	signal.Notify(s.signals, stop...)
}

// Ready reports whether the model is loaded and the daemon takes requests.
func (s *Server) Ready() bool { return s.loop.Load() != nil }

// Idle reports whether the model is loaded and the decode loop sleeps without a request.
func (s *Server) Idle() bool {
	l := s.loop.Load()
	return l != nil && l.state.busySince.Load() == 0 && l.state.requests.Load() == 0
}

// DeclareMetrics and Watchdog are those of packages account and opening, for the front.
func DeclareMetrics(m *metrics.Metrics) { account.Declare(m) }

func Watchdog(look func(ping func())) (stop func()) { return opening.Watchdog(look) }
