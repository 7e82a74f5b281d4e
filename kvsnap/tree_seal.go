package kvsnap

import (
	"slices"

	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime"
)

// A recurrent layer has one state for all that a sequence has read, and no way back. With Config.Seals a prompt resumes
// where a sequence ends, so the tree keeps sequences that end where prompts are expected to return: seals. A seal
// shares the cells of the request that computes past it, and its state until that request writes.
//
// A prompt is sealed at the end of the system prompt, at the ends of messages (Prompt.Seals), where it parts from
// another sequence, every Config.SealEvery tokens, and before its last token. Each of these ends a step. A request that
// ends leaves a seal at its end.

// planStops sets q.stops for prompt p, which resumes at match m. Of the ends of messages those near the prompt's end
// are all stops, those far from it few: a conversation continues near its end.
func (t *Tree) planStops(q *sequence, p *Prompt, m *Match) {
	q.stops = q.stops[:0]
	if !t.cfg.Seals || p.Apart {
		return
	}
	last := len(p.Tokens) - 1
	if last-m.Len < t.cfg.JoinMin {
		return // computing so few again costs less than another step
	}
	add := func(pos int) {
		if pos-m.Len >= t.cfg.KeepMin && pos <= last {
			q.stops = append(q.stops, pos)
		}
	}
	add(p.Shareable)
	if len(p.Seals) > 0 {
		add(p.Seals[0]) // the system prompt's, however short the first question is
	}
	add(m.agreed)
	near := false // a message ends near the prompt's end
	for next, i := last+t.cfg.KeepMin, len(p.Seals)-1; i >= 0; i-- {
		if pos := p.Seals[i]; pos <= last && next-pos >= max(t.cfg.KeepMin, (last-pos)/4) {
			add(pos)
			next = pos
			near = near || last-pos <= t.cfg.KeepMin
		}
	}
	if !near {
		add(last)
	}
	slices.Sort(q.stops)
	every := t.cfg.SealEvery
	for (last-m.Len)/every > max(2, len(t.seqs)/8) {
		every *= 2
	}
	every = max(every, 4)
	exact := len(q.stops)
	// At first their distance doubles, so that a prompt that parts early shares half of what it could.
	for pos, step := m.Len, every/4; ; {
		if pos += step; pos >= last {
			break
		}
		if pos-m.Len == every/2 {
			step = every / 2
		} else if pos-m.Len >= every {
			step = every
		}
		// Not beside a stop that has to be there.
		i, _ := slices.BinarySearch(q.stops[:exact], pos)
		if (i == 0 || pos-q.stops[i-1] >= step/2) && (i == exact || q.stops[i]-pos >= step/2) {
			add(pos)
		}
	}
	for i, pos := range q.stops {
		q.stops[i] = runtime.WholeImages(p.Tokens, pos)
	}
	slices.Sort(q.stops)
	q.stops = slices.Compact(q.stops)
	for len(q.stops) > 0 && q.stops[0]-m.Len < t.cfg.KeepMin { // an image began there
		q.stops = slices.Delete(q.stops, 0, 1)
	}
}

// stopBefore returns the last of q's stops up to pos, 0 when there is none.
func (q *sequence) stopBefore(pos int) int {
	i, found := slices.BinarySearch(q.stops, pos)
	switch {
	case found:
		return pos
	case i == 0:
		return 0
	}
	return q.stops[i-1]
}

// Stopped reports whether running sequence s ends at one of its stops, so that Seal is due.
func (t *Tree) Stopped(s Seq) bool {
	_, due := slices.BinarySearch(t.running(s).stops, t.length(s))
	return due
}

// Sealed is the result of Seal.
type Sealed struct {
	Entry   uint64   // the seal, 0 = none was made: there is one, or no sequence id is left
	Evicted []Victim // the cached prefix that gave up its id
	Actions []Action // valid until the next call
}

// Seal keeps a copy of all that running sequence s has computed as a cached prefix, to which other prompts can return.
// Call it after Progress has reached one of Acquired.Stops, before the next Decode.
func (t *Tree) Seal(now Instant, s Seq) Sealed {
	t.generation++
	q := t.running(s)
	t.actions, t.victims = t.actions[:0], t.victims[:0]
	n := t.length(s)
	if n < t.cfg.KeepMin || t.sealed(s) != NoSeq {
		return Sealed{}
	}
	d := t.freeID(NoSeq)
	if d == NoSeq {
		return Sealed{}
	}
	c := &t.seqs[d]
	t.entries++
	*c = sequence{
		state: cached, tip: root, tokens: slices.Clone(q.tokens[:n]), limit: noLimit, ns: q.ns, req: q.req,
		base: q.base, baseLen: q.baseLen, made: t.generation,
		entry: t.entries, shareable: min(q.shareable, n), created: now, used: now, hashes: c.hashes[:0],
		stops: c.stops[:0],
	}
	c.hashes = append(c.hashes, q.hashes[:min(len(q.hashes), n/blockTokens)]...)
	c.hashes = hashBlocks(c.hashes, c.ns, c.tokens)
	t.attach(d, q.tip)
	t.actions = append(t.actions, Action{Kind: Copy, Src: s, Dst: d, To: n})
	t.stats.Entries++
	t.stats.Retained++
	t.stats.Seals++
	entry := c.entry
	t.thin(d)
	t.verify()
	return Sealed{Entry: entry, Evicted: t.victims, Actions: t.actions}
}

// sealed returns a cached prefix of s's namespace with exactly its computed tokens; NoSeq when there is none.
func (t *Tree) sealed(s Seq) Seq {
	q, n := &t.seqs[s], t.length(s)
	for i := range t.seqs {
		o := &t.seqs[i]
		if Seq(i) != s && o.state == cached && o.ns == q.ns && len(o.tokens) == n && !o.parked &&
			CommonPrefix(o.tokens, q.tokens[:n]) == n {
			return Seq(i)
		}
	}
	return NoSeq
}

// thin drops seals on the way to cached prefix s, so that a conversation keeps its first, its last ones, and between
// them a number that grows with the logarithm of its length. Those to which requests have returned again stay.
func (t *Tree) thin(s Seq) {
	q := &t.seqs[s]
	t.chain = t.chain[:0]
	for i := range t.seqs {
		o := &t.seqs[i]
		if o.state == cached && o.ns == q.ns && len(o.tokens) < len(q.tokens) &&
			CommonPrefix(o.tokens, q.tokens) == len(o.tokens) {
			t.chain = append(t.chain, Seq(i))
		}
	}
	slices.SortFunc(t.chain, func(a, b Seq) int { return len(t.seqs[a].tokens) - len(t.seqs[b].tokens) })
	end := len(q.tokens)
	for i := 1; i < len(t.chain)-1; {
		before, o, after := &t.seqs[t.chain[i-1]], &t.seqs[t.chain[i]], &t.seqs[t.chain[i+1]]
		gap := len(after.tokens) - len(before.tokens)
		if o.pinned || o.parked || o.ingesting || o.hits > 1 || gap > (end-len(after.tokens))/2 || t.branches(o.tip) {
			i++
			continue
		}
		last := t.nodes[o.tip].span
		t.ledger.Evict(&last, t.drop(t.chain[i]), blocks.Dropped)
		t.chain = slices.Delete(t.chain, i, i+1)
	}
}

// branches reports whether several sequences go on in different ways behind node i.
func (t *Tree) branches(i int32) bool {
	c := t.nodes[i].first
	return c >= 0 && t.nodes[c].next >= 0
}

// matchSeals finds the longest sequence of which the prompt continues every token.
func (t *Tree) matchSeals(p *Prompt, most int) Match {
	m := Match{Source: NoSeq, Reason: ReasonNothing}
	here := 0 // tokens that agree with computed ones
	for s := range t.seqs {
		q := &t.seqs[s]
		if q.state == free {
			continue
		}
		see := min(t.visible(Seq(s), p), len(q.tokens))
		got, n := CommonPrefix(p.Tokens[:most], q.tokens[:see]), t.length(Seq(s))
		m.agreed, here = max(m.agreed, got), max(here, min(got, n))
		if n == 0 || got < n || runtime.WholeImages(p.Tokens, n) < n { // which ends inside an image
			continue
		}
		if n > m.Len || n == m.Len && q.state == cached && m.Running {
			m.Len, m.Source, m.Running = n, Seq(s), q.state == running
		}
	}
	switch {
	case here > m.Len:
		m.Reason = ReasonWhole
	case m.Len > 0:
		m.Reason = ReasonEnded
	}
	return m
}
