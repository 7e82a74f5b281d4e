package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/sched"
)

// The answers to why: the decisions about a request. The decode loop owns them and answers between two steps; during a
// long step, another goroutine answers.

// inquiry is a question about the decode loop's state, or an operation on it.
type inquiry struct {
	c  ipc.Client
	id string
	// reads: answer only reads the loop's state, so that it may run while the loop decodes, waits or sleeps.
	reads bool
	// answer returns the event to send; nil: answer sends it later itself.
	answer func(l *loop, now time.Time) *wire.Event

	answered atomic.Bool
}

// askBeside is the time for which a question waits for the end of a step before it is answered during the step. Most
// steps are shorter, and between two of them the loop has taken everything that was sent before the question.
const askBeside = 50 * time.Millisecond

// ask has the decode loop answer q between two steps.
func (s *Server) ask(q *inquiry) {
	l := s.loop.Load()
	if l == nil || !l.mail.put(command{kind: cmdAsk, ask: q.do}) {
		e := s.stillLoading()
		if s.draining.Load() {
			e = shuttingDown()
		}
		q.refuse(e)
		return
	}
	if q.reads {
		time.AfterFunc(askBeside, func() { l.answerBeside(q) })
	}
}

// do answers, once. The caller holds l.aside.
func (q *inquiry) do(l *loop, now time.Time) {
	if q.answered.Swap(true) {
		return
	}
	if ev := q.answer(l, now); ev != nil {
		q.c.ReplyEvent(ev)
	}
}

func (q *inquiry) refuse(e *wire.Error) {
	e.ID = q.id
	q.c.ReplyEvent(wire.ErrorEvent(e))
}

// answerBeside answers a question that the loop has not answered yet, as soon as the loop computes, waits or sleeps.
func (l *loop) answerBeside(q *inquiry) {
	if q.answered.Load() {
		return
	}
	l.aside.Lock()
	defer l.aside.Unlock()
	if !l.over {
		q.do(l, time.Now())
	} else if !q.answered.Swap(true) {
		q.refuse(shuttingDown())
	}
}

// finishedRequest is the summary of an ended request, for why.
type finishedRequest struct {
	id     sched.ReqID
	wireID string
	owner  uint32
	class  sched.Class
	ended  string
	at     time.Time // of its arrival
	took   time.Duration
	ttft   time.Duration
	form   *wire.WhyForm
	guess  *wire.WhyDrafts
	wait   formWait
	device deviceWait
	price  pricing
	usage  wire.WhyUsage
	think  meridian.Signals
	force  meridian.Force // Reason is NoReason if its thinking was not ended early
	calls  []malformedCall
	about  sched.ReqID // of a request for embeddings: the text whose decisions are reported
	note   string      // a sentence about that text
	notes  []wire.Note // changes to its conversation
}

// remember keeps the summary of an ended request for why.
func (l *loop) remember(r *request, how string, now time.Time) {
	l.recent[l.recentNext%len(l.recent)] = finishedRequest{
		id: r.ID, wireID: r.wireID, owner: r.Owner, class: r.Class, ended: how, at: r.arrived, took: now.Sub(r.arrived),
		ttft: r.timings().TTFT, usage: r.whyUsage(), form: r.form.why(), wait: r.formWait, force: r.ctl.LastForce(),
		think: r.ctl.Signals(), calls: r.malformed, device: r.deviceWait, guess: l.whyGuesses(r),
		price: r.pricing, notes: r.notes,
	}
	if r.embed != nil {
		p := &l.recent[l.recentNext%len(l.recent)]
		p.about, p.note = l.whyEmbed(r)
	}
	l.recentNext++
}

func (r *request) whyUsage() wire.WhyUsage {
	return wire.WhyUsage{
		PromptTokens: r.Prompt, CachedTokens: r.cached, CacheTier: r.tier.String(), CacheMiss: r.miss,
		CompletionTokens: r.Generated(), ThinkTokens: r.ctl.ThinkTokens(),
	}
}

// why reports the requests that q names, the newest first: uid's requests, or those of all users for an operator.
func (l *loop) why(q wire.WhyQuestion, uid uint32, now time.Time) *wire.WhyReport {
	rep := &wire.WhyReport{Requests: []wire.WhyRequest{}}
	number, byNumber := uint64(0), false
	if rest, ok := strings.CutPrefix(q.Request, "#"); ok {
		var err error
		number, err = strconv.ParseUint(rest, 10, 64)
		byNumber = err == nil
	}
	wanted := func(id sched.ReqID, wireID string, owner uint32) bool {
		switch {
		case owner != uid && !l.cfg.Privileged(uid):
			return false
		case byNumber:
			return uint64(id) == number
		}
		return q.Request == "" || wireID == q.Request
	}
	for id, r := range l.requests {
		if !r.finished && r.part == nil && wanted(id, r.wireID, r.Owner) {
			rep.Requests = append(rep.Requests, l.whyLive(r, now))
		}
	}
	for i := range l.recent {
		p := &l.recent[i]
		if p.id == 0 || !wanted(p.id, p.wireID, p.owner) {
			continue
		}
		w := wire.WhyRequest{
			Request: p.wireID, Number: uint64(p.id), UID: p.owner, Class: className(p.class), State: "done",
			Ended: p.ended,
			AgeMs: wire.Ms(now.Sub(p.at)), TookMs: wire.Ms(p.took), TTFTMs: wire.Ms(p.ttft), Usage: p.usage,
			Form: p.form, Signals: whySignals(&p.think, p.usage.ThinkTokens), Drafts: p.guess,
		}
		l.decisions(&w, cmp.Or(p.about, p.id), p.at, p.wait, p.device, &p.price, &p.force, p.calls)
		explain(&w, p.note, p.notes)
		rep.Requests = append(rep.Requests, w)
	}
	slices.SortFunc(rep.Requests, func(a, b wire.WhyRequest) int { return cmp.Compare(b.Number, a.Number) })
	for _, r := range l.mail.arriving() { // the newest of all
		if !byNumber && wanted(0, r.wireID, r.Owner) {
			rep.Requests = slices.Insert(rep.Requests, 0, r.whyArriving(now))
		}
	}
	rep.Requests = rep.Requests[:min(len(rep.Requests), cmp.Or(q.Last, wire.MaxLast))]
	return rep
}

// whyArriving describes a request that the loop has not taken yet. It reads only fields of r that no longer change.
func (r *request) whyArriving(now time.Time) wire.WhyRequest {
	age := wire.Ms(now.Sub(r.arrived))
	return wire.WhyRequest{Request: r.wireID, UID: r.Owner, Class: className(r.Class), State: "queued", AgeMs: age,
		Decisions: []wire.Decision{{LastMs: age, Times: 1, Reason: "step_running",
			Text: "It waits for the end of the step that is being computed."}}}
}

func (l *loop) whyLive(r *request, now time.Time) wire.WhyRequest {
	state, _, _ := l.core.Scheduler().Why(r.ID)
	w := wire.WhyRequest{
		Request: r.wireID, Number: uint64(r.ID), UID: r.Owner, Class: className(r.Class), State: r.stateName(state),
		AgeMs: wire.Ms(now.Sub(r.arrived)), TTFTMs: wire.Ms(r.timings().TTFT), Usage: r.whyUsage(), Form: r.form.why(),
		Drafts: l.whyGuesses(r),
	}
	signals := r.ctl.Signals()
	w.Signals = whySignals(&signals, w.Usage.ThinkTokens)
	f := r.ctl.LastForce()
	about, note := r.ID, ""
	if r.embed != nil {
		if about, note = l.whyEmbed(r); r.embed.open > 0 {
			w.State = "prefill"
		}
	}
	l.decisions(&w, about, r.arrived, r.formWait, r.deviceWait, &r.pricing, &f, r.malformed)
	explain(&w, note, r.notes)
	return w
}

// notesOf returns the changes to w's conversation: by its API, and for the chat template.
func notesOf(w *wire.Request, changes []template.Change) []wire.Note {
	notes := slices.Clone(w.Notes)
	for _, c := range changes {
		notes = append(notes, wire.Note{Reason: c.Reason, Text: c.Text, Times: c.Times})
	}
	return notes
}

// explain inserts note, unless it is "", and notes before the decisions.
func explain(w *wire.WhyRequest, note string, notes []wire.Note) {
	for i, n := range notes {
		w.Decisions = slices.Insert(w.Decisions, i, wire.Decision{Times: n.Times, Reason: n.Reason, Text: n.Text})
	}
	if note != "" {
		w.Decisions = slices.Insert(w.Decisions, 0, wire.Decision{Times: 1, Reason: "embeddings", Text: note})
	}
}

// whySignals returns the early-exit signals of a thought for why; nil if none was measured.
func whySignals(s *meridian.Signals, tokens int) *wire.WhySignals {
	if tokens == 0 || !s.EAT && !s.RPDI {
		return nil
	}
	w := &wire.WhySignals{Probes: s.Probes, Converged: s.Converged, Stalled: s.Stalled, Overthinking: s.Overthinking}
	if s.Probes > 0 {
		w.Entropy, w.Mean, w.Variance = s.X, s.Mean, s.Var
	}
	w.Index = s.Index
	return w
}

// forcedDecision returns the entry for thinking that was ended early: the reason and the measurements behind it.
func forcedDecision(f *meridian.Force, arrived time.Duration) wire.Decision {
	at := wire.Ms(time.Duration(f.DecidedAt) - arrived)
	text := fmt.Sprintf("Its thinking was ended after %d tokens: %s", f.Tokens, f.Reason)
	if f.Probes > 0 {
		text += fmt.Sprintf(" (%d probes, entropy of the newest %.3f nats, EMA variance %.2g nats²)", f.Probes, f.X,
			f.Var)
	}
	return wire.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "forced_" + f.Reason.String(), Text: text + "."}
}

// decisions fills w.Decisions, in the order of time: the waits for its grammars and for other models, the decisions
// about its stored cells, the scheduler's decisions about a request, an early end of its thinking, and its malformed
// calls.
func (l *loop) decisions(
	w *wire.WhyRequest, id sched.ReqID, arrived time.Time, wait formWait, device deviceWait, price *pricing,
	f *meridian.Force, calls []malformedCall,
) {
	w.Decisions = []wire.Decision{}
	if !wait.at.IsZero() {
		w.Decisions = append(w.Decisions, wait.decision(arrived))
	}
	if device.times > 0 {
		w.Decisions = append(w.Decisions, device.decision(l.device, arrived))
	}
	if !price.at.IsZero() {
		w.Decisions = append(w.Decisions, price.decision(arrived))
	}
	log, _ := l.core.Scheduler().Decisions(nil, id)
	at := func(t sched.Instant) float64 { return wire.Ms(time.Duration(t) - arrived.Sub(l.epoch)) }
	for _, d := range log {
		w.Decisions = append(w.Decisions, wire.Decision{
			AtMs: at(d.First), LastMs: at(d.Last), Times: d.Times, Reason: d.Reason.String(), Text: d.Reason.Explain(),
			Tokens: d.Tokens, Latest: d.Latest,
		})
	}
	if f.Reason != meridian.NoReason {
		w.Decisions = append(w.Decisions, forcedDecision(f, arrived.Sub(l.epoch)))
	}
	for i := range calls {
		w.Decisions = append(w.Decisions, calls[i].decision(arrived))
	}
	slices.SortStableFunc(w.Decisions, func(a, b wire.Decision) int { return cmp.Compare(a.AtMs, b.AtMs) })
}

func className(c sched.Class) string {
	if c == sched.Background {
		return "background"
	}
	return "interactive"
}
