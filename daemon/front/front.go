// Package front is the process that owns the listening sockets, the clients' identities, the models' names and the
// memory, and has one engine process for each loaded model. An engine process is the same program (daemon.RunEngine): a
// daemon that is passed its connections instead of accepting them.
//
// The front passes the connection, not the bytes: it looks at a connection's first request, finds the model, and hands
// the descriptor to that model's process, which reads and writes it from then on. A connection whose next request is
// for another model, or concerns all of them, comes back. The front keeps a descriptor of every connection that it has
// passed. When an engine process ends by itself, the front sends each of its clients an error in the client's protocol:
// a table in shared memory (package connstate) has the state of each client's answer.
//
// All state belongs to the poller's goroutine; other goroutines wait for files, processes and answers that take time.
//
// # Where things are
//
//	route.go     which process serves a connection: model, name, alias
//	found.go     models of this machine without a table [models.NAME]
//	model.go     the life of a model: which one is loaded and unloaded, what its process gets
//	memory.go    which models wait for memory, and which ones make room
//	hosttier.go  what each model may keep of evicted prefixes
//	progress.go  what requests hear before their model's process runs
//	ended.go     the end of a process: what its clients are told, and whether the model comes back
//	lease.go     the table of device leases; taking one back from a process that has ended
//	turns.go     requests with tools of MCP servers
//	changes.go   models that a request loads or unloads; watch.go tells of it
//	adapter_changes.go  adapters that a request loads or unloads
//	downloads.go models that a request downloads; remove.go: or deletes
//	kv_events.go what the caches of all models hold, for routers
//	admin.go     answers that concern several models; facts.go and lists.go: of models that are not loaded
//
// Below it, engineproc starts and asks an engine process, ledger counts memory and finds places in it, modelnews and
// lastwords write what watchers and the clients of an ended process hear. Package report puts the answers of several
// processes together, and describes models of lists.
package front

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/documents"
	"github.com/uma-serve/uma-serve/daemon/entry"
	"github.com/uma-serve/uma-serve/daemon/front/ledger"
	"github.com/uma-serve/uma-serve/daemon/front/modelnews"
	"github.com/uma-serve/uma-serve/daemon/kept"
	"github.com/uma-serve/uma-serve/daemon/kvevents"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/scrapes"
	"github.com/uma-serve/uma-serve/daemon/shm/lease"
	"github.com/uma-serve/uma-serve/daemon/toolbox"
	"github.com/uma-serve/uma-serve/daemon/toolturns"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/models/download"
	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/runtime"
)

// Options are the parts that tests replace. The zero value has the defaults.
type Options struct {
	// Program and Args start an engine process; the default is this program with link.EngineArg.
	Program string
	Args    []string
	// BridgeArgs are the arguments with which Program is a bridge to an MCP server; default: toolbox.BridgeArg.
	BridgeArgs []string
	// Stderr is the standard error of engine processes; default: the front's.
	Stderr *os.File
	// Demand is the memory that a configuration takes.
	Demand func(*config.Config) (config.Demand, error)
	// Devices looks at the engine's back ends. The default asks a process of this program; nil where Program is given:
	// there are none.
	Devices func(context.Context) (runtime.Backends, error)
	// CrashLimit crashes within a minute keep a model down; default 3.
	CrashLimit int
	// KeptDir is the folder of clients' files and batches; default: one in the user's cache folder.
	KeptDir string
	// Tick is the interval at which idle models and waiting requests are checked; default 1 s.
	Tick time.Duration
}

// Front is the process. Fields without a note are constant after New.
type Front struct {
	cfg  *config.Config
	log  *slog.Logger
	opts Options
	in   *entry.Entry
	loop *ipc.Loop // in's

	hostMost int64 // for the host tiers of all models, in bytes

	shown string // the program's path as ps shows it for engine processes; "" = Options.Program

	watchers modelnews.Watchers // of /models/sse

	collection
	box   *toolbox.Box      // the MCP servers of the configuration
	turns *toolturns.Server // answers requests for their tools; nil: there are none
	clientData

	published

	beside sync.WaitGroup // starts of processes, dumps of metrics; Serve waits for them

	models []*served
	names  map[string]*served // by lower-cased name or alias
	def    *served            // of requests without a name
	any    bool               // one model is configured, without a table
	// lenient: a name that means no model of this machine means the default one, as without a front
	lenient bool
	named   bool // the default model is --model, --hf-repo, or the built-in one

	devices deviceMemory

	headers *store.Store // the headers of models' files

	leases *lease.Table // of the devices that models share; nil: there can be one model only, or --arbiter=false

	began time.Time
	ctx   context.Context // of the look-ups and downloads of models

	signals chan os.Signal
	dumps   chan os.Signal // SIGUSR1
	gone    chan struct{}  // an engine process has ended; capacity 1
	fatal   chan error     // the error that ends the front; capacity 1

	pollerState
}

// published is the part of a Front that other programs read regularly.
type published struct {
	events *kvevents.Publisher // nil: without --kv-events
	rates  scrapes.Rates       // of llama-server's metrics
}

// clientData are files, batches and documents of clients.
type clientData struct {
	kept *kept.Keeper
	docs *documents.Reader // reads the documents in requests
}

// collection holds the changes that clients make to the models on this machine.
type collection struct {
	downloads *download.Manager
	removed   modelnews.Removals
	removing  sync.Mutex   // held while a model is deleted, or the presets are read again
	reloads   atomic.Int64 // how often they were read
}

// pollerState is owned by the poller's goroutine.
type pollerState struct {
	limit   int64     // of the memory of all engine processes
	queue   []*served // those that wait for memory, in order
	eager   bool      // the queue is looked at again soon
	hostsAt time.Time // of the last lookAtHosts
	// hostBudget is the most bytes that the host tiers may hold together at the moment.
	hostBudget int64
	draining   bool
	keys       string // the digests that engine processes have
	found      found
	told       bool // systemd knows that requests are answered
	toldAt     time.Time
}

// Run serves until ctx ends or a signal asks it to stop.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	f, err := New(ctx, cfg, log, Options{})
	if err != nil {
		return err
	}
	return f.Serve(ctx)
}

// New binds the sockets and finds the models' names.
func New(ctx context.Context, cfg *config.Config, log *slog.Logger, o Options) (*Front, error) {
	windows := func() scrapes.Window { return new(metrics.Window) }
	f := &Front{published: published{rates: scrapes.NewRates(windows)}, cfg: cfg, log: log, opts: o,
		names: map[string]*served{}, signals: make(chan os.Signal, 2),
		dumps: make(chan os.Signal, 1),
		gone:  make(chan struct{}, 1), fatal: make(chan error, 1), began: time.Now(), ctx: ctx}
	f.opts.Stderr = cmp.Or(o.Stderr, os.Stderr)
	f.opts.Tick = cmp.Or(o.Tick, time.Second)
	f.opts.CrashLimit = cmp.Or(o.CrashLimit, crashLimit)
	if f.opts.Demand == nil {
		f.opts.Demand = (*config.Config).Demand
	}
	if f.opts.Program == "" {
		path, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program, to start engine processes: %w", err)
		}
		f.opts.Program, f.opts.Args, f.shown = path, []string{link.EngineArg}, path
		f.opts.Devices = f.ownDevices
		if _, err := os.Stat(ownProgram); err == nil {
			f.opts.Program = ownProgram
		}
	}
	f.devices.seen.Store(&runtime.Backends{})
	f.devices.look = sync.OnceValue(func() runtime.Backends { return f.lookAtDevices(ctx) })
	if err := f.findModels(ctx); err != nil {
		return nil, err
	}
	limit, err := ledger.Limit(cfg)
	if err != nil {
		return nil, err
	}
	f.limit, f.hostMost = limit, cfg.HostTiers(limit)
	if (len(f.models) > 1 || f.found.store != nil) && cfg.Arbiter {
		if f.leases, err = lease.Create(); err != nil {
			return nil, err
		}
	}
	if err := f.openEntry(); err != nil {
		return nil, err
	}
	f.openDownloads()
	f.openTurns()
	f.openKept()
	f.openDocuments()
	return f, nil
}

// ownProgram is the path of the running program on Linux. An upgrade may have replaced the file at its original path by
// a version whose engine processes do not understand this front.
const ownProgram = "/proc/self/exe"

// Serve answers requests until ctx ends or the first SIGTERM, SIGINT or SIGHUP; then the engine processes finish their
// running requests within --shutdown-timeout. A second signal ends them at once.
func (f *Front) Serve(ctx context.Context) error {
	stop := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		stop = append(stop, syscall.SIGHUP)
	}
	signal.Notify(f.signals, stop...)
	defer signal.Stop(f.signals)
	signal.Notify(f.dumps, syscall.SIGUSR1)
	defer signal.Stop(f.dumps)

	f.log.Debug("front", "models", len(f.models), "default", f.def.name, "memory", f.limit, "socket",
		f.in.Addresses().Socket)
	if f.cfg.GPULayers != 0 {
		f.beside.Go(func() { f.devices.look() }) // while the first model's file is read
	}
	pollEnded := f.in.Start(f.routes(), nil)
	f.beside.Go(f.kept.Resume)
	f.loop.Do(func() {
		f.scan()
		for _, m := range f.models {
			if m.pinned || m == f.def {
				f.want(m)
			}
		}
	})
	ticker := time.NewTicker(f.opts.Tick)
	defer ticker.Stop()
	stopDog := opening.Watchdog(func(ping func()) { f.loop.Do(ping) }) // as long as the poller's goroutine answers
	defer stopDog()
	var failed error
wait:
	for {
		select {
		case <-ticker.C:
			f.loop.Do(f.tick)
		case <-f.dumps:
			f.beside.Go(f.dumpMetrics)
		case <-f.gone:
		case <-ctx.Done():
			break wait
		case sig := <-f.signals:
			f.log.Info("draining: new requests are refused, running ones finish; a second signal stops at once",
				"signal", sig.String(), "timeout", f.cfg.ShutdownTimeout)
			break wait
		case <-pollEnded:
			failed = f.in.Err()
			f.log.Error("the poller ended", "error", failed)
			break wait
		case failed = <-f.fatal:
			break wait
		}
	}
	sd.SdNotify(false, sd.SdNotifyStopping+"\nSTATUS=finishing running requests")
	f.downloads.Close()
	f.shutDown()
	f.kept.Close()
	f.in.Stop(lastFlush)
	if f.box != nil {
		f.box.Close()
	}
	f.beside.Wait()
	f.closeLeases()
	if f.events != nil {
		f.events.Close()
	}
	if failed == nil {
		f.log.Info("stopped")
	}
	return failed
}

const (
	lastFlush = time.Second     // for clients to read their last output
	stopGrace = 8 * time.Second // beyond --shutdown-timeout, for engine processes that do not end
)

// shutDown ends every engine process.
func (f *Front) shutDown() {
	ask := func() {
		f.draining = true
		for _, m := range f.models {
			if m.proc != nil {
				m.proc.leaving = true
				_ = m.proc.link.Send(link.Stop, 0, -1) // fails when it has ended already
			}
			f.refuseWaiting(m, shuttingDown())
		}
	}
	if !f.loop.Do(ask) { // the poller has failed: the processes see their links close
		return
	}
	limit := time.NewTimer(f.cfg.ShutdownTimeout + stopGrace)
	defer limit.Stop()
	for f.processes() > 0 {
		select {
		case <-f.gone:
		case sig := <-f.signals:
			f.log.Warn("stopping at once", "signal", sig.String())
			f.loop.Do(ask)
		case <-limit.C:
			f.loop.Do(func() {
				for _, m := range f.models {
					if m.proc != nil {
						f.log.Warn("an engine process does not end: it is killed", "model", m.name, "pid", m.proc.pid())
						m.proc.kill()
					}
				}
			})
		}
	}
}

// processes returns the number of engine processes.
func (f *Front) processes() (n int) {
	f.call(func() {
		for _, m := range f.models {
			if m.proc != nil {
				n++
			}
		}
	})
	return n
}

// call runs fn on the poller's goroutine and waits for it; false: the poller has ended.
func (f *Front) call(fn func()) bool {
	done := make(chan struct{})
	if !f.loop.Do(func() { fn(); close(done) }) {
		return false
	}
	<-done
	return true
}

// tick does the periodic work: API keys, idle models, waiting requests.
func (f *Front) tick() {
	now := time.Now()
	if keys := f.apiKeys(); keys != nil && string(keys) != f.keys {
		f.keys = string(keys)
		for _, m := range f.models {
			if m.proc != nil {
				// fails when it has ended: the next one gets them at its start
				_ = m.proc.link.Send(link.Keys, 0, -1, keys)
			}
		}
	}
	for _, m := range f.models {
		f.look(m, now)
		m.tellWaiting(now)
	}
	f.loop.Settled()
	f.lookAtHosts(now)
	f.admit()
}

// findModels makes the table of names: the [models.NAME] tables, and --model where it names none of them.
func (f *Front) findModels(ctx context.Context) error {
	for i := range f.cfg.Models {
		m, err := f.ofTable(f.cfg, &f.cfg.Models[i])
		if err != nil {
			return err
		}
		f.add(m)
		if m.table == f.cfg.DefaultModel() {
			f.def = m
		}
	}
	if f.def == nil {
		f.any = len(f.models) == 0
		alone := f.cfg.Alone()
		if len(f.cfg.Models) > 0 {
			ownCache(alone, f.cfg.ModelLabel())
		}
		f.def = &served{f: f, name: f.cfg.ModelLabel(), aliases: f.cfg.MoreNames(), cfg: alone, configured: true,
			idle: f.idleOf(-1, true)}
		f.add(f.def)
		if err := alone.Locate(ctx, f.log); err != nil {
			return err
		}
	}
	f.named = f.any || f.cfg.Model != "" || f.cfg.HFRepo != ""
	f.lenient = f.any && !f.cfg.Given("models-dir")
	if f.cfg.ServeFound {
		f.found.store = store.New(f.cfg.ModelsDir, nil)
	}
	f.headers = f.openHeaders()
	return nil
}

// configured returns the model of a name in the configuration; without a name, the default one.
func (f *Front) configured(name string) *served {
	if name == "" {
		return f.def
	}
	if m := f.names[strings.ToLower(name)]; m != nil {
		return m
	}
	if f.def.titled(name) {
		return f.def
	}
	if bare, tagged := strings.CutSuffix(strings.ToLower(name), ":"+store.Latest); tagged { // as ollama's lists have it
		return f.names[bare]
	}
	return nil
}

// find returns the model of a name without another scan; nil when there is none.
func (f *Front) find(name string) *served {
	m, _ := f.resolve(name)
	return m
}
