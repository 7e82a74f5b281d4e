package meridian

// matcher finds the markers in a stream of bytes, one table look-up a byte: the automaton of Aho and Corasick
// ("Efficient string matching", CACM 18, 1975). Its state is the longest end of the stream that begins a marker, so
// its depth is exactly how many bytes must be held back. Built once per model, shared by all requests.
type matcher struct {
	next [][256]uint16
	node []matchNode
}

type matchNode struct {
	depth int // bytes from the root: what must be held back in this state
	match int // length of the longest marker that ends here, 0 = none
	kind  markKind
}

// markKind is what a marker means.
type markKind uint8

const (
	markOpen    markKind = iota // a thought begins
	markClose                   // it ends
	markHidden                  // never shown
	markWrap                    // hidden where the answer begins
	markUnwrap                  // hidden where the answer ends
	markHeader                  // a message's header begins
	markMessage                 // it ends
	markEnd                     // a message ends
)

// mark is a marker as the bytes that a Tags feeds to its matchers.
type mark struct {
	text string
	kind markKind
}

// newMatcher builds the automaton; nil when there is nothing to look for. Of two marks with one text the later counts.
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
	// Breadth first: a missing edge goes where the longest proper suffix would go. fail[s] is that suffix's state.
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
