package daemon

import (
	"errors"
	"log/slog"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
)

// loop is the decode loop: one goroutine, locked to its OS thread, that owns every request, sequence and KV cell.
// It is the shell around package core, which decides everything: what happened → core.Next → carry out → one Decode → sample
// each row → events out.
//
// The engine's compute threads spin at barriers inside a decode, so whatever wakes another thread meanwhile takes
// a core from the whole graph. Between two decodes the loop therefore writes the tokens to the sockets itself.
type loop struct {
	cfg       *Config
	log       *slog.Logger
	eng       runtime.Engine
	argmx     runtime.RowScanner // eng, when it can find a row's largest logit faster than Go; nil otherwise
	probe     runtime.RowProber
	vocab     runtime.Vocab
	caps      runtime.Capabilities
	tags      *meridian.Tags // nil: the model does not mark its thinking
	core      *core.Core
	m         *metrics.Metrics
	live      *live
	mail      *mailbox
	rec       *recorder // nil: no trace is wanted
	saved     *calibration
	masks     maskWorker
	maskCosts maskCosts
	epoch     time.Time // core.Instant 0, and the zero of meridian's clock

	stores    *stores
	result    core.Result        // of the newest step
	histories chan *request      // ended chats, for intake to render what their next turn begins with
	past      [wire.MaxLast]past // ended requests, for why
	pastNext  int
	tracked   *meridian.Registry
	cellBytes int
	itlTarget time.Duration // of answers that name none

	scheduled  time.Duration // what the newest core.Next took
	infeasible bool          // that the target cannot be met was logged

	requests map[sched.ReqID]*request
	lastID   sched.ReqID
	stalled  int // requests with pending output

	// finalised is told of each request once, when nothing of it is left to send.
	finalised func(*request)

	// Reused by every step.
	scratch  sampler.Scratch
	commands []command
	frame    []byte
	stats    runtime.RowStats
	tick     tickCounts
	top      []wire.TokenLogprob
	thought  []byte // of the token at hand
	answer   []byte
	flush    []*ipc.Conn
	timer    *time.Timer

	draining   bool
	stop       bool
	lastSweep  time.Time // for stalled clients
	published  time.Time // of the scheduler's gauges
	lastReap   time.Time
	stale      []uint64
	lastQueued time.Time // report of queue places

	// stopBy is when the process must have ended (unix ns), 0 = it need not. Written by Serve before it puts cmdStop or cmdDrain.
	stopBy atomic.Int64

	// state is read by health from any goroutine.
	state loopState
}

// loopState is what other goroutines may know of the loop without asking it.
type loopState struct {
	// busySince is the time (unix ns) from which on a step is due: when the loop last had no request that can advance,
	// or moved cells for one. 0 = it sleeps and has none. It is not 0 while the loop is stuck, wherever that is.
	busySince atomic.Int64
	lastStep  atomic.Int64 // unix ns when the last decode ended; 0 = none yet
	resident  atomic.Int64 // sequences that hold cells in the engine, counted whenever the loop goes idle
	requests  atomic.Int64 // live requests, queued ones included
}

func newLoop(cfg *Config, log *slog.Logger, eng runtime.Engine, m *metrics.Metrics, md *model) *loop {
	l := &loop{
		cfg: cfg, log: log, eng: eng, vocab: eng.Vocab(), caps: eng.Capabilities(), tags: md.tags, m: m,
		probe: meridian.ProberOf(eng), tracked: meridian.NewRegistry(), histories: make(chan *request, 64),
		mail: newMailbox(), epoch: time.Now(), requests: map[sched.ReqID]*request{},
		frame: make([]byte, 0, 4096), flush: make([]*ipc.Conn, 0, 64), timer: time.NewTimer(time.Hour),
		cellBytes: md.info.KVBytesPerToken,
	}
	l.argmx, _ = eng.(runtime.RowScanner)
	return l
}

func (l *loop) instant(t time.Time) core.Instant { return core.Instant(t.Sub(l.epoch)) }

// run is the loop. It returns when it was told to stop, or drained.
func (l *loop) run() {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	defer l.rec.close()
	defer l.masks.close()
	now := time.Now()
	for {
		l.takeCommands(now)
		begin := time.Now()
		step := l.core.Next(l.instant(now))
		l.scheduled = time.Since(begin)
		l.carryOut(step.Ops)
		l.told(step, now)
		if l.stop || l.draining && l.state.requests.Load() == 0 {
			l.abandon(now)
			return
		}
		if len(step.Plan.Batch) > 0 {
			l.step(&step.Plan, now)
			now = time.Now()
			continue
		}
		l.flushAll()
		l.saved.save(l.core.Scheduler().Cost, now, false)
		l.core.Done(l.instant(time.Now()), &l.result)
		if !step.Idle {
			now = time.Now()
			if !l.advances() {
				l.alive(now)
			}
			continue
		}
		now = l.sleep(step.WakeAt, now)
	}
}

// takeCommands hands what other goroutines asked to the core.
func (l *loop) takeCommands(now time.Time) {
	l.commands = l.mail.take(l.commands)
	for i := range l.commands {
		c := &l.commands[i]
		switch c.kind {
		case cmdArrive:
			l.arrive(c.req, now)
		case cmdCancel:
			l.handle(core.Input{Kind: core.Cancel, Req: c.req.ID}, now)
		case cmdEndThink:
			l.endThink(c.req, now)
		case cmdHistory:
			l.handle(core.Input{Kind: core.History, Req: c.req.ID, Tokens: c.tokens}, now)
		case cmdStored:
			l.poll(c.stored, now)
		case cmdAsk:
			c.ask(l, now)
		case cmdWritable:
			l.resume(c.conn)
		case cmdDrain:
			if !l.draining {
				l.draining = true
				l.handle(core.Input{Kind: core.Drain}, now)
			}
		case cmdStop:
			l.stop = true
		}
		*c = command{}
	}
	l.sweepStalled(now)
}

func (l *loop) handle(in core.Input, now time.Time) { l.core.Handle(l.instant(now), in) }

func (l *loop) arrive(r *request, now time.Time) {
	l.lastID++
	r.ID, r.Data, r.Arrived = l.lastID, r, l.instant(r.arrived)
	l.requests[r.ID] = r
	l.tracked.Register(uint64(r.ID), r.ctl, int64(r.Arrived))
	l.state.requests.Add(1)
	l.masks.want(r.form, l.openers(r))
	l.handle(core.Input{Kind: core.Arrive, Request: &r.Request}, now)
	// A cancel that overtook the request on its way through the tokenizer found no id to name.
	if r.cancelled.Load() {
		l.handle(core.Input{Kind: core.Cancel, Req: r.ID}, now)
	}
	if r.endThink.Load() {
		r.ctl.EndThink(int64(l.instant(time.Now())))
	}
}

// of is the connection's part of a request.
func of(r *core.Request) *request { return r.Data.(*request) }

// told tells clients and metrics what a step says of requests.
func (l *loop) told(step *core.Step, now time.Time) {
	for i := range step.Notes {
		l.noted(&step.Notes[i])
	}
	for i := range step.Ends {
		l.endedByCore(&step.Ends[i], now)
	}
	for _, r := range step.Histories {
		select {
		case l.histories <- of(r):
		default: // intake has too much to do: all of it is kept
			l.handle(core.Input{Kind: core.History, Req: r.ID}, now)
		}
	}
}

// endedByCore ends a request that the core ended without a token: cancelled, refused or failed.
func (l *loop) endedByCore(end *core.End, now time.Time) {
	r := of(end.Request)
	switch {
	case r.failure != nil:
		l.failRequest(r, *r.failure)
	case end.Kind == core.Cancelled, r.cancelled.Load():
		l.endRequest(r, wire.Cancelled, "", now)
	case end.Kind == core.Failed:
		l.failRequest(r, wire.Error{Code: wire.RuntimeDecode, Message: end.Reason.Explain()})
	default:
		l.m.Refusals.Inc(end.Reason.String())
		e := wire.Error{Code: wire.QueueLimit, Message: end.Reason.Explain(), RetryAfter: end.RetryAfter}
		if l.draining {
			e.Code = wire.ShuttingDown
		}
		l.failRequest(r, e)
	}
}

// noted counts and logs.
func (l *loop) noted(n *core.Note) {
	switch n.Kind {
	case core.Started:
		if n.First {
			l.firstStart(of(n.Request), n)
		}
	case core.Preempted:
		l.m.Preemptions.Inc()
		l.log.Debug("preempted", "request", of(n.Request).wireID)
	case core.Parked:
		l.m.ParkedTotal.Inc()
	case core.Recomputed:
		l.m.Recomputed.Inc()
	case core.Shifted:
		l.m.ContextShift.Inc()
		r := of(n.Request)
		r.chat = false
		l.log.Debug("context shift", "request", r.wireID, "forgotten", n.N)
	case core.ThoughtDropped:
		r := of(n.Request)
		r.chat = false
		l.log.Debug("thought dropped", "request", r.wireID, "tokens", n.N)
	case core.Unpinned:
		l.log.Warn("a pinned prefix gives way: the only request that runs needs its cells", "entry", n.Entry, "tokens", n.N)
	case core.Restored:
		l.m.Restored(metricsTier[n.Tier], n.Took)
	}
}

// firstStart notes what of a request's prompt was cached, and where.
func (l *loop) firstStart(r *request, n *core.Note) {
	r.cached = min(n.N, r.Prompt)
	r.tier = wire.TierNone
	if r.cached > 0 {
		r.tier = wireTier[n.Tier]
	}
	r.miss = missText(&n.Match, r.Prompt)
	l.m.Lookup(metricsTier[n.Tier], r.cached)
	if n.Match.Reason != kvsnap.ReasonFull {
		l.m.CacheMisses.Inc(n.Match.Reason.String())
	}
}

// step decodes a plan's batch, samples its rows and reports both to the scheduler.
func (l *loop) step(plan *sched.Plan, now time.Time) {
	l.core.FillBatch(l.eng.Batch())
	alone := false // one request's prompt is all there is to compute
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := l.requests[s.Req]
		if r.started.IsZero() {
			r.started = now
			l.m.QueueTime.Observe(now.Sub(r.arrived))
		}
		if s.Kind == sched.SlicePrefill {
			alone = len(plan.Batch) == 1
			r.abortable.Store(alone || s.N >= abortFrom)
			if r.progress && r.lastProgress.IsZero() && (r.noisy || plan.Predicted > progressEvery) {
				l.reportProgress(r, now) // a sign of life before a long step
			}
		}
	}
	l.flushAll()
	l.masks.begin()
	begin := time.Now()
	var err error
	if alone && l.requests[plan.Batch[0].Req].cancelled.Load() {
		err = runtime.ErrAborted // the cancel came before abortable was set
	} else {
		err = l.eng.Decode()
	}
	done := time.Now()
	l.masks.end()
	l.state.lastStep.Store(done.UnixNano())
	took := done.Sub(begin)
	outcome := sched.StepOK
	switch {
	case err == nil:
	case errors.Is(err, runtime.ErrKVFull):
		outcome = sched.StepKVFull
	case errors.Is(err, runtime.ErrAborted):
		outcome = sched.StepAborted
	default:
		outcome = sched.StepFailed
		l.m.DecodeErrors.Inc()
		l.log.Error("decode failed", "error", err, "tokens", plan.Tokens)
	}
	l.result.Outcome, l.result.Took = outcome, took
	l.core.Done(l.instant(done), &l.result)
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := l.requests[s.Req]
		switch {
		case s.Kind == sched.SliceProbe:
			continue // looked at with the slice before
		case s.Kind == sched.SlicePrefill:
			r.abortable.Store(false)
		}
		if outcome != sched.StepOK {
			continue
		}
		if i+1 < len(plan.Batch) && plan.Batch[i+1].Kind == sched.SliceProbe {
			l.probed(r, plan.Batch[i+1].Row)
		}
		switch {
		case s.Row >= 0:
			if r.noisy && s.Kind == sched.SlicePrefill {
				l.reportProgress(r, done)
			}
			l.sample(r, s.Row, done)
		case s.Kind == sched.SliceDecode: // forced tokens, of which the rest comes in the next step
		case r.noisy || r.progress && done.Sub(r.arrived) >= progressEvery:
			l.reportProgress(r, done)
		}
	}
	l.reportQueued(done)
	l.flushAll()
	// Bookkeeping comes after the write: the client wakes and reads meanwhile, on another core, instead of taking
	// one from the decode that follows.
	l.account(plan, took, done)
	if done.Sub(l.published) >= publishEvery {
		l.published = done
		l.publish()
	}
}

// publishEvery bounds how old the scheduler's gauges are that a scrape reads while steps run; the loop also
// publishes them whenever it goes idle.
const publishEvery = 10 * time.Millisecond

// sample draws the next token of r from its logits row and sends what it means.
func (l *loop) sample(r *request, row int, now time.Time) {
	if r.cancelled.Load() {
		// Its cancel may still be on its way through the mailbox; the core must hear something of this row.
		l.handle(core.Input{Kind: core.Cancel, Req: r.ID}, now)
		return
	}
	if r.fillOnly {
		r.first, r.last = now, now
		l.core.NoToken(&r.Request, sched.ReasonLength)
		l.endRequest(r, wire.Length, "", now)
		return
	}
	at := l.instant(now)
	choice, err := l.draw(r, row, int64(at))
	if errors.Is(err, sampler.ErrNoCandidate) && l.offers(row) {
		l.core.NoToken(&r.Request, sched.ReasonFailed)
		l.failRequest(r, wire.Error{Code: wire.BadRequest, Message: l.nothingLeft(r)})
		return
	}
	if err != nil {
		l.log.Error("sampling failed", "request", r.wireID, "error", err)
		l.core.NoToken(&r.Request, sched.ReasonFailed)
		l.failRequest(r, wire.Error{Code: wire.RuntimeDecode, Message: "the model's output cannot be sampled: " + err.Error()})
		return
	}
	if r.form != nil {
		l.takeBound(r, &choice, now)
		return
	}
	l.take(r, &choice, now)
}

// take follows a token of r, drawn or forced, and sends what it means. It reports whether the request goes on; said is
// valid until the next call.
func (l *loop) take(r *request, choice *sampler.Choice, now time.Time) (said core.Said, ok bool) {
	tok := choice.Token
	r.chain.Accept(tok)
	inThink := r.ctl.Phase() == meridian.ThinkDecode
	l.timeToken(r, inThink, now)
	eog := l.vocab.IsEOG(tok) || !inThink && slices.Contains(r.stopTokens, tok)
	said = l.core.Token(l.instant(now), &r.Request, tok, l.piece(r, tok, inThink), eog, l.thought[:0], l.answer[:0])
	if r.Calls != nil {
		r.ctl.Verbatim(r.Calls.Busy())
		l.holdCall(r)
	}
	l.thought, l.answer = said.Think, said.Answer
	l.phaseChanged(r, &said, now)
	l.emit(r, choice, &said)
	switch said.End {
	case core.Stopped:
		l.endRequest(r, wire.Stop, said.StopText, now)
	case core.Length:
		l.endRequest(r, wire.Length, "", now)
	default:
		l.countOnly(r)
		return said, true
	}
	return said, false
}

// offers reports whether the model itself has a token for a row: if none can be sampled then, the request forbids them.
func (l *loop) offers(row int) bool {
	best, _ := sampler.Argmax(l.eng.Logits(row))
	return best >= 0
}

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
	l.rec.idle()
	if !l.advances() {
		l.state.busySince.Store(0)
	}
	l.mail.wait(d, l.timer)
	now = time.Now()
	l.state.busySince.CompareAndSwap(0, now.UnixNano())
	return now
}

// advances reports whether a live request can be advanced: one whose client does not read cannot.
func (l *loop) advances() bool {
	live := l.state.requests.Load()
	if live == 0 || l.stalled == 0 {
		return live > 0
	}
	for _, r := range l.requests {
		if !r.finished && !r.paused {
			return true
		}
	}
	return false
}

// alive notes progress that is no step, so that health does not take it for a stall.
func (l *loop) alive(now time.Time) { l.state.busySince.Store(now.UnixNano()) }

// countResident asks the engine itself which sequences hold cells that the prefix tree knows nothing of. With nothing
// running it must be none: info shows the number, and the smoke tests hold it at zero.
func (l *loop) countResident() {
	n := 0
	for s := range l.caps.MaxSequences {
		if _, last := l.eng.SeqRange(runtime.Seq(s)); last >= 0 {
			n++
		}
	}
	st := l.core.Tree().Stats()
	if n -= st.Entries + st.Runs; n != 0 {
		l.log.Warn("sequences hold cells that nobody knows of", "sequences", n)
	}
	l.state.resident.Store(int64(n))
}
