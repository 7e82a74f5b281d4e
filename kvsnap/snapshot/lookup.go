package snapshot

import "github.com/uma-serve/uma-serve/kvsnap/snapshot/index"

// Match is the result of Lookup.
type Match struct {
	Key    Key   // of the last part; Fetch takes it
	Tokens int   // tokens of the query that are cached
	Stored int   // positions that the parts have, ≥ Tokens: remove the positions beyond Tokens after the restore
	Whole  int   // end of the last part whose tokens all agree with the query, ≤ Tokens: Put may continue there
	Parts  int   // to restore
	Bytes  int64 // to restore, uncompressed
	Tier   Tier  // the slowest tier of any of the parts
}

// Lookup finds the longest cached prefix of tokens that ns may use and counts the answer. It reads memory only, never
// waits, and does not allocate. Do not pass the last token of a prompt: it must be computed for its logits.
func (c *Cache) Lookup(ns Namespace, tokens []Token) (Match, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.lookup(ns, tokens)
	c.mu.stats.lookups++
	if ok {
		c.mu.stats.hits[m.Tier]++
		c.mu.stats.hitTokens[m.Tier] += uint64(m.Tokens)
	}
	return m, ok
}

// Peek is Lookup without counting, for repeated questions about one request.
func (c *Cache) Peek(ns Namespace, tokens []Token) (Match, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookup(ns, tokens)
}

func (c *Cache) lookup(ns Namespace, tokens []Token) (m Match, ok bool) {
	n, matched := c.mu.index.Lookup(ns, tokens, c.o.WholeParts)
	if n == nil {
		return Match{}, false
	}
	m = Match{Key: n.Key, Tokens: matched, Stored: n.P1, Whole: n.P1}
	if matched < n.P1 {
		m.Whole = n.P0
	}
	for ; n != nil; n = n.Parent {
		p := of(n)
		m.Parts++
		m.Bytes += p.raw
		if p.buf == nil {
			m.Tier = Disk
		}
	}
	return m, true
}

// Sequences calls f with the tokens of every stored prefix that no stored part continues and of which want accepts a
// part. f and want must not call the cache. It takes time linear in the tokens, so the decode loop must not call it.
func (c *Cache) Sequences(want func(ns Namespace, part Key) bool, f func(ns Namespace, tokens []Token)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.index.Each(func(n *index.Node) {
		goesOn, wanted := false, false
		c.mu.index.Children(n, func(*index.Node) { goesOn = true })
		for q := n; q != nil && !goesOn && !wanted; q = q.Parent {
			wanted = want(q.Namespace, q.Key)
		}
		if !wanted || !n.Usable() {
			return
		}
		tokens := make([]Token, n.P1)
		for q := n; q != nil; q = q.Parent {
			copy(tokens[q.P0:], q.Tokens)
		}
		f(n.Namespace, tokens)
	})
}
