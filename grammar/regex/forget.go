package regex

import "maps"

// Mark is a moment in the life of a Set.
type Mark struct {
	nodes, args, sets, mults int
	searched                 int
}

// Mark returns the Set as it is now, for Forget. There must be no error.
func (s *Set) Mark() Mark {
	return Mark{len(s.nodes), len(s.args), len(s.sets), len(s.mults), s.searched}
}

// Forget drops every expression that was made since m, and with them the error of a limit that was exceeded.
// Expressions of before stay as they are; later ones must not be used any more.
func (s *Set) Forget(m Mark) {
	for _, n := range s.nodes[m.nodes:] {
		delete(s.index, nodeKey{n.kind, n.a, n.b, n.x, n.y})
	}
	maps.DeleteFunc(s.byArgs, func(_ string, at [2]int32) bool { return int(at[0]) >= m.args })
	maps.DeleteFunc(s.bySet, func(_ ByteSet, i int32) bool { return int(i) >= m.sets })
	maps.DeleteFunc(s.byMult, func(_ multiple, i int32) bool { return int(i) >= m.mults })
	maps.DeleteFunc(s.runes, func(e Expr, _ bool) bool { return int(e) >= m.nodes })
	s.nodes, s.args, s.sets, s.mults = s.nodes[:m.nodes], s.args[:m.args], s.sets[:m.sets], s.mults[:m.mults]
	// What was worked out of the expressions that stay may name others, or rest on an error.
	clear(s.rows)
	s.rows, s.cells = s.rows[:min(len(s.rows), m.nodes)], 0
	clear(s.absorbs)
	clear(s.covered)
	clear(s.saturated)
	clear(s.spans)
	if int(s.anyRune) >= m.nodes {
		s.anyRune = 0
	}
	if int(s.anyText) >= m.nodes {
		s.anyText = 0
	}
	s.searched, s.err = m.searched, nil
}
