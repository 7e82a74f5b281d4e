package daemon

import (
	"cmp"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/constrain"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/stage"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// The daemon's side of constrained answers (package constrain): the decode loop's calls around each token, and intake's
// requests that wait for a grammar.

// place returns where in its turn r's next token is.
func (r *request) place() constrain.Place {
	return constrain.Place{Answer: r.Phases.InAnswer(), Thought: r.Phases.InThought(), Header: r.Phases.InHeader(),
		MayThink: r.Phases.MayThink(), Openers: r.Phases.Openers()}
}

// constrain passes r's next token to its constraint. opened: the token begins to open a thought. ok is false if the
// token ends the request, which has failed then.
func (l *loop) constrain(r *request, tok runtime.Token) (opened, ok bool) {
	if r.constraint == nil {
		return false, true
	}
	room := min(r.MaxTokens-r.Generated(), l.cfg.Longest(l.model.caps.ContextTokens)-len(r.Tokens)) - 2
	if r.logprobs {
		room = 0 // each token needs a row
	}
	v, bad := r.constraint.Accept(tok, r.place(), room)
	if bad != nil {
		l.core.NoToken(&r.Request, reason.Failed)
		l.failRequest(r, *bad)
		return false, false
	}
	r.Last, r.More = v.Last, v.More
	v.Calls.Tell(r.Calls, r.stream)
	return v.Opened, true
}

// follow tells r's constraint what the core has made of its token. The error ends the request.
func (r *request) follow(tok runtime.Token, said *core.Said) *wire.Error {
	if r.constraint == nil {
		return nil
	}
	h := constrain.Heard{At: r.place(), Released: said.Released, Ended: said.End != core.NotEnded}
	if r.Calls != nil {
		h.Busy, h.InSection, h.Opening = r.Calls.Busy(), r.Calls.InSection(), r.Calls.Opening()
	}
	say, bad := r.constraint.Follow(tok, h)
	say.Tell(r.Calls, r.stream)
	return bad
}

// grammarsOf returns the grammars of j's answer, or the error to refuse it with. waits: j waits for a build and comes
// back to intake.
func (s *Server) grammarsOf(m *prepare.Model, j job) (g constrain.Grammars, waits bool, bad *wire.Error) {
	format, calls, bad := constrain.Sources(j.w, prepare.OfferedTools(j.w), m.Calls, m.Tags.Headers())
	if bad != nil {
		return g, false, bad
	}
	j.r.waiter.Owner, j.r.waiter.Job = j.r.Owner, j
	j.r.life.Enter(stage.Compiling)
	if g, waits, bad = s.grammars.Get(format, calls, &j.r.waiter, &j.w.Notes); !waits {
		j.r.life.Enter(stage.Preparing)
	}
	return g, waits, bad
}

// closeMessage makes the answer a new message where the conversation ends with the assistant's, which cannot be the
// beginning of the format that the request asks for: frameworks ask for one when the model has answered in words.
// A client that asks for the continuation gets an error instead.
func (s *Server) closeMessage(l *loop, w *wire.Request, g *constrain.Grammars) {
	n := len(w.Messages)
	if n == 0 || w.Continue != wire.ContinueLast || !g.HasFormat() {
		return
	}
	last := &w.Messages[n-1]
	if last.Role != "assistant" || last.Content == "" {
		return
	}
	begins := beginsTask{g, last.Content, make(chan bool, 1)}
	if !l.mail.Put(command{kind: cmdAwaited, task: begins}) || <-begins.yes {
		return
	}
	w.Continue = wire.ContinueOff
	w.Notes.Add(wire.Note{Reason: "message_closed", Times: 1, Text: "The last message is the assistant's and cannot " +
		"begin an answer of the requested format: the answer is a new message."})
}

// beginsTask asks whether a text can begin an answer that g constrains. The loop owns the grammar's automaton.
type beginsTask struct {
	g    *constrain.Grammars
	text string
	yes  chan bool
}

func (t beginsTask) run(l *loop, _ time.Time) { t.yes <- t.g.Begins(t.text, l.model.tags.Headers()) }

// jobsOf returns the requests of waiters.
func jobsOf(list []*constrain.Waiter) (jobs []job) {
	for _, w := range list {
		jobs = append(jobs, w.Job.(job))
	}
	return jobs
}

// compiled queues requests of one user for intake again, or refuses them after the waitroom's end.
func (s *Server) compiled(list []*constrain.Waiter) {
	jobs := jobsOf(list)
	for _, j := range jobs {
		j.r.life.Enter(stage.Waiting)
	}
	if e := s.room.PutBack(jobs); e != nil {
		s.refuseJobs(jobs, e)
	}
}

// closeGrammars stops all builds and returns the requests that wait for them.
func (s *Server) closeGrammars() []job { return jobsOf(s.grammars.Close(admission.ShuttingDown())) }

// whyCompiling adds the requests that wait for a grammar to the report of a why question. They come first: the server
// numbers requests after their compilation.
func (s *Server) whyCompiling(rep *reports.WhyReport, q wire.WhyQuestion, uid uint32, now time.Time) {
	var list []reports.WhyRequest
	s.grammars.EachWaiting(func(w *constrain.Waiter, src *constrain.Source, runs bool, since time.Time) {
		j := w.Job.(job)
		if (j.r.Owner == uid || s.cfg.Privileged(uid)) && (q.Request == "" || j.r.wireID == q.Request) {
			list = append(list, j.whyWaiting(src, runs, since, now))
		}
	})
	slices.SortFunc(list, func(a, b reports.WhyRequest) int { return cmp.Compare(a.AgeMs, b.AgeMs) })
	if list = append(list, rep.Requests...); len(list) == 0 {
		return // an empty array, not null
	}
	rep.Requests = list[:min(len(list), cmp.Or(q.Last, wire.MaxLast))]
}

// whyWaiting returns the entry of a request that waits for a grammar. runs reports whether its build runs.
func (j job) whyWaiting(src *constrain.Source, runs bool, since, now time.Time) reports.WhyRequest {
	text := "Its " + src.Field + " is being compiled."
	if !runs {
		text = "Its " + src.Field + " waits to be compiled: one grammar of each user is compiled at a time."
	}
	w := j.waits("compiling", text, since, now)
	w.Form = &reports.WhyConstraint{Form: src.Name}
	return w
}

// waits returns the entry of a request that waits for something before the decode loop has it.
func (j job) waits(state, text string, since, now time.Time) reports.WhyRequest {
	w := report.Waiting(state, text, j.r.arrived, since, now)
	w.Request, w.UID, w.Class = j.r.wireID, j.r.Owner, prepare.Class(j.w).String()
	return w
}
