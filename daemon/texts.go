package daemon

import (
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/runtime"
)

// texts remembers the tokens of pieces of text. Prompts begin like earlier ones far more often than not (a conversation's
// next turn, a system prompt), and tokenizing them again would cost more than everything else that a cached prefix leaves to
// do: 0.25 ms a thousand characters, where looking a piece up costs less than a microsecond.
//
// A text is cut where its tokens do not depend on what follows, as early as pieceMin allows: so what begins alike has the
// same pieces. What is left behind the last border is a piece, too, if it is not very short: a prompt that comes again whole
// (a retry, another sample) then asks nothing of the vocabulary, four fifths of the time that its last 200 bytes took.
type texts struct {
	vocab runtime.Vocab
	cut   runtime.TextCutter // nil: only whole texts are remembered

	mu sync.Mutex
	// young is what was used lately, old what was used before young was last full: a piece that is used neither while the one
	// nor while the other fills up is forgotten.
	young, old map[piece][]runtime.Token
	size       int // bytes that young takes, about
}

// piece is by whom a text was sent, and how it is read. Users do not share: how long an answer takes would tell what another
// one wrote.
type piece struct {
	owner          uint32
	start, special bool
	text           string
}

const (
	pieceMin  = 256     // bytes after which a text is cut
	tailMin   = 32      // bytes of text; shorter ones are not worth remembering
	textBytes = 4 << 20 // of young, and so of old
)

func newTexts(v runtime.Vocab) *texts {
	t := &texts{vocab: v, young: map[piece][]runtime.Token{}}
	t.cut, _ = v.(runtime.TextCutter)
	return t
}

// tokenize is Vocab.Tokenize. Safe from any goroutine.
func (t *texts) tokenize(dst []runtime.Token, owner uint32, text string, addSpecial, parseSpecial bool) ([]runtime.Token, error) {
	for {
		n := len(text)
		if t.cut != nil {
			n = t.cut.Cut(text, pieceMin, parseSpecial)
		}
		if n < tailMin {
			return t.vocab.Tokenize(dst, text, addSpecial, parseSpecial)
		}
		p := piece{owner, addSpecial, parseSpecial, text[:n]}
		tokens, ok := t.find(p)
		if !ok {
			var err error
			if tokens, err = t.vocab.Tokenize(nil, p.text, addSpecial, parseSpecial); err != nil {
				return dst, err
			}
			p.text = strings.Clone(p.text) // the whole text is not to stay
			t.keep(p, tokens)
		}
		dst = append(dst, tokens...)
		if text, addSpecial = text[n:], false; text == "" {
			return dst, nil
		}
	}
}

func (t *texts) find(p piece) ([]runtime.Token, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tokens, ok := t.young[p]
	if !ok {
		if tokens, ok = t.old[p]; ok {
			delete(t.old, p)
			t.add(p, tokens)
		}
	}
	return tokens, ok
}

func (t *texts) keep(p piece, tokens []runtime.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(p, tokens)
}

func (t *texts) add(p piece, tokens []runtime.Token) {
	const entry = 100 // bytes of a map's slot, about
	n := len(p.text) + 4*cap(tokens) + entry
	if n > textBytes/4 {
		return
	}
	if t.size+n > textBytes {
		t.young, t.old, t.size = make(map[piece][]runtime.Token, len(t.young)), t.young, 0
	}
	t.young[p] = tokens
	t.size += n
}
