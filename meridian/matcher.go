package meridian

import "slices"

// matcher finds markers in a stream of bytes with one table look-up per byte: the automaton of Aho and Corasick
// ("Efficient string matching", CACM 18, 1975). Its state is the longest suffix of the stream that begins a marker; the
// state's depth is the number of bytes to hold back. It is built once per model and shared by all requests.
type matcher struct {
	next [][256]uint16
	node []matchNode
}

type matchNode struct {
	depth int // bytes from the root, to be held back in this state
	match int // length of the longest marker that ends here, 0 = none
	kind  markKind
	// longer: a marker that ends here begins a longer one, for which the matcher waits (longest).
	longer bool
}

// markKind is the meaning of a marker.
type markKind uint8

const (
	markOpen    markKind = iota // begins a thought
	markClose                   // ends a thought
	markAside                   // begins a thought within the answer
	markHidden                  // never shown
	markWrap                    // hidden where the answer begins
	markUnwrap                  // hidden where the answer ends
	markHeader                  // begins a message's header
	markMessage                 // ends a message's header
	markEnd                     // ends a message
)

// mark is a marker in the form that Tags.read feeds to the matchers.
type mark struct {
	text string
	kind markKind
}

// newMatcher builds the automaton, or returns nil for no marks. Of two marks with the same text the later counts.
func newMatcher(marks ...mark) *matcher {
	if len(marks) == 0 {
		return nil
	}
	m := &matcher{next: make([][256]uint16, 1), node: make([]matchNode, 1)}
	for _, k := range marks {
		s := uint16(0)
		for i := range len(k.text) {
			b := k.text[i]
			if m.next[s][b] == 0 {
				m.next[s][b] = uint16(len(m.node))
				m.next = append(m.next, [256]uint16{})
				m.node = append(m.node, matchNode{depth: i + 1})
			}
			s = m.next[s][b]
		}
		m.node[s].match, m.node[s].kind = len(k.text), k.kind
	}
	// Breadth first: a missing edge leads where the longest proper suffix leads. fail[s] is that suffix's state.
	fail := make([]uint16, len(m.node))
	queue := make([]uint16, 0, len(m.node))
	for b := range 256 {
		if s := m.next[0][b]; s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if n, f := &m.node[s], m.node[fail[s]]; n.match == 0 {
			n.match, n.kind = f.match, f.kind
		}
		for b := range 256 {
			t, f := m.next[s][b], m.next[fail[s]][b]
			if t == 0 {
				m.next[s][b] = f
				continue
			}
			fail[t] = f
			queue = append(queue, t)
		}
	}
	return m
}

// longest makes m wait for the rest of a longer marker behind a marker with which it begins.
func (m *matcher) longest() *matcher {
	if m == nil {
		return nil
	}
	for s := range m.node {
		n := &m.node[s]
		n.longer = n.match == n.depth && slices.ContainsFunc(m.next[s][:],
			func(t uint16) bool { return m.node[t].depth == n.depth+1 })
	}
	m.node[0].longer = false
	return m
}

// skips reports whether text, read from the root, neither holds a marker nor begins one anywhere.
func (m *matcher) skips(text []byte) bool {
	root := &m.next[0]
	for _, b := range text {
		if root[b] != 0 {
			return false
		}
	}
	return true
}
