package regex

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

var (
	digits   = []RuneRange{{'0', '9'}}
	word     = []RuneRange{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	space    = []RuneRange{{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}
	lineEnds = []RuneRange{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}
	// ecmaSpace is WhiteSpace and LineTerminator of ECMA-262.
	ecmaSpace = []RuneRange{{'\t', '\r'}, {' ', ' '}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a},
		{0x2028, 0x2029},
		{0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}}
)

// posix are RE2's classes of names in double brackets.
var posix = map[string][]RuneRange{
	"alnum": {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}, "alpha": {{'A', 'Z'}, {'a', 'z'}}, "ascii": {{0, 0x7f}},
	"blank": {{'\t', '\t'}, {' ', ' '}}, "cntrl": {{0, 0x1f}, {0x7f, 0x7f}}, "digit": digits, "graph": {{'!', '~'}},
	"lower": {{'a', 'z'}}, "print": {{' ', '~'}}, "punct": {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}},
	"space": {{'\t', '\r'}, {' ', ' '}}, "upper": {{'A', 'Z'}}, "word": word,
	"xdigit": {{'0', '9'}, {'A', 'F'}, {'a', 'f'}},
}

// escape reads what follows a backslash outside a class.
func (p *parser) escape() (*tree, error) {
	if len(p.text) == p.pos+1 {
		return nil, p.syntax("a backslash at the end")
	}
	switch c := p.text[p.pos+1]; {
	case c == 'b' || c == 'B':
		return nil, p.unsupported(`the word boundary \` + string(c))
	case '1' <= c && c <= '9' || c == 'k':
		return nil, p.unsupported(`a backreference`)
	case p.flavour == Whole && c == 'A':
		p.pos += 2
		return &tree{op: opBegin, asserts: true, begins: true}, nil
	case p.flavour == Whole && (c == 'z' || c == 'Z'):
		p.pos += 2
		return &tree{op: opEnd, asserts: true}, nil
	}
	rs, _, err := p.classEscape(false)
	if err != nil {
		return nil, err
	}
	return p.ranges(rs, false)
}

// classEscape reads an escape that stands for a code point (single) or a set of them. excluded says that the set is to
// be left out: see Parse on \s.
func (p *parser) classEscape(excluded bool) (rs []RuneRange, single bool, err error) {
	p.pos++ // the backslash
	if !p.more() {
		return nil, false, p.syntax("a backslash at the end")
	}
	white, notWhite := space, complement(ecmaSpace)
	switch p.flavour {
	case Whole:
		notWhite = complement(posix["space"])
	case ECMAExact:
		white = ecmaSpace
	}
	if excluded { // within [^…]: leave out more of \s, and less of \S
		white, notWhite = complement(notWhite), complement(white)
	}
	one := func(r rune) ([]RuneRange, bool, error) { return []RuneRange{{r, r}}, true, nil }
	switch c := p.rune(); c {
	case 'd':
		return digits, false, nil
	case 'D':
		return complement(digits), false, nil
	case 'w':
		return word, false, nil
	case 'W':
		return complement(word), false, nil
	case 's':
		return white, false, nil
	case 'S':
		return notWhite, false, nil
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
		if p.more() && '0' <= p.text[p.pos] && p.text[p.pos] <= '9' {
			return nil, false, p.unsupported("an octal escape")
		}
		return one(0)
	case 'a':
		if p.flavour == Whole {
			return one('\a')
		}
	case 'c':
		if p.flavour != Whole && p.more() && (p.text[p.pos]|0x20) >= 'a' && (p.text[p.pos]|0x20) <= 'z' {
			return one(p.rune() & 0x1f)
		}
	case 'p', 'P':
		rs, err := p.property()
		if c == 'P' {
			rs = complement(rs)
		}
		return rs, false, err
	case 'x', 'u', 'U':
		r, ok := p.codePoint(c)
		if !ok {
			return nil, false, p.syntax(`\%c without its hexadecimal digits`, c)
		}
		return one(r)
	default:
		if c >= 0x80 || !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", c) {
			return one(c)
		}
	}
	p.pos--
	return nil, false, p.unsupported(`the escape \` + string(p.text[p.pos]))
}

// codePoint reads the digits of \xHH, \uHHHH (with a second one for a surrogate pair), \UHHHHHHHH, \x{H…} and \u{H…}.
func (p *parser) codePoint(c rune) (rune, bool) {
	hex := func(n int) (rune, bool) {
		if n < 1 || n > 8 || p.pos+n > len(p.text) {
			return 0, false
		}
		v, err := strconv.ParseUint(p.text[p.pos:p.pos+n], 16, 32)
		if err != nil || v > 0x10ffff {
			return 0, false
		}
		p.pos += n
		return rune(v), true
	}
	if p.take("{") {
		r, ok := hex(strings.IndexByte(p.text[p.pos:], '}'))
		return r, ok && p.take("}")
	}
	digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[c]
	r, ok := hex(digits)
	if ok && c == 'u' && utf16.IsSurrogate(r) && p.has(`\u`) {
		at := p.pos
		p.pos += 2
		if low, ok := hex(4); ok {
			if both := utf16.DecodeRune(r, low); both != unicode.ReplacementChar {
				return both, true
			}
		}
		p.pos = at
	}
	return r, ok
}

// property reads the name of \p{…} or \pL: a general category, a script, or Script=, sc=, General_Category=, gc= one.
func (p *parser) property() ([]RuneRange, error) {
	name := ""
	if p.take("{") {
		end := strings.IndexByte(p.text[p.pos:], '}')
		if end < 0 {
			return nil, p.syntax(`\p{ without }`)
		}
		name = p.text[p.pos : p.pos+end]
		p.pos += end + 1
	} else if p.more() {
		name = string(p.rune())
	}
	negated := strings.HasPrefix(name, "^")
	name = strings.TrimPrefix(name, "^")
	if kind, value, ok := strings.Cut(name, "="); ok {
		switch kind {
		case "Script", "sc", "General_Category", "gc", "Script_Extensions", "scx":
			name = value
		default:
			name = ""
		}
	}
	var out []RuneRange
	table := unicode.Categories[name]
	if table == nil {
		table = unicode.Categories[longCategory[name]]
	}
	if table == nil {
		table = unicode.Scripts[name]
	}
	if table == nil {
		table = unicode.Properties[name]
	}
	switch {
	case name == "Any":
		out = []RuneRange{{0, 0x10ffff}}
	case name == "ASCII":
		out = []RuneRange{{0, 0x7f}}
	case name == "Alphabetic" || name == "Alpha":
		out = append(tableRanges(unicode.Letter), tableRanges(unicode.Other_Alphabetic)...)
		out = append(out, tableRanges(unicode.Nl)...)
	case table == nil:
		return nil, p.unsupported(`the property \p{` + name + `}`)
	default:
		out = tableRanges(table)
	}
	if negated {
		out = complement(out)
	}
	return out, nil
}

var longCategory = map[string]string{
	"Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
	"Modifier_Letter": "Lm",
	"Other_Letter":    "Lo", "Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me",
	"Number":         "N",
	"Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl", "Other_Number": "No", "Punctuation": "P",
	"punct":                 "P",
	"Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe",
	"Initial_Punctuation": "Pi",
	"Final_Punctuation":   "Pf", "Other_Punctuation": "Po", "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc",
	"Modifier_Symbol": "Sk",
	"Other_Symbol":    "So", "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl",
	"Paragraph_Separator": "Zp", "Other": "C",
	"Control": "Cc", "cntrl": "Cc", "Format": "Cf", "Surrogate": "Cs", "Private_Use": "Co",
}

func tableRanges(t *unicode.RangeTable) []RuneRange {
	var out []RuneRange
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, RuneRange{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, RuneRange{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return out
}

// class reads […] after its bracket.
func (p *parser) class() (*tree, error) {
	negated := p.take("^")
	var rs []RuneRange
	for first := true; ; first = false {
		if !p.more() {
			return nil, p.syntax("a class without ]")
		}
		if p.has("]") && !(first && p.flavour == Whole) {
			p.pos++
			return p.ranges(rs, negated)
		}
		if p.flavour == Whole && p.has("[:") {
			if name, rest, found := strings.Cut(p.text[p.pos+2:], ":]"); found {
				p.pos = len(p.text) - len(rest)
				name, not := strings.CutPrefix(name, "^")
				set, ok := posix[name]
				if !ok {
					return nil, p.unsupported("the class [:" + name + ":]")
				}
				if not {
					set = complement(set)
				}
				rs = append(rs, set...)
				continue
			}
		}
		lo, single, err := p.classAtom(negated)
		if err != nil {
			return nil, err
		}
		if !single || !p.has("-") || p.has("-]") || p.pos+1 == len(p.text) {
			rs = append(rs, lo...)
			continue
		}
		p.pos++
		hi, single, err := p.classAtom(negated)
		if err != nil {
			return nil, err
		}
		if !single { // [a-\d]: three members
			rs = append(append(append(rs, lo...), RuneRange{'-', '-'}), hi...)
			continue
		}
		if hi[0].Lo < lo[0].Lo {
			return nil, p.syntax("a range out of order")
		}
		rs = append(rs, RuneRange{lo[0].Lo, hi[0].Lo})
	}
}

func (p *parser) classAtom(negated bool) ([]RuneRange, bool, error) {
	if p.has(`\b`) {
		p.pos += 2
		return []RuneRange{{'\b', '\b'}}, true, nil
	}
	if p.has(`\`) {
		return p.classEscape(negated)
	}
	r := p.rune()
	return []RuneRange{{r, r}}, true, nil
}
