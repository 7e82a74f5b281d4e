package jsonschema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// patternOp is the kind of a node of a parsed ECMA-262 regular expression.
type patternOp uint8

const (
	patEmpty   patternOp = iota // the empty string
	patClass                    // one code point of ranges
	patSeq                      // args, one after the other
	patAlt                      // one of args
	patRepeat                   // args[0], min to max times; max < 0 is unbounded
	patBegin                    // ^
	patEnd                      // $
	patLook                     // (?=…): args[0] matches a prefix of what follows
	patNotLook                  // (?!…)
	patWordB                    // \b
	patNotWordB                 // \B
)

// pattern is a node of a parsed regular expression. Code points, not UTF-16 units, are its characters: JSON schema
// recommends the u flag (draft 2020-12, section 6.4).
type pattern struct {
	op       patternOp
	args     []*pattern
	ranges   []runeRange
	min, max int
	anchored bool // a node below asserts something about its surroundings
}

// runeRange is an inclusive range of code points.
type runeRange struct{ lo, hi rune }

// maxPatternDepth bounds the nesting of groups in a pattern, maxPatternCount the counts in {m,n}.
const (
	maxPatternDepth = 64
	maxPatternCount = 100_000
)

// parsePattern parses the ECMA-262 regular expression s. Back references, look-behind and flags are refused: they are
// outside what a finite automaton decides, or outside the standard's recommended subset.
func parsePattern(s string) (*pattern, error) {
	if !utf8.ValidString(s) {
		return nil, errors.New("the pattern is not UTF-8")
	}
	p := patternParser{src: []rune(s)}
	n, err := p.alternatives(0)
	if err != nil {
		return nil, err
	}
	if p.pos < len(p.src) {
		return nil, fmt.Errorf("unexpected %q at %d", p.src[p.pos], p.pos)
	}
	return n, nil
}

type patternParser struct {
	src []rune
	pos int
}

func (p *patternParser) more() bool { return p.pos < len(p.src) }

func (p *patternParser) peek() rune {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return -1
}

func (p *patternParser) eat(s string) bool {
	r := []rune(s)
	if len(p.src)-p.pos < len(r) || !slices.Equal(p.src[p.pos:p.pos+len(r)], r) {
		return false
	}
	p.pos += len(r)
	return true
}

func (p *patternParser) alternatives(depth int) (*pattern, error) {
	if depth > maxPatternDepth {
		return nil, fmt.Errorf("groups are nested deeper than %d", maxPatternDepth)
	}
	var alts []*pattern
	for {
		n, err := p.sequence(depth)
		if err != nil {
			return nil, err
		}
		alts = append(alts, n)
		if !p.eat("|") {
			break
		}
	}
	return newPattern(patAlt, alts), nil
}

// newPattern is a node above args; sequences and alternatives of one are that one.
func newPattern(op patternOp, args []*pattern) *pattern {
	if (op == patAlt || op == patSeq) && len(args) == 1 {
		return args[0]
	}
	n := &pattern{op: op, args: args}
	for _, a := range args {
		n.anchored = n.anchored || a.anchored
	}
	switch op {
	case patBegin, patEnd, patLook, patNotLook, patWordB, patNotWordB:
		n.anchored = true
	}
	return n
}

func (p *patternParser) sequence(depth int) (*pattern, error) {
	var seq []*pattern
	for p.more() && p.peek() != '|' && p.peek() != ')' {
		n, err := p.term(depth)
		if err != nil {
			return nil, err
		}
		if n, err = p.quantified(n); err != nil {
			return nil, err
		}
		seq = append(seq, n)
	}
	if len(seq) == 0 {
		return &pattern{op: patEmpty}, nil
	}
	return newPattern(patSeq, seq), nil
}

// quantified reads the quantifiers after n. Lazy and greedy ones match the same strings.
func (p *patternParser) quantified(n *pattern) (*pattern, error) {
	min, max := 1, 1
	at := p.pos
	switch {
	case p.eat("*"):
		min, max = 0, -1
	case p.eat("+"):
		min, max = 1, -1
	case p.eat("?"):
		min, max = 0, 1
	case p.peek() == '{':
		var ok bool
		var err error
		if min, max, ok, err = p.counts(); err != nil {
			return nil, err
		} else if !ok {
			return n, nil // Annex B: a brace that opens no quantifier is a character
		}
	default:
		return n, nil
	}
	p.eat("?")
	if c := p.peek(); c == '*' || c == '+' || c == '?' {
		return nil, fmt.Errorf("nothing to repeat at %d", p.pos)
	}
	switch n.op {
	case patBegin, patEnd, patWordB, patNotWordB:
		return nil, fmt.Errorf("nothing to repeat at %d", at)
	}
	r := newPattern(patRepeat, []*pattern{n})
	r.min, r.max = min, max
	return r, nil
}

// counts reads {m}, {m,} or {m,n}; ok is false, and nothing is read, when the brace begins none.
func (p *patternParser) counts() (min, max int, ok bool, err error) {
	at := p.pos
	number := func() (int, bool) {
		from := p.pos
		for p.more() && p.peek() >= '0' && p.peek() <= '9' {
			p.pos++
		}
		n, err := strconv.Atoi(string(p.src[from:p.pos]))
		if err != nil && p.pos > from {
			n = maxPatternCount + 1
		}
		return n, p.pos > from
	}
	p.pos++
	min, has := number()
	if !has {
		p.pos = at
		return 0, 0, false, nil
	}
	max = min
	if p.eat(",") {
		if max, has = number(); !has {
			max = -1
		}
	}
	if !p.eat("}") {
		p.pos = at
		return 0, 0, false, nil
	}
	if min > maxPatternCount || max > maxPatternCount {
		return 0, 0, false, fmt.Errorf("a count is above %d at %d", maxPatternCount, at)
	}
	if max >= 0 && max < min {
		return 0, 0, false, fmt.Errorf("counts are out of order at %d", at)
	}
	return min, max, true, nil
}

func (p *patternParser) term(depth int) (*pattern, error) {
	at := p.pos
	c := p.src[p.pos]
	p.pos++
	switch c {
	case '^':
		return newPattern(patBegin, nil), nil
	case '$':
		return newPattern(patEnd, nil), nil
	case '(':
		return p.group(depth, at)
	case '.':
		return classOf(negate([]runeRange{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})), nil
	case '[':
		return p.class()
	case '\\':
		return p.escape()
	case '*', '+', '?':
		return nil, fmt.Errorf("nothing to repeat at %d", at)
	case '{':
		p.pos = at
		if _, _, ok, err := p.counts(); ok || err != nil {
			return nil, fmt.Errorf("nothing to repeat at %d", at)
		}
		p.pos = at + 1
	}
	return classOf([]runeRange{{c, c}}), nil
}

func (p *patternParser) group(depth, at int) (*pattern, error) {
	op := patSeq
	switch {
	case p.eat("?:"):
	case p.eat("?="):
		op = patLook
	case p.eat("?!"):
		op = patNotLook
	case p.eat("?<=") || p.eat("?<!"):
		return nil, fmt.Errorf("look-behind at %d is not supported", at)
	case p.eat("?<") || p.eat("?P<"):
		for p.more() && p.peek() != '>' {
			p.pos++
		}
		if !p.eat(">") {
			return nil, fmt.Errorf("the name of the group at %d does not end", at)
		}
	case p.eat("?"):
		return nil, fmt.Errorf("the group at %d is not supported", at)
	}
	n, err := p.alternatives(depth + 1)
	if err != nil {
		return nil, err
	}
	if !p.eat(")") {
		return nil, fmt.Errorf("the group at %d does not end", at)
	}
	return newPattern(op, []*pattern{n}), nil
}

func classOf(ranges []runeRange) *pattern { return &pattern{op: patClass, ranges: ranges} }

var (
	digitRanges = []runeRange{{'0', '9'}}
	wordRanges  = []runeRange{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	// spaceRanges are WhiteSpace and LineTerminator of ECMA-262.
	spaceRanges = []runeRange{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A},
		{0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}}
)

func (p *patternParser) escape() (*pattern, error) {
	at := p.pos - 1
	if !p.more() {
		return nil, errors.New("the pattern ends with a backslash")
	}
	switch c := p.peek(); {
	case c == 'b':
		p.pos++
		return newPattern(patWordB, nil), nil
	case c == 'B':
		p.pos++
		return newPattern(patNotWordB, nil), nil
	case c >= '1' && c <= '9':
		return nil, fmt.Errorf("the back reference at %d is not supported", at)
	case c == 'k':
		return nil, fmt.Errorf("the back reference at %d is not supported", at)
	}
	ranges, err := p.classEscape()
	if err != nil {
		return nil, err
	}
	return classOf(ranges), nil
}

// classEscape reads what follows a backslash, inside or outside a class, as a set of code points.
func (p *patternParser) classEscape() ([]runeRange, error) {
	at := p.pos - 1
	c := p.src[p.pos]
	p.pos++
	one := func(r rune) ([]runeRange, error) { return []runeRange{{r, r}}, nil }
	switch c {
	case 'd':
		return digitRanges, nil
	case 'D':
		return negate(digitRanges), nil
	case 'w':
		return wordRanges, nil
	case 'W':
		return negate(wordRanges), nil
	case 's':
		return spaceRanges, nil
	case 'S':
		return negate(spaceRanges), nil
	case 't':
		return one('\t')
	case 'n':
		return one('\n')
	case 'v':
		return one('\v')
	case 'f':
		return one('\f')
	case 'r':
		return one('\r')
	case '0':
		if d := p.peek(); d >= '0' && d <= '9' {
			return nil, fmt.Errorf("the octal escape at %d is not supported", at)
		}
		return one(0)
	case 'c':
		if l := p.peek(); l >= 'a' && l <= 'z' || l >= 'A' && l <= 'Z' {
			p.pos++
			return one(l % 32)
		}
		return nil, fmt.Errorf("the escape at %d is not valid", at)
	case 'x':
		r, ok := p.hex(2)
		if !ok {
			return nil, fmt.Errorf("the escape at %d is not valid", at)
		}
		return one(r)
	case 'u':
		r, ok := p.unicodeEscape()
		if !ok {
			return nil, fmt.Errorf("the escape at %d is not valid", at)
		}
		return one(r)
	case 'p', 'P':
		ranges, err := p.property(at)
		if err == nil && c == 'P' {
			ranges = negate(ranges)
		}
		return ranges, err
	}
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
		return nil, fmt.Errorf("the escape \\%c at %d is not known", c, at)
	}
	return one(c)
}

func (p *patternParser) hex(digits int) (rune, bool) {
	if len(p.src)-p.pos < digits {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.src[p.pos:p.pos+digits]), 16, 32)
	if err != nil {
		return 0, false
	}
	p.pos += digits
	return rune(n), true
}

func (p *patternParser) unicodeEscape() (rune, bool) {
	if p.eat("{") {
		from := p.pos
		for p.more() && p.peek() != '}' {
			p.pos++
		}
		n, err := strconv.ParseUint(string(p.src[from:p.pos]), 16, 32)
		if err != nil || n > unicode.MaxRune || !p.eat("}") {
			return 0, false
		}
		return rune(n), true
	}
	r, ok := p.hex(4)
	if ok && r >= 0xD800 && r < 0xDC00 && p.eat(`\u`) {
		low, ok := p.hex(4)
		if !ok || low < 0xDC00 || low > 0xDFFF {
			return 0, false
		}
		return 0x10000 + (r-0xD800)<<10 + (low - 0xDC00), true
	}
	return r, ok
}

// property reads {Name} or {Name=Value} after \p.
func (p *patternParser) property(at int) ([]runeRange, error) {
	from := p.pos + 1
	if !p.eat("{") {
		return nil, fmt.Errorf("the escape at %d is not valid", at)
	}
	for p.more() && p.peek() != '}' {
		p.pos++
	}
	name := string(p.src[from:p.pos])
	if !p.eat("}") {
		return nil, fmt.Errorf("the escape at %d is not valid", at)
	}
	t := unicodeTable(name)
	if t == nil {
		return nil, fmt.Errorf("the Unicode property %q at %d is not known", name, at)
	}
	var out []runeRange
	for _, r := range t.R16 {
		out = appendStride(out, rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		out = appendStride(out, rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return normal(out), nil
}

func appendStride(out []runeRange, lo, hi, stride rune) []runeRange {
	if stride == 1 {
		return append(out, runeRange{lo, hi})
	}
	for r := lo; r <= hi; r += stride {
		out = append(out, runeRange{r, r})
	}
	return out
}

// longCategories are names of general categories that ECMA-262 knows beside the short ones that package unicode has.
var longCategories = map[string]string{
	"Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm",
	"Other_Letter": "Lo", "Mark": "M", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl",
	"Other_Number": "No", "Punctuation": "P", "punct": "P", "Symbol": "S", "Separator": "Z", "Space_Separator": "Zs",
	"Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Control": "Cc", "cntrl": "Cc",
}

func unicodeTable(name string) *unicode.RangeTable {
	for _, prefix := range []string{"General_Category=", "gc=", "Script=", "sc=", "Script_Extensions=", "scx="} {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			name = name[len(prefix):]
		}
	}
	if short, ok := longCategories[name]; ok {
		name = short
	}
	if t := unicode.Categories[name]; t != nil {
		return t
	}
	if t := unicode.Scripts[name]; t != nil {
		return t
	}
	return unicode.Properties[name]
}

// class reads a character class after its opening bracket.
func (p *patternParser) class() (*pattern, error) {
	at := p.pos - 1
	not := p.eat("^")
	var out []runeRange
	for {
		if !p.more() {
			return nil, fmt.Errorf("the class at %d does not end", at)
		}
		if p.eat("]") {
			break
		}
		lo, err := p.classAtom()
		if err != nil {
			return nil, err
		}
		if p.peek() == '-' && p.pos+1 < len(p.src) && p.src[p.pos+1] != ']' {
			p.pos++
			hi, err := p.classAtom()
			if err != nil {
				return nil, err
			}
			if !single(lo) || !single(hi) { // Annex B: [\w-.] is a union with the dash
				out = append(append(append(out, lo...), hi...), runeRange{'-', '-'})
				continue
			}
			if lo[0].lo > hi[0].lo {
				return nil, fmt.Errorf("a range of the class at %d is out of order", at)
			}
			out = append(out, runeRange{lo[0].lo, hi[0].lo})
			continue
		}
		out = append(out, lo...)
	}
	out = normal(out)
	if not {
		out = negate(out)
	}
	return classOf(out), nil
}

func single(r []runeRange) bool { return len(r) == 1 && r[0].lo == r[0].hi }

func (p *patternParser) classAtom() ([]runeRange, error) {
	if !p.more() {
		return nil, errors.New("a class does not end")
	}
	c := p.src[p.pos]
	p.pos++
	if c != '\\' {
		return []runeRange{{c, c}}, nil
	}
	if !p.more() {
		return nil, errors.New("the pattern ends with a backslash")
	}
	switch {
	case p.eat("b"):
		return []runeRange{{'\b', '\b'}}, nil
	case p.eat("-"):
		return []runeRange{{'-', '-'}}, nil
	}
	return p.classEscape()
}

// normal sorts ranges and joins those that touch.
func normal(in []runeRange) []runeRange {
	in = slices.Clone(in)
	slices.SortFunc(in, func(a, b runeRange) int { return int(a.lo) - int(b.lo) })
	out := in[:0]
	for _, r := range in {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// negate is every code point outside in, which is normal.
func negate(in []runeRange) []runeRange {
	var out []runeRange
	next := rune(0)
	for _, r := range in {
		if r.lo > next {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeRange{next, unicode.MaxRune})
	}
	return out
}
