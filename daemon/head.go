package daemon

import (
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// The head of the model's file (multi-token prediction): a layer that guesses the token behind the next one. To core and
// scheduler it is a draft model (draft.go) whose rows also read states: of the model's rows, which are kept here, and of
// its own.

// headOf is the part of a draftModel that a head needs. The decode loop owns it.
type headOf struct {
	head   runtime.Head   // nil: it is a draft model with a file
	model  runtime.Headed // the engine whose head it is
	rings  [][]float32    // of requests that have ended
	states int            // rows of a ring
}

// openHead opens the head of eng's model; nil where there is none to use. noHead says why a head is not used.
func (s *Server) openHead(eng runtime.Engine) *draftModel {
	of, ok := eng.(runtime.Headed)
	if !ok || eng.Model().Encoder {
		return nil
	}
	why := s.cfg.NoHead()
	head, err := of.OpenHead(runtime.HeadOptions{ContextTokens: s.cfg.HeadContextTokens(),
		Batch: min(draftBatch, s.cfg.BatchSize), Sequences: min(draftSequences, s.cfg.Parallel)})
	switch {
	case err != nil && why == "":
		s.noHead = err.Error()
		s.log.Warn("the head of the model's file makes no drafts", "reason", err)
		return nil
	case err != nil:
		s.noHead = why
		return nil
	case head == nil:
		return nil
	}
	d := &draftModel{eng: head, log: s.log, path: eng.Model().Path, shared: eng.Model().VocabSize,
		headOf: headOf{head: head, model: of, states: config.HeadStates}}
	d.argmax, _ = head.(runtime.RowScanner)
	d.set, _ = head.(runtime.ThreadSetter)
	d.cost = relativeCost(head, eng)
	return d
}

// wantStates has the engine keep the states of the batch that it decodes next, if the core wants them.
func (d *draftModel) wantStates(c *core.Core) {
	if d != nil && d.head != nil {
		d.model.KeepStates(c.KeepsStates())
	}
}

// keepStates keeps the states of the newest rows of each request of the decoded batch.
func (l *loop) keepStates(plan *sched.Plan) {
	d := l.draft
	if d == nil || d.head == nil || !l.core.KeepsStates() {
		return
	}
	first := 0
	for i := range plan.Batch {
		s := &plan.Batch[i]
		at := first
		first += s.N
		if r := l.requests[s.Req]; r != nil && s.Kind != sched.SliceProbe && r.Speculate > 0 && r.embed == nil &&
			len(r.Parts) == 0 {
			for j := max(0, s.N-d.states); j < s.N; j++ {
				if state := d.model.State(at + j); state != nil {
					copy(d.ringRow(r, s.Start+j), state)
				}
			}
		}
	}
}

// ringRow returns the place of the state of r's row at a position.
func (d *draftModel) ringRow(r *request, at int) []float32 {
	width := d.head.StateWidth()
	if r.states == nil {
		if n := len(d.rings); n > 0 {
			r.states, d.rings = d.rings[n-1], d.rings[:n-1]
		} else {
			r.states = make([]float32, d.states*width)
		}
	}
	at %= d.states
	return r.states[at*width : (at+1)*width]
}

// dropStates takes the states of a request that has ended.
func (d *draftModel) dropStates(r *request) {
	if d != nil && r.states != nil {
		d.rings = append(d.rings, r.states)
		r.states = nil
	}
}

// follow gives the rows of the head's batch the states that they follow.
func (l *loop) follow() {
	d := l.draft
	if d.head == nil {
		return
	}
	for i, b := range l.core.Behind() {
		if b.Request == nil {
			d.head.Follow(i, d.head.State(b.At))
		} else {
			d.head.Follow(i, d.ringRow(l.requests[b.Request.ID], b.At))
		}
	}
}
