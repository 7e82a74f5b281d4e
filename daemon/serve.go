package daemon

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/uma-serve/uma-serve/daemon/admission"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/runtime"
)

const (
	lastFlush  = time.Second            // for clients to read their last frames, at the end
	minFlush   = 300 * time.Millisecond // the same when --shutdown-timeout has passed
	shortFlush = 100 * time.Millisecond // the same after a second signal, when the engine does not end
	stuckGrace = 5 * time.Second        // for a step, or a store, that does not end within --shutdown-timeout
	stepGrace  = 500 * time.Millisecond // for the current step, after a second signal
	loadGrace  = time.Second            // for a load to notice that it is stopped
)

// serving is a call of Serve.
type serving struct {
	s           *Server
	eng         runtime.Engine
	decode      *loop
	pollerEnded <-chan struct{}
	loopEnded   chan struct{}
	intakeEnded chan struct{}
	ends        []func() // what end calls, the newest first

	stopBy time.Time // the shutdown's deadline
	atOnce bool      // a second signal has come
	flush  time.Duration
}

// Serve loads the model, answers requests, and stops in order: on the first SIGTERM, SIGINT or SIGHUP, or when ctx
// ends, it refuses new requests and gives running ones --shutdown-timeout to finish; a second signal stops it at once.
// The socket stays until the end, and clients that connect get the error shutting_down.
func (s *Server) Serve(ctx context.Context, open Opener) error {
	v := &serving{s: s, flush: lastFlush}
	defer v.end()
	v.listen()
	if err := v.start(ctx, open); v.decode == nil {
		return err
	}
	failed := v.run(ctx)
	v.drain()
	v.stop()
	return failed
}

// listen begins to answer clients, whose requests wait for the model.
func (v *serving) listen() {
	v.s.notifySignals()
	v.atEnd(func() { signal.Stop(v.s.signals) })
	v.atEnd(report.DumpOnSignal(func() []byte { return v.s.metrics.AppendJSON(nil) }, v.s.log))
	if v.s.front == nil {
		opening.SlackMonitor(v.s.log)
	}
	v.pollerEnded = v.s.in.Start(httpd.Handler(v.s.in.Web.Routes(web{v.s, v.s.about}, v.s.live)), v.s.live.End)
	v.atEnd(func() {
		daemon.SdNotify(false, daemon.SdNotifyStopping)
		v.s.in.Stop(v.flush)
		if v.s.events != nil {
			v.s.events.Close()
		}
	})
}

// start loads the model and begins to compute. The decode loop is nil after an error, or when a signal or the end of
// ctx stopped the load.
func (v *serving) start(ctx context.Context, open Opener) error {
	eng, err := v.s.load(ctx, open, v.s.signals)
	if eng == nil {
		return err
	}
	l, err := v.s.startLoop(eng)
	if err != nil {
		v.s.front.failed(err)
		v.s.refuseAll(admission.LoadFailed(err))
		v.s.close(eng)
		return err
	}
	v.eng, v.decode = eng, l
	v.s.power.Threads = &l.cpu
	v.atEnd(v.s.power.Watch())
	v.atEnd(v.s.reportEvents(l))
	v.loopEnded = begin(l.run)
	v.intakeEnded = begin(func() { v.s.intake(l) })
	v.tellReady()
	return nil
}

// tellReady tells log, front and systemd that requests are computed.
func (v *serving) tellReady() {
	m := v.s.model.Load()
	v.s.log.Info("ready", "socket", v.s.in.Addresses().Socket, "name", m.Info.Name, "n_ctx", m.Caps.ContextTokens,
		"parallel", v.s.cfg.Parallel, "policy", v.s.cfg.Policy, "device", m.Caps.DeviceName, "took",
		time.Since(v.s.in.Begun).Round(time.Millisecond))
	if left := m.Caps.LeftOut; len(left) > 0 {
		v.s.log.Warn("left out of this build, see docs/engines.md", "engine", buildinfo.Engine, "parts",
			strings.Join(left, ", "))
	}
	if f := v.s.front; f != nil {
		v.atEnd(f.ready(v.s, v.decode))
	}
	hostEnded := make(chan struct{})
	v.atEnd(func() { close(hostEnded) })
	go v.s.watchHostTier(v.decode, hostEnded)
	daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS=serving "+m.Info.Name)
	v.atEnd(opening.Watchdog(func(ping func()) {
		if v.s.health().Status != "stalled" {
			ping()
		}
	}))
}

// run waits for a reason to stop. The error is the poller's.
func (v *serving) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case sig := <-v.s.signals:
		if why := v.s.front.unloading(); why != "" {
			v.s.log.Info("unloaded: the engine process ends", "why", why)
			break
		}
		v.s.log.Info("draining: new requests are refused, running ones finish; a second signal stops at once",
			"signal", sig.String(), "timeout", v.s.cfg.ShutdownTimeout, "requests", v.decode.state.requests.Load())
	case <-v.pollerEnded:
		v.s.log.Error("the poller ended", "error", v.s.in.Err())
		return v.s.in.Err()
	}
	return nil
}

// drain refuses new requests, and gives running ones their part of --shutdown-timeout to finish.
func (v *serving) drain() {
	l := v.decode
	v.s.draining.Store(true)
	v.s.refuseJobs(v.s.closeGrammars(), admission.ShuttingDown())
	daemon.SdNotify(false, daemon.SdNotifyStopping+"\nSTATUS=finishing running requests")
	v.stopBy = time.Now().Add(v.s.cfg.ShutdownTimeout)
	forRequests, forStores := v.s.cfg.ShutdownShares(l.stores.Durable())
	l.end.stopBy.Store(time.Now().Add(forRequests + forStores).UnixNano())
	l.mail.Put(command{kind: cmdDrain})
	select {
	case <-v.loopEnded:
	case <-time.After(forRequests):
		if n := l.state.requests.Load(); n > 0 {
			v.s.log.Warn("shutdown timeout: ending the requests that still run", "requests", n)
		}
	case sig := <-v.s.signals:
		v.s.log.Warn("stopping at once", "signal", sig.String())
		v.atOnce = true
		v.stopBy = time.Now()
		l.end.stopBy.Store(v.stopBy.UnixNano())
	}
}

// stop ends the decode loop with what still runs, then intake, the builds of grammars, and the engine.
func (v *serving) stop() {
	v.decode.mail.Put(command{kind: cmdStop})
	v.eng.Abort()
	if !v.awaitLoop(time.Until(v.stopBy) + stuckGrace) {
		// The engine computes a step that it cannot abort; closing it now would crash.
		v.s.log.Warn("stopped within a step")
		v.flush = shortFlush
		return
	}
	v.flush = min(max(time.Until(v.stopBy), minFlush), lastFlush)
	v.s.refuseAll(admission.ShuttingDown()) // ends intake
	<-v.intakeEnded
	v.s.grammars.Wait() // the builders read the vocabulary
	v.s.front.counted(v.s.metrics)
	v.s.close(v.eng)
	v.s.log.Info("stopped")
}

// awaitLoop waits for the decode loop's end for at most limit, after a second signal for at most stepGrace. It reports
// whether the loop has ended.
func (v *serving) awaitLoop(limit time.Duration) bool {
	if !v.atOnce {
		select {
		case <-v.loopEnded:
			return true
		case <-time.After(limit):
			return false
		case <-v.s.signals:
		}
	}
	select {
	case <-v.loopEnded:
		return true
	case <-time.After(stepGrace):
		return false
	}
}

// atEnd has f called when Serve returns, before what was given earlier.
func (v *serving) atEnd(f func()) { v.ends = append(v.ends, f) }

func (v *serving) end() {
	for i := len(v.ends) - 1; i >= 0; i-- {
		v.ends[i]()
	}
}

// begin runs f on a goroutine. The channel is closed when it returns.
func begin(f func()) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() {
		f()
		close(ended)
	}()
	return ended
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
