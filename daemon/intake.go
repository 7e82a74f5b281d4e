package daemon

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
)

// intake is the goroutine that prepares requests, one after the other, and renders the histories of ended chats. It
// ends when the waitroom is closed.
func (s *Server) intake(l *loop) {
	for {
		j, ok, closed := s.room.next()
		switch {
		case ok:
			s.submit(l, j)
			s.oneHistory(l)
		case closed:
			return
		default:
			select {
			case <-s.room.wake:
			case r := <-l.histories:
				s.history(l, r)
			}
		}
	}
}

// history renders what the next turn of an ended chat will begin with.
func (s *Server) history(l *loop, r *request) {
	l.mail.put(command{kind: cmdHistory, req: r, tokens: s.model.Load().history(r)})
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
	for j, ok := s.room.before(lane); ok; j, ok = s.room.before(lane) {
		s.submit(l, j)
	}
	s.oneHistory(l)
}

// submit prepares a request and sends it to the decode loop, or refuses it.
func (s *Server) submit(l *loop, j job) {
	if m := s.model.Load(); j.r.lines && m.template != nil {
		j.w.Messages, j.w.Prompt = []wire.Message{{Role: "user", Content: j.w.Prompt}}, ""
	}
	if j.r.cancelled.Load() {
		s.endUnstarted(j)
		return
	}
	e := s.cannot(j.r)
	var format, calls *compiledForm
	parked := false
	if e == nil && j.r.embed == nil {
		format, calls, parked, e = s.grammars(j)
	}
	if parked {
		if j.r.cancelled.Load() { // the cancel may have come before the request was parked
			s.cancelWaiting(j.r)
		}
		return
	}
	switch {
	case e != nil:
	case j.r.embed != nil:
		lane := j.lane()
		e = s.prepareEmbed(j.r, func() (goOn bool) {
			s.letPass(l, lane)
			return !j.r.cancelled.Load()
		})
		if j.r.cancelled.Load() {
			s.endUnstarted(j)
			return
		}
	default:
		j.r.formWait = j.wait
		e = s.prepare(j.r, j.w, format, calls)
	}
	if e == nil && !l.mail.put(command{kind: cmdArrive, req: j.r}) {
		e = shuttingDown()
	}
	if e != nil {
		s.refuseJobs([]job{j}, e)
	}
}

// cannot returns why the model cannot do what r asks for, whatever else r says; nil if it can.
func (s *Server) cannot(r *request) *wire.Error {
	if m := s.model.Load(); m.info.Encoder && r.embed == nil {
		return &wire.Error{Code: wire.NotSupported,
			Message: fmt.Sprintf("no answer: the model is an encoder (%s), which makes "+
				"embeddings and generates no text", m.info.Architecture)}
	}
	return nil
}

// cancelWaiting ends a cancelled request that waits for intake or for a grammar. It returns false if r waits for
// neither.
func (s *Server) cancelWaiting(r *request) bool {
	j, ok := s.room.withdraw(r)
	if !ok {
		j, ok = s.forms.withdraw(r)
	}
	if ok {
		s.endUnstarted(j)
	}
	return ok
}

// endUnstarted answers a request that was cancelled before it reached the decode loop.
func (s *Server) endUnstarted(j job) {
	s.room.leave(j.r.Owner)
	s.metrics.Finished(string(wire.Cancelled))
	j.r.conn.ReplyEvent(wire.EOSEvent(&wire.EOS{
		ID: j.r.wireID, Reason: wire.Cancelled, Streamed: j.r.stream, Metadata: j.r.metadata,
	}))
	s.sessions.remove(j.r)
}

// prepare turns a parsed request into one that the decode loop can run. It renders and tokenizes, so it runs on the
// intake goroutine, never on the poller's or the decode loop's.
func (s *Server) prepare(r *request, w *wire.Request, format, calls *compiledForm) *wire.Error {
	m := s.model.Load()
	p, bad := m.readPrompt(r.Owner, w)
	if bad != nil {
		return bad
	}
	if bad := s.setPrompt(m, r, w, &p); bad != nil {
		return bad
	}
	params, bad := s.samplingParams(m, r.Owner, w)
	if bad != nil {
		return bad
	}
	r.setOptions(w, &params)
	s.setSpeculation(r, w)
	r.notes = notesOf(w, p.changes)
	m.readCalls(r, w, offeredTools(w), p.text)
	r.hold(format, calls, w, p.text)
	if bad := s.setThinking(m, r, w, p.begin); bad != nil {
		return bad
	}
	if p.chat && !s.cfg.NoPrefixCache && !w.FillOnly {
		s.setChat(m, r, w, &p)
	}
	stops := w.Stop
	if p.chat && m.spelledEnd != "" && !slices.Contains(stops, m.spelledEnd) {
		r.spelledEnd = m.spelledEnd
		stops = append(slices.Clip(stops), m.spelledEnd)
	}
	r.Text.Init(stops)
	r.Lines = sampler.Lines{Indent: w.Indent, MaxTime: w.MaxTime}
	r.chain = sampler.New(params, m.facts, &s.loop.Load().scratch)
	for _, t := range p.tokens {
		r.chain.Accept(t)
	}
	r.chain.Begin()
	return nil
}

// setPrompt sets r's prompt and the maximum length of its answer.
func (s *Server) setPrompt(m *model, r *request, w *wire.Request, p *prompt) *wire.Error {
	n, nCtx := len(p.tokens), m.caps.ContextTokens
	if n > nCtx || n == nCtx && !w.FillOnly {
		advice := "shorten the prompt or start uma-serve with a larger --ctx-size"
		if m.info.Positions > 0 && nCtx >= m.info.Positions {
			advice = fmt.Sprintf("shorten the prompt: the model has learned %d positions; no --ctx-size gives it more",
				m.info.Positions)
		}
		return &wire.Error{Code: wire.ContextLength, NPrompt: n, NCtx: nCtx, Message: fmt.Sprintf(
			"context_length_exceeded: the prompt of %d tokens (n_prompt) exceeds the available context size (n_ctx), "+
				"%d tokens of which the answer needs at least one; %s", n, nCtx, advice)}
	}
	r.MaxTokens = max(nCtx-n, 1)
	if s.cfg.ContextShift && m.caps.CanShift {
		r.MaxTokens = maxShifted
	}
	for _, limit := range []int{w.MaxTokens, s.cfg.MaxTokens} {
		if limit > 0 {
			r.MaxTokens = min(r.MaxTokens, limit)
		}
	}
	if r.fillOnly, r.Fill = w.FillOnly, w.FillOnly; r.fillOnly {
		r.MaxTokens = 1 // the scheduler computes the prompt's last row; the loop does not sample it
	}
	r.Prompt, r.continued = n, p.continued
	r.Tokens = append(make([]runtime.Token, 0, min(n+r.MaxTokens, nCtx)), p.tokens...)
	return nil
}

// maxShifted is the maximum length of an answer whose context shifts, in tokens: it ends a model that repeats itself.
const maxShifted = 1 << 20

// samplingParams returns w's sampling parameters with a seed, and with its texts (bad words, biases, breakers) as
// tokens.
func (s *Server) samplingParams(m *model, owner uint32, w *wire.Request) (sampler.Params, *wire.Error) {
	params := w.Sampling
	if !params.SeedSet {
		params.SeedSet = true
		if params.Seed = rand.Uint64(); s.cfg.Seed >= 0 {
			params.Seed = uint64(s.cfg.Seed)
		}
	}
	if err := m.constrain(owner, &params, w); err != nil {
		return params, &wire.Error{Code: wire.BadRequest, Message: err.Error()}
	}
	return params, nil
}

// setOptions sets how r is answered and scheduled.
func (r *request) setOptions(w *wire.Request, params *sampler.Params) {
	r.stream, r.logprobs, r.metadata, r.stopTokens = w.Stream, params.Logprobs > 0, w.Metadata, params.StopTokens
	if r.stream {
		r.echo, r.PromptRows = w.PromptLogprobs, w.PromptLogprobs > 0
	}
	r.progress, r.noisy = !r.lines && (w.Progress || w.Stream && !w.NoProgress), w.Progress
	r.TargetTTFT, r.TargetITL, r.TargetTTOT, r.Strict = w.TargetTTFT, w.TargetTBT, w.TargetTTOT, w.Strict
	r.parent = w.Traceparent
	r.Class = priorityClass(w)
}

// priorityClass returns the scheduling class of w.
func priorityClass(w *wire.Request) sched.Class {
	if w.Priority == wire.PriorityBackground {
		return sched.Background
	}
	return sched.Interactive
}

// setThinking creates the control of r's thinking. begin says whether the prompt ends inside a thought.
func (s *Server) setThinking(m *model, r *request, w *wire.Request, begin meridian.Begin) *wire.Error {
	opt := m.thinkOptions(w, r.MaxTokens, r.continued)
	opt.Calls, opt.Bound = r.Calls != nil, r.form != nil
	opt.CallsInThought = r.Thinks != nil
	opt.Headed, opt.CallsOnly = r.form != nil && r.form.headed, r.form != nil && r.form.calls
	var err error
	if r.ctl, err = meridian.NewControl(m.think, m.tags, opt, begin); err != nil {
		return &wire.Error{Code: wire.BadRequest, Message: err.Error()}
	}
	r.Control = r.ctl
	switch h := m.tags.Headers(); {
	case opt.Headed:
		r.form.prefix = headedStart(h, r.ctl, begin, r.form.prefix, r.form.calls)
	case r.headed && begin.Header:
		r.header = []byte(messageEnd(h, false) + h.Turn)
	}
	if m.tags.Known() && m.tags.Fallback() {
		s.metrics.VocabFallbacks.Inc()
	}
	return nil
}

// setChat keeps what renders the prefix of r's next turn, and marks its system prompt.
func (s *Server) setChat(m *model, r *request, w *wire.Request, p *prompt) {
	r.chat, r.Chat = true, true
	r.messages, r.render = w.Messages, p.render
	if s.cfg.SharePrefixes == "system" || s.cfg.ContextShift {
		r.Keep = m.systemTokens(r, p.tokens)
	}
	if s.cfg.SharePrefixes == "system" {
		r.Shareable = r.Keep
	}
}
