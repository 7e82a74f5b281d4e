package core

import (
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// noThinking is the Thinking of a request that generates nothing.
type noThinking struct{}

func (noThinking) Phase() meridian.Phase                            { return meridian.OutputDecode }
func (noThinking) OnToken(Token, []byte, bool, int64) meridian.Step { return meridian.Step{} }
func (noThinking) Flush() (think, answer []byte)                    { return nil, nil }
func (noThinking) EndThink(int64) bool                              { return false }
func (noThinking) ProbeDue() (tokens []Token, ok bool)              { return nil, false }
func (noThinking) OnProbe(float64)                                  {}
func (noThinking) ProbeFailed()                                     {}

// thoughtless gives a text to embed the Control that it leaves empty.
func (r *Request) thoughtless() {
	if r.Kind == Embed && r.Control == nil {
		r.Control = noThinking{}
	}
}

// fillTexts writes a slice of a text to embed.
func (r *Request) fillTexts(b *runtime.Batch, s *sched.Slice) {
	for j := range s.N {
		var what int8
		if r.EveryRow || j == s.N-1 && s.Row >= 0 {
			what = runtime.RowEmbedding
		}
		b.AddFor(r.Tokens[s.Start+j], runtime.Pos(s.Start+j), r.seq, what)
	}
}

// dropText frees the cells of a text that has ended or is preempted. Cached cells would be of no use: no other request
// begins with the text, and its embedding needs the rows of one computation, which cells do not hold.
func (c *Core) dropText(r *Request, final bool) {
	if r.had = 0; !final {
		r.had = r.computed
	}
	c.ended(c.tree.Release(r.seq))
	r.seq = NoSeq
}

// Embedded ends r at its last row: its text is computed.
func (c *Core) Embedded(r *Request) { c.NoToken(r, reason.Embedded) }
