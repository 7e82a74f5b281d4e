package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
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
// A turn of it is one step: what happened → sched.Step → one Decode → sample each row → events out.
//
// The engine's compute threads spin at barriers inside a decode, so whatever wakes another thread meanwhile takes
// a core from the whole graph. Between two decodes the loop therefore writes the tokens to the sockets itself.
type loop struct {
	cfg   *Config
	log   *slog.Logger
	eng   runtime.Engine
	argmx runtime.RowScanner // eng, when it can find a row's largest logit faster than Go; nil otherwise
	probe runtime.RowProber
	vocab runtime.Vocab
	caps  runtime.Capabilities
	tags  *meridian.Tags // nil: the model does not mark its thinking
	sched *sched.Scheduler
	m     *metrics.Metrics
	mail  *mailbox
	rec   *recorder // nil: no trace is wanted
	saved *calibration
	epoch time.Time // sched.Instant 0, and the zero of meridian's clock

	// Who holds which cells: see kv.go.
	tree      *kvsnap.Tree
	store     *store
	slots     []*request         // by the scheduler's sequence number
	own       int                // Invariant: Σ request.own over slots: what the scheduler counts as its requests' cells
	pool      int                // what EvPool said last
	lingering []*request         // ended chats whose history is being rendered
	histories chan *request      // ended chats, for intake to render what their next turn begins with
	past      [wire.MaxLast]past // ended requests, for why
	pastNext  int
	forks     int // probe forks in the batch at hand
	tracked   *meridian.Registry
	evictable int              // cells of cached prefixes when the scheduler decided
	avoidable uint64           // blocks of answers that were taken while less needed ones were there
	blocks    *meridian.Blocks // the same cells by what they are to their request
	cellBytes int
	itlTarget time.Duration // of answers that name none

	scheduled  time.Duration // what the newest Step took
	infeasible bool          // that the target cannot be met was told

	requests map[sched.ReqID]*request
	lastID   sched.ReqID
	stalled  int // requests with pending output

	// finalised is told of each request once, when nothing of it is left to send.
	finalised func(*request)

	// Reused by every step.
	scratch  sampler.Scratch
	events   []sched.Event
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

	// state is read by health from any goroutine.
	state loopState
}

// loopState is what other goroutines may know of the loop without asking it.
type loopState struct {
	busySince atomic.Int64 // unix ns when the loop last left idleness; 0 = idle
	lastStep  atomic.Int64 // unix ns when the last decode ended; 0 = none yet
	resident  atomic.Int64 // sequences that hold cells in the engine, counted whenever the loop goes idle
	requests  atomic.Int64 // live requests, queued ones included
}

func newLoop(cfg *Config, log *slog.Logger, eng runtime.Engine, s *sched.Scheduler, tree *kvsnap.Tree, m *metrics.Metrics, md *model) (*loop, error) {
	l := &loop{
		cfg: cfg, log: log, eng: eng, vocab: eng.Vocab(), caps: eng.Capabilities(), tags: md.tags, sched: s, m: m,
		probe: meridian.ProberOf(eng), tree: tree, slots: make([]*request, cfg.Parallel), tracked: meridian.NewRegistry(),
		histories: make(chan *request, 64),
		mail:      newMailbox(), epoch: time.Now(), requests: map[sched.ReqID]*request{},
		events: make([]sched.Event, 0, 64), frame: make([]byte, 0, 4096), flush: make([]*ipc.Conn, 0, 64),
		timer: time.NewTimer(time.Hour),
	}
	l.argmx, _ = eng.(runtime.RowScanner)
	l.itlTarget = s.Config().ITLTarget
	l.cellBytes = md.info.KVBytesPerToken
	var err error
	l.blocks, err = meridian.NewBlocks(meridian.BlocksConfig{Cells: l.caps.ContextTokens, BlockCells: cfg.KVBlockTokens, CellBytes: l.cellBytes})
	return l, err
}

func (l *loop) instant(t time.Time) sched.Instant { return sched.Instant(t.Sub(l.epoch)) }

// run is the loop. It returns when it was told to stop, or drained.
func (l *loop) run() {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	defer l.rec.close()
	now := time.Now()
	for {
		l.takeCommands(now)
		plan := l.decide(now)
		if l.stop || l.draining && l.state.requests.Load() == 0 {
			l.abandon(now)
			return
		}
		if len(plan.Batch) > 0 {
			l.step(&plan, now)
			now = time.Now()
			continue
		}
		l.flushAll()
		l.saved.save(l.sched.Cost, now, false)
		if l.store.work(time.Now(), copyIdleTime, true) {
			now = time.Now()
			continue
		}
		// What a release set free (a prefix somebody waited for, cells that were shared), the scheduler hears of before
		// anybody sleeps: nothing else would wake the loop.
		if l.poolEvent(); len(l.events) > 0 {
			now = time.Now()
			continue
		}
		now = l.sleep(plan.WakeAt, now)
	}
}

// decide asks the scheduler what to do next and carries out what comes before the batch. Requests that are let in
// are looked up in the prefix tree on the way, so it may take the scheduler more than one Step.
func (l *loop) decide(now time.Time) sched.Plan {
	for {
		l.poolEvent()
		begin := time.Now()
		plan := l.sched.Step(l.instant(now), l.events)
		l.scheduled = time.Since(begin)
		l.rec.step(l.instant(now), l.events, &plan)
		l.events = l.events[:0]
		l.settle(&plan, now)
		if !plan.Again && (len(plan.Batch) > 0 || len(l.events) == 0) {
			if invariants.Enabled {
				l.check()
			}
			return plan
		}
	}
}

// takeCommands turns what other goroutines asked into scheduler events.
func (l *loop) takeCommands(now time.Time) {
	l.commands = l.mail.take(l.commands)
	for i := range l.commands {
		c := &l.commands[i]
		switch c.kind {
		case cmdArrive:
			l.arrive(c.req, now)
		case cmdCancel:
			if r := c.req; r.id != 0 && !r.finished {
				l.events = append(l.events, sched.Event{Kind: sched.EvCancel, Req: r.id})
			}
		case cmdEndThink:
			l.endThink(c.req, now)
		case cmdHistory:
			l.historyReady(c.req, c.tokens, now)
		case cmdStored:
			l.store.arrived(c.stored)
		case cmdAsk:
			c.ask(l, now)
		case cmdWritable:
			l.resume(c.conn)
		case cmdDrain:
			if !l.draining {
				l.draining = true
				l.events = append(l.events, sched.Event{Kind: sched.EvDrain})
			}
		case cmdStop:
			l.stop = true
		}
		*c = command{}
	}
	l.sweepStalled(now)
}

func (l *loop) arrive(r *request, now time.Time) {
	l.lastID++
	r.id = l.lastID
	l.requests[r.id] = r
	l.tracked.Register(uint64(r.id), r.ctl, int64(l.instant(r.arrived)))
	l.state.requests.Add(1)
	l.events = append(l.events, sched.Event{
		Kind: sched.EvArrive, Req: r.id, Class: r.class, Owner: r.owner, Prompt: r.nPrompt, MaxTokens: r.maxTokens,
		TargetTTFT: r.targetTTFT, TargetTBT: r.targetTBT, Thinking: r.ctl.Phase() == meridian.ThinkDecode, Ago: max(0, now.Sub(r.arrived)),
	})
	// A cancel that overtook the request on its way through the tokenizer found no id to name.
	if r.cancelled.Load() {
		l.events = append(l.events, sched.Event{Kind: sched.EvCancel, Req: r.id})
	}
	if r.endThink.Load() {
		r.ctl.EndThink(int64(l.instant(time.Now())))
	}
}

// settle carries out the part of a plan that comes before its batch.
func (l *loop) settle(plan *sched.Plan, now time.Time) {
	for i := range plan.Release {
		rel := &plan.Release[i]
		if rel.Seq >= 0 {
			l.releaseSlot(rel, now)
		}
		r := l.requests[rel.Req]
		if r == nil || r.finished {
			continue
		}
		if !rel.Final {
			l.m.Preemptions.Inc()
			l.log.Debug("preempted", "request", r.wireID, "reason", rel.Reason.String())
			continue
		}
		// The requests that ended by their own token were answered in finish; these ended by somebody's hand.
		switch {
		case r.cancelled.Load():
			l.endRequest(r, wire.Cancelled, "", now)
		default:
			l.failRequest(r, wire.Error{Code: wire.RuntimeDecode, Message: rel.Reason.Explain()})
		}
	}
	for i := range plan.Reject {
		rej := &plan.Reject[i]
		r := l.requests[rej.Req]
		if r == nil || r.finished {
			continue
		}
		e := wire.Error{Code: wire.QueueLimit, Message: rej.Reason.Explain(), RetryAfter: rej.RetryAfter}
		if l.draining {
			e.Code = wire.ShuttingDown
		}
		l.failRequest(r, e)
	}
	if plan.Reclaim > 0 {
		l.reclaim(plan.Reclaim, now)
	}
	for i := range plan.Start {
		l.startRequest(plan.Start[i], now)
	}
}

// step decodes a plan's batch, samples its rows and reports both to the scheduler.
func (l *loop) step(plan *sched.Plan, now time.Time) {
	l.makeRoom(plan.Tokens, now)
	b := l.eng.Batch()
	b.Reset()
	l.forks = 0
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := l.requests[s.Req]
		if r.started.IsZero() {
			r.started = now
			l.m.QueueTime.Observe(now.Sub(r.arrived))
		}
		switch s.Kind {
		case sched.SliceProbe:
			l.addFork(b, s, r)
			continue
		case sched.SlicePrefill:
			r.prefilling.Store(int32(s.N))
		}
		for j := range s.N {
			pos := s.Start + j
			row := b.Add(r.tokens[pos], runtime.Pos(pos), r.seq, s.Row >= 0 && j == s.N-1)
			if j == s.N-1 && s.Row >= 0 && row != s.Row {
				panic(fmt.Sprintf("daemon: logits row of request %d is %d, the plan says %d", s.Req, row, s.Row))
			}
		}
	}
	begin := time.Now()
	err := l.eng.Decode()
	done := time.Now()
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
	l.events = append(l.events, sched.Event{Kind: sched.EvStep, Outcome: outcome, Took: took})
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := l.requests[s.Req]
		if s.Kind == sched.SliceProbe {
			continue // looked at with the slice before
		}
		forked := i+1 < len(plan.Batch) && plan.Batch[i+1].Kind == sched.SliceProbe
		if s.Kind == sched.SlicePrefill {
			r.prefilling.Store(0)
		}
		if outcome != sched.StepOK {
			if forked {
				l.takeFork(r, &plan.Batch[i+1], false)
			}
			// Part of the batch may be in the cache: back to where the sequence was. A memory that cannot drop ranges
			// refuses; nobody goes on with such a sequence, because its steps are never aborted (Server.cancel) and a
			// failed step fails all of its requests.
			if outcome != sched.StepKVFull {
				l.eng.SeqRemove(r.seq, runtime.Pos(s.Start), -1)
			}
			continue
		}
		r.computed = s.Start + s.N
		r.own += s.N
		l.own += s.N
		l.addCells(r, s.N)
		if wake := l.tree.Progress(r.seq, r.tokens, r.computed); wake != nil {
			l.wake(wake)
		}
		if forked {
			l.takeFork(r, &plan.Batch[i+1], true)
		}
		switch {
		case s.Row >= 0:
			l.sample(r, s.Row, done)
		case r.progress:
			l.reportProgress(r, done)
		}
	}
	l.reportQueued(done)
	l.flushAll()
	// Bookkeeping comes after the write: the client wakes and reads meanwhile, on another core, instead of taking
	// one from the decode that follows.
	l.account(plan, took)
	if done.Sub(l.published) >= publishEvery {
		l.published = done
		l.publish()
	}
	limit := copyIdleTime
	if plan.DecodeTokens > 0 {
		limit = copyTime
	}
	l.store.work(done, limit, false)
}

// publishEvery bounds how old the scheduler's gauges are that a scrape reads while steps run; the loop also
// publishes them whenever it goes idle.
const publishEvery = 10 * time.Millisecond

// sample draws the next token of r from its logits row and sends what it means.
func (l *loop) sample(r *request, row int, now time.Time) {
	if r.cancelled.Load() {
		// Its cancel may still be on its way through the mailbox; the scheduler must hear something of this row.
		l.events = append(l.events, sched.Event{Kind: sched.EvCancel, Req: r.id})
		return
	}
	if r.fillOnly {
		r.first, r.last = now, now
		l.events = append(l.events, sched.Event{Kind: sched.EvFinish, Req: r.id, Finish: sched.ReasonLength})
		l.endRequest(r, wire.Length, "", now)
		return
	}
	t := int64(l.instant(now))
	choice, err := l.draw(r, row, t)
	if errors.Is(err, sampler.ErrNoCandidate) && l.offers(row) {
		l.events = append(l.events, sched.Event{Kind: sched.EvFinish, Req: r.id, Finish: sched.ReasonFailed})
		l.failRequest(r, wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf(
			"logit_bias, allowed_token_ids and bad_words leave no token after %d of the answer", r.generated())})
		return
	}
	if err != nil {
		l.log.Error("sampling failed", "request", r.wireID, "error", err)
		l.events = append(l.events, sched.Event{Kind: sched.EvFinish, Req: r.id, Finish: sched.ReasonFailed})
		l.failRequest(r, wire.Error{Code: wire.RuntimeDecode, Message: "the model's output cannot be sampled: " + err.Error()})
		return
	}
	tok := choice.Token
	r.chain.Accept(tok)
	r.tokens = append(r.tokens, tok)
	inThink := r.ctl.Phase() == meridian.ThinkDecode
	l.timeToken(r, inThink, now)

	eog := l.vocab.IsEOG(tok) || !inThink && slices.Contains(r.stopTokens, tok)
	meant := r.ctl.OnToken(tok, l.vocab.Piece(tok), eog, t)
	eog = eog && meant.Event.Has(meridian.Completed) // a message's end within a turn is not the turn's
	l.phaseChanged(r, &meant, now)
	stopped := l.emit(r, &choice, inThink, &meant)

	var reason wire.Reason
	switch {
	case stopped, eog:
		reason = wire.Stop
	case r.generated() >= r.maxTokens:
		reason = wire.Length
	default:
		l.events = append(l.events, sched.Event{
			Kind: sched.EvToken, Req: r.id, Thinking: r.ctl.Phase() == meridian.ThinkDecode, Probe: l.wantProbe(r), Cut: l.shorten(r),
		})
		return
	}
	finish := sched.ReasonStop
	if reason == wire.Length {
		finish = sched.ReasonLength
	}
	l.events = append(l.events, sched.Event{Kind: sched.EvFinish, Req: r.id, Finish: finish})
	l.endRequest(r, reason, r.text.Stopped(), now)
}

// offers reports whether the model itself has a token for a row: if none can be sampled then, the request forbids them.
func (l *loop) offers(row int) bool {
	best, _ := sampler.Argmax(l.eng.Logits(row))
	return best >= 0
}

// sleep waits for work, at most until wakeAt (0 = no limit).
func (l *loop) sleep(wakeAt sched.Instant, now time.Time) time.Time {
	var d time.Duration
	if wakeAt > 0 {
		d = max(time.Duration(wakeAt-l.instant(now)), time.Microsecond)
	}
	if l.stalled > 0 && l.cfg.StallTimeout > 0 && (d == 0 || d > time.Second) {
		d = time.Second
	}
	if l.state.requests.Load() == 0 {
		l.countResident()
		l.state.busySince.Store(0)
	}
	l.publish()
	l.rec.idle()
	l.mail.wait(d, l.timer)
	now = time.Now()
	l.state.busySince.CompareAndSwap(0, now.UnixNano())
	return now
}

// countResident asks the engine itself which sequences hold cells that the prefix tree knows nothing of. With nothing
// running it must be none: info shows the number, and the smoke tests hold it at zero.
func (l *loop) countResident() {
	n := 0
	for s := range l.caps.MaxSequences {
		if _, last := l.eng.SeqRange(runtime.Seq(s)); last >= 0 {
			n++
		}
	}
	st := l.tree.Stats()
	if n -= st.Entries + st.Runs; n != 0 {
		l.log.Warn("sequences hold cells that nobody knows of", "sequences", n)
	}
	l.state.resident.Store(int64(n))
}
