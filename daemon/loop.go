package daemon

import (
	"context"
	"log/slog"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/account"
	"github.com/uma-serve/uma-serve/daemon/adapters"
	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/calibration"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/constrain"
	"github.com/uma-serve/uma-serve/daemon/mailbox"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/processors"
	"github.com/uma-serve/uma-serve/daemon/seat"
	"github.com/uma-serve/uma-serve/daemon/tiers"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// loop is the decode loop: one goroutine, locked to its OS thread, that owns every request, sequence and KV cell.
// Package core makes the decisions; the loop feeds it inputs, carries out its steps, decodes, samples each row and
// sends the events.
//
// The engine's compute threads spin at barriers inside a decode. A thread that wakes meanwhile takes a core from the
// whole graph, so the loop itself writes tokens to the sockets, between two decodes.
type loop struct {
	// aside is held by the loop but while it decodes, waits for a device, or sleeps: then its state is whole, and a
	// question that cannot wait for the end of a step reads it (Server.ask). Nothing else may lock it.
	aside sync.Mutex
	end   ending

	cfg     *config.Config
	log     *slog.Logger
	eng     runtime.Engine
	m       *metrics.Metrics
	model   engineSide
	core    *core.Core
	journal journal
	mail    *mailbox.Mailbox[command]
	saved   *calibration.Saved
	cpu     processors.Processors
	prefer  func() error // asks for the loop's thread to run before others
	masks   *constrain.Masks
	device  *seat.Seat // nil: no other engine process shares the devices
	epoch   time.Time  // core.Instant 0, and the zero of meridian's clock

	stores    *tiers.Stores
	result    core.Result   // of the newest step
	histories chan *request // ended chats: intake renders the prefix that their next turn will have

	chores chores

	overlap overlap

	requests map[sched.ReqID]*request
	lastID   sched.ReqID
	stalled  int // requests with pending output

	embed embedWork

	// finalised is called once for each request, after its last event was sent or dropped.
	finalised func(*request)

	reused reused

	// state is read by health from any goroutine.
	state loopState
}

func newLoop(cfg *config.Config, log *slog.Logger, eng runtime.Engine, m *metrics.Metrics, md *prepare.Model) *loop {
	l := &loop{
		cfg: cfg, log: log, mail: mailbox.New[command](), epoch: time.Now(), histories: make(chan *request, 64),
		requests: map[sched.ReqID]*request{}, masks: constrain.NewMasks(eng.Vocab(), md.Tags.Headers(), m),
		eng: eng, m: m,
		model: engineSide{vocab: eng.Vocab(), caps: eng.Capabilities(), tags: md.Tags,
			probe: meridian.ProberOf(eng), info: md.Info,
			mixes: adapters.NewMixes(eng)},
		journal: journal{debug: log.Enabled(context.Background(), slog.LevelDebug),
			tracked: meridian.NewRegistry(), passes: account.NewPasses(eng, m)},
		reused: reused{flush: make([]ipc.Client, 0, 64), timer: time.NewTimer(time.Hour)},
	}
	l.model.argmx, _ = eng.(runtime.RowScanner)
	l.embed.hidden, _ = eng.(runtime.Embedder)
	if l.model.caps.Beside {
		l.overlap.sub, _ = eng.(runtime.Submitter)
	}
	l.embed.embedder, l.embed.encoder, l.embed.maxInputs = md.Embedder, md.Info.Encoder, cfg.Parallel
	if !l.embed.encoder {
		l.embed.maxInputs = max(1, cfg.Parallel/2) // the other sequences are for answers
	}
	return l
}

func (l *loop) instant(t time.Time) core.Instant { return core.Instant(t.Sub(l.epoch)) }

// run runs the loop until cmdStop, or until it has drained after cmdDrain.
func (l *loop) run() {
	defer l.dumpState()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := l.prefer(); err != nil {
		l.log.Debug("the decode loop's thread has the class of any thread", "error", err)
	}
	l.cpu.Begin()
	defer l.cpu.Close()
	defer l.journal.rec.Close()
	defer l.masks.Close()
	l.aside.Lock()
	now := time.Now()
	for {
		l.takeCommands(now)
		if l.model.mixes.Leaving() {
			l.freeAdapters()
		}
		now = l.beginTurn(now)
		l.feed(now)
		begin := time.Now()
		step := l.core.Next(l.instant(now))
		l.chores.scheduled = time.Since(begin)
		l.logPlan(&step.Plan)
		l.carryOut(step.Ops)
		l.report(step, now)
		if l.end.stop || len(step.Plan.Batch) == 0 {
			l.settle()
		}
		if l.end.stop || l.end.draining && l.state.requests.Load() == 0 {
			l.endTurn(now)
			l.shutdown(now)
			l.end.over = true
			l.aside.Unlock()
			return
		}
		if len(step.Plan.Batch) > 0 {
			l.step(&step.Plan, now)
			now = time.Now()
			continue
		}
		l.flushAll()
		l.endTurn(now)
		l.saved.Save(l.core.Scheduler().Cost, now, false)
		l.core.Done(l.instant(time.Now()), &l.result)
		if !step.Idle || l.model.mixes.Settles() {
			now = time.Now()
			if !l.canAdvance() {
				l.noteProgress(now)
			}
			continue
		}
		if l.stores.OfferSome() {
			now = time.Now()
			l.noteProgress(now)
			continue
		}
		now = l.sleep(step.WakeAt, now)
	}
}

// takeCommands passes the commands of other goroutines to the core.
func (l *loop) takeCommands(now time.Time) {
	l.reused.commands = l.mail.Take(l.reused.commands)
	for i := range l.reused.commands {
		c := &l.reused.commands[i]
		switch c.kind {
		case cmdArrive:
			l.arrive(c.req, now)
		case cmdCancel:
			switch {
			case c.req.embed == nil:
				l.handle(core.Input{Kind: core.Cancel, Req: c.req.ID}, now)
			case !c.req.life.Over() && c.req.ID > 0: // else it is on its way here
				l.cancelEmbed(c.req, now)
			}
		case cmdEndThink:
			l.endThink(c.req, now)
		case cmdHistory:
			l.handle(core.Input{Kind: core.History, Req: c.req.ID, Tokens: c.tokens}, now)
		case cmdStored:
			l.stores.Poll(c.stored, now)
		case cmdOffloaded:
			l.handle(core.Input{Kind: core.Offloaded, Req: c.offloaded, Tier: c.tier}, now)
		case cmdOffer: // the loop offers it when it idles
		case cmdTask, cmdAwaited:
			l.settle() // so that the answer tells of all tokens
			c.task.run(l, now)
		case cmdWritable:
			l.resume(c.conn)
		case cmdDrain:
			if !l.end.draining {
				l.end.draining = true
				l.handle(core.Input{Kind: core.Drain}, now)
			}
		case cmdStop:
			l.end.stop = true
		}
		*c = command{}
	}
	l.sweepStalled(now)
}

func (l *loop) handle(in core.Input, now time.Time) { l.core.Handle(l.instant(now), in) }

func (l *loop) arrive(r *request, now time.Time) {
	l.lastID++
	r.ID, r.Data, r.Arrived = l.lastID, r, l.instant(r.arrived)
	if r.embed != nil {
		l.arriveEmbed(r, now)
		return
	}
	l.requests[r.ID] = r
	refused := false
	if a := l.model.mixes.Arrives(r.Adapters, r.Salt); a != nil {
		r.failure, refused = a.Unloaded(), true
	} else if r.Mix, refused = l.mixOf(r); refused {
		r.failure = adapters.TooManyMixes()
	}
	r.trace = l.journal.tel.Begin(r.parent)
	l.journal.tracked.Register(uint64(r.ID), r.Phases, int64(r.Arrived))
	l.state.requests.Add(1)
	if e := l.overCells(r); e != nil {
		l.m.Refusals.Inc(admission.RefusedCells)
		l.failRequest(r, *e)
		return
	}
	if c := r.constraint; c != nil {
		c.Want(r.place())
	}
	l.handle(core.Input{Kind: core.Arrive, Request: &r.Request}, now)
	// A cancel or an end_think that came during intake found no id; only its flag is set.
	if r.life.Cancelled() || refused {
		l.handle(core.Input{Kind: core.Cancel, Req: r.ID}, now)
	}
	if r.endThink.Load() {
		r.Phases.EndThink(int64(l.instant(time.Now())))
	}
}

// requestOf returns the connection's part of a request.
func requestOf(r *core.Request) *request { return r.Data.(*request) }

// publishEvery is the maximum age of the scheduler's gauges while steps run. The loop also publishes before it idles.
const publishEvery = 10 * time.Millisecond

// sleep waits for work, at most until wakeAt (0 = no limit).
func (l *loop) sleep(wakeAt core.Instant, now time.Time) time.Time {
	var d time.Duration
	if wakeAt > 0 {
		d = max(time.Duration(wakeAt-l.instant(now)), time.Microsecond)
	}
	if l.stalled > 0 && l.cfg.StallTimeout > 0 && (d == 0 || d > time.Second) {
		d = time.Second
	}
	if l.state.requests.Load() == 0 {
		l.countResident()
	}
	l.publish()
	l.scanEvents(now, true)
	l.journal.rec.Idle()
	if !l.canAdvance() {
		l.state.busySince.Store(0)
	}
	l.aside.Unlock()
	l.mail.Wait(d, l.reused.timer)
	l.aside.Lock()
	now = time.Now()
	l.state.busySince.CompareAndSwap(0, now.UnixNano())
	return now
}

// canAdvance reports whether a live request can advance: a paused one, whose client does not read, cannot.
func (l *loop) canAdvance() bool {
	live := l.state.requests.Load()
	if live == 0 || l.stalled == 0 {
		return live > 0
	}
	for _, r := range l.requests {
		if !r.life.Over() && !r.paused && (r.embed == nil || r.embed.blocked == 0) {
			return true
		}
	}
	return false
}

// noteProgress records progress other than a step (a copy of cells), so that health reports no stall.
func (l *loop) noteProgress(now time.Time) { l.state.busySince.Store(now.UnixNano()) }

// countResident counts the engine's sequences with cells that the prefix tree does not list. While no request is live
// the number must be 0; info reports it and the smoke tests assert it.
func (l *loop) countResident() {
	n := 0
	for s := range l.model.caps.MaxSequences {
		if _, last := l.eng.SeqRange(runtime.Seq(s)); last >= 0 {
			n++
		}
	}
	st := l.core.Tree().Stats()
	if n -= st.Entries + st.Runs; n != 0 {
		l.log.Warn("leaked sequences: the engine holds cells that the prefix tree does not list", "sequences", n)
	}
	l.state.resident.Store(int64(n))
}
