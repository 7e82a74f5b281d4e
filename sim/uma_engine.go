package sim

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
)

// sequence carries an operation out on the engine.
func (u *uma) sequence(op *core.Op) {
	if u.eng == nil {
		return
	}
	switch op.Kind {
	case core.SeqCopy:
		u.eng.SeqCopy(op.Src, op.Dst, runtime.Pos(op.From), runtime.Pos(op.To))
	case core.SeqRemove:
		u.eng.SeqRemove(op.Dst, runtime.Pos(op.From), runtime.Pos(op.To))
	case core.SeqShift:
		if err := u.eng.SeqAdd(op.Dst, runtime.Pos(op.From), runtime.Pos(op.To), runtime.Pos(op.Delta)); err != nil {
			panic("sim: " + err.Error())
		}
	}
}

// fill computes the cells of positions [from, to) of a sequence by decoding.
func (u *uma) fill(seq core.Seq, tokens []core.Token, from, to int) {
	if u.eng == nil {
		return
	}
	for from < to {
		b := u.eng.Batch()
		b.Reset()
		for ; from < to && b.Len() < cap(b.Token); from++ {
			b.Add(u.word(tokens[from]), runtime.Pos(from), seq, false)
		}
		if err := u.eng.Decode(); err != nil {
			panic("sim: restore on the engine: " + err.Error())
		}
	}
}

// ingest is fill for a CopyIn. The cells of a thought depend on those before it, which are in another sequence.
func (u *uma) ingest(op *core.Op, to int) {
	behind := u.eng != nil && op.Req != 0 && to > op.From
	if behind {
		u.eng.SeqCopy(op.Src, op.Dst, 0, runtime.Pos(op.First))
	}
	u.fill(op.Dst, op.Tokens, op.From, to)
	if behind {
		u.eng.SeqRemove(op.Dst, 0, runtime.Pos(op.First))
	}
}

// word returns a simulated token in the engine's vocabulary. Which one does not matter there: the prefix tree compares
// all of a token's bits.
func (u *uma) word(t kvsnap.Token) runtime.Token {
	v := runtime.Token(u.eng.Model().VocabSize)
	return v - 1 - t%(v/2)
}

// decode has the engine compute the step's batch. It returns the duration by the fake engine's costs, or 0 for
// another engine, whose duration the latency model gives.
func (u *uma) decode() time.Duration {
	b := u.eng.Batch()
	u.c.FillBatch(b)
	for i, t := range b.Token {
		b.Token[i] = u.word(t)
	}
	if err := u.eng.Decode(); err != nil {
		panic("sim: the engine refuses the plan: " + err.Error())
	}
	if u.row != nil {
		u.rows()
	}
	if f, ok := u.eng.(*fake.Engine); ok {
		return f.LastDecode()
	}
	return 0
}

// rows passes the logits of the step's rows on.
func (u *uma) rows() {
	for i := range u.step.Plan.Batch {
		sl := &u.step.Plan.Batch[i]
		if sl.Row < 0 || sl.Kind == sched.SliceProbe {
			continue
		}
		q := u.byID[sl.Req]
		u.words = u.words[:0]
		for _, t := range q.Tokens[:sl.Start+sl.N-sl.Guessed] {
			u.words = append(u.words, u.word(t))
		}
		u.row(&q.r.Spec, u.words, u.eng.Logits(sl.Row))
	}
}
