package sched

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/sched/guess"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// engine is the caller and the engine in one: it keeps its own books of every request and holds each plan
// against them. Its own clock, cells and failures are drawn by rapid.
type engine struct {
	encoder bool // all requests are texts that are computed whole
	t       *rapid.T
	cfg     Config
	s       *Scheduler
	now     Instant
	live    map[ReqID]*simRequest
	next    ReqID
	final   map[ReqID]int // how often each request was finalised
	seq     map[int32]ReqID
	owed    bool
	plan    Plan
	trace   []byte

	drained bool
	foreign int // cells of the engine that the scheduler does not know to be taken
	steps   int
	held    int // steps in a row that held prompts

	pinned int               // with Prefix: cells of pinned prefixes
	told   int               // pool cells at the newest EvCells
	kept   int               // cells of requests that ended in the newest Step which other sequences have come to share
	rounds int               // Steps since the newest one that decided a batch
	lost   map[[2]ReqID]bool // which request was preempted for which
	ever   map[ReqID]bool    // lost its place once
	first  map[ReqID]int     // when it started, in order
}

type simRequest struct {
	class                 Class
	prompt, max, have     int
	seq                   int32 // -1 = none
	cells                 int
	shared                int // of cells
	paused, deferred      bool
	whole, everyRow       bool // a text to embed
	guesses               bool
	offer                 int
	everRan               bool
	waitedRow, waitedPref int // steps with a batch since its newest slice, decoding and in Prefill
	waitedOthers          int // steps in which its last prompt token waited for other prompts, in all
}

func (r *simRequest) history() int { return r.prompt + r.have }

func (r *simRequest) own() int { return r.cells - r.shared }

// decodes reports whether a request decodes now; one that computes its history again after a preemption does not.
func (e *engine) decodes(id ReqID) bool {
	state, _, _ := e.s.Why(id)
	return state == Think || state == Output
}

func drawConfig(t *rapid.T, policy string) Config {
	cfg := Config{
		Policy:     policy,
		MaxRunning: rapid.IntRange(1, 9).Draw(t, "max_running"),
		Cells:      rapid.IntRange(8, 120).Draw(t, "cells"),
		Forks:      rapid.IntRange(0, 3).Draw(t, "forks"),
		Rereads:    rapid.Bool().Draw(t, "rereads"),
		MaxQueue:   rapid.IntRange(0, 12).Draw(t, "max_queue"),
		TickBudget: 30 * time.Millisecond, StartBudget: rapid.IntRange(1, 20).Draw(t, "start_budget"),
		MinPrefill: rapid.IntRange(1, 6).Draw(t, "min_prefill"),

		MaxHeld: rapid.IntRange(1, 4).Draw(t, "max_held"),
		Guard:   rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond}).Draw(t, "guard"),

		DecodeReserve: rapid.SampledFrom([]int{-1, 1, 4, 32}).Draw(t, "decode_reserve"),
		PauseGrace:    rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second}).Draw(t, "pause_grace"),
		ITLTarget: rapid.SampledFrom([]time.Duration{10 * time.Millisecond, 50 * time.Millisecond,
			time.Second}).Draw(t, "itl_target"),
		ThinkFloor: rapid.SampledFrom([]time.Duration{0, 30 * time.Millisecond}).Draw(t, "think_floor"),

		BackgroundEvery: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second}).Draw(t, "background_every"),
	}
	cfg.MaxBatch = rapid.IntRange(min(2, cfg.MaxRunning), 24).Draw(t, "max_batch")
	cfg.EveryRows = rapid.SampledFrom([]int{0, 1, 3, 10}).Draw(t, "every_rows")
	if policy != "stock" && policy != "meridian_static" && rapid.Bool().Draw(t, "caps") {
		cfg.Limits[Background] = ClassLimits{MaxRunning: rapid.IntRange(0, 3).Draw(t, "bg_running"),
			MaxQueue: rapid.IntRange(0, 3).Draw(t, "bg_queue"), StepTokens: rapid.IntRange(0, 6).Draw(t, "bg_tokens")}
		cfg.Limits[Interactive].StepTokens = rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(t, "tokens")
	}
	return cfg
}

func newEngine(t *rapid.T, cfg Config) *engine {
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &engine{t: t, cfg: s.Config(), s: s, live: map[ReqID]*simRequest{}, final: map[ReqID]int{},
		seq: map[int32]ReqID{}, trace: traced.config(nil, &cfg), lost: map[[2]ReqID]bool{}, ever: map[ReqID]bool{},
		first: map[ReqID]int{}}
}

func (e *engine) ids() []ReqID {
	ids := make([]ReqID, 0, len(e.live))
	for id := range e.live {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// end notes that a request was finalised, by the caller or by the plan.
func (e *engine) end(id ReqID) {
	if e.final[id]++; e.final[id] > 1 {
		e.t.Fatalf("request %d was finalised %d times", id, e.final[id])
	}
	delete(e.live, id)
}

// happen draws what clients do between two steps.
func (e *engine) happen() (ev []Event) {
	t := e.t
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 6}).Draw(t, "arrivals") {
		e.next++
		r := &simRequest{class: Class(rapid.IntRange(0, 1).Draw(t, "class")),
			prompt: rapid.IntRange(1, e.cfg.Cells+1).Draw(t, "prompt"), seq: -1}
		if rapid.Bool().Draw(t, "short") {
			r.prompt = 1 + r.prompt%8
		}
		r.max = rapid.IntRange(1, 20).Draw(t, "max")
		if r.whole = e.encoder; r.whole || rapid.IntRange(0, 4).Draw(t, "text") == 4 {
			r.max, r.everyRow = 1, rapid.Bool().Draw(t, "every_row")
		}
		room := e.cfg.Room(r.prompt)
		fill := !r.whole && r.max == 1 && rapid.Bool().Draw(t, "fill")
		if fill {
			room++
		}
		a := EvArrive{Req: e.next,
			Spec: &Spec{Class: r.class, Owner: uint32(rapid.IntRange(0, 2).Draw(t, "owner")), Prompt: r.prompt,
				MaxTokens: r.max, Whole: r.whole, EveryRow: r.everyRow, Fill: fill},
			Thinking: rapid.Bool().Draw(t, "thinking")}
		r.guesses = rapid.Bool().Draw(t, "guesses")
		a.Guesses = r.guesses
		if rapid.Bool().Draw(t, "targets") {
			a.TargetTTFT = rapid.SampledFrom([]time.Duration{50 * time.Millisecond, time.Second}).Draw(t, "ttft")
			a.TargetITL, a.TargetTTOT = 25*time.Millisecond, 20*time.Millisecond
			a.Strict = rapid.Bool().Draw(t, "strict")
		}
		r.max = min(r.max, room)
		e.live[e.next] = r
		ev = append(ev, a)
	}
	for _, id := range e.ids() {
		r := e.live[id]
		switch rapid.SampledFrom([]string{"", "", "", "", "", "", "", "", "", "", "cancel", "pause", "pause", "resume",
			"resume"}).Draw(t, "client") {
		case "cancel":
			ev = append(ev, EvCancel{Req: id})
			if rapid.Bool().Draw(t, "twice") {
				ev = append(ev, EvCancel{Req: id})
			}
		case "pause":
			r.paused = true
			e.ever[id] = true
			ev = append(ev, EvPause{Req: id})
		case "resume":
			r.paused = false
			ev = append(ev, EvResume{Req: id})
		}
	}
	if e.cfg.Prefix {
		ev = append(ev, e.ready(false)...)
		e.pinned = min(rapid.SampledFrom([]int{0, 0, e.pinned, e.cfg.Cells / 8, e.cfg.Cells / 2}).Draw(t, "pinned"),
			e.spare()+e.pinned)
	}
	if rapid.IntRange(0, 3).Draw(t, "others") == 0 {
		ev = append(ev, EvLimit{Limit: rapid.SampledFrom([]time.Duration{0, 1, 5 * time.Millisecond,
			60 * time.Millisecond}).Draw(t, "limit"),
			Waited: rapid.SampledFrom([]time.Duration{0,
				30 * time.Millisecond, time.Minute}).Draw(t, "waited")})
	}
	if !e.drained && rapid.IntRange(0, 200).Draw(t, "drain") == 200 {
		e.drained = true
		ev = append(ev, EvDrain{})
	}
	if n := rapid.IntRange(0, 60).Draw(t, "threads"); n >= 58 {
		ev = append(ev, EvThreads{Threads: n - 57, Disturbed: rapid.Bool().Draw(t, "disturbed")})
	}
	return ev
}

// compute answers the batch of the previous plan.
func (e *engine) compute(calm bool) (ev []Event) {
	if !e.owed {
		e.now = e.now.Add(time.Duration(rapid.IntRange(0, 30).Draw(e.t, "idle")) * time.Millisecond)
		return nil
	}
	e.owed = false
	took := 5*time.Millisecond + time.Duration(e.plan.Tokens*rapid.IntRange(200, 4000).Draw(e.t, "us"))*time.Microsecond
	outcome := StepOK
	if !calm {
		outcome = rapid.SampledFrom([]Outcome{StepOK, StepOK, StepOK, StepOK, StepOK, StepOK, StepOK, StepOK, StepOK,
			StepOK, StepOK, StepOK, StepAborted, StepLate, StepFailed}).Draw(e.t, "outcome")
		if outcome == StepLate && e.plan.Bound == (Bound{}) {
			outcome = StepOK
		}
	}
	used := e.foreign + e.plan.Tokens
	for _, r := range e.live {
		used += r.own()
	}
	used += e.told + e.kept
	if used > e.cfg.Cells {
		outcome = StepKVFull
	}
	e.now = e.now.Add(took)
	ev = append(ev, EvStep{Outcome: outcome, Took: took})
	if outcome != StepOK {
		return ev
	}
	for i := range e.plan.Batch {
		sl := &e.plan.Batch[i]
		r := e.live[sl.Req]
		if sl.Kind == SliceProbe {
			continue
		}
		r.cells += sl.N - sl.Guessed
		if sl.Row < 0 {
			continue
		}
		tok := EvToken{Req: sl.Req}
		if r.offer > 0 {
			tok.Right = min(rapid.SampledFrom([]int{0, 1, 3, 40}).Draw(e.t, "right"), r.offer, r.max-r.have-1)
			tok.Wrong = tok.Right < r.offer
			tok.Accepted = min(tok.Right, sl.Guessed)
			r.cells += tok.Accepted
			r.have += tok.Accepted
			if e.cfg.Rereads && tok.Accepted < sl.Guessed {
				tok.Again = sl.N - sl.Guessed + tok.Accepted
				r.cells -= tok.Again
			}
		}
		r.offer = 0
		r.have++
		switch {
		case r.have >= r.max:
			ev = append(ev, EvFinish{Req: sl.Req, Reason: reason.Length})
		case !calm && rapid.IntRange(0, 30).Draw(e.t, "stop") == 30:
			ev = append(ev, EvFinish{Req: sl.Req, Reason: reason.Stop})
		default:
			forced := min(rapid.SampledFrom([]int{0, 0, 0, 0, 2, 9, 40}).Draw(e.t, "forced"), r.max-r.have-1)
			r.have += forced
			tok.Thinking, tok.Forced = rapid.Bool().Draw(e.t, "think"), forced
			tok.Probe = rapid.SampledFrom([]int{0, 0, 0, 1, 3, 30}).Draw(e.t, "probe")
			if r.guesses {
				tok.Offer = min(rapid.SampledFrom([]int{0, 1, 4, 16}).Draw(e.t, "offer"), r.max-r.have-1)
				tok.Grade = rapid.IntRange(0, guess.NumGrades-1).Draw(e.t, "grade")
				r.offer = tok.Offer
			}
			ev = append(ev, tok)
		}
	}
	return ev
}

// step runs one Step, and with Prefix those after it until a batch is decided.
func (e *engine) step(ev []Event) {
	e.rounds = 0
	e.once(append(ev, e.tell()...))
	for e.plan.Again {
		if e.rounds++; e.rounds > 3*(len(e.live)+e.cfg.MaxRunning)+5 {
			e.t.Fatalf("no batch is decided after %d Steps\n%s", e.rounds, e.trace)
		}
		ev = e.answer()
		e.once(append(ev, e.tell()...))
	}
}

// once runs one Step and holds its plan against the engine's books.
func (e *engine) once(ev []Event) {
	t := e.t
	e.givenUp(ev)
	e.plan = e.s.Step(e.now, List(ev...))
	e.trace = traced.step(e.trace, e.now, List(ev...), &e.plan)
	e.steps++
	p := &e.plan
	if err := e.s.check(); err != nil {
		t.Fatalf("%v\n%s", err, e.trace)
	}
	for _, r := range p.Release {
		q := e.live[r.Req]
		_, taken := e.seq[r.Seq]
		// A request that has a sequence and had no slice yet shows it here for the first time.
		if q == nil || q.seq != r.Seq && (q.seq >= 0 || taken) {
			t.Fatalf("release %+v of %+v\n%s", r, q, e.trace)
		}
		if q.seq >= 0 {
			delete(e.seq, q.seq)
		}
		if !r.Final {
			e.preempted(r)
		}
		q.seq, q.cells, q.shared, q.offer = -1, 0, 0, 0
		if r.Final {
			e.end(r.Req)
		}
	}
	for _, r := range p.Reject {
		if q := e.live[r.Req]; q == nil || q.everRan {
			t.Fatalf("rejects %+v, which is not waiting for its first turn\n%s", r, e.trace)
		}
		e.end(r.Req)
	}
	for _, st := range p.Start {
		q := e.live[st.Req]
		if _, taken := e.seq[st.Seq]; q == nil || q.seq >= 0 || q.deferred || taken {
			t.Fatalf("starts %+v: %+v\n%s", st, q, e.trace)
		}
		q.seq, e.seq[st.Seq] = st.Seq, st.Req
		e.parkedFirst(st.Req)
	}
	if p.Reclaim > 0 {
		e.pinned = 0
	}
	cells, index, outputs := 0, 0, 0
	inBatch := map[ReqID]bool{}
	for i := range p.Batch {
		sl := &p.Batch[i]
		r := e.live[sl.Req]
		if sl.Kind == SliceProbe {
			index += sl.N
			continue
		}
		if r == nil || r.paused || inBatch[sl.Req] {
			t.Fatalf("slice %+v of %+v\n%s", sl, r, e.trace)
		}
		inBatch[sl.Req] = true
		if owner, taken := e.seq[sl.Seq]; r.seq < 0 && !taken {
			r.seq = sl.Seq
			e.seq[sl.Seq] = sl.Req
		} else if owner != sl.Req || r.seq != sl.Seq {
			t.Fatalf("slice %+v: the sequence belongs to %d\n%s", sl, owner, e.trace)
		}
		r.everRan = true
		if n := sl.N - sl.Guessed; sl.Start != r.cells || n < 1 || sl.Start+n > r.history() || sl.Guessed > r.offer ||
			sl.Guessed > 0 && e.promptWaits() {
			t.Fatalf("slice %+v of %+v\n%s", sl, r, e.trace)
		}
		if r.whole && sl.N != r.prompt-r.cells {
			t.Fatalf("slice %+v is a part of %+v\n%s", sl, r, e.trace)
		}
		if r.everyRow {
			outputs += sl.N
		}
		index += sl.N
		if row := index - 1 - sl.Guessed; (sl.Start+sl.N-sl.Guessed == r.history()) != (sl.Row == row) ||
			sl.Row >= 0 && sl.Row != row {
			t.Fatalf("slice %+v of %+v: row must be %d\n%s", sl, r, row, e.trace)
		}
	}
	for _, r := range e.live {
		cells += r.own()
	}
	st := e.s.Stats()
	switch {
	case outputs > e.cfg.EveryRows:
		t.Fatalf("%d rows of texts with an output each, there is room for %d\n%s", outputs, e.cfg.EveryRows, e.trace)
	case index > p.Budget || p.Budget > e.cfg.MaxBatch || index != p.Tokens:
		t.Fatalf("%d tokens of a budget of %d, batch %d\n%s", index, p.Budget, e.cfg.MaxBatch, e.trace)
	case cells+index+e.told+e.kept > e.cfg.Cells:
		t.Fatalf("%d + %d cells of %d\n%s", cells, index, e.cfg.Cells, e.trace)
	case cells+st.FreeCells+e.told+e.kept != e.cfg.Cells || st.FreeCells < 0:
		t.Fatalf("stats %+v, engine holds %d of %d cells\n%s", st, cells, e.cfg.Cells, e.trace)
	}
	e.owed = len(p.Batch) > 0
	if p.Again {
		return
	}
	e.conserving(inBatch)
	e.bounds(inBatch)
}

// makesWay reports whether this step leaves a background prompt out for an interactive request that could miss its
// target.
func (e *engine) makesWay(id ReqID) bool {
	r := e.s.requests[id]
	return e.s.clock.risk && r.entry.Class == Background && r.turns.reason == reason.WaitEndangered &&
		r.turns.lastSkip == e.s.step
}

// spent reports whether this step has all the prompt tokens that a class may have in one.
func (e *engine) spent(class Class) bool {
	n := 0
	for _, sl := range e.plan.Batch {
		if sl.Kind == SlicePrefill && e.live[sl.Req].class == class {
			n += sl.N
		}
	}
	limit := e.cfg.Limits[class].StepTokens
	return limit > 0 && n >= limit
}

// promptWaits reports whether a running request computes its prompt.
func (e *engine) promptWaits() bool {
	for id, r := range e.live {
		if state, _, _ := e.s.Why(id); state == Prefill && !r.paused {
			return true
		}
	}
	return false
}

// conserving: work is only left undone for a reason that can be seen.
func (e *engine) conserving(inBatch map[ReqID]bool) {
	p, t := &e.plan, e.t
	waits := false
	for _, r := range p.Waiting {
		waits = waits || r != reason.None
	}
	for id, r := range e.live {
		switch {
		case r.paused || r.deferred || inBatch[id]:
		case r.seq < 0:
			if state, why, ok := e.s.Why(id); !ok || state == Queued && (why == reason.None || !waits) {
				t.Fatalf("request %d waits for nothing: %v %v %v\n%s", id, state, why, ok, e.trace)
			}
		case e.leftOut(id):
		case (r.whole || r.everyRow) && p.PrefillTokens > 0: // it does not fit beside another prompt
		case e.spent(r.class):
		case e.makesWay(id) && p.PrefillTokens > 0: // its turn comes, as bounds holds
		case e.decodes(id) && p.DecodeTokens+min(e.cfg.MinPrefill, p.PrefillTokens) < e.cfg.MaxBatch:
			t.Fatalf("answer %d got no token in a batch of %d\n%s", id, p.Tokens, e.trace)
		case !e.decodes(id) && !p.PrefillHeld && p.Tokens < p.Budget && p.Reason != reason.Cells:
			t.Fatalf("prompt %d got nothing, %d of %d tokens used\n%s", id, p.Tokens, p.Budget, e.trace)
		}
	}
	if len(p.Batch) == 0 && p.Reason != reason.Idle {
		t.Fatalf("an empty batch with reason %v\n%s", p.Reason, e.trace)
	}
	if len(e.s.running) == 0 && e.cfg.Prefix && p.Reclaim == 0 {
		for id, r := range e.live {
			if !r.paused && !r.deferred && e.cfg.MaxQueue > 0 {
				t.Fatalf("nothing runs, nothing is to be reclaimed, and request %d waits\n%s", id, e.trace)
			}
		}
	}
	if len(p.Batch) == 0 {
		for id, r := range e.live {
			if state, _, _ := e.s.Why(id); !r.paused && state != Queued {
				t.Fatalf("request %d could run and nothing runs\n%s", id, e.trace)
			}
		}
	}
}

// leftOut reports whether the policy may leave this decoding request out of the step, and does: one that thinks, when
// answers run and it is not due; a background answer beside interactive ones, likewise; and an answer without a place
// under the static rule.
func (e *engine) leftOut(id ReqID) bool {
	if !e.decodes(id) {
		return false
	}
	r, rows := e.s.requests[id], e.plan.DecodeTokens+e.plan.ProbeTokens+e.cfg.MinPrefill < e.cfg.MaxBatch
	switch {
	case r.turns.reason == reason.ThinkHeld && e.cfg.Policy == "meridian":
		if late := e.now.Sub(r.timing.lastEmit) - e.cfg.ThinkFloor; r.state != Think || rows && late >= 0 {
			e.t.Fatalf("request %d thinks and is left out %v after the floor\n%s", id, late, e.trace)
		}
		return true
	case r.turns.reason == reason.WaitEndangered && e.cfg.Policy == "meridian":
		late := e.now.Sub(r.timing.lastEmit) - e.cfg.ThinkFloor
		if r.state != Output || r.entry.Class != Background || r.spec.TargetITL > 0 || rows && late >= 0 {
			e.t.Fatalf("answer %d is left out %v after the floor\n%s", id, late, e.trace)
		}
		return true
	}
	return e.cfg.Policy == "meridian_static"
}

// bounds checks that no request waits longer than the policy bounds.
func (e *engine) bounds(inBatch map[ReqID]bool) {
	p := &e.plan
	if len(p.Batch) == 0 {
		return
	}
	reserve := min(e.cfg.MinPrefill, max(1, e.cfg.MaxBatch/2))
	if p.PrefillHeld {
		if e.held++; e.held > e.cfg.MaxHeld {
			e.t.Fatalf("prompts are held %d steps in a row, the bound is %d\n%s", e.held, e.cfg.MaxHeld, e.trace)
		}
	} else {
		e.held = 0
	}
	short := p.Reason == reason.Cells ||
		slices.ContainsFunc(p.Batch, func(sl Slice) bool { return sl.Reason == reason.PrefillCells })
	predicts := e.cfg.Policy == "meridian"
	if predicts {
		reserve = 1
	}
	if (e.cfg.Policy == "uma" || predicts && p.DecodeTokens+p.ProbeTokens < e.cfg.MaxBatch) && !p.PrefillHeld &&
		!short {
		var prompts [NumClasses]int
		for id, r := range e.live {
			if state, _, _ := e.s.Why(id); state == Prefill && !r.paused && !r.whole && !r.everyRow {
				prompts[r.class] += r.history() - r.cells
			}
		}
		left := 0
		for class, n := range prompts {
			if limit := e.cfg.Limits[class].StepTokens; limit > 0 {
				n = min(n, limit)
			}
			left += n
		}
		if p.PrefillTokens < min(reserve, left) {
			e.t.Fatalf("%d of %d prompt tokens are computed, the bound is %d\n%s", p.PrefillTokens, left, reserve,
				e.trace)
		}
	}
	switch {
	case e.cfg.Policy == "stock":
		reserve = 0
	case predicts:
		reserve = min(e.cfg.MinPrefill, max(1, e.cfg.MaxBatch/2))
	}
	rows := max(1, e.cfg.MaxBatch-reserve)
	if e.cfg.Policy == "meridian_static" {
		// Requests that start, or begin to answer, come last.
		rows = min(newMeridianStatic(e.s).slots, e.cfg.MaxBatch)
	}
	row := (e.cfg.MaxRunning + rows - 1) / rows
	if predicts {
		row *= 3 // thinking requests and answers take separate turns, and what is reserved may be more than rows
	}
	prefill := turnEvery * e.cfg.MaxRunning
	for id, r := range e.live {
		if inBatch[id] || r.paused || r.seq < 0 {
			r.waitedRow, r.waitedPref = 0, 0
			continue
		}
		if e.cfg.Policy != "meridian_static" && e.leftOut(id) {
			continue
		}
		if e.cfg.Policy == "meridian_static" && e.s.requests[id].state == Think {
			continue // that it can starve is what the rule is known for
		}
		if e.decodes(id) {
			if r.waitedRow++; r.waitedRow > row {
				e.t.Fatalf("answer %d waits %d steps for a token, the bound is %d\n%s", id, r.waitedRow, row, e.trace)
			}
		} else if (e.cfg.Policy == "uma" || predicts) && !p.PrefillHeld && !short {
			if q := e.s.requests[id]; q.turns.reason == reason.PrefillTogether && q.turns.lastSkip == e.s.step {
				if r.waitedOthers++; r.waitedOthers > togetherSteps*e.cfg.MaxRunning {
					e.t.Fatalf("prompt %d waits %d steps for others' first tokens, the bound is %d\n%s", id,
						r.waitedOthers, togetherSteps*e.cfg.MaxRunning, e.trace)
				}
				continue
			}
			if r.waitedPref++; r.waitedPref > prefill {
				e.t.Fatalf("prompt %d waits %d steps, the bound is %d\n%s", id, r.waitedPref, prefill, e.trace)
			}
		}
	}
}

// finish lets all requests end: clients read, nothing fails, none arrives.
func (e *engine) finish() {
	for e.foreign = 0; ; {
		ev := e.compute(true)
		ev = append(ev, e.ready(true)...)
		for _, id := range e.ids() {
			if e.live[id].paused {
				e.live[id].paused = false
				ev = append(ev, EvResume{Req: id})
			}
		}
		steps := e.steps
		e.step(ev)
		if len(e.live) == 0 {
			break
		}
		if steps > 20000 {
			e.t.Fatalf("%d requests never end\n%s", len(e.live), e.trace[max(0, len(e.trace)-4000):])
		}
	}
	for id := ReqID(1); id <= e.next; id++ {
		if e.final[id] != 1 {
			e.t.Fatalf("request %d was finalised %d times\n%s", id, e.final[id], e.trace)
		}
	}
	if st := e.s.Stats(); st.FreeCells != e.cfg.Cells-e.told-e.kept || len(e.seq) != 0 || len(e.s.requests) != 0 {
		e.t.Fatalf("left behind: %+v, sequences %v", st, e.seq)
	}
}

// TestRandomWorkloads: whatever clients and engine do, plans can be carried out, no request starves, each ends
// exactly once, and the recorded trace replays to the same plans.
func TestRandomWorkloads(t *testing.T) {
	for _, name := range append(Policies(), "uma prefix", "stock prefix", "meridian prefix") {
		t.Run(name, func(t *testing.T) {
			policy, prefix, _ := strings.Cut(name, " ")
			rapid.Check(t, func(t *rapid.T) {
				cfg := drawConfig(t, policy)
				cfg.Prefix = prefix != ""
				encoder := rapid.IntRange(0, 3).Draw(t, "encoder") == 3
				if encoder { // it has no KV cache: cells are only counted
					cfg.Prefix, cfg.Cells = false, cfg.MaxRunning*(cfg.MaxBatch+1)
				}
				e := newEngine(t, cfg)
				e.encoder = encoder
				if !encoder && rapid.IntRange(0, 3).Draw(t, "others") == 3 {
					e.foreign = rapid.IntRange(0, e.cfg.Cells/2).Draw(t, "foreign")
				}
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					ev := e.compute(false)
					more := e.happen()
					if rapid.Bool().Draw(t, "early") {
						// What clients do may be told before the outcome; then tokens of ended requests follow.
						ev = append(more, ev...)
					} else {
						ev = append(ev, more...)
					}
					e.step(ev)
				}
				e.finish()
				if n, err := traced.replay(e.trace); err != nil || n != e.steps {
					t.Fatalf("%d of %d steps were recorded: %v", n, e.steps, err)
				}
			})
		})
	}
}

// TestTopRankProgresses: under constant pressure for cells the first of the running requests is never preempted.
func TestTopRankProgresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t, "uma")
		cfg.Cells = rapid.IntRange(20, 40).Draw(t, "few_cells")
		cfg.Guard, cfg.MaxQueue = 0, 100
		e := newEngine(t, cfg)
		for range 40 {
			ev := e.compute(true)
			for range rapid.IntRange(0, 2).Draw(t, "arrivals") {
				e.next++
				r := &simRequest{prompt: rapid.IntRange(1, 12).Draw(t, "prompt"), seq: -1}
				r.max = min(e.cfg.Room(r.prompt), 25)
				e.live[e.next] = r
				ev = append(ev, EvArrive{Req: e.next,
					Spec: &Spec{Owner: uint32(e.next % 3), Prompt: r.prompt, MaxTokens: r.max}})
			}
			first := ReqID(0)
			for _, id := range e.ids() {
				if r := e.live[id]; r.seq >= 0 && r.have < r.max {
					first = id
					break
				}
			}
			e.step(ev)
			for _, r := range e.plan.Release {
				if r.Req == first && !r.Final {
					t.Fatalf("request %d was preempted\n%s", first, e.trace)
				}
			}
		}
		e.finish()
	})
}

// TestFairShare: two owners that always have work share the computed tokens half and half, although one has ten
// times as many requests waiting and the other one's are twenty times as long.
func TestFairShare(t *testing.T) {
	for _, class := range []Class{Interactive, Background} {
		s, err := New(Config{Policy: "uma", MaxRunning: 3, Cells: 4000, MaxBatch: 64, MaxQueue: 100})
		if err != nil {
			t.Fatal(err)
		}
		prompt := [2]int{20, 400}
		want := [2]int{40, 4} // requests each owner keeps in flight
		var flying, tokens [2]int
		var events []Event
		next, now := ReqID(0), Instant(0)
		owner := map[ReqID]int{}
		for range 20000 {
			for o := range flying {
				for ; flying[o] < want[o]; flying[o]++ {
					next++
					owner[next] = o
					events = append(events, EvArrive{Req: next,
						Spec: &Spec{Class: class, Owner: uint32(o), Prompt: prompt[o], MaxTokens: 8}})
				}
			}
			plan := s.Step(now, List(events...))
			for _, r := range plan.Release {
				if r.Final {
					flying[owner[r.Req]]--
				}
			}
			now = now.Add(20 * time.Millisecond)
			events = append(events[:0], EvStep{Took: 20 * time.Millisecond})
			for _, sl := range plan.Batch {
				tokens[owner[sl.Req]] += sl.N
				if sl.Row < 0 {
					continue
				}
				if sl.Start+1 >= prompt[owner[sl.Req]]+7 {
					events = append(events, EvFinish{Req: sl.Req, Reason: reason.Length})
				} else {
					events = append(events, EvToken{Req: sl.Req})
				}
			}
		}
		if share := float64(tokens[0]) / float64(tokens[0]+tokens[1]); share < 0.48 || share > 0.52 {
			t.Errorf("%v: the owner of many short requests got %.3f of %d tokens", class, share, tokens[0]+tokens[1])
		}
	}
}
