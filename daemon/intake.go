package daemon

import (
	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/constrain"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/stage"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// intake is the goroutine that prepares requests, one after the other, and renders the histories of ended chats. It
// ends when the waitroom is closed.
func (s *Server) intake(l *loop) {
	for {
		j, ok, closed := s.room.Next()
		switch {
		case ok:
			s.submit(l, j)
			s.oneHistory(l)
		case closed:
			return
		default:
			select {
			case <-s.room.Wake():
			case r := <-l.histories:
				s.history(l, r)
			}
		}
	}
}

// history renders what the next turn of an ended chat will begin with.
func (s *Server) history(l *loop, r *request) {
	tokens := s.model.Load().History(&r.Prepared, wire.Message{Content: string(r.said.Text),
		ReasoningContent: string(r.said.Thinking), ToolCalls: r.said.Calls})
	l.mail.Put(command{kind: cmdHistory, req: r, tokens: tokens})
}

// oneHistory is history for one ended chat, if one waits.
func (s *Server) oneHistory(l *loop) {
	select {
	case r := <-l.histories:
		s.history(l, r)
	default:
	}
}

// letPass prepares the requests that go before those of a lane. Intake calls it between the parts of one that takes
// long.
func (s *Server) letPass(l *loop, lane int) {
	for j, ok := s.room.Before(lane); ok; j, ok = s.room.Before(lane) {
		s.submit(l, j)
	}
	s.oneHistory(l)
}

// submit prepares a request and sends it to the decode loop, or refuses it.
func (s *Server) submit(l *loop, j job) {
	m := s.model.Load()
	if j.r.lines {
		m.Line(j.w)
	}
	if j.r.life.Enter(stage.Preparing) {
		s.endUnstarted(j)
		return
	}
	var e *wire.Error
	var g constrain.Grammars
	waits := false
	if j.r.embed == nil {
		if e = m.Refuses(); e == nil {
			g, waits, e = s.grammarsOf(m, j)
		}
	}
	if waits {
		if j.r.life.Cancelled() { // the cancel may have come before the request waited
			s.cancelIn(j.r, j.r.life.Stage())
		}
		return
	}
	switch {
	case e != nil:
	case j.r.embed != nil:
		lane := j.Lane()
		j.r.embed.texts, e = m.Texts(&j.r.Prepared, j.r.embed.w, func() (goOn bool) {
			s.letPass(l, lane)
			return !j.r.life.Cancelled()
		})
		if j.r.life.Cancelled() {
			s.endUnstarted(j)
			return
		}
	default:
		if m.LookAt(j.w) && j.r.Views == nil { // it may take seconds, in which others are prepared
			s.view(m, j)
			return
		}
		e = s.prepareAnswer(j.r, j.w, &g)
	}
	if e == nil {
		j.r.life.Enter(stage.Queued)
		if !l.mail.Put(command{kind: cmdArrive, req: j.r}) {
			e = admission.ShuttingDown()
		}
	}
	if e != nil {
		s.refuseJobs([]job{j}, e)
	}
}

// prepareAnswer prepares a request for an answer, which g constrains.
func (s *Server) prepareAnswer(r *request, w *wire.Request, g *constrain.Grammars) *wire.Error {
	m, l := s.model.Load(), s.loop.Load()
	s.closeMessage(l, w, g)
	constrained := prepare.Constrained{Bound: g.Bound(), Headed: g.Headed(), CallsOnly: g.CallsOnly()}
	if bad := m.Answer(&r.Prepared, w, constrained, &l.reused.scratch); bad != nil {
		return bad
	}
	r.setOptions(w)
	o := constrain.Options{Owner: r.Owner, Spec: r.CallSyntax, CallBegun: r.CallBegun, Begin: r.Begin,
		MayThink: r.Phases.MayThink()}
	if n := len(w.Messages); r.Continued && n > 0 {
		o.Continued = w.Messages[n-1].Content
	}
	r.constraint = constrain.New(l.masks, g, o)
	if m.Tags.Known() && m.Tags.Fallback() {
		s.metrics.VocabFallbacks.Inc()
	}
	return nil
}

// setOptions sets what the client hears of r.
func (r *request) setOptions(w *wire.Request) {
	r.every = w.EveryToken
	r.stream, r.logprobs, r.metadata, r.parent = w.Stream, w.Sampling.Logprobs > 0, w.Metadata, w.Traceparent
	if r.stream {
		r.echo = w.PromptLogprobs
	}
	r.progress, r.noisy = !r.lines && (w.Progress || w.Stream && !w.NoProgress), w.Progress
	r.chat = r.Chat
}
