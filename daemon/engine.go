package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/daemon/access/apikeys"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/documents"
	"github.com/uma-serve/uma-serve/daemon/entry"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/daemon/shm/lease"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/host/sandbox"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
)

// frontLink is the connection of an engine process to its front, which passes it client connections, API keys and model
// names. It is nil in a process without a front.
type frontLink struct {
	start link.EngineStart
	link  *ipc.Link // set by attach, before the poller runs
	keys  passedKeys
	names atomic.Pointer[[]string] // of link.EngineStart or the newest link.Names
	box   *reports.InfoSandbox     // confinement of the process; nil without the sandbox
	told  atomic.Int64             // time of the last load progress sent to the front, Unix ns
	drain func()                   // ends the log, for an end without return
	why   atomic.Pointer[string]   // of link.Unload; nil before

	table    *connstate.Table // shared with the front
	hostTier atomic.Int64     // of the newest link.HostTier, in bytes; 0 before
	resizing sync.Mutex       // held while the host tier's cap is set
	keepMu   sync.Mutex
	kept     int64 // of the newest link.Keep, under keepMu

	refused bool // the front was told that the model cannot be loaded; owned by Serve

	leases *lease.Table // nil: no other process shares the devices
}

// passedKeys are the API keys that the front has read.
type passedKeys struct{ p atomic.Pointer[apikeys.Keys] }

func (k *passedKeys) Keys() *apikeys.Keys   { return k.p.Load() }
func (k *passedKeys) Loaded() *apikeys.Keys { return k.p.Load() }

// RunEngine runs an engine process until it ends: it reads the front's start message from the descriptor link.FD,
// loads the model and serves the connections that the front passes. withLog gets the process's log before the engine
// opens. An error that was sent to the front is not returned: the front reports it.
func RunEngine(ctx context.Context, stderr io.Writer, open Opener, withLog func(*slog.Logger)) error {
	m, err := ipc.ReadLinkMessage(link.FD)
	if err != nil || m.Kind != link.Start {
		return errors.Join(fmt.Errorf("%s is started by uma-serve itself, with the connection to its front as "+
			"descriptor %d", link.EngineArg, link.FD), err)
	}
	f := &frontLink{}
	f.kept = link.KeepDefault
	if err := json.Unmarshal(m.Body, &f.start); err != nil {
		return fmt.Errorf("read what the front asks for: %w", err)
	}
	cfg, err := config.Decode(f.start.Config, f.start.Sources)
	if err != nil {
		return err
	}
	f.names.Store(&f.start.Names)
	if f.start.Keys != nil {
		keys, err := apikeys.ParseDigests(f.start.Keys)
		if err != nil {
			return fmt.Errorf("read the front's API keys: %w", err)
		}
		f.keys.p.Store(keys)
	}
	table, err := connstate.Open(os.NewFile(link.TableFD, "connections"))
	if err != nil {
		return err
	}
	if f.start.Seat != nil {
		if f.leases, err = lease.Open(os.NewFile(link.LeaseFD, "leases")); err != nil {
			return err
		}
	}
	lines, log := cfg.Logger(stderr)
	f.drain = func() { lines.Close(lastWords) }
	defer f.drain()
	log = log.With("model", f.start.Model)
	slog.SetDefault(log)
	withLog(log)
	opening.PreferAsVictim(log)
	opening.WithoutCore(log)
	opening.SlackMonitor(log) // before the sandbox

	s, err := newServer(cfg, log, f, overrides{})
	if err == nil {
		err = f.attach(s, table)
	}
	if err == nil && f.start.Sandbox {
		held, serr := sandbox.Enter(f.policy(cfg))
		f.box, err = &reports.InfoSandbox{Landlock: held.Landlock, Seccomp: held.Seccomp, NoNewPrivs: held.NoNewPrivs,
			Missing: held.Missing}, serr
		if err == nil && len(f.box.Missing) > 0 {
			log.Warn("the engine process is not confined as far as it could be", "missing",
				strings.Join(f.box.Missing, "; "))
		}
	}
	if err != nil {
		return ipc.WriteLinkMessage(link.FD, link.Status,
			api.MustJSON(link.EngineStatus{State: link.EngineFailed, Error: clierr.Text(err)}))
	}
	if err = s.Serve(ctx, open); f.refused {
		return nil
	}
	return err
}

// failed tells the front that the model cannot be loaded.
func (f *frontLink) failed(err error) {
	if f != nil {
		f.refused = true
		f.tell(link.EngineStatus{State: link.EngineFailed, Error: clierr.Text(err)})
	}
}

// lastWords is the longest time for which the ending process waits until its last log lines are written to stderr.
const lastWords = time.Second

// policy returns the sandbox policy of an engine process with this configuration, with the front as supervisor.
func (f *frontLink) policy(cfg *config.Config) sandbox.Policy {
	p := opening.Policy(cfg)
	p.Supervise = func(fd int) error { return f.link.Send(link.Supervise, 0, fd) }
	return p
}

// passed returns the values of the front that stand for sockets.
func (f *frontLink) passed(s *Server) *entry.Passed {
	p := &entry.Passed{Limit: func(c *ipc.Config) { f.limit(c, s) }, Addresses: entry.Addresses{Socket: f.start.Socket,
		Listen: f.start.Listen, Listeners: f.start.Listeners}}
	if f.start.Keys != nil {
		p.Keys = &f.keys
	}
	return p
}

// limit adapts the poller's limits: the front has counted connections and refused users.
func (f *frontLink) limit(c *ipc.Config, s *Server) {
	c.MaxSessions, c.MaxUID = math.MaxInt32, 0
	c.Elsewhere = func(frame *wire.Frame) bool {
		switch frame.Kind {
		case wire.KindRequest:
			return !f.mine(frame.Request.Model)
		case wire.KindEmbed:
			return !f.mine(frame.Embed.Model)
		}
		return true
	}
	c.Emptied = func() { s.askToStop() }
}

// attach connects s to the front.
func (f *frontLink) attach(s *Server, table *connstate.Table) (err error) {
	f.table = table
	f.link, err = s.poller.AddLink(link.FD, table, func(m ipc.LinkMessage) { f.hear(s, m) }, func(err error) {
		if errors.Is(err, io.ErrClosedPipe) {
			return // by this process, which ends
		}
		s.log.Warn("the front has ended; so does this engine process", "error", err)
		s.askToStop()
		s.askToStop()
		time.AfterFunc(stuckGrace, func() { f.exit(exitOrphan) })
	})
	return err
}

// Exit statuses of an engine process that ends itself.
const (
	exitStalled = 70 // a step did not end within Config.StepTimeout
	exitOrphan  = 71
)

func (f *frontLink) exit(status int) {
	f.drain()
	os.Exit(status)
}

// hear handles a message of the front, on the poller's goroutine.
func (f *frontLink) hear(s *Server, m ipc.LinkMessage) {
	if m.Kind == link.Adapter {
		f.hearAdapter(s, m)
		return
	}
	if m.FD >= 0 {
		syscall.Close(m.FD) // a front sends no others
	}
	switch m.Kind {
	case link.Stop:
		s.askToStop()
	case link.Unload:
		why := string(m.Body)
		f.why.Store(&why)
		s.log.Debug("unloading: connections go back to the front", "why", why)
		s.live.End()
		s.poller.ReturnIdle()
	case link.Names:
		var names []string
		if err := json.Unmarshal(m.Body, &names); err != nil {
			s.log.Error("names of the front", "error", err)
		} else {
			f.names.Store(&names)
		}
	case link.HostTier:
		f.hearHostTier(s, m.Body)
	case link.Keys:
		if keys, err := apikeys.ParseDigests(m.Body); err != nil {
			s.log.Error("API keys of the front", "error", err)
		} else {
			f.keys.p.Store(keys)
		}
	}
}

// askToStop asks Serve to end, as SIGTERM does.
func (s *Server) askToStop() {
	select {
	case s.signals <- syscall.SIGTERM:
	default: // it has been asked twice
	}
}

// unloading returns the reason for which the front has asked for an unload; "" if it has not.
func (f *frontLink) unloading() string {
	if f != nil {
		if why := f.why.Load(); why != nil {
			return *why
		}
	}
	return ""
}

// mine reports whether a request that names a model is for this process.
func (f *frontLink) mine(name string) bool {
	switch {
	case f.start.Any:
		return true
	case name == "":
		return f.start.Default
	}
	return slices.ContainsFunc(*f.names.Load(), func(n string) bool { return strings.EqualFold(n, name) })
}

// elsewhere reports whether an HTTP request is for another process: another model's, or one that the front answers. The
// first request of a connection is not, as the front has decided.
func (s *Server) elsewhere(r *http.Request, body []byte) bool {
	f := s.front
	switch {
	case f == nil:
		return false
	case ipc.FromFront(r.Context()) && documents.Asks(r, body): // the front may have seen the body's beginning only
		return true
	case ipc.Own(r.Context()):
		s.keepAlive(r, body)
		return false
	case !ipc.FromFront(r.Context()):
		return false
	}
	if httpd.FrontServes(r.Method, r.URL) {
		return true
	}
	if f.start.Turns && r.Header.Get(setup.TurnHeader) == "" && setup.Asks(r, body) {
		return true
	}
	name, _, _ := httpd.ModelOf(r.URL, body)
	if !f.mine(name) {
		return true
	}
	s.keepAlive(r, body)
	return false
}

// tell sends the front a status.
func (f *frontLink) tell(st link.EngineStatus) {
	if f == nil {
		return
	}
	if err := f.link.Send(link.Status, 0, -1, api.MustJSON(st)); err != nil {
		slog.Debug("a status for the front is lost", "error", err)
	}
}

// counted tells the front what the process has counted, for it ends.
func (f *frontLink) counted(m *metrics.Metrics) {
	if f == nil {
		return
	}
	if err := f.link.Send(link.Metrics, 0, -1, httpd.Scrape(m)); err != nil {
		slog.Debug("the last metrics for the front are lost", "error", err)
	}
}

// tellEvery is the shortest time between two reports of a load's progress to the front.
const tellEvery = 100 * time.Millisecond

// loading tells the front how much of the model is read.
func (f *frontLink) loading(fraction float32) {
	if f == nil {
		return
	}
	now := time.Now().UnixNano()
	if last := f.told.Load(); now-last >= int64(tellEvery) && f.told.CompareAndSwap(last, now) {
		f.tell(link.EngineStatus{State: link.EngineLoading, Progress: float64(fraction)})
	}
}

// ready tells the front that requests are answered, and when no step ends, which after opening.StepTimeout ends the
// process.
func (f *frontLink) ready(s *Server, l *loop) (stop func()) {
	m := s.model.Load()
	st := link.EngineStatus{State: link.EngineReady, Progress: 1, Name: m.Info.Name, Context: m.Caps.ContextTokens,
		GPU: m.Caps.Device != runtime.DeviceCPU, Memory: s.memory(), Sandbox: f.box,
		Devices: opening.OnDevices(s.cfg.Backends.Devices, m.Caps.Placed, s.draft.Placed())}
	f.tell(st)
	limit, timeout := stallAfter, opening.StepTimeout(s.cfg.StepTimeout, m.Caps.Device)
	if timeout > 0 {
		limit = min(limit, timeout/2) // so that health says it before the process ends
	}
	return opening.Every(max(limit/4, time.Millisecond), func(now time.Time) {
		since, stalled := l.state.stalled(now, limit)
		if !stalled {
			since = time.Time{}
		}
		if !since.Equal(st.Stalled) {
			st.Stalled = since
			f.tell(st)
		}
		if stalled && timeout > 0 && now.Sub(since) > timeout {
			s.log.Error("a decode step does not end: the engine process ends itself, and is started again",
				"since", since.UTC().Format(time.RFC3339), "step_timeout", timeout)
			f.exit(exitStalled)
		}
	})
}
