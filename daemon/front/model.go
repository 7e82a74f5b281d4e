package front

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/devices"
	"github.com/uma-serve/uma-serve/daemon/front/engineproc"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/scrapes"
	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/daemon/shm/lease"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// served is a model, loaded or not. Its fields belong to the poller's goroutine but for the first ones, which are
// constant.
type served struct {
	f          *Front
	name       string
	aliases    []string
	cfg        *config.Config
	table      *config.Model  // of the configuration; nil for others
	located    *config.Config // as its engine process gets it; nil until demand is known
	configured bool           // by a table, or as the default model
	pinned     bool
	idle       time.Duration // without a request until it is unloaded; 0 = never
	keep       keep          // what the newest request of ollama's API says of that

	file    string            // of the model, "" while it is not known
	recipe  string            // its name, if it was made of the file's model and more than another name for it
	title   string            // the name that the file of the only model has; "" while it is not known
	header  report.FactsCache // not the poller's: it has a lock
	called  map[string]bool   // lower-cased names by which it was asked, beside its own
	state   state
	demand  *config.Demand // of memory; nil until it is known
	place   config.Place   // where it is, with its context; of a model that has no process, the most that it may have
	placed  config.Demand  // demand with place's layers on devices
	host    hostTier
	since   time.Time
	used    time.Time // of the newest request
	begun   uint32    // the table's count of begun requests when used was set
	status  link.EngineStatus
	proc    *process
	waiting []*ipc.Conn // in the order in which they came
	record
	counted scrapes.Counted
	lora    adapterSet
	seat    *lease.Seat // of its process in the table of leases; nil: it takes no lease
}

// record counts what became of a model's engine processes.
type record struct {
	crashes []time.Time // of the last minute

	wasReady bool        // it was ready before
	down     *wire.Error // with state down: the error that its requests get
	retryAt  time.Time   // with down: until then; zero: never

	loads, unloads, crashed int
	denied                  int // system calls that its processes were refused
	inside                  int // requests of the front itself
}

// state is the stage of a model's life cycle, from unloaded to ready and back.
type state uint8

const (
	unloaded  state = iota
	queued          // waits for memory
	starting        // its process is being made
	loading         // its process reads the file; connections are passed already
	ready           //
	unloading       // its process gives its connections back and ends
	down            // its file cannot be loaded, or its process has crashed too often
)

func (s state) String() string {
	return [...]string{"unloaded", "waiting", "loading", "loading", "ready", "unloading", "down"}[s]
}

// served returns the word of llama-server's router for s.
func (s state) served() string {
	switch s {
	case queued, starting, loading:
		return "loading"
	case ready:
		return "loaded"
	}
	return "unloaded"
}

// process is an engine process.
type process struct {
	cmd        *exec.Cmd
	cfg        *config.Config // which it was started with
	link       *ipc.Link
	table      *connstate.Table
	dead       bool // its link is down
	supervised bool // its sandbox asks the front
	leaving    bool // it was asked to end
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) kill() { _ = p.cmd.Process.Kill() } // fails when it has ended

// conns returns the number of connections of its process.
func (m *served) conns() int {
	if m.proc == nil {
		return 0
	}
	return m.f.loop.PassedTo(m.proc.link)
}

// busy reports whether requests are in flight.
func (m *served) busy() bool { return m.inside > 0 || m.proc != nil && m.proc.table.InFlight() > 0 }

// stalled reports whether the model's process computes and no step ends.
func (m *served) stalled() bool { return m.state == ready && !m.status.Stalled.IsZero() }

// live reports whether the model has a process that is to stay, or gets one.
func (m *served) live() bool {
	return m.state == queued || m.state == starting || m.state == loading || m.state == ready
}

// touch records a request for the model.
func (m *served) touch() { m.used = time.Now() }

// want queues a model to be loaded, unless it is loaded or down.
func (f *Front) want(m *served) {
	if m.state == down && !m.retryAt.IsZero() && !time.Now().Before(m.retryAt) {
		m.state, m.down = unloaded, nil
	}
	if m.state != unloaded || f.draining {
		return
	}
	m.state, m.since = queued, time.Now()
	f.queue = append(f.queue, m)
	if m.demand != nil {
		f.admit()
		return
	}
	go func() {
		cfg, err := m.cfg.ForEngine(f.ctx, f.log)
		var demand config.Demand
		if err == nil && cfg.GPULayers != 0 {
			cfg.Backends = f.devices.look()
			err = devices.Check(cfg, f.log)
		}
		if err == nil {
			demand, err = f.opts.Demand(cfg)
		}
		if err == nil { // only now: errors name the file as its user does
			err = cfg.AbsoluteModels()
		}
		f.loop.Do(func() {
			if err != nil {
				f.fail(m, err)
				return
			}
			m.located, m.demand = cfg, &demand
			m.place, m.placed = config.Place{Tokens: demand.Most}, demand.Placed(demand.Device.Most)
			if cfg.GPULayers != 0 {
				f.devices.rooms = cfg.Rooms()
			}
			if m == f.def && f.cfg.Memory.Auto {
				// Its weights are mapped and can be paged. If it does not fit, its process refuses it, as without a
				// front.
				n := demand.Most
				if demand.Least < n {
					n = max(demand.FitAvailable(int64(hostmem.Read().Available)), demand.Least)
				}
				f.limit = max(f.limit, demand.Private(n)+demand.Weights())
			}
			f.admit()
		})
	}()
}

// start makes the process of a model for which there is room.
func (f *Front) start(m *served, place config.Place) {
	m.state, m.since = starting, time.Now()
	m.place, m.placed = place, m.demand.Placed(place.Layers())
	m.status = link.EngineStatus{State: link.EngineLoading}
	m.host = hostTier{weight: m.host.weight}
	f.divideHosts()
	m.host.first = m.host.cap
	m.seat = f.takeSeat(m)
	def := m == f.def
	cfg, names, added := m.traced(def), m.allNames(), slices.Clone(m.lora.added)
	f.beside.Go(func() {
		p, fd, err := f.spawn(m, cfg, names, added, def)
		if !f.loop.Do(func() { f.started(m, p, fd, err) }) && err == nil {
			unix.Close(fd) // the process sees its link end
		}
	})
}

// spawn starts an engine process. def: the model is the default one.
func (f *Front) spawn(m *served, cfg *config.Config, names, added []string, def bool) (p *process, fd int,
	err error) {
	start, err := f.startOf(cfg)
	if err == nil {
		start.Seat = m.seat
		start.Model, start.Names, start.Default, start.Added = m.name, names, def, added
		start.Any, start.FileName = f.lenient && f.found.store == nil, f.any && def && len(f.cfg.Alias) == 0
		spec := engineproc.Spec{Program: f.opts.Program, Args: f.opts.Args, Model: m.name, Shown: f.shown,
			Stderr: f.opts.Stderr, Slots: f.cfg.MaxSessions + spareSlots, Requests: 2*(cfg.MaxQueue+cfg.Parallel) + 64,
			OnDevice: cfg.OnDevice(), Start: start}
		if m.seat != nil {
			spec.Leases = f.leases.File()
		}
		p = &process{cfg: cfg}
		p.cmd, p.table, fd, err = spec.Run()
	}
	if err != nil {
		return nil, -1, fmt.Errorf("start an engine process for %s: %w", m.name, err)
	}
	return p, fd, nil
}

// traced returns the configuration of the next process of m, whose --trace is a file for it alone.
func (m *served) traced(def bool) *config.Config {
	cfg := m.located.WithMemory(m.host.cap, &m.place)
	if m.configured {
		cfg.LoRA = m.lora.option()
	}
	if cfg.Trace != "" {
		of := m.name
		if def {
			of = ""
		}
		cfg.Trace = engineproc.TracePath(cfg.Trace, of, m.loads)
	}
	return cfg
}

// spareSlots is the number of extra slots in a table, for closed connections that an engine process still counts.
const spareSlots = 256

// started takes over a process that spawn has started, or the error with which it could not.
func (f *Front) started(m *served, p *process, fd int, err error) {
	if err == nil {
		p.link, err = f.loop.AddLink(fd, p.table, func(msg ipc.LinkMessage) { f.hear(m, p, msg) },
			func(err error) { f.linkDown(m, p, err) })
		if err != nil {
			p.kill()
			unix.Close(fd)
			go p.cmd.Wait()
		}
	}
	if err != nil {
		f.leaveSeat(m)
		f.fail(m, err)
		return
	}
	m.proc, m.state = p, loading
	m.loads++
	m.begun = 0
	m.touch()
	if len(m.called) > 0 { // since its process was begun, perhaps
		m.tellNames()
	}
	if m.host.cap != m.host.first {
		m.tellHostTier()
	}
	f.log.Debug("loading", "model", m.name, "pid", p.pid(), "memory", m.need(), "context", m.place.Tokens)
	go func() {
		werr := p.cmd.Wait()
		f.loop.Do(func() { f.ended(m, p, werr) })
		select {
		case f.gone <- struct{}{}:
		default:
		}
	}()
	if f.draining {
		p.leaving = true
		_ = p.link.Send(link.Stop, 0, -1) // fails when it has ended already
	}
	f.release(m)
}

// release passes the connections that wait for m.
func (f *Front) release(m *served) {
	waiting := m.waiting
	m.waiting = nil
	for _, c := range waiting {
		f.loop.PassTo(c, m.proc.link)
	}
}

// refuseWaiting answers the connections that wait for m with an error.
func (f *Front) refuseWaiting(m *served, e *wire.Error) {
	waiting := m.waiting
	m.waiting = nil
	if len(waiting) > 0 && m.down == nil {
		m.down, m.state = e, down
		m.retryAt = time.Now().Add(failedFor)
	}
	for _, c := range waiting {
		f.loop.Resume(c) // Route then finds the model down
	}
}

// hear handles a message of an engine process.
func (f *Front) hear(m *served, p *process, msg ipc.LinkMessage) {
	if msg.FD >= 0 {
		if msg.Kind == link.Supervise && !p.supervised {
			p.supervised = true
			go f.supervise(m, p, msg.FD)
		} else {
			unix.Close(msg.FD)
		}
		return
	}
	if m.proc != p {
		return
	}
	switch msg.Kind {
	case link.Keep:
		m.hearKeep(msg.Body)
	case link.KVEvents:
		f.hearEvents(m, p, msg.Body)
	case link.Adapter:
		m.hearAdapter(msg.Body)
	case link.Metrics:
		m.counted.Hear(msg.Body)
	case link.Status:
		f.hearStatus(m, p, msg.Body)
	}
}

// supervise supervises a confined process; one that cannot be is killed.
func (f *Front) supervise(m *served, p *process, fd int) {
	log, pid := f.log.With("model", m.name), p.pid()
	err := engineproc.Supervise(fd, pid, p.cfg, log, func() { f.loop.Do(func() { m.denied++ }) })
	if err != nil {
		log.Error("an engine process is not supervised any more: it is killed", "pid", pid, "error", err)
		p.kill()
	}
}

// hearStatus takes a LinkStatus.
func (f *Front) hearStatus(m *served, p *process, body []byte) {
	var st link.EngineStatus
	if err := json.Unmarshal(body, &st); err != nil {
		f.log.Error("an engine process has sent what is no status: it is killed", "model", m.name, "error", err)
		p.kill()
		return
	}
	m.status = st
	switch st.State {
	case link.EngineReady:
		m.entitle(st.Name)
		m.took(&st)
		if m.state == loading {
			m.state, m.wasReady = ready, true
			m.touch()
			f.log.Info("loaded", "model", m.name, "pid", p.pid(), "memory", m.need(), "context", m.place.Tokens, "took",
				time.Since(m.since).Round(time.Millisecond))
			if m == f.def {
				f.tellReady()
			}
		}
	case link.EngineLoading:
		if m == f.def && !f.told && time.Since(f.toldAt) > tellEvery {
			f.toldAt = time.Now()
			sd.SdNotify(false, fmt.Sprintf("STATUS=loading %s, %.0f%%\nEXTEND_TIMEOUT_USEC=%d", m.name,
				100*st.Progress, extendStart.Microseconds()))
		}
	case link.EngineFailed:
		p.leaving, m.state = true, unloading
		m.failed(errors.New(st.Error))
	}
}

// What systemd is told while the default model loads for the first time.
const (
	tellEvery   = 500 * time.Millisecond
	extendStart = 30 * time.Second
)

// tellReady tells systemd that requests are answered, once.
func (f *Front) tellReady() {
	if !f.told {
		f.told = true
		sd.SdNotify(false, sd.SdNotifyReady+"\nSTATUS=serving "+f.def.name)
	}
}

// fail gives up loading.
func (f *Front) fail(m *served, err error) {
	f.queue = slices.DeleteFunc(f.queue, func(o *served) bool { return o == m })
	m.state = down
	m.failed(err)
	f.refuseWaiting(m, m.down)
}

// failed records the error with which the model cannot be loaded. If it is the model of the command line and was never
// loaded, the front ends: a wrong path is an error of the start, as without a front.
func (m *served) failed(err error) {
	f := m.f
	if e := (*wire.RequestError)(nil); errors.As(err, &e) {
		ev := e.Event()
		m.down = &ev
	} else {
		m.down = wire.Errorf(wire.InternalFailure, "model %s cannot be loaded: %s", m.name, clierr.Text(err))
	}
	m.retryAt = time.Now().Add(failedFor)
	if m == f.def && f.named && !m.wasReady {
		select {
		case f.fatal <- err:
		default:
		}
		return
	}
	f.log.Error("the model cannot be loaded", "model", m.name, "error", clierr.Text(err))
	if m == f.def {
		f.tellReady() // the others can be asked
	}
}

// unload asks the process of m to give its connections back and to end.
func (f *Front) unload(m *served, why string) {
	if m.proc == nil || m.state == unloading {
		return
	}
	f.log.Info("unloading", "model", m.name, "why", why, "idle", time.Since(m.used).Round(time.Millisecond))
	m.state = unloading
	m.proc.leaving = true
	_ = m.proc.link.Send(link.Unload, 0, -1, []byte(why)) // fails when it has just ended, which linkDown says
}
