package daemon

import (
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Questions about the decode loop's state. The loop answers between two steps; during a long step, another goroutine
// answers.

// inquiry is a question about the decode loop's state, or an operation on it.
type inquiry struct {
	c  ipc.Client
	id string
	// reads: answer only reads the loop's state, so that it may run while the loop decodes, waits or sleeps.
	reads bool
	asked
	answered atomic.Bool
}

// asked is the subject of an inquiry.
type asked interface {
	// answer returns the event to send to the client of q; nil: it is sent later. The caller holds l.aside.
	answer(q *inquiry, l *loop, now time.Time) *wire.Event
}

// askBeside is the time for which a question waits for the end of a step before it is answered during the step. Most
// steps are shorter, and between two of them the loop has taken everything that was sent before the question.
const askBeside = 50 * time.Millisecond

// ask has the decode loop answer q between two steps.
func (s *Server) ask(q *inquiry) {
	l := s.loop.Load()
	if l == nil || !l.mail.Put(command{kind: cmdTask, task: q}) {
		e := admission.StillLoading(s.about.LoadProgress())
		if s.draining.Load() {
			e = admission.ShuttingDown()
		}
		q.refuse(e)
		return
	}
	if q.reads {
		time.AfterFunc(askBeside, func() { l.answerBeside(q) })
	}
}

// run answers, once. The caller holds l.aside.
func (q *inquiry) run(l *loop, now time.Time) {
	if q.answered.Swap(true) {
		return
	}
	if ev := q.answer(q, l, now); ev != nil {
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
	if !l.end.over {
		q.run(l, time.Now())
	} else if !q.answered.Swap(true) {
		q.refuse(admission.ShuttingDown())
	}
}

// whyQuestion asks for decisions about requests.
type whyQuestion struct {
	s   *Server
	q   wire.WhyQuestion
	uid uint32
}

func (w *whyQuestion) answer(q *inquiry, l *loop, now time.Time) *wire.Event {
	rep := l.why(w.q, w.uid, now)
	w.s.whyCompiling(rep, w.q, w.uid, now)
	w.s.whyViewing(rep, w.q, w.uid, now)
	for i := range rep.Requests {
		rep.Requests[i].Owner = w.s.in.Access.OwnerName(rep.Requests[i].UID)
	}
	return wire.JSONEvent(wire.KindWhy, q.id, rep)
}

// remember keeps an ended request for why.
func (l *loop) remember(r *request, how string, now time.Time) {
	p := &l.journal.recent[l.journal.recentNext%len(l.journal.recent)]
	*p = l.whyOf(r)
	p.State, p.Ended, p.Took = "done", how, now.Sub(r.arrived)
	l.journal.recentNext++
}

// whyOf returns what why tells of r, but its state.
func (l *loop) whyOf(r *request) report.Request {
	p := report.Request{
		ID: r.ID, WireID: r.wireID, Owner: r.Owner, Class: r.Class, Arrived: r.arrived,
		TTFT: r.at.Timings(r.arrived).TTFT,
		Usage: reports.WhyUsage{
			PromptTokens: r.Prompt, CachedTokens: r.cached, CacheTier: r.tier.String(), CacheMiss: r.miss,
			CompletionTokens: r.Generated(), ThinkTokens: r.Phases.ThinkTokens(),
		},
		Constraint: r.constraint.Why(), Guesses: l.whyGuesses(r), Signals: r.Phases.Signals(),
		Force:    r.Phases.LastForce(),
		Compiled: report.Compiled{At: r.waiter.Since, Took: r.waiter.Took}, Device: r.deviceWait.Named(l.device),
		Price: r.priced, Malformed: r.said.Malformed, Changes: r.Notes, About: r.ID,
	}
	if r.embed != nil {
		p.About, p.Note = l.whyEmbed(r)
	}
	return p
}

// why reports the requests that q names, the newest first: uid's requests, or those of all users for an operator.
func (l *loop) why(q wire.WhyQuestion, uid uint32, now time.Time) *reports.WhyReport {
	why := report.NewWhy(q, uid, l.cfg.Privileged(uid), now, l.epoch)
	add := func(p *report.Request) {
		log, _ := l.core.Scheduler().Decisions(nil, p.About)
		why.Add(p, log)
	}
	for id, r := range l.requests {
		if r.life.Over() || r.input != nil || !why.Wants(id, r.wireID, r.Owner) {
			continue
		}
		p := l.whyOf(r)
		state, _, _ := l.core.Scheduler().Why(r.ID)
		if p.State = r.stateName(state); r.embed != nil && r.embed.open > 0 {
			p.State = "prefill"
		}
		add(&p)
	}
	for i := range l.journal.recent {
		if p := &l.journal.recent[i]; p.ID != 0 && why.Wants(p.ID, p.WireID, p.Owner) {
			add(p)
		}
	}
	for _, r := range l.arriving() { // of these only fields that no longer change may be read
		if why.Wants(0, r.wireID, r.Owner) {
			why.AddArriving(r.wireID, r.Owner, r.Class, r.arrived)
		}
	}
	return why.Report()
}
