package grammar

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Vocabulary is a model's tokens as a trie, with results that all grammars share. It is built once a model.
type Vocabulary struct {
	size    int
	longest int // bytes of the longest piece that is offered
	words   int // of a mask
	ends    []int32
	text    []byte  // the pieces, one after another
	from    []int32 // where each begins in text, and the end

	whole  trie
	slices [sliceCount]slice
	rest   trie // the tokens that are in no slice
	unions map[uint16][]uint32
}

// The slices hold the tokens that are words or else plain text (regex.Class), which is what strings are made of. They
// are cut by length, so that a string of bounded length takes the shorter ones whole.
var sliceLengths = [...]int{3, 6, 12, regex.Unlimited}

const sliceCount = int(regex.NumClasses) * len(sliceLengths)

type slice struct {
	class   regex.Class
	longest int // in characters
	mask    []uint32
	trie    trie
}

// trie is a prefix tree in preorder: the nodes below node i are i+1 to nodes[i].skip-1.
type trie struct {
	nodes []trieNode
	root  [256]int32 // the node of a first byte, -1 for none
	same  [][]int32  // tokens of equal pieces, by trieNode.token
	depth int
}

type trieNode struct {
	skip  int32
	token int32  // -1 for none; below that same[-token-2]
	depth uint16 // 1 for a first byte
	byte  byte
}

// NewVocabulary returns the vocabulary of pieces: the bytes of each token by id. An empty piece (a control token) is
// never allowed. ends are the ids that end a text (EOG); they are allowed where the text may end, whatever their piece.
// pieces is not kept.
func NewVocabulary(pieces [][]byte, ends []int32) *Vocabulary {
	v := &Vocabulary{size: len(pieces), words: (len(pieces) + 31) / 32, unions: map[uint16][]uint32{}}
	for _, e := range ends {
		if e >= 0 && int(e) < v.size && !slices.Contains(v.ends, e) {
			v.ends = append(v.ends, e)
		}
	}
	order := make([]int32, 0, len(pieces))
	for id, p := range pieces {
		v.from = append(v.from, int32(len(v.text)))
		v.text = append(v.text, p...)
		if len(p) > 0 && len(p) <= maxPiece && !slices.Contains(v.ends, int32(id)) {
			order = append(order, int32(id))
			v.longest = max(v.longest, len(p))
		}
	}
	v.from = append(v.from, int32(len(v.text)))
	slices.SortFunc(order, func(a, b int32) int {
		if c := bytes.Compare(pieces[a], pieces[b]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	v.whole = newTrie(pieces, order)
	var by [sliceCount + 1][]int32
	for _, id := range order {
		at := sliceCount
		for c := range regex.NumClasses {
			if n, ok := c.Length(pieces[id]); ok {
				at = int(c) * len(sliceLengths)
				for n > sliceLengths[at%len(sliceLengths)] {
					at++
				}
				break
			}
		}
		by[at] = append(by[at], id)
	}
	for i := range v.slices {
		s := slice{class: regex.Class(i / len(sliceLengths)), mask: make([]uint32, v.words),
			trie: newTrie(pieces, by[i])}
		for _, id := range by[i] {
			set(s.mask, id)
			n, _ := s.class.Length(pieces[id])
			s.longest = max(s.longest, n)
		}
		v.slices[i] = s
	}
	v.rest = newTrie(pieces, by[sliceCount])
	return v
}

// maxPiece is the longest piece that is offered, in bytes: those of real vocabularies have a few hundred at most.
const maxPiece = 1 << 15

// Size returns the number of tokens.
func (v *Vocabulary) Size() int { return v.size }

// piece returns the bytes of a token.
func (v *Vocabulary) piece(id int32) []byte { return v.text[v.from[id]:v.from[id+1]] }

// union returns the tokens of several slices, a bit a slice. There are few combinations: the shorter slices of a class
// come with the longer ones.
func (v *Vocabulary) union(in uint16) []uint32 {
	m, ok := v.unions[in]
	if !ok {
		m = make([]uint32, v.words)
		for i := range v.slices {
			if in>>i&1 != 0 {
				for w, bits := range v.slices[i].mask {
					m[w] |= bits
				}
			}
		}
		v.unions[in] = m
	}
	return m
}

func set(mask []uint32, id int32) { mask[id>>5] |= 1 << (id & 31) }

// newTrie returns the trie of the pieces of order, which is sorted by them.
func newTrie(pieces [][]byte, order []int32) trie {
	var t trie
	for i := range t.root {
		t.root[i] = -1
	}
	var open []int32 // nodes on the way to the last piece
	var last []byte
	for _, id := range order {
		p := pieces[id]
		shared := 0
		for shared < len(last) && shared < len(p) && p[shared] == last[shared] {
			shared++
		}
		for len(open) > shared {
			t.nodes[open[len(open)-1]].skip = int32(len(t.nodes))
			open = open[:len(open)-1]
		}
		for i := shared; i < len(p); i++ {
			at := int32(len(t.nodes))
			if i == 0 {
				t.root[p[0]] = at
			}
			open = append(open, at)
			t.nodes = append(t.nodes, trieNode{token: -1, depth: uint16(i + 1), byte: p[i]})
		}
		t.depth = max(t.depth, len(p))
		switch n := &t.nodes[open[len(open)-1]]; {
		case n.token == -1:
			n.token = id
		case n.token >= 0:
			t.same = append(t.same, []int32{n.token, id})
			n.token = -int32(len(t.same)) - 1
		default:
			at := -n.token - 2
			t.same[at] = append(t.same[at], id)
		}
		last = p
	}
	for _, at := range open {
		t.nodes[at].skip = int32(len(t.nodes))
	}
	return t
}

// mark sets the tokens of node n.
func (t *trie) mark(mask []uint32, n *trieNode) {
	if n.token >= 0 {
		set(mask, n.token)
		return
	}
	for _, id := range t.same[-n.token-2] {
		set(mask, id)
	}
}
