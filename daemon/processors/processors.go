// Package processors has the engine use as many compute threads as suits what other processes take of the machine.
package processors

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/internal/host/cpus"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched/threads"
)

// Processors is the shell around package threads: between two steps, every 150 ms of decoding, it reads what other
// processes take of the processors, and has the engine use as many threads as suits. It belongs to the decode loop, but
// for view and wanted. The zero value does nothing: the engine has no threads to set, or one.
type Processors struct {
	o      Options
	set    runtime.ThreadSetter // nil: the zero value
	ctl    *threads.Controller
	read   func(ids []int) threads.Counters
	stop   func() // closes the files of read
	bind   []int  // the CPUs that the loop's thread runs on; none: those that the kernel chooses
	ids    []int
	most   int
	next   time.Time // of the next reading
	told   time.Time // of the last log line about a change
	silent int       // changes since then

	// wanted is the most threads that --power allows now. Any goroutine writes it.
	wanted atomic.Int32
	view   atomic.Pointer[reports.InfoThreads]
}

const (
	// readShare bounds the time that readings take: on a machine with hundreds of CPUs one takes a millisecond.
	readShare = 200
	// logChanges is the shortest time between two log lines about changes.
	logChanges = 10 * time.Second
)

// Options connect Processors to an engine and to the decode loop.
type Options struct {
	Engine  runtime.Engine
	Caps    runtime.Capabilities
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Epoch   time.Time                                  // zero of the controller's clock
	Fixed   bool                                       // the number of threads does not follow the load
	Read    func(ids []int) threads.Counters           // nil: the system's counters, and only where the CPU computes
	Draft   func(n int)                                // sets the threads of the draft model
	Tell    func(n int, disturbed bool, now time.Time) // tells the core of the threads of the next step
}

// Open connects p. It stays without effect where the engine has no threads to set, or one.
func (p *Processors) Open(o Options) {
	set, ok := o.Engine.(runtime.ThreadSetter)
	if !ok || o.Caps.Threads < 2 || o.Caps.Device != runtime.DeviceCPU && o.Read == nil {
		return
	}
	t := cpus.ReadTopology()
	p.o, p.set, p.most = o, set, o.Caps.Threads
	p.read, p.stop = o.Read, func() {}
	if p.read == nil {
		r := cpus.OpenReader(&t)
		p.read, p.stop = func(ids []int) threads.Counters { return counters(r.Read(ids)) }, r.Close
	}
	if t.Hybrid() && p.most <= t.FastCores {
		p.bind = t.Fast
	}
	p.ctl = threads.New(threads.Config{Most: p.most, Processors: max(len(t.Allowed), p.most), Fixed: o.Fixed})
	p.wanted.Store(int32(p.most))
	p.publish(threads.Counters{Stalled: threads.Unknown, Throttled: threads.Unknown, Switches: threads.Unknown})
}

// Want limits the threads to quiet's part of them, or to all. ok is false where there are none to set; changed reports
// that the limit is another one than before. Safe from any goroutine.
func (p *Processors) Want(part func(most int) int) (n, most int, changed, ok bool) {
	if p.set == nil {
		return 0, 0, false, false
	}
	n = part(p.most)
	return n, p.most, int(p.wanted.Swap(int32(n))) != n, true
}

// Wanted returns the limit that Want has set. Safe from any goroutine.
func (p *Processors) Wanted() int { return int(p.wanted.Load()) }

// View returns the newest reading for info; nil: there is none. Safe from any goroutine.
func (p *Processors) View() *reports.InfoThreads { return p.view.Load() }

func counters(c cpus.Counters) threads.Counters {
	return threads.Counters{Busy: c.Busy, Own: c.Own, Ran: c.Ran, Waited: c.Waited, Stalled: c.Stalled,
		Throttled: c.Throttled, Switches: c.Switches}
}

// Begin is called when the loop starts, on its thread.
func (p *Processors) Begin() {
	if p.set == nil {
		return
	}
	if len(p.bind) > 0 {
		if err := cpus.Bind(p.bind); err != nil {
			p.o.Log.Debug("the decode loop runs on any core", "error", err)
		}
	}
	now := time.Now()
	p.o.Tell(p.most, false, now) // the saved cost model is of them
	p.follow(p.ctl.SetMost(p.Wanted()), now)
}

// follow carries a decision out.
func (p *Processors) follow(d threads.Decision, now time.Time) {
	if !d.Changed {
		return
	}
	p.set.SetThreads(d.Threads)
	p.o.Draft(d.Threads)
	p.o.Tell(d.Threads, d.Disturbed, now)
	p.o.Metrics.ThreadChanges.Inc(d.Reason.String())
	p.report(d, now)
}

// Close closes the files that it reads.
func (p *Processors) Close() {
	if p.set != nil {
		p.stop()
	}
}

// Stepped counts a step. When a reading is due it reads, and changes the number of threads of the next step.
func (p *Processors) Stepped(predicted, took time.Duration, now time.Time) {
	if p.set == nil {
		return
	}
	p.ctl.Step(took, predicted)
	if now.Before(p.next) {
		return
	}
	begin := time.Now()
	p.ids = p.set.ComputeThreads(p.ids[:0])
	n := p.read(p.ids)
	at := time.Now()
	p.next = at.Add(max(threads.Window, readShare*at.Sub(begin)))
	p.follow(p.ctl.Read(at.Sub(p.o.Epoch), n), at)
	if w := p.Wanted(); w != p.ctl.Most() {
		p.follow(p.ctl.SetMost(w), at)
	}
	p.publish(n)
}

// report logs a change, unless one was logged a moment ago.
func (p *Processors) report(d threads.Decision, now time.Time) {
	p.silent++
	if now.Sub(p.told) < logChanges {
		return
	}
	load := p.ctl.Load()
	p.o.Log.Info("compute threads", "threads", d.Threads, "of", p.most, "reason", d.Reason.String(), "cpus_taken",
		load.Taken, "changes", p.silent)
	p.told, p.silent = now, 0
}

// publish stores a reading for metrics and info.
func (p *Processors) publish(n threads.Counters) {
	load := p.ctl.Load()
	p.o.Metrics.SetProcessors(metrics.Processors{Threads: p.ctl.Threads(), Most: p.ctl.Most(), Taken: load.Taken,
		Waited:  load.Waited,
		Stalled: n.Stalled, Throttled: n.Throttled, Switches: n.Switches, BarrierSleeps: p.set.BarrierSleeps()})
	v := &reports.InfoThreads{Now: p.ctl.Threads(), Most: p.ctl.Most(), Reason: p.ctl.Reason().String()}
	if load.Taken >= 0 {
		v.Taken = &load.Taken
	}
	p.view.Store(v)
}
