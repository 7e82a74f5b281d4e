package prepare

import (
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/uma-serve/uma-serve/runtime"
)

// tokenCache caches the tokens of pieces of text. Most prompts begin like earlier ones (the next turn of a
// conversation, a system prompt). Tokenizing takes 0.25 ms per 1,000 characters; a lookup takes less than 1 µs.
//
// A text is cut where the tokens do not depend on the text that follows, as early as pieceMin allows, so that texts
// with the same beginning have the same pieces. The rest after the last cut is a piece too unless it is very short: a
// prompt that is sent again (a retry, another sample) needs no tokenizing.
type tokenCache struct {
	vocab runtime.Vocab
	cut   runtime.TextCutter // nil: cache only whole texts

	mu    sync.Mutex
	lru   *simplelru.LRU[piece, []runtime.Token]
	bytes int // estimated size of lru's entries. Invariant: ≤ limit
	limit int
}

// piece is the key of an entry: owner, flags and text. Users do not share entries: the response time would reveal
// another user's prompts.
type piece struct {
	owner          uint32
	start, special bool
	text           string
}

func (p *piece) bytes(tokens []runtime.Token) int {
	const entry = 200 // estimate for list and map
	return len(p.text) + 4*cap(tokens) + entry
}

const (
	pieceMin = 256 // minimum length of a piece before a cut, in bytes
	tailMin  = 32  // minimum length of the last piece, in bytes

	// Tokens help with texts whose KV is cached too: any other takes a hundred times as long to compute as to tokenize.
	// A token takes 10 to 12 bytes here (4, its text, its share of the entry), so that 64 bytes per cell of the
	// KV pool are enough for what fits the pool and about five times as much in the other tiers.
	tokenBytesPerCell = 64
	tokenCacheMin     = 512 << 10
	tokenCacheMax     = 8 << 20
)

// newTokenCache returns a cache for an engine whose KV pool has this many cells.
func newTokenCache(v runtime.Vocab, cells int) *tokenCache {
	t := &tokenCache{vocab: v, limit: min(max(tokenCacheMin, tokenBytesPerCell*cells), tokenCacheMax)}
	t.cut, _ = v.(runtime.TextCutter)
	// add enforces the limit of bytes; the limit of entries never applies, as an entry takes at least 200 bytes.
	t.lru, _ = simplelru.NewLRU(t.limit/200,
		func(p piece, tokens []runtime.Token) { t.bytes -= p.bytes(tokens) })
	return t
}

// tokenize is Vocab.Tokenize with a cache. Safe from any goroutine.
func (t *tokenCache) tokenize(
	dst []runtime.Token, owner uint32, text string, addSpecial, parseSpecial bool,
) ([]runtime.Token, error) {
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
			p.text, tokens = strings.Clone(p.text), slices.Clone(tokens) // without spare capacity
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
	if n > t.limit/2 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lru.Remove(p) // two goroutines may have missed the same piece
	for t.bytes+n > t.limit {
		t.lru.RemoveOldest()
	}
	t.lru.Add(p, tokens)
	t.bytes += n
}
