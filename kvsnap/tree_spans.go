package kvsnap

import "github.com/uma-serve/uma-serve/meridian/blocks"

// Span is a run of cells that the same sequences hold and that have one tier.
type Span struct {
	NS      uint64 // namespace of one holder
	Req     uint64 // the running request that this holder is, or the one that left it
	Running bool   // the holder is a running request
	End     bool   // no cells are behind it: eviction begins here
	Cells   int    // ≥ 1
	Tier    blocks.Tier
	State   blocks.State
	Holders blocks.Holders
}

// Spans appends every run of cells in use to dst, each once: their sizes add up to the cells that are not free. It
// allocates nothing where dst has room.
func (t *Tree) Spans(dst []Span) []Span { return t.spans(dst, root) }

func (t *Tree) spans(dst []Span, i int32) []Span {
	if i != root {
		n := &t.nodes[i]
		q := &t.seqs[n.holder]
		if !t.away(i) {
			dst = append(dst, Span{
				NS: q.ns, Req: q.req, Running: q.state == running, End: n.first < 0, Cells: n.span.Cells(),
				Tier: n.span.Tier(), State: n.span.State(), Holders: n.span.Holders(),
			})
		}
	}
	for c := t.nodes[i].first; c >= 0; c = t.nodes[c].next {
		dst = t.spans(dst, c)
	}
	return dst
}
