// Package index finds the longest cached prefix of a token sequence among many parts, without touching the bytes.
//
// A part (Node) holds the cells of positions [P0, P1). It is usable behind parts that cover [0, P0) with the same
// tokens. So the parts of one conversation are a chain, and all parts are a forest:
//
//	System [0,512) ──┬── uid 1000 [512,768) ── [768,1009) ── [1009,1300)
//	                 └── uid 1001 [512,900)
//
// A chain is found by hashes and verified by comparison. At every 16th token of the query a 64-bit hash of all tokens
// so far leads to the parts that contain that position: O(prefix/16) look-ups for any number of cached parts. Then
// every token of the chain is compared. A hash collision costs a miss, never a wrong answer.
//
// The package is pure: it has no clock, lock, goroutine or I/O. An Index serves one goroutine at a time.
package index

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

// Block is the distance in tokens between two look-ups of a query. A chain that ends between two look-ups is found too.
const Block = 16

// Bounds of the parts compared at one place: many prompts may share a block.
const (
	maxCandidates = 16
	maxEnds       = 256 // parts that end within one block; one comparison excludes most of them
)

// Node is one part. The first group of fields is set before Add and never changes.
type Node struct {
	Key       format.Hash
	Namespace format.Namespace
	P0, P1    int            // positions
	Tokens    []format.Token // at [P0, P1); read-only
	Before    format.Hash    // format.PrefixHash of [0, P0)
	After     format.Hash    // format.PrefixHash of [0, P1)
	Named     bool           // it is found by its Key alone: no Lookup meets it, and no part continues it

	// Fields of the index.

	// Parent is the part that this one continues. It is nil when P0 is 0, or when no usable part ends at P0. Invariant:
	// Parent.P1 == P0, Parent.After == Before, Parent is visible to this Namespace and usable.
	Parent *Node
	usable bool // a chain of Parents reaches position 0
	marked bool // marks and end are computed, because the part was usable once
	marks  []uint64
	end    state

	// Fields of the cache.

	Host, Disk Elem // places in the two tiers' queues
	Owner      any  // the cache's record of the part
}

// Usable reports whether the part can be restored: all parts before it are cached too. A named part is not: it has no
// cells.
func (n *Node) Usable() bool { return n.usable }

// state is a rolling hash: the hash of the whole blocks, and the tokens after them.
type state struct {
	h    uint64
	tail [Block - 1]format.Token
	n    int // of tail
}

// slot holds the parts at one place, a position that is a multiple of Block, of one namespace.
type slot struct {
	through []*Node // usable parts with P0 < place ≤ P1
	ends    []*Node // usable parts with place ≤ P1 < place+Block
}

// Index is the forest. Make one with New.
type Index struct {
	seed   uint64
	nodes  map[format.Hash]*Node
	after  map[format.Hash][]*Node // every node by After: candidates for a parent
	before map[format.Hash][]*Node // every node with P0 > 0 by Before: candidates for a child
	slots  map[uint64]slot
	system int // number of nodes of format.System: without any, Lookup skips their namespace
}

// New makes an empty index. Use a different seed in each process, so that clients cannot prepare colliding prompts. The
// same seed and operations give the same index.
func New(seed uint64) *Index {
	return &Index{
		seed: seed | 1, nodes: map[format.Hash]*Node{}, after: map[format.Hash][]*Node{},
		before: map[format.Hash][]*Node{}, slots: map[uint64]slot{},
	}
}

// Len returns the number of parts, usable or not.
func (x *Index) Len() int { return len(x.nodes) }

// Get returns the part with a key, or nil.
func (x *Index) Get(key format.Hash) *Node { return x.nodes[key] }

// Each calls f for every part, in no order.
func (x *Index) Each(f func(*Node)) {
	for _, n := range x.nodes {
		f(n)
	}
}

// Children calls f for every part that has n as its Parent.
func (x *Index) Children(n *Node, f func(*Node)) {
	for _, c := range x.before[n.After] {
		if c.Parent == n {
			f(c)
		}
	}
}

// Add adds a part. It panics when the key is in the index already. A part whose beginning is not cached becomes usable
// when the beginning is added.
func (x *Index) Add(n *Node) {
	if x.nodes[n.Key] != nil {
		panic("index: part added twice")
	}
	if n.P0 < 0 || n.P1-n.P0 != len(n.Tokens) || n.P1 <= n.P0 {
		panic(fmt.Sprintf("index: part [%d, %d) with %d tokens", n.P0, n.P1, len(n.Tokens)))
	}
	x.nodes[n.Key] = n
	if n.Named {
		return
	}
	x.after[n.After] = append(x.after[n.After], n)
	if n.P0 > 0 {
		x.before[n.Before] = append(x.before[n.Before], n)
	}
	if n.Namespace == format.System {
		x.system++
	}
	x.link(n)
}

// visible reports whether a part of namespace of may continue one of namespace owner.
func visible(owner, of format.Namespace) bool { return owner == of || owner == format.System }

// link makes n, and the parts that continue it, usable if a chain reaches n.
func (x *Index) link(n *Node) {
	work := []*Node{n}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		if n.usable {
			continue
		}
		if n.P0 > 0 {
			if n.Parent = x.parentFor(n); n.Parent == nil {
				continue
			}
		}
		x.mark(n)
		n.usable = true
		x.file(n)
		work = append(work, x.before[n.After]...)
	}
}

// parentFor returns a usable part that n may continue, preferably of n's namespace; nil when there is none.
func (x *Index) parentFor(n *Node) *Node {
	var found *Node
	for _, p := range x.after[n.Before] {
		if p.usable && p.P1 == n.P0 && visible(p.Namespace, n.Namespace) &&
			(found == nil || p.Namespace == n.Namespace) {
			found = p
		}
	}
	return found
}

// Remove removes a part. The parts that continued it get another parent, or become unusable until there is one.
func (x *Index) Remove(n *Node) {
	if x.nodes[n.Key] != n {
		panic("index: part removed that is not in it")
	}
	delete(x.nodes, n.Key)
	if n.Named {
		return
	}
	drop(x.after, n.After, n)
	if n.P0 > 0 {
		drop(x.before, n.Before, n)
	}
	if n.Namespace == format.System {
		x.system--
	}
	if !n.usable {
		return
	}
	x.unfile(n)
	n.usable, n.Parent = false, nil
	work := []*Node{n}
	for len(work) > 0 {
		gone := work[len(work)-1]
		work = work[:len(work)-1]
		for _, c := range x.before[gone.After] {
			if c.Parent != gone {
				continue
			}
			if c.Parent = x.parentFor(c); c.Parent == nil {
				x.unfile(c)
				c.usable = false
				work = append(work, c)
			}
		}
	}
}

func drop[K comparable](m map[K][]*Node, k K, n *Node) {
	s := m[k]
	i := slices.Index(s, n)
	s[i] = s[len(s)-1]
	s[len(s)-1] = nil
	if s = s[:len(s)-1]; len(s) == 0 {
		delete(m, k)
	} else {
		m[k] = s
	}
}

// mark computes n's hashes from its Parent's. It does so once, because they depend only on the tokens.
func (x *Index) mark(n *Node) {
	if n.marked {
		return
	}
	st := state{h: x.seed}
	if n.Parent != nil {
		st = n.Parent.end
	}
	n.marks = make([]uint64, 0, (n.P1/Block)-(n.P0/Block)) // one place for each block boundary in (P0, P1]
	rest := n.Tokens
	for len(rest) > 0 {
		k := copy(st.tail[st.n:], rest)
		if st.n+k < Block-1 || len(rest) == k {
			st.n += k
			break
		}
		var block [Block]format.Token
		copy(block[:], st.tail[:])
		block[Block-1] = rest[k]
		st.h, st.n = mix(st.h, block[:]), 0
		n.marks = append(n.marks, st.h)
		rest = rest[k+1:]
	}
	n.end, n.marked = st, true
}

// mix extends hash h by one block: for each pair of tokens a 64×64→128 bit product, folded to 64 bits.
func mix(h uint64, block []format.Token) uint64 {
	_ = block[Block-1]
	for i := 0; i < Block; i += 2 {
		v := uint64(uint32(block[i])) | uint64(uint32(block[i+1]))<<32
		hi, lo := bits.Mul64(h^v^0x9e3779b97f4a7c15, h|1)
		h = hi ^ bits.RotateLeft64(lo, 23) ^ v*0xd6e8feb86659fd93
	}
	return h
}

// slotKey includes the namespace, so that a look-up neither meets nor times the parts of other namespaces.
func slotKey(h uint64, ns format.Namespace) uint64 {
	hi, lo := bits.Mul64(h^0xa0761d6478bd642f, uint64(ns)<<1|1)
	return h + hi ^ bits.RotateLeft64(lo, 17)
}

func (x *Index) file(n *Node) {
	for _, h := range n.marks {
		k := slotKey(h, n.Namespace)
		s := x.slots[k]
		s.through = append(s.through, n)
		x.slots[k] = s
	}
	k := slotKey(n.end.h, n.Namespace)
	s := x.slots[k]
	s.ends = append(s.ends, n)
	x.slots[k] = s
}

func (x *Index) unfile(n *Node) {
	take := func(h uint64, ends bool) {
		k := slotKey(h, n.Namespace)
		s := x.slots[k]
		list := &s.through
		if ends {
			list = &s.ends
		}
		i := slices.Index(*list, n)
		last := len(*list) - 1
		(*list)[i] = (*list)[last]
		(*list)[last] = nil
		*list = (*list)[:last]
		if len(s.through)+len(s.ends) == 0 {
			delete(x.slots, k)
		} else {
			x.slots[k] = s
		}
	}
	for _, h := range n.marks {
		take(h, false)
	}
	take(n.end.h, true)
}

// Lookup returns the part whose chain shares the most tokens with the query, and their number, matched ≤ n.P1. With
// whole, it considers only chains that end within the query (matched == n.P1), for memories that cannot remove a range.
// On a miss it returns nil, 0. It allocates nothing.
func (x *Index) Lookup(ns format.Namespace, tokens []format.Token, whole bool) (n *Node, matched int) {
	var found best
	found.whole, found.tokens = whole, tokens
	h := x.seed
	own, sys := x.at(h, ns)
	found.ends(own.ends, sys.ends)
	lastOwn, lastSys := own, sys
	for b := Block; b <= len(tokens); b += Block {
		h = mix(h, tokens[b-Block:b])
		own, sys = x.at(h, ns)
		if len(own.through)+len(sys.through) == 0 {
			break // chains have no gaps, so nothing longer is cached
		}
		lastOwn, lastSys = own, sys
		if whole {
			found.ends(own.ends, sys.ends)
		}
	}
	if !whole {
		for _, list := range [...][]*Node{lastOwn.through, lastSys.through, lastOwn.ends, lastSys.ends} {
			found.longest(list)
		}
	}
	return found.pick()
}

func (x *Index) at(h uint64, ns format.Namespace) (own, sys slot) {
	if ns != format.System {
		own = x.slots[slotKey(h, ns)]
	}
	if x.system > 0 {
		sys = x.slots[slotKey(h, format.System)]
	}
	return own, sys
}

// best collects a few of the longest candidates.
type best struct {
	whole  bool
	tokens []format.Token
	n      int
	cand   [maxCandidates]struct {
		node *Node
		len  int
	}
}

func (f *best) add(n *Node, matched int) {
	i := f.n
	if i == len(f.cand) {
		i = 0
		for j := range f.cand {
			if f.cand[j].len < f.cand[i].len {
				i = j
			}
		}
		if f.cand[i].len >= matched {
			return
		}
	} else {
		f.n++
	}
	f.cand[i].node, f.cand[i].len = n, matched
}

// ends adds the parts that end within the query, newest first. Their hash covers whole blocks only, so parts that
// differ in their last few tokens are here too; ends compares the last token first.
func (f *best) ends(lists ...[]*Node) {
	if !f.whole {
		return
	}
	for _, list := range lists {
		for i := len(list) - 1; i >= max(0, len(list)-maxEnds); i-- {
			n := list[i]
			if n.P1 <= len(f.tokens) && n.Tokens[len(n.Tokens)-1] == f.tokens[n.P1-1] &&
				slices.Equal(n.Tokens, f.tokens[n.P0:n.P1]) {
				f.add(n, n.P1)
			}
		}
	}
}

// longest adds parts with the number of tokens that they share with the query, newest first.
func (f *best) longest(list []*Node) {
	for i := len(list) - 1; i >= max(0, len(list)-maxCandidates); i-- {
		if n := list[i]; n.P0 < len(f.tokens) {
			f.add(n, n.P0+kvsnap.CommonPrefix(n.Tokens, f.tokens[n.P0:]))
		}
	}
}

// pick compares the chains token by token, longest first. Among equal ones it prefers one that needs no cut, then one
// in memory.
func (f *best) pick() (*Node, int) {
	for f.n > 0 {
		i := 0
		for j := 1; j < f.n; j++ {
			a, b := f.cand[j], f.cand[i]
			switch {
			case a.len != b.len:
				if a.len > b.len {
					i = j
				}
			case (a.node.P1 == a.len) != (b.node.P1 == b.len):
				if a.node.P1 == a.len {
					i = j
				}
			case a.node.Host.In() && !b.node.Host.In():
				i = j
			}
		}
		c := f.cand[i]
		f.cand[i] = f.cand[f.n-1]
		f.n--
		if n, m := verify(c.node, f.tokens, c.len, f.whole); n != nil {
			return n, m
		}
	}
	return nil, 0
}

// verify compares the chain of n with the query. If n contributes no token, it returns n's parent.
func verify(n *Node, tokens []format.Token, matched int, whole bool) (*Node, int) {
	for n != nil && matched <= n.P0 {
		n = n.Parent
	}
	if n == nil || whole && matched != n.P1 {
		return nil, 0
	}
	for p := n; p != nil; p = p.Parent {
		end := min(matched, p.P1)
		if !slices.Equal(p.Tokens[:end-p.P0], tokens[p.P0:end]) {
			return nil, 0
		}
	}
	return n, matched
}

// Tail returns a usable part whose chain is exactly tokens and that a part of ns may continue; nil when there is none.
func (x *Index) Tail(ns format.Namespace, tokens []format.Token) *Node {
	n, m := x.Lookup(ns, tokens, true)
	if m != len(tokens) {
		return nil
	}
	return n
}
