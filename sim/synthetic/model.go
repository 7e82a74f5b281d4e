package synthetic

import (
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// words are the tokens that the synthetic model writes, of the fake engine's vocabulary.
type words struct {
	vocab                        runtime.Vocab
	tags                         *meridian.Tags
	open, close, word, line, end runtime.Token
}

func newWords() (w words, err error) {
	w.vocab = fake.New(fake.Config{}).Vocab()
	if w.tags, err = meridian.Detect(w.vocab, meridian.Markers{}, w.vocab.ChatTemplate()); err != nil {
		return w, err
	}
	m := w.tags.Markers()
	for _, x := range []struct {
		t    *runtime.Token
		text string
	}{{&w.open, m.Open[0]}, {&w.close, m.Close[0]}, {&w.word, "w"}} {
		*x.t = w.vocab.Find(x.text)
	}
	line, err := w.vocab.Tokenize(nil, "\n", false, false)
	if err != nil {
		return w, err
	}
	w.line, w.end = line[0], w.vocab.EOS()
	return w, nil
}

// lineWords is how many tokens a line of thinking has: a forced close looks for the end of one.
const lineWords = 24

// request is one live request.
type request struct {
	workload.Request
	core     core.Request
	ctl      thought
	identity workload.Identity
	answered int   // words of the answer
	visible  bool  // a visible token is out
	closed   int64 // when the think block ended, nanoseconds; 0 = it has not
	last     int64 // when the last visible token came
	first    bool  // a token is out
}

// thought is the request's core.Thinking: its history holds tokens that say which prompts are equal; Control hears of
// those that the model writes.
type thought struct {
	*meridian.Control
	tok   runtime.Token
	piece []byte
	eog   bool
}

func (t *thought) OnToken(_ core.Token, _ []byte, _ bool, now int64) meridian.Step {
	return t.Control.OnToken(t.tok, t.piece, t.eog, now)
}

// sample is the request's next token as the model would have it: its think block between the tags, then words, then the
// end.
func (r *request) sample(w *words) runtime.Token {
	thought := r.ctl.ThinkTokens()
	switch phase := r.ctl.Phase(); {
	case phase == meridian.Prefill && r.Think > 0:
		return w.open
	case phase == meridian.ThinkDecode && thought >= r.Think:
		return w.close
	case phase == meridian.ThinkDecode && (thought+1)%lineWords == 0:
		return w.line
	case phase == meridian.ThinkDecode:
		return w.word
	case r.answered >= r.Output-r.Think:
		return w.end
	}
	r.answered++
	return w.word
}
