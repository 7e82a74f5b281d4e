package regex

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// op is the operator of a syntax tree.
type op uint8

const (
	opEmpty op = iota
	opClass    // one code point of ranges
	opCat
	opAlt
	opRepeat
	opBegin // ^
	opEnd   // $
	opLook  // (?=…), or (?!…) when negated
)

type tree struct {
	op       op
	kids     []*tree
	ranges   []RuneRange
	min, max int
	negated  bool
	// asserts says that an opBegin, opEnd or opLook is in it; begins an opBegin.
	asserts, begins bool
}

type parser struct {
	set     *Set
	flavour Flavour
	text    string
	pos     int
	depth   int
	fold    bool // (?i)
	dotAll  bool // (?s)
	folded  int  // code points that case folding looked at
}

// maxFolded bounds the work of case folding in one pattern, in code points.
const maxFolded = 4 << 20

// Parse returns the expression of pattern. Errors wrap ErrSyntax, ErrUnsupported (naming the construct) or ErrLimit.
//
// Where ECMA-262 and RE2 read a class differently, the expression of ECMA has what both agree on, so that any validator
// accepts what is generated: \s is tab, line feed, form feed, carriage return and space, while \S and [^\s] leave out
// all of ECMA-262's white space; the dot leaves out all of its line ends.
func (s *Set) Parse(pattern string, f Flavour) (Expr, error) {
	if len(pattern) > s.limits.PatternBytes {
		return 0, fmt.Errorf("regex: the pattern has %d bytes, more than %d (Limits.PatternBytes): %w", len(pattern),
			s.limits.PatternBytes, ErrLimit)
	}
	if !utf8.ValidString(pattern) {
		return 0, fmt.Errorf("regex: the pattern is not UTF-8: %w", ErrSyntax)
	}
	p := &parser{set: s, flavour: f, text: pattern}
	t, err := p.alternatives()
	if err == nil && p.pos < len(p.text) {
		err = p.syntax("unmatched )")
	}
	if err != nil {
		return 0, err
	}
	c := compiler{set: s, budget: s.limits.Expressions}
	var e Expr
	if f == Whole {
		e = c.compile(t, s.Empty(), true)
	} else {
		e = c.compile(t, s.AnyText(), true)
		if !t.begins {
			e = s.Concat(s.AnyText(), e)
		} else if later := c.compile(t, s.AnyText(), false); later != 0 {
			e = s.Or(e, s.Concat(s.AnyRune(), s.AnyText(), later))
		}
	}
	if c.err != nil {
		return 0, c.err
	}
	return e, s.err
}

func (p *parser) syntax(format string, a ...any) error {
	return fmt.Errorf("regex: %s at byte %d of %s: %w", fmt.Sprintf(format, a...), p.pos, quoted(p.text), ErrSyntax)
}

func (p *parser) unsupported(what string) error {
	return fmt.Errorf("regex: %s at byte %d of %s: %w", what, p.pos, quoted(p.text), ErrUnsupported)
}

// quoted is text for an error, cut to what a line holds.
func quoted(text string) string {
	if len(text) > 80 {
		text = text[:77] + "..."
	}
	return strconv.Quote(text)
}

func (p *parser) more() bool { return p.pos < len(p.text) }

func (p *parser) has(prefix string) bool {
	return len(p.text)-p.pos >= len(prefix) && p.text[p.pos:p.pos+len(prefix)] == prefix
}

func (p *parser) take(prefix string) bool {
	if p.has(prefix) {
		p.pos += len(prefix)
		return true
	}
	return false
}

func (p *parser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.text[p.pos:])
	p.pos += n
	return r
}

func join(o op, kids []*tree) *tree {
	if len(kids) == 1 {
		return kids[0]
	}
	t := &tree{op: o, kids: kids}
	for _, k := range kids {
		t.asserts, t.begins = t.asserts || k.asserts, t.begins || k.begins
	}
	return t
}

func (p *parser) alternatives() (*tree, error) {
	if p.depth++; p.depth > p.set.limits.Depth {
		return nil, fmt.Errorf("regex: groups nested deeper than %d (Limits.Depth): %w", p.set.limits.Depth, ErrLimit)
	}
	defer func() { p.depth-- }()
	fold, dotAll := p.fold, p.dotAll // flags hold to the end of their group
	defer func() { p.fold, p.dotAll = fold, dotAll }()
	var alts []*tree
	for {
		var seq []*tree
		for p.more() && !p.has("|") && !p.has(")") {
			t, err := p.term()
			if err != nil {
				return nil, err
			}
			if t != nil {
				seq = append(seq, t)
			}
		}
		if len(seq) == 0 {
			alts = append(alts, &tree{op: opEmpty})
		} else {
			alts = append(alts, join(opCat, seq))
		}
		if !p.take("|") {
			return join(opAlt, alts), nil
		}
	}
}

// term reads an atom and its quantifiers; nil for what has no effect.
func (p *parser) term() (*tree, error) {
	t, err := p.atom()
	if err != nil {
		return nil, err
	}
	for p.more() {
		min, max := 0, Unbounded
		switch {
		case p.take("*"):
		case p.take("+"):
			min = 1
		case p.take("?"):
			max = 1
		case p.has("{"):
			lo, hi, ok, err := p.count()
			if err != nil {
				return nil, err
			}
			if !ok {
				return t, nil
			}
			min, max = lo, hi
		default:
			return t, nil
		}
		if t == nil || t.op == opBegin || t.op == opEnd {
			return nil, p.syntax("a quantifier with nothing to repeat")
		}
		if !p.take("?") && p.has("+") { // a lazy one has the same language
			return nil, p.unsupported("a possessive quantifier")
		}
		t = &tree{op: opRepeat, kids: []*tree{t}, min: min, max: max, asserts: t.asserts, begins: t.begins}
	}
	return t, nil
}

// count reads {m}, {m,} or {m,n}. Any other text in braces is literal, as browsers and RE2 read it.
func (p *parser) count() (min, max int, ok bool, err error) {
	i := p.pos + 1
	number := func() (int, bool) {
		from := i
		for i < len(p.text) && '0' <= p.text[i] && p.text[i] <= '9' {
			i++
		}
		n, err := strconv.Atoi(p.text[from:i])
		if err != nil && i > from {
			n = 1 << 40 // Repeat refuses it by name
		}
		return n, i > from
	}
	if min, ok = number(); !ok {
		return 0, 0, false, nil
	}
	max = min
	if i < len(p.text) && p.text[i] == ',' {
		i++
		if max, ok = number(); !ok {
			max = Unbounded
		}
	}
	if i >= len(p.text) || p.text[i] != '}' {
		return 0, 0, false, nil
	}
	if max >= 0 && max < min {
		return 0, 0, false, p.syntax("a repetition {%d,%d} of fewer than its least", min, max)
	}
	p.pos = i + 1
	return min, max, true, nil
}

func (p *parser) atom() (*tree, error) {
	switch c := p.text[p.pos]; c {
	case '^':
		p.pos++
		return &tree{op: opBegin, asserts: true, begins: true}, nil
	case '$':
		p.pos++
		return &tree{op: opEnd, asserts: true}, nil
	case '(':
		p.pos++
		return p.group()
	case '[':
		p.pos++
		return p.class()
	case '.':
		p.pos++
		switch {
		case p.dotAll:
			return &tree{op: opClass, ranges: []RuneRange{{0, 0x10ffff}}}, nil
		case p.flavour != Whole:
			return &tree{op: opClass, ranges: complement(lineEnds)}, nil
		}
		return &tree{op: opClass, ranges: complement([]RuneRange{{'\n', '\n'}})}, nil
	case '*', '+', '?':
		return nil, p.syntax("a quantifier with nothing to repeat")
	case '{':
		if _, _, ok, _ := p.count(); ok {
			return nil, p.syntax("a quantifier with nothing to repeat")
		}
	case '\\':
		return p.escape()
	}
	return p.one(p.rune())
}

// one returns the tree of a single code point.
func (p *parser) one(r rune) (*tree, error) {
	return p.ranges([]RuneRange{{r, r}}, false)
}

// ranges returns the tree of a class, folded when (?i) holds.
func (p *parser) ranges(rs []RuneRange, negated bool) (*tree, error) {
	if p.fold {
		var err error
		if rs, err = p.foldCase(rs); err != nil {
			return nil, err
		}
	}
	if negated {
		rs = complement(rs)
	}
	return &tree{op: opClass, ranges: rs}, nil
}

func (p *parser) foldCase(rs []RuneRange) ([]RuneRange, error) {
	const last = 0x1e943 // the largest code point that has a case
	out := normalize(rs)
	for _, r := range normalize(rs) {
		for c := max(r.Lo, 'A'); c <= min(r.Hi, last); c++ {
			if p.folded++; p.folded > maxFolded {
				return nil, fmt.Errorf("regex: (?i) over more than %d code points: %w", maxFolded, ErrLimit)
			}
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				out = append(out, RuneRange{f, f})
			}
		}
	}
	return normalize(out), nil
}

func (p *parser) group() (*tree, error) {
	look, negated := false, false
	switch {
	case !p.take("?"):
	case p.take(":"):
	case p.take("="):
		look = true
	case p.take("!"):
		look, negated = true, true
	case p.has("<=") || p.has("<!"):
		return nil, p.unsupported("a lookbehind")
	case p.has(">"):
		return nil, p.unsupported("an atomic group")
	case p.take("P<") || p.take("<"):
		for p.more() && !p.has(">") {
			p.pos++
		}
		if !p.take(">") {
			return nil, p.syntax("a group's name without >")
		}
	case p.has("P=") || p.has("P>"):
		return nil, p.unsupported("a backreference")
	case p.has("#"):
		return nil, p.unsupported("a comment group")
	default:
		return p.flags()
	}
	t, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, p.syntax("a group without )")
	}
	if look {
		return &tree{op: opLook, kids: []*tree{t}, negated: negated, asserts: true, begins: t.begins}, nil
	}
	return t, nil
}

// flags reads (?is-is) and (?is-is:…).
func (p *parser) flags() (*tree, error) {
	fold, dotAll, on := p.fold, p.dotAll, true
	for p.more() {
		switch c := p.text[p.pos]; c {
		case '-':
			on = false
		case 'i':
			fold = on
		case 's':
			dotAll = on
		case 'u': // Python's default
		case ')':
			p.pos++
			p.fold, p.dotAll = fold, dotAll
			return nil, nil
		case ':':
			p.pos++
			before, beforeAll := p.fold, p.dotAll
			p.fold, p.dotAll = fold, dotAll
			t, err := p.alternatives()
			p.fold, p.dotAll = before, beforeAll
			if err == nil && !p.take(")") {
				err = p.syntax("a group without )")
			}
			return t, err
		default:
			return nil, p.unsupported(fmt.Sprintf("the flag or group (?%c", c))
		}
		p.pos++
	}
	return nil, p.syntax("a group without )")
}
