package daemon

import (
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/sched"
)

// echoPrompt sends the prompt tokens that a slice's rows predict, with their log-probabilities (prompt_logprobs). at is
// the batch index of the slice's first token. Rows of a prompt that is computed again, after a preemption, are sent
// once.
func (l *loop) echoPrompt(r *request, s *sched.Slice, at int) {
	if r.echoed == 0 {
		l.sendPromptToken(r, &wire.Token{TokenID: r.Tokens[0]}) // no row predicts the first one
	}
	for i := range s.N {
		next := s.Start + i + 1
		if next != r.echoed || next >= r.Prompt {
			continue
		}
		t := wire.Token{TokenID: r.Tokens[next], HasLogprob: true}
		logprob, top := l.scratch.Logprobs(l.eng.Logits(at+i), t.TokenID, r.echo)
		t.Logprob, l.top = logprob, l.top[:0]
		for _, p := range top {
			l.top = append(l.top, wire.TokenLogprob{Token: p.Token, Text: l.vocab.Piece(p.Token), Logprob: p.Logprob})
		}
		t.Top = l.top
		l.sendPromptToken(r, &t)
	}
}

func (l *loop) sendPromptToken(r *request, t *wire.Token) {
	t.Phase, t.Text = wire.InPrompt, l.vocab.Piece(t.TokenID)
	if l.vocab.IsControl(t.TokenID) {
		t.Text = []byte(l.vocab.Text(t.TokenID))
	}
	r.echoed++
	l.sendTokenEvent(r, t)
}
