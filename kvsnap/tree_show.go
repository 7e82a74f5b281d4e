package kvsnap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// Entry is a resident sequence as `uma-cli kv` shows it.
type Entry struct {
	ID       uint64  `json:"id"`            // of the cached prefix; 0 for a running request
	Req      uint64  `json:"req,omitempty"` // the running request, or the one that left it
	NS       uint64  `json:"uid"`
	Seq      Seq     `json:"seq"`
	Running  bool    `json:"running"`
	Pinned   bool    `json:"pinned"`
	Tokens   int     `json:"tokens"`    // positions it holds
	Whole    int     `json:"-"`         // of them: those before an offloaded thought, else all
	OwnCells int     `json:"own_cells"` // of them: held by this sequence only
	OwnBytes int64   `json:"own_bytes"`
	Created  Instant `json:"created"`
	Used     Instant `json:"used"`  // last shared by a request
	Hits     int     `json:"hits"`  // requests that continued all of it, over all turns of the conversation
	Turns    int     `json:"turns"` // cached prefixes merged into it, itself included
	Worth    float64 `json:"worth"` // of its last cells; within a tier the least valuable is evicted first
	Hash     string  `json:"hash"`  // 16 hex digits, of the namespace and the tokens
	Why      string  `json:"why"`
}

// Entries appends the resident sequences to dst: running requests by sequence id, then cached prefixes, the last in the
// eviction order first.
func (t *Tree) Entries(dst []Entry) []Entry {
	at := len(dst)
	for i := range t.seqs {
		q := &t.seqs[i]
		if q.state == free {
			continue
		}
		s := Seq(i)
		n := t.length(s)
		own := t.own(s)
		e := Entry{
			ID: q.entry, Req: q.req, NS: q.ns, Seq: s, Running: q.state == running, Pinned: q.pinned, Tokens: n,
			Whole: t.Whole(s), OwnCells: own,
			OwnBytes: t.ledger.Bytes(own), Created: q.created, Used: q.used, Hits: q.hits,
			Turns: q.turns,
			Worth: t.ledger.Worth(&t.nodes[q.tip].span), Hash: t.hash(s),
		}
		e.Why = t.why(s)
		dst = append(dst, e)
	}
	slices.SortStableFunc(dst[at:], func(a, b Entry) int {
		switch {
		case a.Running != b.Running:
			if a.Running {
				return -1
			}
			return 1
		case a.Running:
			return cmp.Compare(a.Seq, b.Seq)
		case t.goesBefore(b.Seq, a.Seq):
			return -1
		}
		return 1
	})
	return dst
}

// why returns the state of a sequence in words, for Entry.Why.
func (t *Tree) why(s Seq) string {
	q := &t.seqs[s]
	n := &t.nodes[q.tip]
	switch {
	case q.state == running && q.waited > 0:
		return fmt.Sprintf("running; %d requests wait for its prompt", q.waited)
	case q.state == running && q.stalled:
		return "running; its client does not read"
	case q.state == running && t.length(s) < len(q.tokens)-1:
		return fmt.Sprintf("running; %d of %d tokens computed", t.length(s), len(q.tokens))
	case q.state == running:
		return "running"
	case q.pinned:
		return "pinned by a user"
	case q.parked && t.Whole(s) < t.length(s):
		return "its preempted request continues with it; its thought is offloaded"
	case q.parked:
		return "its preempted request continues with it"
	case n.runs() > 0:
		return "in use by a running request"
	case n.pins() > 0 || n.first >= 0 || n.refs() > 1:
		return "shared with other cached prefixes"
	case q.turns > 1:
		return fmt.Sprintf("conversation of %d turns", q.turns)
	}
	return "end of a turn"
}

// hash returns the hash of the tokens that s holds, as 16 hex digits.
func (t *Tree) hash(s Seq) string {
	q := &t.seqs[s]
	tokens := q.tokens[:t.length(s)]
	hashes := q.hashes
	if len(hashes) < len(tokens)/blockTokens {
		hashes = hashBlocks(slices.Clone(hashes), q.ns, tokens)
	}
	return fmt.Sprintf("%016x", hashTail(hashes, q.ns, tokens))
}

// Dump returns the tree as text, for `uma-cli kv --tree`: one line per node, indented below its parent, with the state
// of its cells, their tier unless it is Prefix, the number of its holders and the sequences that end in it.
func (t *Tree) Dump() string {
	var b strings.Builder
	c := t.ledger.Cells()
	fmt.Fprintf(&b, "%d cells: %d own, %d shared, %d cached, %d pinned, %d free\n", t.cfg.Cells, c.Own, c.Shared,
		c.Cached, c.Pinned, c.Free)
	t.dump(&b, root, 0)
	return b.String()
}

func (t *Tree) dump(b *strings.Builder, i int32, depth int) {
	if i != root {
		n := &t.nodes[i]
		fmt.Fprintf(b, "%s[%d, %d) %v", strings.Repeat("  ", depth), n.start, n.end, n.span.State())
		if t.away(i) {
			b.WriteString(" offloaded")
		}
		if n.span.Tier() != blocks.Prefix {
			fmt.Fprintf(b, " %v", n.span.Tier())
		}
		if n.refs() > 1 {
			fmt.Fprintf(b, " by %d", n.refs())
		}
		for s := range t.seqs {
			q := &t.seqs[s]
			switch {
			case q.state == free || q.tip != i:
			case q.state == running:
				fmt.Fprintf(b, " · request %d (uid %d, seq %d)", q.req, q.ns, s)
			default:
				fmt.Fprintf(b, " · prefix %d (uid %d, seq %d)", q.entry, q.ns, s)
			}
		}
		b.WriteByte('\n')
	}
	var children []int32
	for c := t.nodes[i].first; c >= 0; c = t.nodes[c].next {
		children = append(children, c)
	}
	slices.SortFunc(children, func(x, y int32) int { return cmp.Compare(t.nodes[x].holder, t.nodes[y].holder) })
	for _, c := range children {
		t.dump(b, c, depth+1)
	}
}

// Entry returns one cached prefix; false when no prefix has this id.
func (t *Tree) Entry(id uint64) (Entry, bool) {
	for _, e := range t.Entries(nil) {
		if e.ID == id && !e.Running {
			return e, true
		}
	}
	return Entry{}, false
}
