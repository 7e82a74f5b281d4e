package daemon

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/host/cpus"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched/threads"
)

// processors is the shell around package threads: between two steps, every 150 ms of decoding, it reads what other
// processes take of the processors, and has the engine use as many threads as suits. It belongs to the decode loop, but
// for view and wanted. The zero value does nothing: the engine has no threads to set, or one.
type processors struct {
	log    *slog.Logger
	set    runtime.ThreadSetter // nil: the zero value
	draft  *draftModel          // nil: there is none
	ctl    *threads.Controller
	read   func(ids []int) threads.Counters
	stop   func() // closes the files of read
	bind   []int  // the CPUs that the loop's thread runs on; none: those that the kernel chooses
	ids    []int
	most   int
	epoch  time.Time
	next   time.Time // of the next reading
	told   time.Time // of the last log line about a change
	silent int       // changes since then

	// wanted is the most threads that --power allows now. The server writes it.
	wanted atomic.Int32
	view   atomic.Pointer[wire.InfoThreads]
}

const (
	// readShare bounds the time that readings take: on a machine with hundreds of CPUs one takes a millisecond.
	readShare = 200
	// logChanges is the shortest time between two log lines about changes.
	logChanges = 10 * time.Second
)

// openProcessors connects the loop to the counters of the system, or of parts in a test.
func (l *loop) openProcessors(p *parts) {
	if l.prefer = p.prefer; l.prefer == nil {
		l.prefer = cpus.Prefer
	}
	set, ok := l.eng.(runtime.ThreadSetter)
	if !ok || l.caps.Threads < 2 || l.caps.Device != runtime.DeviceCPU && p.counters == nil {
		return
	}
	t := cpus.ReadTopology()
	c := &l.cpu
	c.log, c.set, c.most, c.epoch, c.draft = l.log, set, l.caps.Threads, l.epoch, l.draft
	c.read, c.stop = p.counters, func() {}
	if c.read == nil {
		r := cpus.OpenReader(&t)
		c.read, c.stop = func(ids []int) threads.Counters { return counters(r.Read(ids)) }, r.Close
	}
	if t.Hybrid() && c.most <= t.FastCores {
		c.bind = t.Fast
	}
	c.ctl = threads.New(threads.Config{Most: c.most, Processors: max(len(t.Allowed), c.most),
		Fixed: l.cfg.FixedThreads})
	c.wanted.Store(int32(c.most))
	c.publish(threads.Counters{Stalled: threads.Unknown, Throttled: threads.Unknown, Switches: threads.Unknown}, l.m)
}

func counters(c cpus.Counters) threads.Counters {
	return threads.Counters{Busy: c.Busy, Own: c.Own, Ran: c.Ran, Waited: c.Waited, Stalled: c.Stalled,
		Throttled: c.Throttled, Switches: c.Switches}
}

// begin is called when the loop starts, on its thread.
func (c *processors) begin(l *loop) {
	if c.set == nil {
		return
	}
	if len(c.bind) > 0 {
		if err := cpus.Bind(c.bind); err != nil {
			c.log.Debug("the decode loop runs on any core", "error", err)
		}
	}
	now := time.Now()
	l.handle(core.Input{Kind: core.Threads, N: c.most}, now) // the saved cost model is of them
	c.follow(l, c.ctl.SetMost(int(c.wanted.Load())), now)
}

// follow carries a decision out.
func (c *processors) follow(l *loop, d threads.Decision, now time.Time) {
	if !d.Changed {
		return
	}
	c.set.SetThreads(d.Threads)
	c.draft.setThreads(d.Threads)
	l.handle(core.Input{Kind: core.Threads, N: d.Threads, Disturbed: d.Disturbed}, now)
	l.m.ThreadChanges.Inc(d.Reason.String())
	c.report(d, now)
}

func (c *processors) close() {
	if c.set != nil {
		c.stop()
	}
}

// stepped counts a step. When a reading is due it reads, and changes the number of threads of the next step.
func (c *processors) stepped(l *loop, predicted, took time.Duration, now time.Time) {
	if c.set == nil {
		return
	}
	c.ctl.Step(took, predicted)
	if now.Before(c.next) {
		return
	}
	begin := time.Now()
	c.ids = c.set.ComputeThreads(c.ids[:0])
	n := c.read(c.ids)
	at := time.Now()
	c.next = at.Add(max(threads.Window, readShare*at.Sub(begin)))
	c.follow(l, c.ctl.Read(at.Sub(c.epoch), n), at)
	if w := int(c.wanted.Load()); w != c.ctl.Most() {
		c.follow(l, c.ctl.SetMost(w), at)
	}
	c.publish(n, l.m)
}

// report logs a change, unless one was logged a moment ago.
func (c *processors) report(d threads.Decision, now time.Time) {
	c.silent++
	if now.Sub(c.told) < logChanges {
		return
	}
	load := c.ctl.Load()
	c.log.Info("compute threads", "threads", d.Threads, "of", c.most, "reason", d.Reason.String(), "cpus_taken",
		load.Taken, "changes", c.silent)
	c.told, c.silent = now, 0
}

// publish stores a reading for metrics and info.
func (c *processors) publish(n threads.Counters, m *metrics.Metrics) {
	load := c.ctl.Load()
	m.SetProcessors(metrics.Processors{Threads: c.ctl.Threads(), Most: c.ctl.Most(), Taken: load.Taken,
		Waited:  load.Waited,
		Stalled: n.Stalled, Throttled: n.Throttled, Switches: n.Switches, BarrierSleeps: c.set.BarrierSleeps()})
	v := &wire.InfoThreads{Now: c.ctl.Threads(), Most: c.ctl.Most(), Reason: c.ctl.Reason().String()}
	if load.Taken >= 0 {
		v.Taken = &load.Taken
	}
	c.view.Store(v)
}
