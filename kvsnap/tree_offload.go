package kvsnap

import "github.com/uma-serve/uma-serve/meridian/blocks"

// A preempted request computes nothing for a while. Its finished thought is in the middle of the prefix that Park keeps
// for it, and can be evicted alone once it was copied out (Offloadable): the cells behind the thought keep their
// positions. The node of the thought stays in the tree without cells, and nothing is matched beyond it, until Ingest
// gives it cells again.

// Thought returns the positions [from, to) of the finished thought that sequence s alone holds; to is 0 when there is
// none.
func (t *Tree) Thought(s Seq) (from, to int) {
	for i := t.seqs[s].tip; i != root && t.nodes[i].refs() == 1; i = t.nodes[i].parent {
		n := &t.nodes[i]
		switch {
		case n.span.Tier() != blocks.ThinkComplete:
			if to > 0 {
				return from, to
			}
		case to == 0:
			from, to = n.start, n.end
		default:
			from = n.start
		}
	}
	return from, to
}

// Parked returns the sequence of the prefix that Park keeps for a request, NoSeq when there is none.
func (t *Tree) Parked(req uint64) Seq {
	for s := range t.seqs {
		if q := &t.seqs[s]; q.parked && q.req == req {
			return Seq(s)
		}
	}
	return NoSeq
}

// Offloadable records that the finished thought [from, to) of a parked prefix was copied out, so that EvictCells may
// take its cells before those behind it. It reports false, and changes nothing, when there is no such thought.
func (t *Tree) Offloadable(req uint64, from, to int) bool {
	s := t.Parked(req)
	if s == NoSeq || t.cfg.Seals || len(t.spare) < 2 { // without spare nodes the thought cannot stand alone
		return false
	}
	q := &t.seqs[s]
	if a, b := t.Thought(s); q.awayTo > 0 || from < a || to > b || from >= to || to == t.length(s) {
		return false
	}
	t.generation++
	i := t.nodeEndingAt(s, to)
	t.nodeEndingAt(s, from)
	for p := t.nodes[i].parent; t.nodes[p].end > from; p = t.nodes[i].parent {
		t.join(p)
	}
	q.awayFrom, q.awayTo = from, to
	t.verify()
	return true
}

// thoughtNode returns the node of the thought that Offloadable named, root when there is none.
func (t *Tree) thoughtNode(s Seq) int32 {
	q := &t.seqs[s]
	if q.awayTo == 0 {
		return root
	}
	i := t.nodeAt(s, q.awayTo)
	if n := &t.nodes[i]; n.start != q.awayFrom || n.end != q.awayTo || n.refs() > 1 {
		return root // reserve has joined it with its neighbours, because the arena was full
	}
	return i
}

// away reports whether node i is an offloaded thought.
func (t *Tree) away(i int32) bool {
	return t.ledger.BlockLocation(&t.nodes[i].span) == blocks.Offloaded
}

// Whole returns how many leading positions of s are in the pool without a gap.
func (t *Tree) Whole(s Seq) int {
	if i := t.thoughtNode(s); i != root && t.away(i) {
		return t.nodes[i].start
	}
	return t.length(s)
}

// Away returns the positions of the offloaded thought of a parked prefix; ok is false when all of it is in the pool.
func (t *Tree) Away(req uint64) (from, to int, ok bool) {
	s := t.Parked(req)
	if s == NoSeq {
		return 0, 0, false
	}
	if i := t.thoughtNode(s); i != root && t.away(i) {
		return t.nodes[i].start, t.nodes[i].end, true
	}
	return 0, 0, false
}

// SetIngesting keeps a parked prefix from eviction while its thought is copied back, until it is called with false.
func (t *Tree) SetIngesting(req uint64, on bool) {
	s := t.Parked(req)
	if s == NoSeq || t.seqs[s].ingesting == on {
		return
	}
	t.generation++
	t.seqs[s].ingesting = on
	t.pinPath(s, on)
	t.verify()
}

// pinPath adds s to, or with pin false removes it from, the holders that keep cells from eviction. A pinned s is one
// of them already.
func (t *Tree) pinPath(s Seq, pin bool) {
	if t.seqs[s].pinned {
		return
	}
	h := blocks.Holders{Pinned: 1}
	if !pin {
		h = h.Minus()
	}
	t.addToPath(t.seqs[s].tip, root, h)
}

// Ingest gives the offloaded thought of a parked prefix cells again. Its content is in the caller's sequence src, at
// the same positions; remove it there after the actions. As many cells must be free. ok is false when the prefix has
// gone meanwhile.
func (t *Tree) Ingest(req uint64, src Seq) (actions []Action, ok bool) {
	from, to, ok := t.Away(req)
	if !ok {
		return nil, false
	}
	t.generation++
	s := t.Parked(req)
	t.ledger.IngestBlock(&t.nodes[t.thoughtNode(s)].span)
	t.actions = append(t.actions[:0], Action{Kind: Copy, Src: src, Dst: s, From: from, To: to})
	t.verify()
	return t.actions, true
}

// evictThought takes the cells of the finished thought of parked prefix s, in node i.
func (t *Tree) evictThought(s Seq, i int32) (freed int) {
	n := &t.nodes[i]
	span := n.span
	freed = t.ledger.OffloadBlock(&n.span)
	t.ledger.Evict(&span, freed, blocks.Pressure)
	t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, From: n.start, To: n.end})
	return freed
}

// closeGap drops the cells of s behind an offloaded thought that was not copied back: no request can continue with a
// gap in its cells. It returns the number of cells of an answer among them.
func (t *Tree) closeGap(s Seq) (answer int) {
	keep := t.Whole(s)
	q := &t.seqs[s]
	if keep == t.length(s) {
		return 0
	}
	for i := q.tip; i != root && t.nodes[i].start >= keep; i = t.nodes[i].parent {
		if n := &t.nodes[i]; n.span.Tier() == blocks.OutputCritical {
			answer += n.span.Cells()
		}
	}
	if keep < t.cfg.KeepMin {
		t.drop(s)
		return answer
	}
	t.shorten(s, keep)
	q.clip(keep)
	t.actions = append(t.actions, Action{Kind: Remove, Src: NoSeq, Dst: s, From: keep, To: -1})
	return answer
}

// clip cuts the record of a cached prefix to its first keep tokens.
func (q *sequence) clip(keep int) {
	q.tokens = q.tokens[:keep:keep]
	q.hashes = q.hashes[:keep/blockTokens]
	q.shareable = min(q.shareable, keep)
	if q.awayTo > keep {
		q.awayFrom, q.awayTo = 0, 0
	}
}

// TierAt returns the tier of the cell of s at position pos, or other when s does not hold it.
func (t *Tree) TierAt(s Seq, pos int, other blocks.Tier) blocks.Tier {
	if pos >= t.length(s) {
		return other
	}
	return t.nodes[t.nodeAt(s, pos+1)].span.Tier()
}
