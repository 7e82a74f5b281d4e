package daemon

import (
	"fmt"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/stage"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/pooling"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// Embeddings in the decode loop. A request has up to wire.MaxEmbedInputs texts, and each text is a request to the core:
// an input. The loop hands them over a few at a time, so that one client's thousand texts fill neither the scheduler's
// queue nor its sequences, and other users' requests start between them.

// embedding is the state of a request for embeddings: its texts and their progress. Owned by the decode loop from
// cmdArrive on.
type embedding struct {
	w     *wire.Embed
	texts []prepare.Input

	next    int // index of the text that goes to the core next
	open    int // inputs that are not forgotten
	blocked int // those of open whose output waits for the client to read
	tokens  int // of texts that are done
	over    bool
	failure *wire.Error // the error that ends it; nil: it was cancelled, or all texts are done

	// slowest is the input that took longest so far. A why report has its decisions.
	slowest struct {
		id    sched.ReqID
		index int
		took  time.Duration
	}
}

// input is the state of one text's request: the embeddings request that it belongs to, and its rows.
type input struct {
	of     *request
	index  int
	pooler *pooling.Pooler // nil: rows are sent one by one
	sent   int             // rows that were sent
}

// client returns the request that the client sent: for a text, the request for embeddings that it belongs to.
func (r *request) client() *request {
	if r.input != nil {
		return r.input.of
	}
	return r
}

// arriveEmbed takes a request for embeddings in. Its inputs follow in feed.
func (l *loop) arriveEmbed(r *request, now time.Time) {
	l.requests[r.ID] = r
	l.state.requests.Add(1)
	l.embed.embeds = append(l.embed.embeds, r)
	l.m.Embeddings.Inc()
	if r.life.Cancelled() {
		l.cancelEmbed(r, now)
	}
}

// feed hands texts to the core: one of each request for embeddings, and more while few inputs run. Requests take turns.
func (l *loop) feed(now time.Time) {
	for more := len(l.embed.embeds) > 0; more; {
		more = false
		for i := range l.embed.embeds {
			r := l.embed.embeds[(l.embed.embedTurn+i)%len(l.embed.embeds)]
			e := r.embed
			if e.over || e.blocked > 0 || e.next == len(e.texts) || e.open > 0 &&
				(l.embed.inputs >= l.embed.maxInputs || l.core.Live() >= l.cfg.Parallel) {
				continue
			}
			l.arriveInput(r, now)
			more = true
		}
		l.embed.embedTurn++
	}
}

// arriveInput hands the next text of r to the core.
func (l *loop) arriveInput(r *request, now time.Time) {
	e := r.embed
	t := &e.texts[e.next]
	p := &request{conn: r.conn, wireID: r.wireID, wishes: wishes{stream: true}, arrived: now,
		input: &input{of: r, index: e.next, pooler: l.embed.embedder.Pooler(e.w)}}
	p.Phases = r.Phases
	e.next++
	e.open++
	l.embed.inputs++
	l.lastID++
	p.ID, p.Data, p.Arrived, p.Tokens = l.lastID, p, l.instant(now), t.Tokens
	p.Spec = &core.Spec{Kind: core.Embed, Spec: sched.Spec{Owner: r.Owner, Class: r.Class, Prompt: len(t.Tokens),
		MaxTokens: 1, Whole: l.embed.encoder, EveryRow: l.embed.encoder || l.embed.embedder.EveryRow(e.w)}}
	l.requests[p.ID] = p
	l.handle(core.Input{Kind: core.Arrive, Request: &p.Request}, now)
}

// embedRows takes the rows of a slice of an input, which begin at row from of the batch.
func (l *loop) embedRows(p *request, s *sched.Slice, from int, now time.Time) {
	if p.client().life.Cancelled() || p.input.of.embed.over {
		l.handle(core.Input{Kind: core.Cancel, Req: p.ID}, now)
		return
	}
	if s.Start == 0 && p.input.pooler != nil {
		p.input.pooler.Reset() // it may have been preempted
	}
	first := from
	if !p.EveryRow {
		if s.Row < 0 {
			return
		}
		first = s.Row
	}
	for i := first; i < from+s.N; i++ {
		row := l.embed.hidden.Embedding(i)
		switch at := s.Start + i - from; {
		case p.input.pooler != nil:
			p.input.pooler.Add(row)
		case at >= p.input.sent:
			p.input.sent = at + 1
			if !l.sendEmbedding(p, at, append(l.embed.vector[:0], row...), wire.NormalizeNone) {
				return
			}
		}
	}
	if s.Row < 0 {
		return
	}
	if p.input.pooler != nil && !l.sendEmbedding(p, -1, p.input.pooler.AppendTo(l.embed.vector[:0]),
		p.input.of.embed.w.Normalize) {
		return
	}
	l.core.Embedded(&p.Request)
	l.inputDone(p, now)
}

// sendEmbedding sends an embedding of p: of its row-th token, or with -1 of all of it. It reports whether that could be
// done; otherwise p's request has failed.
func (l *loop) sendEmbedding(p *request, row int, v []float32, norm int) bool {
	l.embed.vector = v
	w := p.input.of.embed.w
	if w.Dimensions > 0 {
		v = v[:w.Dimensions]
	}
	if !pooling.Finite(v) {
		l.core.NoToken(&p.Request, reason.Failed)
		l.failEmbed(p.input.of,
			&wire.Error{Code: wire.RuntimeDecode,
				Message: fmt.Sprintf("the model's output for input[%d] has values that are not finite", p.input.index)})
		l.endInput(p)
		return false
	}
	pooling.Normalize(v, norm)
	t := &p.input.of.embed.texts[p.input.index]
	l.reused.event.Kind, l.reused.event.ID = wire.EventEmbedding, p.wireID
	l.reused.event.Embedding = wire.Embedding{ID: p.wireID, Index: p.input.index, Row: row, Values: v,
		Tokens: len(t.Tokens), Truncated: t.Cut, Base64: w.Base64}
	l.send(p, &l.reused.event)
	return true
}

// inputDone ends an input whose text is computed.
func (l *loop) inputDone(p *request, now time.Time) {
	r := p.input.of
	e := r.embed
	e.tokens += p.Prompt
	l.m.EmbedInputs.Inc()
	l.m.EmbedTokens.Add(uint64(p.Prompt))
	if took := now.Sub(p.arrived); took >= e.slowest.took {
		e.slowest.id, e.slowest.index, e.slowest.took = p.ID, p.input.index, took
	}
	if r.at.First.IsZero() {
		r.at.First = now
	}
	r.at.Last = now
	l.endInput(p)
}

// endInput ends an input for the core. It is forgotten when its output has gone.
func (l *loop) endInput(p *request) {
	p.life.Enter(stage.Ending)
	if p.pending.Len() == 0 {
		l.forget(p)
	}
}

// forgetInput removes an input that has ended, and with the last input its request.
func (l *loop) forgetInput(p *request) {
	delete(l.requests, p.ID)
	r := p.input.of
	r.embed.open--
	l.embed.inputs--
	l.endEmbed(r, time.Now())
}

// endEmbed ends r when nothing of it runs any more.
func (l *loop) endEmbed(r *request, now time.Time) {
	e := r.embed
	if r.life.Over() || e.open > 0 || !e.over && e.next < len(e.texts) {
		return
	}
	l.embed.embeds = slices.DeleteFunc(l.embed.embeds, func(o *request) bool { return o == r })
	switch {
	case e.failure != nil:
		l.failRequest(r, *e.failure)
	case e.over || e.tokens < r.Prompt:
		l.endRequest(r, wire.Cancelled, "", now)
	default:
		l.endRequest(r, wire.Stop, "", now)
	}
}

// cancelEmbed ends r at its client's wish.
func (l *loop) cancelEmbed(r *request, now time.Time) {
	r.embed.over = true
	for _, p := range l.requests {
		if p.input != nil && p.input.of == r && !p.life.Over() {
			l.handle(core.Input{Kind: core.Cancel, Req: p.ID}, now)
		}
	}
	l.endEmbed(r, now)
}

// failEmbed ends r with an error, because of one of its texts.
func (l *loop) failEmbed(r *request, why *wire.Error) {
	e := r.embed
	if e.failure == nil {
		e.failure = why
	}
	if !e.over {
		l.cancelEmbed(r, time.Now())
	}
}

// inputEnded handles an input that the core has ended: cancelled, refused or failed.
func (l *loop) inputEnded(p *request, end *core.End) {
	if end.Kind != core.Cancelled {
		e := wire.Error{Code: wire.QueueLimit, RetryAfter: end.RetryAfter,
			Message: fmt.Sprintf("input[%d]: %s", p.input.index, end.Reason.Explain())}
		switch {
		case end.Kind == core.Failed:
			e.Code = wire.RuntimeDecode
		case l.end.draining:
			e.Code = wire.ShuttingDown
		}
		l.failEmbed(p.input.of, &e)
	}
	l.endInput(p)
}

// abandonInputs forgets the inputs of all requests when the loop stops.
func (l *loop) abandonInputs() {
	for id, p := range l.requests {
		if p.input != nil {
			delete(l.requests, id)
			p.input.of.embed.open--
			l.embed.inputs--
			if p.pending.Len() > 0 {
				l.stalled--
			}
		}
	}
	l.embed.embeds = nil
}

// whyEmbed returns the scheduler's request whose decisions stand for r, a request for embeddings, in a why report, and
// the text that explains the choice: the input that took longest, or else the first that runs.
func (l *loop) whyEmbed(r *request) (id sched.ReqID, text string) {
	e := r.embed
	id, index, what := e.slowest.id, e.slowest.index, "took longest"
	if id == 0 {
		what = "is being computed"
		for _, p := range l.requests {
			if p.input != nil && p.input.of == r && (id == 0 || p.ID < id) {
				id, index = p.ID, p.input.index
			}
		}
	}
	text = report.Texts(e.w.Query != nil, len(e.texts), e.next)
	if id == 0 {
		return r.ID, text
	}
	return id, text + fmt.Sprintf(" What follows is about input[%d], which %s.", index, what)
}
