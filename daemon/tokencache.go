package daemon

import (
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/uma-serve/uma-serve/runtime"
)

// tokenCache remembers the tokens of pieces of text. Most prompts begin like earlier ones (a conversation's next turn, a
// system prompt), and tokenizing takes 0.25 ms per thousand characters; a lookup takes less than a microsecond.
//
// A text is cut where its tokens do not depend on what follows, as early as pieceMin allows, so that texts with the same
// beginning have the same pieces. The rest behind the last cut is a piece as well unless it is very short: a prompt that is
// sent again whole (a retry, another sample) needs no tokenizing.
type tokenCache struct {
	vocab runtime.Vocab
	cut   runtime.TextCutter // nil: only whole texts are remembered

	mu    sync.Mutex
	lru   *simplelru.LRU[piece, []runtime.Token]
	bytes int // estimate of what lru's entries take. Invariant: ≤ tokenCacheBytes
}

// piece is the key: who sent the text, and how it is read. Users do not share entries: the time until an answer would tell
// one user what another one sent.
type piece struct {
	owner          uint32
	start, special bool
	text           string
}

func (p *piece) bytes(tokens []runtime.Token) int {
	const entry = 200 // of the list and the map, about
	return len(p.text) + 4*cap(tokens) + entry
}

const (
	pieceMin        = 256     // bytes after which a text is cut
	tailMin         = 32      // bytes of text; shorter ones are not worth remembering
	tokenCacheBytes = 8 << 20 // of all entries
	tokenPieceBytes = 1 << 20 // of one
)

func newTokenCache(v runtime.Vocab) *tokenCache {
	t := &tokenCache{vocab: v}
	t.cut, _ = v.(runtime.TextCutter)
	// The bound is bytes, which add keeps; an entry takes 200 at least.
	t.lru, _ = simplelru.NewLRU(tokenCacheBytes/200, func(p piece, tokens []runtime.Token) { t.bytes -= p.bytes(tokens) })
	return t
}

// tokenize is Vocab.Tokenize. Safe from any goroutine.
func (t *tokenCache) tokenize(dst []runtime.Token, owner uint32, text string, addSpecial, parseSpecial bool) ([]runtime.Token, error) {
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
			p.text = strings.Clone(p.text) // a substring would keep the whole text alive
			t.add(p, tokens)
		}
		dst = append(dst, tokens...)
		if text, addSpecial = text[n:], false; text == "" {
			return dst, nil
		}
	}
}

func (t *tokenCache) find(p piece) ([]runtime.Token, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lru.Get(p)
}

func (t *tokenCache) add(p piece, tokens []runtime.Token) {
	n := p.bytes(tokens)
	if n > tokenPieceBytes {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lru.Remove(p) // two goroutines may have missed the same piece
	for t.bytes+n > tokenCacheBytes {
		t.lru.RemoveOldest()
	}
	t.lru.Add(p, tokens)
	t.bytes += n
}
