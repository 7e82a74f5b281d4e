package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
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
	vocab runtime.Vocab
	caps  runtime.Capabilities
	tags  *meridian.Tags
	sched *sched.Scheduler
	m     *metrics.Metrics
	mail  *mailbox
	epoch time.Time // sched.Instant 0

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
	top      []wire.TokenLogprob
	flush    []*ipc.Conn
	timer    *time.Timer

	draining   bool
	stop       bool
	lastSweep  time.Time // for stalled clients
	published  time.Time // of the scheduler's gauges
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

func newLoop(cfg *Config, log *slog.Logger, eng runtime.Engine, s *sched.Scheduler, m *metrics.Metrics, tags *meridian.Tags) *loop {
	l := &loop{
		cfg: cfg, log: log, eng: eng, vocab: eng.Vocab(), caps: eng.Capabilities(), tags: tags, sched: s, m: m,
		mail: newMailbox(), epoch: time.Now(), requests: map[sched.ReqID]*request{},
		events: make([]sched.Event, 0, 64), frame: make([]byte, 0, 4096), flush: make([]*ipc.Conn, 0, 64),
		timer: time.NewTimer(time.Hour),
	}
	l.argmx, _ = eng.(runtime.RowScanner)
	return l
}

func (l *loop) instant(t time.Time) sched.Instant { return sched.Instant(t.Sub(l.epoch)) }

// run is the loop. It returns when it was told to stop, or drained.
func (l *loop) run() {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	now := time.Now()
	for {
		l.takeCommands(now)
		plan := l.sched.Step(l.instant(now), l.events)
		l.events = l.events[:0]
		l.settle(&plan, now)
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
		now = l.sleep(plan.WakeAt, now)
	}
}

// takeCommands turns what other goroutines asked into scheduler events.
func (l *loop) takeCommands(now time.Time) {
	l.commands = l.mail.take(l.commands)
	for i := range l.commands {
		c := &l.commands[i]
		switch c.kind {
		case cmdArrive:
			l.arrive(c.req)
		case cmdCancel:
			if r := c.req; r.id != 0 && !r.finished {
				l.events = append(l.events, sched.Event{Kind: sched.EvCancel, Req: r.id})
			}
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

func (l *loop) arrive(r *request) {
	l.lastID++
	r.id = l.lastID
	l.requests[r.id] = r
	l.state.requests.Add(1)
	l.events = append(l.events, sched.Event{
		Kind: sched.EvArrive, Req: r.id, Class: r.class, Owner: r.owner, Prompt: r.nPrompt, MaxTokens: r.maxTokens,
		TargetTTFT: r.targetTTFT, TargetTBT: r.targetTBT, Thinking: r.router.Phase() == meridian.ThinkDecode,
	})
	// A cancel that overtook the request on its way through the tokenizer found no id to name.
	if r.cancelled.Load() {
		l.events = append(l.events, sched.Event{Kind: sched.EvCancel, Req: r.id})
	}
}

// settle carries out the part of a plan that comes before its batch.
func (l *loop) settle(plan *sched.Plan, now time.Time) {
	for i := range plan.Release {
		rel := &plan.Release[i]
		if rel.Seq >= 0 {
			l.eng.SeqRemove(rel.Seq, 0, -1)
		}
		r := l.requests[rel.Req]
		if r == nil || r.finished {
			continue
		}
		if !rel.Final {
			l.m.Preemptions.Inc()
			r.computed = 0
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
}

// step decodes a plan's batch, samples its rows and reports both to the scheduler.
func (l *loop) step(plan *sched.Plan, now time.Time) {
	b := l.eng.Batch()
	b.Reset()
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := l.requests[s.Req]
		if r.started.IsZero() {
			r.started = now
			l.m.QueueTime.Observe(now.Sub(r.arrived))
		}
		if s.Kind == sched.SlicePrefill {
			r.prefilling.Store(int32(s.N))
		}
		for j := range s.N {
			pos := s.Start + j
			row := b.Add(r.tokens[pos], runtime.Pos(pos), s.Seq, s.Row >= 0 && j == s.N-1)
			if j == s.N-1 && s.Row >= 0 && row != s.Row {
				panic(fmt.Sprintf("daemon: logits row of request %d is %d, the plan says %d", s.Req, row, s.Row))
			}
		}
	}
	err := l.eng.Decode()
	done := time.Now()
	l.state.lastStep.Store(done.UnixNano())
	took := done.Sub(now)
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
		if s.Kind == sched.SlicePrefill {
			r.prefilling.Store(0)
		}
		if outcome != sched.StepOK {
			// Part of the batch may be in the cache: back to where the sequence was. A memory that cannot drop ranges
			// refuses; nobody goes on with such a sequence, because its steps are never aborted (Server.cancel) and a
			// failed step fails all of its requests.
			if outcome != sched.StepKVFull {
				l.eng.SeqRemove(s.Seq, runtime.Pos(s.Start), -1)
			}
			continue
		}
		r.computed = s.Start + s.N
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
	l.m.Step(metrics.Step{
		Took: took, Tokens: plan.Tokens, Prefill: plan.PrefillTokens, Decode: plan.DecodeTokens,
		Budget: plan.Budget, PrefillHeld: plan.PrefillHeld,
	})
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
		// Its cancel may still be on its way through the mailbox; the scheduler must hear something of this row.
		l.events = append(l.events, sched.Event{Kind: sched.EvCancel, Req: r.id})
		return
	}
	choice, err := l.choose(r, row)
	if err != nil {
		l.log.Error("sampling failed", "request", r.wireID, "error", err)
		l.events = append(l.events, sched.Event{Kind: sched.EvFinish, Req: r.id, Finish: sched.ReasonFailed})
		l.failRequest(r, wire.Error{Code: wire.RuntimeDecode, Message: "the model's output cannot be sampled: " + err.Error()})
		return
	}
	tok := choice.Token
	r.chain.Accept(tok)
	r.tokens = append(r.tokens, tok)
	l.m.TokensGenerated.Inc()
	if r.first.IsZero() {
		r.first = now
		l.m.TTFT.Observe(now.Sub(r.arrived))
		l.m.PrefillTime.Observe(now.Sub(r.started))
	} else {
		l.m.InterToken.Observe(r.router.Phase() == meridian.ThinkDecode, now.Sub(r.last))
	}
	r.last = now

	eog := l.vocab.IsEOG(tok)
	piece := l.vocab.Piece(tok)
	inThink := r.router.Phase() == meridian.ThinkDecode
	event := r.router.OnToken(tok, piece, eog, false).Event
	stopped := l.emit(r, tok, piece, choice, inThink, event)

	var reason wire.Reason
	switch {
	case stopped, eog:
		reason = wire.Stop
	case r.generated() >= r.maxTokens:
		reason = wire.Length
	default:
		l.events = append(l.events, sched.Event{Kind: sched.EvToken, Req: r.id, Thinking: r.router.Phase() == meridian.ThinkDecode})
		return
	}
	finish := sched.ReasonStop
	if reason == wire.Length {
		finish = sched.ReasonLength
	}
	l.events = append(l.events, sched.Event{Kind: sched.EvFinish, Req: r.id, Finish: finish})
	l.endRequest(r, reason, r.text.Stopped(), now)
}

// choose samples from a row: by the engine's own argmax where that is all there is to it.
func (l *loop) choose(r *request, row int) (sampler.Choice, error) {
	if l.argmx != nil && r.chain.IsArgmax() {
		if tok, _ := l.argmx.Argmax(row); tok >= 0 && r.chain.Takes(tok) {
			return sampler.Choice{Token: tok}, nil
		}
	}
	return r.chain.Sample(l.eng.Logits(row))
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
	l.mail.wait(d, l.timer)
	now = time.Now()
	l.state.busySince.CompareAndSwap(0, now.UnixNano())
	return now
}

// countResident asks the engine itself which sequences hold cells. With nothing running it must be none: info
// shows the number, and the smoke tests hold it at zero.
func (l *loop) countResident() {
	n := 0
	for s := range l.caps.MaxSequences {
		if _, last := l.eng.SeqRange(runtime.Seq(s)); last >= 0 {
			n++
		}
	}
	if n > 0 {
		l.log.Warn("sequences hold cells although nothing runs", "sequences", n)
	}
	l.state.resident.Store(int64(n))
}

// publish copies the scheduler's gauges to where a scrape reads them.
func (l *loop) publish() {
	st := l.sched.Stats()
	l.m.SetScheduler(metrics.Scheduler{
		QueuedInteractive: st.QueuedInteractive, QueuedBackground: st.QueuedBackground,
		Prefilling: st.Prefilling, Decoding: st.Decoding, Paused: st.Paused,
		LiveCells: st.LiveCells, FreeCells: st.FreeCells, BudgetTarget: st.BudgetTarget, TickEWMA: st.TickEWMA,
	})
}
