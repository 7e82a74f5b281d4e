package kvsnap

import "github.com/uma-serve/uma-serve/runtime"

// CommonPrefix returns the number of leading tokens that a and b share.
func CommonPrefix(a, b []Token) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if *(*[8]Token)(a[i:]) != *(*[8]Token)(b[i:]) {
			break
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// baseOf returns the namespace whose cells the prompt's first tokens have, and how many tokens those are.
func (p *Prompt) baseOf() (base uint64, n int) {
	if p.BaseLen > 0 {
		return p.Base, p.BaseLen
	}
	return p.NS, noLimit
}

// visible returns the number of leading tokens of s that the prompt may share.
func (t *Tree) visible(s Seq, p *Prompt) (n int) {
	q := &t.seqs[s]
	if q.ns == p.NS {
		return q.limit
	}
	if base, most := p.baseOf(); q.base == base {
		n = min(q.baseLen, most)
	}
	if t.cfg.ShareSystem {
		n = max(n, q.shareable)
	}
	return min(n, q.limit)
}

// match finds the longest resident prefix of p, given the hashes of its blocks.
func (t *Tree) match(p *Prompt, hashes []uint64) Match {
	most := len(p.Tokens) - 1 // the last token is computed for its logits
	var m Match
	if t.cfg.Seals {
		m = t.matchSeals(p, most)
	} else {
		m = t.matchPrefix(p, most)
	}
	t.matchAhead(p, most, &m)
	switch {
	case m.Len == most:
		m.Reason = ReasonFull
	case m.Reason == ReasonComputing, m.Reason == ReasonWhole:
	case t.stats.Evictions+t.stats.IDEvictions > 0 && m.Len/blockTokens < len(hashes) &&
		t.sketch.estimate(hashes[m.Len/blockTokens]) > 0:
		m.Reason = ReasonEvicted
	}
	return m
}

func (t *Tree) matchPrefix(p *Prompt, most int) Match {
	t.matchNo++
	for s := range t.seqs {
		if t.seqs[s].state == free {
			continue
		}
		see := t.visible(Seq(s), p)
		for i := t.seqs[s].tip; i != root; i = t.nodes[i].parent {
			n := &t.nodes[i]
			if see <= n.start {
				continue
			}
			lim := min(see, n.end)
			if n.matchNo == t.matchNo && n.lim >= lim {
				break // an earlier sequence has marked this node and its ancestors at least as far
			}
			n.matchNo, n.lim, n.via = t.matchNo, lim, Seq(s)
		}
	}
	m := Match{Source: NoSeq}
	t.found = root
	t.descend(root, p, most, &m)
	if whole := runtime.WholeImages(p.Tokens, m.Len); whole < m.Len {
		if m.Len = whole; whole == 0 {
			m.Source = NoSeq
		}
		m.Reason = ReasonDiverged
		m.Running = whole > 0 && t.seqs[m.Source].state == running
		return m
	}
	if m.Len == 0 {
		m.Reason = ReasonNothing
		return m
	}
	m.Running = t.seqs[m.Source].state == running
	n := &t.nodes[t.found]
	switch {
	case m.Len < n.lim:
		m.Reason = ReasonDiverged
	case m.Len < n.end || t.endsHere(t.found, p.NS):
		m.Reason = ReasonEnded
	default:
		m.Reason = ReasonDiverged // every sequence here continues with another token
	}
	return m
}

// descend extends the match below node i, whose tokens all agree with the prompt.
func (t *Tree) descend(i int32, p *Prompt, most int, m *Match) {
	for c := t.nodes[i].first; c >= 0; c = t.nodes[c].next {
		n := &t.nodes[c]
		// Nothing is matched beyond an offloaded thought: later tokens attend to its cells.
		if n.matchNo != t.matchNo || n.start >= most || t.away(c) {
			continue
		}
		text := t.seqs[n.holder].tokens
		if text[n.start] != p.Tokens[n.start] {
			continue
		}
		got := n.start + CommonPrefix(p.Tokens[n.start:most], text[n.start:n.lim])
		if got > m.Len {
			m.Len, m.Source = got, n.via
			t.found = c
		}
		if got == n.end {
			t.descend(c, p, most, m)
		}
	}
}

// endsHere reports whether a sequence ends in node i that has no tokens left to compute, or none that the namespace may
// see.
func (t *Tree) endsHere(i int32, ns uint64) bool {
	if t.nodes[i].tips == 0 {
		return false
	}
	for s := range t.seqs {
		if q := &t.seqs[s]; q.state != free && q.tip == i && (q.ns != ns || len(q.tokens) == t.nodes[i].end) {
			return true
		}
	}
	return false
}

// matchAhead adds to m the running request that is going to compute the most of the prompt beyond m.Len.
func (t *Tree) matchAhead(p *Prompt, most int, m *Match) {
	for s := range t.seqs {
		q := &t.seqs[s]
		if q.state != running || q.stalled || q.limit != noLimit {
			continue
		}
		if len(q.tokens)-t.length(Seq(s)) < 2 { // one missing token is the one that a decoding request feeds next
			continue
		}
		see := min(len(q.tokens), t.visible(Seq(s), p), most)
		if see-m.Len <= m.Ahead {
			continue
		}
		to := runtime.WholeImages(p.Tokens, CommonPrefix(p.Tokens[:see], q.tokens))
		if t.cfg.Seals {
			to = q.stopBefore(to)
		}
		if ahead := to - m.Len; ahead > m.Ahead && to > t.length(Seq(s)) {
			m.Ahead, m.AheadReq, m.aheadSeq, m.Reason = ahead, q.req, Seq(s), ReasonComputing
		}
	}
}

// beyondCheck is the number of tokens, up to the end of text, that Beyond compares in a sequence that it found earlier.
const beyondCheck = 32

// Beyond returns the tokens that follow text, the history of running sequence self, in another sequence of the
// namespace, and that sequence. near names the sequence of an earlier call, whose tokens text has grown by; with NoSeq
// all are tried, and the one with the most tokens behind text wins. Beyond returns nil and NoSeq if there is none. The
// tokens need not have cells any more. They are valid until the next call of a method that changes the tree, and must
// not be changed.
func (t *Tree) Beyond(self Seq, ns uint64, text []Token, near Seq) (rest []Token, from Seq) {
	n := len(text)
	fits := func(s Seq) bool {
		q := &t.seqs[s]
		return s != self && q.state != free && q.ns == ns && q.limit == noLimit && len(q.tokens) > n
	}
	if near != NoSeq {
		since := max(0, n-beyondCheck)
		if !fits(near) || CommonPrefix(text[since:], t.seqs[near].tokens[since:]) != n-since {
			return nil, NoSeq
		}
		return t.seqs[near].tokens[n:], near
	}
	from = NoSeq
	for s := range t.seqs {
		if fits(Seq(s)) && len(t.seqs[s].tokens)-n > len(rest) && CommonPrefix(text, t.seqs[s].tokens) == n {
			rest, from = t.seqs[s].tokens[n:], Seq(s)
		}
	}
	return rest, from
}
