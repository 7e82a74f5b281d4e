package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/adapters"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/constrain"
	"github.com/uma-serve/uma-serve/daemon/kvevents"
	"github.com/uma-serve/uma-serve/daemon/live"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/telemetry"
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
	over  bool // the loop has ended; owned by who holds aside

	cfg    *config.Config
	log    *slog.Logger
	eng    runtime.Engine
	draft  *draftModel        // nil: there is none
	viewer runtime.Viewer     // eng, if its model reads images; else nil
	argmx  runtime.RowScanner // eng, if it finds a row's largest logit faster than Go does; else nil
	probe  runtime.RowProber
	vocab  runtime.Vocab
	caps   runtime.Capabilities
	tags   *meridian.Tags // nil: the model does not mark its thinking
	core   *core.Core
	m      *metrics.Metrics
	live   *live.Views
	mixes  *adapters.Mixes
	mail   *mailbox
	rec    *recorder // nil without --trace
	saved  *calibration
	cpu    processors
	prefer func() error // asks for the loop's thread to run before others
	masks  *constrain.Masks
	device *device   // nil: no other engine process shares the devices
	epoch  time.Time // core.Instant 0, and the zero of meridian's clock

	stores     *stores
	events     *kvevents.Reporter // nil: without --kv-events
	info       runtime.ModelInfo
	tel        *telemetry.Exporter // nil without --telemetry-endpoint
	result     core.Result         // of the newest step
	histories  chan *request       // ended chats: intake renders the prefix that their next turn will have
	recent     [wire.MaxLast]report.Request
	recentNext int
	tracked    *meridian.Registry
	cellBytes  int
	cells      int           // of the core's ledger
	itlTarget  time.Duration // default ITL target of a request

	scheduled  time.Duration // duration of the newest core.Next
	infeasible bool          // the warning about an infeasible ITL target was logged

	requests map[sched.ReqID]*request
	lastID   sched.ReqID
	stalled  int // requests with pending output

	embedder  *prepare.Embedder
	encoder   bool             // the model reads texts whole, and generates nothing
	hidden    runtime.Embedder // eng; nil: it makes no embeddings
	embeds    []*request       // requests for embeddings that have not ended
	embedTurn int              // whose turn it is to hand a text to the core
	parts     int              // texts of embeds that are not forgotten
	maxParts  int              // texts beside the first of each request for embeddings that run at once
	vector    []float32        // scratch

	// finalised is called once for each request, after its last event was sent or dropped.
	finalised func(*request)

	// Reused by every step.
	scratch  sampler.Scratch
	commands []command
	event    wire.Event // the newest; send copies it
	stats    runtime.RowStats
	tick     tickCounts
	top      []wire.TokenLogprob
	thought  []byte // text of the current token
	answer   []byte
	flush    []ipc.Client
	timer    *time.Timer

	draining   bool
	stop       bool
	lastSweep  time.Time // newest sweepStalled
	published  time.Time // newest publish
	lastReap   time.Time
	stale      []uint64
	lastQueued time.Time // newest reportQueued

	// stopBy is the deadline of the shutdown (unix ns); 0 = none. Serve writes it before it puts cmdStop or cmdDrain.
	stopBy atomic.Int64

	// state is read by health from any goroutine.
	state loopState
}

// loopState is the part of the loop's state that other goroutines read. The loop writes it.
type loopState struct {
	// busySince is the time (unix ns) since which a step is due: the end of the newest moment without a request that
	// can advance, or of the newest copy of cells. 0 = the loop sleeps and no request can advance. Never 0 while it
	// hangs.
	busySince atomic.Int64
	lastStep  atomic.Int64 // end of the newest decode, unix ns; 0 = none yet
	// engine sequences with cells that the prefix tree does not list; counted when the loop idles
	resident atomic.Int64
	requests atomic.Int64 // live requests, queued ones included
}

func newLoop(cfg *config.Config, log *slog.Logger, eng runtime.Engine, m *metrics.Metrics, md *prepare.Model) *loop {
	l := &loop{
		cfg: cfg, log: log, eng: eng, vocab: eng.Vocab(), caps: eng.Capabilities(), tags: md.Tags, m: m,
		probe: meridian.ProberOf(eng), tracked: meridian.NewRegistry(), histories: make(chan *request, 64),
		mail: newMailbox(), epoch: time.Now(), requests: map[sched.ReqID]*request{},
		flush: make([]ipc.Client, 0, 64), timer: time.NewTimer(time.Hour),
		cellBytes: md.Info.KVBytesPerToken, info: md.Info,
		masks: constrain.NewMasks(eng.Vocab(), md.Tags.Headers(), m),
		mixes: adapters.NewMixes(md.Adapters, eng),
	}
	l.argmx, _ = eng.(runtime.RowScanner)
	l.hidden, _ = eng.(runtime.Embedder)
	l.embedder, l.encoder, l.maxParts = md.Embedder, md.Info.Encoder, cfg.Parallel
	if !l.encoder {
		l.maxParts = max(1, cfg.Parallel/2) // the other sequences are for answers
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
	l.cpu.begin(l)
	defer l.cpu.close()
	defer l.rec.close()
	defer l.masks.Close()
	l.aside.Lock()
	now := time.Now()
	for {
		l.takeCommands(now)
		now = l.beginTurn(now)
		l.feed(now)
		begin := time.Now()
		step := l.core.Next(l.instant(now))
		l.scheduled = time.Since(begin)
		l.carryOut(step.Ops)
		l.report(step, now)
		if l.stop || l.draining && l.state.requests.Load() == 0 {
			l.endTurn(now)
			l.shutdown(now)
			l.over = true
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
		l.saved.save(l.core.Scheduler().Cost, now, false)
		l.core.Done(l.instant(time.Now()), &l.result)
		if !step.Idle {
			now = time.Now()
			if !l.canAdvance() {
				l.noteProgress(now)
			}
			continue
		}
		if l.stores.offerSome() {
			now = time.Now()
			l.noteProgress(now)
			continue
		}
		now = l.sleep(step.WakeAt, now)
	}
}

// takeCommands passes the commands of other goroutines to the core.
func (l *loop) takeCommands(now time.Time) {
	l.commands = l.mail.take(l.commands)
	for i := range l.commands {
		c := &l.commands[i]
		switch c.kind {
		case cmdArrive:
			l.arrive(c.req, now)
		case cmdCancel:
			switch {
			case c.req.embed == nil:
				l.handle(core.Input{Kind: core.Cancel, Req: c.req.ID}, now)
			case !c.req.life.over() && c.req.ID > 0: // else it is on its way here
				l.cancelEmbed(c.req, now)
			}
		case cmdEndThink:
			l.endThink(c.req, now)
		case cmdHistory:
			l.handle(core.Input{Kind: core.History, Req: c.req.ID, Tokens: c.tokens}, now)
		case cmdStored:
			l.poll(c.stored, now)
		case cmdOffloaded:
			l.handle(core.Input{Kind: core.Offloaded, Req: c.offloaded, Tier: c.tier}, now)
		case cmdOffer: // the loop offers it when it idles
		case cmdAsk, cmdFit:
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
	if r.embed != nil {
		l.arriveEmbed(r, now)
		return
	}
	l.requests[r.ID] = r
	full := false
	if r.Mix, full = l.mixOf(r); full {
		r.failure = tooManyMixes()
	}
	r.trace = l.tel.Begin(r.parent)
	l.tracked.Register(uint64(r.ID), r.Phases, int64(r.Arrived))
	l.state.requests.Add(1)
	if c := r.constraint; c != nil {
		c.Want(r.place())
	}
	l.handle(core.Input{Kind: core.Arrive, Request: &r.Request}, now)
	// A cancel or an end_think that came during intake found no id; only its flag is set.
	if r.life.cancelled() || full {
		l.handle(core.Input{Kind: core.Cancel, Req: r.ID}, now)
	}
	if r.endThink.Load() {
		r.Phases.EndThink(int64(l.instant(time.Now())))
	}
}

// requestOf returns the connection's part of a request.
func requestOf(r *core.Request) *request { return r.Data.(*request) }

// report passes a step's notes and ends to clients, metrics and the log.
func (l *loop) report(step *core.Step, now time.Time) {
	for i := range step.Notes {
		l.recordNote(&step.Notes[i], now)
	}
	for i := range step.Ends {
		l.endedByCore(&step.Ends[i], now)
	}
	for _, r := range step.Histories {
		select {
		case l.histories <- requestOf(r):
		default: // intake is behind: without its tokens the core keeps the whole conversation
			l.handle(core.Input{Kind: core.History, Req: r.ID}, now)
		}
	}
}

// endedByCore finalises a request that the core cancelled, refused or failed.
func (l *loop) endedByCore(end *core.End, now time.Time) {
	r := requestOf(end.Request)
	switch {
	case r.part != nil:
		l.partEnded(r, end)
	case r.failure != nil:
		l.failRequest(r, *r.failure)
	case end.Kind == core.Cancelled, r.life.cancelled():
		l.endRequest(r, wire.Cancelled, "", now)
	case end.Kind == core.Failed:
		l.failRequest(r, wire.Error{Code: wire.RuntimeDecode, Message: end.Reason.Explain()})
	default:
		l.m.Refusals.Inc(end.Reason.String())
		e := wire.Error{Code: wire.QueueLimit, Message: end.Reason.Explain(), RetryAfter: end.RetryAfter,
			Predicted: end.Predicted}
		if end.Target > 0 {
			e.Message = brokenTarget(end)
		}
		if l.draining {
			e.Code = wire.ShuttingDown
		}
		l.failRequest(r, e)
	}
}

// brokenTarget is the message of a strict request that is refused.
func brokenTarget(end *core.End) string {
	name := map[sched.Reason]string{sched.ReasonTTFT: "target_ttft_ms", sched.ReasonMissesITL: "target_tbt_ms",
		sched.ReasonMissesTTOT: "target_ttot_ms"}[end.Reason]
	switch {
	case end.Predicted == 0 && end.Reason == sched.ReasonMissesITL:
		return fmt.Sprintf("a request admitted before, with slo.strict and slo.%s of %v, would miss its target beside "+
			"this one, which has slo.strict too", name, end.Target)
	case end.Predicted == 0:
		return fmt.Sprintf("slo.%s of %v could be met, but then a request admitted before, with slo.strict, would "+
			"miss its target", name, end.Target)
	}
	return fmt.Sprintf("slo.%s is %v, and %v are predicted; slo.strict asks for a refusal then", name, end.Target,
		end.Predicted.Round(time.Millisecond/10))
}

// recordNote counts and logs a note of the core.
func (l *loop) recordNote(n *core.Note, now time.Time) {
	switch n.Kind {
	case core.Started:
		r := requestOf(n.Request)
		r.trace.Resumed(now)
		if n.Took > 0 {
			r.trace.Add(telemetry.Part{Name: "restore", From: now.Add(-n.Took), To: now, Tokens: n.N,
				Tier: metricsTierName(n.Tier)})
		}
		if n.First && r.part == nil {
			l.firstStart(r, n)
			if l.stores.remote != nil {
				l.stores.remote.use(r.Space(), r.Tokens[:n.N])
			}
		}
	case core.Preempted:
		l.m.Preemptions.Inc()
		requestOf(n.Request).trace.Preempted(now)
		l.log.Debug("preempted", "request", requestOf(n.Request).wireID)
	case core.Parked:
		l.m.ParkedTotal.Inc()
	case core.Recomputed:
		l.m.Recomputed.Inc()
	case core.Shifted:
		l.m.ContextShift.Inc()
		r := requestOf(n.Request)
		r.chat = false
		l.log.Debug("context shift", "request", r.wireID, "dropped_tokens", n.N)
	case core.ThoughtDropped:
		r := requestOf(n.Request)
		r.chat = false
		l.log.Debug("thought dropped", "request", r.wireID, "tokens", n.N)
	case core.Unpinned:
		l.log.Warn("a pinned prefix is evicted: the only running request needs its cells", "entry", n.Entry, "tokens",
			n.N)
	case core.Restored:
		l.m.Restored(metricsTier[n.Tier], n.Took)
	case core.ReadAhead:
		l.m.ReadAheads.Inc()
	case core.Priced:
		l.priced(n, now)
	case core.Verified:
		l.m.Guessed(n.Thinking, int(n.Source), n.N, n.Accepted)
	case core.Ingested:
		l.m.Restored(metricsTier[n.Tier], n.Took)
		l.m.ThoughtIngests.Inc()
		requestOf(n.Request).trace.Add(telemetry.Part{Name: "restore", From: now.Add(-n.Took), To: now, Tokens: n.N,
			Tier: metricsTierName(n.Tier)})
		l.log.Debug("thought ingested", "request", requestOf(n.Request).wireID, "tokens", n.N)
	}
}

// firstStart records how many of a request's prompt tokens were cached, and in which tier.
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

// step decodes a plan's batch, reports the outcome to the core and samples the rows.
func (l *loop) step(plan *sched.Plan, now time.Time) {
	l.draft.guess(l.core)
	l.core.FillBatch(l.eng.Batch())
	l.m.AdapterPasses.Add(uint64(l.mixes.Passes(l.eng.Batch())))
	l.noteTurn(plan, now)
	lone := l.beginSlices(plan, now)
	l.flushAll()
	outcome, took, done := l.decode(plan, lone)
	l.result.Outcome, l.result.Took = outcome, took
	l.core.Done(l.instant(done), &l.result)
	l.endSlices(plan, outcome, done)
	l.reportQueued(done)
	l.flushAll()
	if outcome == sched.StepOK {
		l.endTurn(done)
	} else {
		l.endTurn(done.Add(-took))
	}
	// After the write: the client wakes and reads during the bookkeeping and not during the next decode.
	l.account(plan, outcome, took, done)
	if outcome == sched.StepLate {
		took = max(took, plan.Bound.Limit) // it would have taken longer
	}
	l.cpu.stepped(l, plan.Predicted, took, done)
	l.scanEvents(done, false)
	if done.Sub(l.published) >= publishEvery {
		l.published = done
		l.publish()
	}
}

// publishEvery is the maximum age of the scheduler's gauges while steps run. The loop also publishes before it idles.
const publishEvery = 10 * time.Millisecond

// beginSlices prepares the requests of a batch for its decode. It returns the request whose prompt is the whole batch,
// or nil.
func (l *loop) beginSlices(plan *sched.Plan, now time.Time) (lone *request) {
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := l.requests[s.Req]
		if c := r.client(); r.started.IsZero() {
			r.started = now
			r.life.enter(stageRunning)
			if c == r || c.started.IsZero() {
				c.started = now
				c.life.enter(stageRunning)
				l.m.QueueTime.Observe(now.Sub(c.arrived))
			}
		}
		if s.Kind != sched.SlicePrefill {
			continue
		}
		if len(plan.Batch) == 1 {
			lone = r
		}
		r.client().abortable.Store(lone != nil || s.N >= abortFrom)
		if r.progress && r.lastProgress.IsZero() && (r.noisy || plan.Predicted > progressEvery) {
			l.reportProgress(r, now) // before a long step
		}
	}
	return lone
}

// decode runs the engine on the batch. took is the duration of the decode, done its end.
func (l *loop) decode(plan *sched.Plan, lone *request) (outcome sched.Outcome, took time.Duration, done time.Time) {
	l.masks.Begin()
	begin := time.Now()
	var err error
	if lone != nil && lone.client().life.cancelled() {
		err, done = runtime.ErrAborted, begin // the cancel came before abortable was set
	} else {
		l.aside.Unlock()
		l.giveWay(plan)
		begin = time.Now()
		err = l.eng.Decode()
		done = time.Now()
		l.aside.Lock()
	}
	l.masks.End()
	l.state.lastStep.Store(done.UnixNano())
	switch {
	case err == nil:
		outcome = sched.StepOK
		if l.caps.Devices > 1 { // besides the processor
			l.m.DeviceGraphs.Add(uint64((plan.Tokens + l.caps.MaxMicroBatch - 1) / max(l.caps.MaxMicroBatch, 1)))
		}
	case errors.Is(err, runtime.ErrKVFull):
		outcome = sched.StepKVFull
	case errors.Is(err, runtime.ErrLate) && plan.Bound != (sched.Bound{}):
		outcome = sched.StepLate
		l.m.LateSteps.Inc()
	case errors.Is(err, runtime.ErrAborted):
		outcome = sched.StepAborted
	default:
		outcome = sched.StepFailed
		l.m.DecodeErrors.Inc()
		l.log.Error("decode failed", "error", err, "tokens", plan.Tokens)
	}
	return outcome, done.Sub(begin), done
}

// endSlices samples the rows of a decoded batch and reports progress.
func (l *loop) endSlices(plan *sched.Plan, outcome sched.Outcome, done time.Time) {
	first := 0 // batch index of the slice's first token
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := l.requests[s.Req]
		at := first
		first += s.N
		switch {
		case s.Kind == sched.SliceProbe:
			continue // handled with the slice before it
		case s.Kind == sched.SlicePrefill:
			r.client().abortable.Store(false)
			if outcome == sched.StepOK {
				r.trace.Add(telemetry.Part{Name: "prefill.chunk", From: done.Add(-l.result.Took), To: done,
					Tokens: s.N})
			}
		}
		switch {
		case outcome != sched.StepOK:
			continue
		case r.part != nil:
			l.embedRows(r, s, at, done)
			continue
		}
		if i+1 < len(plan.Batch) && plan.Batch[i+1].Kind == sched.SliceProbe {
			l.probed(r, plan.Batch[i+1].Row)
		}
		if r.echo > 0 && s.Kind == sched.SlicePrefill && r.echoed < r.Prompt {
			l.echoPrompt(r, s, at)
		}
		switch {
		case s.Row >= 0:
			if r.noisy && s.Kind == sched.SlicePrefill {
				l.reportProgress(r, done)
			}
			for next, row := 1, s.Row; next > 0; row = s.Row + next {
				l.sample(r, row, done)
				next = r.NextRow()
			}
		case s.Kind == sched.SliceDecode: // forced tokens; the rest of them is in the next step
		case r.noisy || r.progress && done.Sub(r.arrived) >= progressEvery:
			l.reportProgress(r, done)
		}
	}
}

// sample draws r's next token from its logits row and processes it.
func (l *loop) sample(r *request, row int, now time.Time) {
	if r.life.cancelled() {
		// The cancel command may still be in the mailbox, and the core needs an input for this row.
		l.handle(core.Input{Kind: core.Cancel, Req: r.ID}, now)
		return
	}
	if r.Fill {
		r.first, r.last = now, now
		l.core.NoToken(&r.Request, sched.ReasonLength)
		l.endRequest(r, wire.Length, "", now)
		return
	}
	at := l.instant(now)
	choice, err := l.draw(r, row, int64(at))
	if errors.Is(err, sampler.ErrNoCandidate) && l.hasCandidate(row) {
		l.core.NoToken(&r.Request, sched.ReasonFailed)
		l.failRequest(r, wire.Error{Code: wire.BadRequest, Message: l.nothingLeft(r)})
		return
	}
	if err != nil {
		l.log.Error("sampling failed", "request", r.wireID, "error", err)
		l.core.NoToken(&r.Request, sched.ReasonFailed)
		l.failRequest(r, wire.Error{Code: wire.RuntimeDecode, Message: "the model's output cannot be sampled: " +
			err.Error()})
		return
	}
	for l.acceptToken(r, &choice, now) {
		choice = sampler.Choice{Token: r.constraint.Forced()}
	}
}

// acceptToken processes a sampled or forced token of r: constraint, phase, text, calls, end. It reports whether a
// forced token follows, which needs no row.
func (l *loop) acceptToken(r *request, choice *sampler.Choice, now time.Time) (more bool) {
	tok := choice.Token
	opened, ok := l.constrain(r, tok)
	if !ok {
		return false
	}
	r.Chain.Accept(tok)
	inThink := r.Phases.Phase() == meridian.ThinkDecode
	l.observeToken(r, inThink, now)
	eog := l.vocab.IsEOG(tok) || !inThink && slices.Contains(r.StopTokens, tok)
	piece := l.piece(r, tok, inThink && !r.Phases.InHeader())
	said := l.core.Token(l.instant(now), &r.Request, tok, piece, eog, l.thought[:0], l.answer[:0])
	if r.Calls != nil {
		r.Phases.Verbatim(r.Calls.Busy())
	}
	if opened && said.End == core.NotEnded {
		r.Phases.Opened()
	}
	bad := r.follow(tok, &said)
	l.thought, l.answer = said.Think, said.Answer
	l.phaseChanged(r, &said, now)
	l.emit(r, choice, &said)
	switch said.End {
	case core.Stopped:
		if said.StopText == r.SpelledEnd {
			said.StopText = ""
		}
		l.endRequest(r, wire.Stop, said.StopText, now)
	case core.Length:
		l.endRequest(r, wire.Length, "", now)
	default:
		l.logMissingSignals(r)
		if bad == nil {
			return r.More
		}
		r.failure = bad // its token was sent: the request ends in the next step
		l.handle(core.Input{Kind: core.Cancel, Req: r.ID}, now)
	}
	return false
}

// hasCandidate reports whether a row has a finite logit. If it has and no token can be sampled, the request excludes
// all tokens.
func (l *loop) hasCandidate(row int) bool {
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
	l.scanEvents(now, true)
	l.rec.idle()
	if !l.canAdvance() {
		l.state.busySince.Store(0)
	}
	l.aside.Unlock()
	l.mail.wait(d, l.timer)
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
		if !r.life.over() && !r.paused && (r.embed == nil || r.embed.blocked == 0) {
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
	for s := range l.caps.MaxSequences {
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
