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
		logprob, top := l.reused.scratch.Logprobs(l.eng.Logits(at+i), t.TokenID, r.echo)
		t.Logprob, t.Top = logprob, l.withTexts(top)
		l.sendPromptToken(r, &t)
	}
}

func (l *loop) sendPromptToken(r *request, t *wire.Token) {
	t.Phase, t.Text = wire.InPrompt, l.model.vocab.Piece(t.TokenID)
	if l.model.vocab.IsControl(t.TokenID) {
		t.Text = []byte(l.model.vocab.Text(t.TokenID))
	}
	r.echoed++
	l.sendTokenEvent(r, t)
}
