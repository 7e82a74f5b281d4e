package jinja

import (
	"html"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// method is what v.name(…) calls.
type method func(s *state, v any, a *callArgs) any

// mutators are Python's methods that change their object; the sandbox chat templates run in hides them.
var (
	listMutators = []string{"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}
	dictMutators = []string{"clear", "pop", "popitem", "setdefault", "update"}
)

// dictNames are the attributes of dicts: m.items is the method even where m has a key "items".
var dictNames = map[string]bool{}

func dunder(name string) bool { return strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") }

var (
	dictMethods, listMethods, tupleMethods, rangeMethods, viewMethods, intMethods, floatMethods, cyclerMethods map[string]method
	strMethods                                                                                                 map[string]func(s *state, t string, a *callArgs) any
)

// methodOf is the method of that name, or nil.
func methodOf(v any, name string) method {
	switch v := v.(type) {
	case string:
		if m := strMethods[name]; m != nil {
			return func(s *state, _ any, a *callArgs) any { return m(s, v, a) }
		}
	case markup:
		return markupMethod(v, name)
	case *Dict:
		return dictMethods[name]
	case []any:
		return listMethods[name]
	case Tuple, *group:
		return tupleMethods[name]
	case *rangeValue:
		return rangeMethods[name]
	case dictView:
		return viewMethods[name]
	case bool, int64, *big.Int:
		return intMethods[name]
	case float64:
		return floatMethods[name]
	case *cycler:
		return cyclerMethods[name]
	}
	return nil
}

// member is an attribute that is not an item: what Python's getattr finds. Those the sandbox hides are found too, as
// undefined values that say why.
func (s *state) member(of any, name string) (any, bool) {
	if m := methodOf(of, name); m != nil {
		s.charge(frameBytes)
		return &function{name, func(s *state, a *callArgs) any { return m(s, of, a) }}, true
	}
	hidden := func() (any, bool) {
		return Undefined{Name: name, reason: `"` + name + `" changes a ` + typeName(of) + ", which chat templates may not"}, true
	}
	switch v := of.(type) {
	case *loop:
		if x, ok := v.attr(name); ok {
			return x, true
		}
	case *macro:
		if x, ok := v.attr(name); ok {
			return x, true
		}
	case *namespace:
		if x, ok := v.vars.Get(name); ok {
			return x, true
		}
	case *group:
		switch name {
		case "grouper":
			return v.grouper, true
		case "list":
			return v.list, true
		}
	case *cycler:
		switch name {
		case "current":
			return v.items[v.at], true
		case "items":
			return v.items, true
		case "pos":
			return int64(v.at), true
		}
	case *rangeValue:
		switch name {
		case "start":
			return v.start, true
		case "stop":
			return v.stop, true
		case "step":
			return v.step, true
		}
	case bool, int64, *big.Int:
		switch name {
		case "real", "numerator":
			return s.sign(false, v), true
		case "imag":
			return int64(0), true
		case "denominator":
			return int64(1), true
		}
	case float64:
		switch name {
		case "real":
			return v, true
		case "imag":
			return 0.0, true
		}
	case self:
		if b := s.template.blocks[name]; b != nil && !b.scoped {
			return &function{name, func(s *state, _ *callArgs) any {
				s.enter()
				text := s.capture(func() { s.exec(s.frame(b.scope, s.root), b.body) })
				s.leave()
				return s.marked(text)
			}}, true
		}
	case *Dict:
		if slices.Contains(dictMutators, name) {
			return hidden()
		}
	case []any:
		if slices.Contains(listMutators, name) {
			return hidden()
		}
	}
	if dunder(name) {
		return Undefined{Name: name, reason: `"` + name + `" is not open to templates`}, true
	}
	return nil, false
}

// self is the variable of that name, whose attributes are the template's blocks.
type self struct{}

// escapedResult are the methods of strings that return markup when their object is markup.
var escapedResult = map[string]bool{}

func init() {
	for _, name := range strings.Fields(`capitalize title lower upper replace ljust rjust lstrip rstrip center strip translate
		expandtabs swapcase zfill casefold removeprefix removesuffix partition rpartition split rsplit splitlines join`) {
		escapedResult[name] = true
	}
}

// markupMethod is a method of markup: what is put into the text is escaped first, and the result is markup.
func markupMethod(v markup, name string) method {
	switch name {
	case "striptags":
		return func(s *state, _ any, _ *callArgs) any { return striptags(s, string(v)) }
	case "unescape":
		return func(s *state, _ any, _ *callArgs) any {
			s.charge(2 * len(v))
			s.scan(8 * len(v))
			return html.UnescapeString(string(v))
		}
	case "format", "format_map":
		return func(s *state, _ any, a *callArgs) any {
			if name == "format_map" {
				return markup(formatMap(s, string(v), a, true))
			}
			return markup(formatMethod(s, string(v), a, true))
		}
	}
	m := strMethods[name]
	if m == nil || !escapedResult[name] {
		if m == nil {
			return nil
		}
		return func(s *state, _ any, a *callArgs) any { return m(s, string(v), a) }
	}
	return func(s *state, _ any, a *callArgs) any {
		at := map[string]int{"replace": 1, "ljust": 1, "rjust": 1, "center": 1}
		if i := at[name]; i > 0 && i < len(a.list) {
			a = &callArgs{slices.Clone(a.list), a.names, a.values}
			a.list[i] = string(escape(s, a.list[i]))
		}
		if name == "join" && len(a.list) == 1 {
			list := items(s, a.list[0])
			s.charge(len(list) * itemBytes)
			all := make([]any, len(list))
			for i, x := range list {
				all[i] = string(escape(s, x))
			}
			a = &callArgs{list: []any{all}}
		}
		return marking(s, m(s, string(v), a))
	}
}

// marking makes markup of a string, or of the strings in a list or tuple.
func marking(s *state, v any) any {
	switch v := v.(type) {
	case string:
		return markup(v)
	case []any, Tuple:
		list, _ := sequence(v)
		s.charge(len(list) * itemBytes)
		for i := range list { // the method has just made it
			list[i] = marking(s, list[i])
		}
	}
	return v
}

// wants is the string among a function's arguments.
func wants(s *state, fn string, v any) string {
	t, ok := text(v)
	if !ok {
		s.fail("%s takes a string, not a %s", fn, typeName(v))
	}
	return t
}

// count is the integer among a function's arguments.
func count(s *state, fn string, v any) int64 {
	n, ok := integer(v)
	if _, big := v.(*big.Int); !ok || big {
		s.fail("%s takes an int, not a %s", fn, typeName(v))
	}
	return n
}

// recasing is a string method that changes the case of letters.
func recasing(name string, f func(string) string) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		a.positional(s, name, 0, 0)
		return s.recased(t, f)
	}
}

// predicate is a string method that says what kind of text it is.
func predicate(name string, f func(string) bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		a.positional(s, name, 0, 0)
		s.scan(64 * len(t))
		return f(t)
	}
}

// asciiDigits puts 0 to 9 for other scripts' digits.
func asciiDigits(t string) string {
	if isASCII(t) {
		return t
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) && r >= utf8.RuneSelf { // decimal digits come in tens
			zero := r
			for r-zero < 9 && unicode.IsDigit(zero-1) {
				zero--
			}
			return '0' + r - zero
		}
		return r
	}, t)
}

// span is the part of t between two optional character positions, and the position it begins at.
func span(s *state, fn, t string, start, stop any) (part string, from int, ok bool) {
	position := func(v any) *int64 {
		if v == unset || v == nil {
			return nil
		}
		n := count(s, fn, v)
		return &n
	}
	s.scan(2 * len(t))
	a, b := position(start), position(stop)
	if a == nil && b == nil {
		return t, 0, true
	}
	size := int64(utf8.RuneCountInString(t))
	if a != nil && *a > size {
		return "", 0, false
	}
	first, _, n := indices(size, a, b, nil)
	if b != nil && n == 0 { // an empty part, if it does not end before it begins
		end := *b
		if end < 0 {
			end = max(0, end+size)
		}
		if end < first {
			return "", 0, false
		}
	}
	at := offset(t, int(first))
	return t[at : at+offset(t[at:], int(n))], int(first), true
}

// finding makes find, rfind, index and rindex.
func finding(name string, search func(t, sub string) int, must bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		v := a.positional(s, name, 1, 3)
		sub := wants(s, name, v[0])
		part, from, ok := span(s, name, t, v[1], v[2])
		s.scan(2*len(part) + len(sub))
		if ok {
			if i := search(part, sub); i >= 0 {
				return int64(from + utf8.RuneCountInString(part[:i]))
			}
		}
		if must {
			s.fail("%s: the text is not in the string", name)
		}
		return int64(-1)
	}
}

// affix makes startswith and endswith, which also take a tuple of strings.
func affix(name string, has func(s, affix string) bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		v := a.positional(s, name, 1, 3)
		list, ok := v[0].(Tuple)
		if !ok {
			list = Tuple{v[0]}
		}
		part, ok := t, true
		if v[1] != unset {
			part, _, ok = span(s, name, t, v[1], v[2])
		}
		for _, x := range list {
			s.step()
			if sub := wants(s, name, x); ok && has(part, sub) {
				s.scan(len(sub))
				return true
			}
		}
		return false
	}
}

// strip makes strip, lstrip and rstrip: without an argument blanks go, with one the characters in it.
func strip(name string, left, right bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		v := a.positional(s, name, 0, 1)
		return stripped(s, name, t, v[0], left, right)
	}
}

func stripped(s *state, name, t string, chars any, left, right bool) string {
	cut := isSpace
	if chars != unset && chars != nil {
		set := wants(s, name, chars)
		cut = func(r rune) bool { return strings.ContainsRune(set, r) }
		if len(set) > 16 { // keep the cost linear
			s.charge(entryBytes * len(set))
			m := map[rune]bool{}
			for _, r := range set {
				m[r] = true
			}
			cut = func(r rune) bool { return m[r] }
		}
	}
	before := len(t)
	if left {
		t = strings.TrimLeftFunc(t, cut)
	}
	if right {
		t = strings.TrimRightFunc(t, cut)
	}
	s.scan(16 * (before - len(t)))
	return t
}

// every reports whether t is not empty and f holds for all its characters.
func every(f func(rune) bool) func(string) bool {
	return func(t string) bool {
		return t != "" && !strings.ContainsFunc(t, func(r rune) bool { return !f(r) })
	}
}

// justify makes ljust, rjust and center.
func justify(name string, pad func(width, n int) (left int)) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		v := a.positional(s, name, 1, 2)
		fill := " "
		if v[1] != unset {
			fill = wants(s, name, v[1])
		}
		if utf8.RuneCountInString(fill) != 1 {
			s.fail("%s fills with one character", name)
		}
		return justified(s, t, count(s, name, v[0]), fill, pad)
	}
}

func justified(s *state, t string, width int64, fill string, pad func(width, n int) int) string {
	s.scan(len(t))
	w := int(min(width, 1<<40))
	n := w - utf8.RuneCountInString(t)
	if n <= 0 {
		return t
	}
	s.chargeProduct(n, len(fill))
	s.charge(len(t))
	left := pad(w, n)
	return strings.Repeat(fill, left) + t + strings.Repeat(fill, n-left)
}

// centered puts the odd blank left when the width is odd, as Python does.
func centered(width, n int) int { return n/2 + n&width&1 }

func split(name string, fromRight bool) func(s *state, t string, a *callArgs) any {
	return func(s *state, t string, a *callArgs) any {
		v := a.bind(s, name, 0, "sep", "maxsplit")
		most := -1
		if v[1] != unset {
			most = int(max(-1, min(count(s, name, v[1]), int64(len(t)))))
		}
		var parts []string
		if v[0] == unset || v[0] == nil {
			s.scan(16 * len(t))
			parts = splitBlanks(s, t, most, fromRight)
		} else {
			sep := wants(s, name, v[0])
			if sep == "" {
				s.fail("%s: empty separator", name)
			}
			s.scan(2 * len(t))
			parts = splitAt(s, t, sep, most, fromRight)
		}
		list := make([]any, len(parts))
		for i, p := range parts {
			list[i] = p
		}
		return list
	}
}

func splitAt(s *state, t, sep string, most int, fromRight bool) (parts []string) {
	n := strings.Count(t, sep)
	if most >= 0 {
		n = min(n, most)
	}
	s.charge((n + 1) * 2 * itemBytes)
	if !fromRight {
		return strings.SplitN(t, sep, n+1)
	}
	for ; n > 0; n-- {
		i := strings.LastIndex(t, sep)
		if i < 0 { // "aaa" has one "aa" when counted from the left
			break
		}
		parts = append(parts, t[i+len(sep):])
		t = t[:i]
	}
	parts = append(parts, t)
	slices.Reverse(parts)
	return parts
}

// splitBlanks splits at runs of blanks, at most most times when that is not negative.
func splitBlanks(s *state, t string, most int, fromRight bool) (parts []string) {
	add := func(p string) {
		s.charge(2 * itemBytes)
		parts = append(parts, p)
	}
	if fromRight {
		for t = strings.TrimRightFunc(t, isSpace); t != ""; most-- {
			i := strings.LastIndexFunc(t, isSpace)
			if i < 0 || most == 0 {
				add(t)
				break
			}
			_, n := utf8.DecodeRuneInString(t[i:])
			add(t[i+n:])
			t = strings.TrimRightFunc(t[:i], isSpace)
		}
		slices.Reverse(parts)
		return parts
	}
	for t = strings.TrimLeftFunc(t, isSpace); t != ""; most-- {
		i := strings.IndexFunc(t, isSpace)
		if i < 0 || most == 0 {
			add(t)
			break
		}
		add(t[:i])
		t = strings.TrimLeftFunc(t[i:], isSpace)
	}
	return parts
}

// lineEnd is what ends a line for splitlines.
func lineEnd(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

func splitLines(s *state, t string, keep bool) (lines []string) {
	s.scan(16 * len(t))
	for t != "" {
		i := strings.IndexFunc(t, lineEnd)
		end, next := len(t), len(t)
		if i >= 0 {
			_, n := utf8.DecodeRuneInString(t[i:])
			end, next = i, i+n
			if strings.HasPrefix(t[i:], "\r\n") {
				next = i + 2
			}
		}
		if keep {
			end = next
		}
		s.charge(2 * itemBytes)
		lines = append(lines, t[:end])
		t = t[next:]
	}
	return lines
}

// replaced is str.replace; most is -1 for all.
func replaced(s *state, t, old, with string, most int64) string {
	s.scan(2 * len(t))
	n := strings.Count(t, old)
	if most >= 0 {
		n = int(min(int64(n), most))
	}
	if n == 0 {
		return t
	}
	s.chargeProduct(n, len(with))
	s.charge(len(t))
	return strings.Replace(t, old, with, n)
}

// joined is str.join of what are strings already, or of anything when every item is to be printed.
func joined(s *state, sep string, v any, anything bool) string {
	b := buffer{s: s}
	first := true
	each(s, v, func(x any) {
		if !first {
			b.put(sep)
		}
		first = false
		t, ok := text(x)
		if !ok {
			if !anything {
				s.fail("join takes strings, not a %s", typeName(x))
			}
			t = str(s, x)
		}
		b.put(t)
	})
	return b.String()
}

func formatMap(s *state, t string, a *callArgs, escaped bool) string {
	v := a.positional(s, "format_map", 1, 1)
	d, ok := v[0].(*Dict)
	if !ok {
		s.fail("format_map takes a dict, not a %s", typeName(v[0]))
	}
	f := &formatter{s: s, args: noArgs, lookup: d, escaped: escaped}
	return f.format(t, 2)
}

func expandTabs(s *state, t string, size int64) string {
	b := buffer{s: s}
	column := int64(0)
	for t != "" {
		i := strings.IndexAny(t, "\t\n\r")
		if i < 0 {
			break
		}
		b.put(t[:i])
		column += int64(utf8.RuneCountInString(t[:i]))
		if t[i] == '\t' {
			if size > 0 {
				n := size - column%size
				b.put(s.repeat(" ", int(min(n, 1<<40))))
				column += n
			}
		} else {
			b.put(t[i : i+1])
			column = 0
		}
		t = t[i+1:]
	}
	b.put(t)
	return b.String()
}

// translated is str.translate with a dict from characters' numbers to numbers, strings or None.
func translated(s *state, t string, table any) string {
	b := buffer{s: s}
	for _, r := range t {
		s.step()
		v := any(Undefined{})
		switch table := table.(type) {
		case *Dict:
			if i := table.find(int64(r)); i >= 0 {
				v = table.vals[i]
			}
		case string:
			if c, ok := s.character(table, int64(r)); ok {
				v = c
			}
		default:
			s.fail("translate takes a dict, not a %s", typeName(table))
		}
		switch v := v.(type) {
		case nil:
		case Undefined:
			b.put(string(r))
		case int64:
			b.put(character(s, v))
		default:
			b.put(wants(s, "translate", v))
		}
	}
	return b.String()
}

func init() { // filled here because format refers back to str and attr
	rightmost := func(t, sub string) int { return strings.LastIndex(t, sub) }
	partition := func(name string, cut func(t, sep string) int, whole func(t string) any) func(s *state, t string, a *callArgs) any {
		return func(s *state, t string, a *callArgs) any {
			v := a.positional(s, name, 1, 1)
			sep := wants(s, name, v[0])
			if sep == "" {
				s.fail("%s: empty separator", name)
			}
			s.scan(len(t))
			s.charge(3 * itemBytes)
			if i := cut(t, sep); i >= 0 {
				return Tuple{t[:i], sep, t[i+len(sep):]}
			}
			return whole(t)
		}
	}
	strMethods = map[string]func(s *state, t string, a *callArgs) any{
		"strip": strip("strip", true, true), "lstrip": strip("lstrip", true, false), "rstrip": strip("rstrip", false, true),
		"startswith": affix("startswith", strings.HasPrefix), "endswith": affix("endswith", strings.HasSuffix),
		"upper":        recasing("upper", upper),
		"lower":        recasing("lower", lower),
		"casefold":     recasing("casefold", casefold),
		"title":        recasing("title", title),
		"capitalize":   recasing("capitalize", capitalize),
		"swapcase":     recasing("swapcase", swapcase),
		"isdigit":      predicate("isdigit", every(isDigit)),
		"isnumeric":    predicate("isnumeric", every(isNumeric)),
		"isdecimal":    predicate("isdecimal", every(unicode.IsDigit)),
		"isalpha":      predicate("isalpha", every(unicode.IsLetter)),
		"isalnum":      predicate("isalnum", every(func(r rune) bool { return unicode.IsLetter(r) || isNumeric(r) })),
		"isspace":      predicate("isspace", every(isSpace)),
		"isascii":      predicate("isascii", isASCII),
		"isprintable":  predicate("isprintable", func(t string) bool { return t == "" || every(unicode.IsPrint)(t) }),
		"isupper":      predicate("isupper", func(t string) bool { return oneCase(t, isUpper, isLower) }),
		"islower":      predicate("islower", func(t string) bool { return oneCase(t, isLower, isUpper) }),
		"istitle":      predicate("istitle", isTitleText),
		"isidentifier": predicate("isidentifier", isIdentifier),
		"split":        split("split", false), "rsplit": split("rsplit", true),
		"splitlines": func(s *state, t string, a *callArgs) any {
			v := a.bind(s, "splitlines", 0, "keepends")
			lines := splitLines(s, t, v[0] != unset && truth(v[0]))
			list := make([]any, len(lines))
			for i, x := range lines {
				list[i] = x
			}
			return list
		},
		"replace": func(s *state, t string, a *callArgs) any {
			v := a.bind(s, "replace", 2, "old", "new", "count")
			most := int64(-1)
			if v[2] != unset {
				most = count(s, "replace", v[2])
			}
			return replaced(s, t, wants(s, "replace", v[0]), wants(s, "replace", v[1]), most)
		},
		"format":     func(s *state, t string, a *callArgs) any { return formatMethod(s, t, a, false) },
		"format_map": func(s *state, t string, a *callArgs) any { return formatMap(s, t, a, false) },
		"find":       finding("find", strings.Index, false), "rfind": finding("rfind", rightmost, false),
		"index": finding("index", strings.Index, true), "rindex": finding("rindex", rightmost, true),
		"count": func(s *state, t string, a *callArgs) any {
			v := a.positional(s, "count", 1, 3)
			sub := wants(s, "count", v[0])
			part, _, ok := span(s, "count", t, v[1], v[2])
			if !ok {
				return int64(0)
			}
			s.scan(len(part))
			return int64(strings.Count(part, sub))
		},
		"removeprefix": func(s *state, t string, a *callArgs) any {
			return strings.TrimPrefix(t, wants(s, "removeprefix", a.positional(s, "removeprefix", 1, 1)[0]))
		},
		"removesuffix": func(s *state, t string, a *callArgs) any {
			return strings.TrimSuffix(t, wants(s, "removesuffix", a.positional(s, "removesuffix", 1, 1)[0]))
		},
		"partition":  partition("partition", strings.Index, func(t string) any { return Tuple{t, "", ""} }),
		"rpartition": partition("rpartition", strings.LastIndex, func(t string) any { return Tuple{"", "", t} }),
		"join": func(s *state, t string, a *callArgs) any {
			return joined(s, t, a.positional(s, "join", 1, 1)[0], false)
		},
		"zfill": func(s *state, t string, a *callArgs) any {
			w := count(s, "zfill", a.positional(s, "zfill", 1, 1)[0])
			s.charge(2 * len(t))
			zeros := s.repeat("0", int(min(w, 1<<40))-utf8.RuneCountInString(t))
			if t != "" && (t[0] == '+' || t[0] == '-') {
				return t[:1] + zeros + t[1:]
			}
			return zeros + t
		},
		"ljust":  justify("ljust", func(_, _ int) int { return 0 }),
		"rjust":  justify("rjust", func(_, n int) int { return n }),
		"center": justify("center", centered),
		"expandtabs": func(s *state, t string, a *callArgs) any {
			v := a.bind(s, "expandtabs", 0, "tabsize")
			size := int64(8)
			if v[0] != unset {
				size = count(s, "expandtabs", v[0])
			}
			return expandTabs(s, t, size)
		},
		"translate": func(s *state, t string, a *callArgs) any {
			return translated(s, t, a.positional(s, "translate", 1, 1)[0])
		},
		"maketrans": func(s *state, _ string, a *callArgs) any { return makeTrans(s, a) },
		"encode": func(s *state, _ string, _ *callArgs) any {
			s.fail("encode: bytes are not supported")
			return nil
		},
	}
	counting := func(s *state, v any, a *callArgs) any {
		want := a.positional(s, "count", 1, 1)[0]
		n := int64(0)
		each(s, v, func(x any) { n += toInt(equal(s, x, want)) })
		return n
	}
	indexing := func(s *state, v any, a *callArgs) any {
		p := a.positional(s, "index", 1, 3)
		list := items(s, v)
		bound := func(v any) *int64 {
			if v == unset {
				return nil
			}
			n := count(s, "index", v)
			return &n
		}
		from, _, n := indices(int64(len(list)), bound(p[1]), bound(p[2]), nil)
		for i := from; i < from+n; i++ {
			if equal(s, list[i], p[0]) {
				return i
			}
		}
		s.fail("index: the value is not in the %s", typeName(v))
		return nil
	}
	itself := func(name string) method {
		return func(s *state, v any, a *callArgs) any {
			a.positional(s, name, 0, 0)
			return v
		}
	}
	listMethods = map[string]method{"copy": itself("copy"), "count": counting, "index": indexing}
	tupleMethods = map[string]method{"count": counting, "index": indexing}
	rangeMethods = tupleMethods
	view := func(kind string) method {
		return func(s *state, v any, a *callArgs) any {
			a.positional(s, kind, 0, 0)
			return dictView{v.(*Dict), kind}
		}
	}
	dictMethods = map[string]method{
		"items": view("items"), "keys": view("keys"), "values": view("values"), "copy": itself("copy"),
		"get": func(s *state, v any, a *callArgs) any {
			p := a.positional(s, "get", 1, 2)
			h, ok := hashOf(s, p[0])
			if !ok {
				s.fail("a %s cannot be a dict's key", typeName(p[0]))
			}
			d := v.(*Dict)
			if i := d.find(h); i >= 0 {
				return d.vals[i]
			}
			if p[1] == unset {
				return nil
			}
			return p[1]
		},
		"fromkeys": func(s *state, _ any, a *callArgs) any {
			p := a.positional(s, "fromkeys", 1, 2)
			if p[1] == unset {
				p[1] = nil
			}
			d := NewDict()
			each(s, p[0], func(x any) {
				s.charge(entryBytes)
				s.put(d, x, p[1])
			})
			return d
		},
	}
	for name := range dictMethods {
		dictNames[name] = true
	}
	for _, name := range dictMutators {
		dictNames[name] = true
	}
	viewMethods = map[string]method{"isdisjoint": func(s *state, v any, a *callArgs) any {
		disjoint := true
		each(s, a.positional(s, "isdisjoint", 1, 1)[0], func(x any) { disjoint = disjoint && !contains(s, v, x) })
		return disjoint
	}}
	intMethods = map[string]method{
		"bit_length": func(_ *state, v any, _ *callArgs) any { return int64(bigOf(v).BitLen()) },
		"bit_count": func(s *state, v any, _ *callArgs) any {
			n := new(big.Int).Abs(bigOf(v))
			s.scan(8 * n.BitLen())
			return int64(strings.Count(n.Text(2), "1"))
		},
		"conjugate":        func(s *state, v any, _ *callArgs) any { return s.sign(false, v) },
		"as_integer_ratio": func(s *state, v any, _ *callArgs) any { return Tuple{s.sign(false, v), int64(1)} },
	}
	floatMethods = map[string]method{
		"is_integer": func(_ *state, v any, _ *callArgs) any {
			return v.(float64) == math.Trunc(v.(float64)) && !math.IsInf(v.(float64), 0)
		},
		"conjugate": func(_ *state, v any, _ *callArgs) any { return v },
		"as_integer_ratio": func(s *state, v any, _ *callArgs) any {
			r := new(big.Rat)
			if r.SetFloat64(v.(float64)) == nil {
				s.fail("%s is no ratio of integers", formatFloat(v.(float64)))
			}
			return Tuple{normal(r.Num()), normal(r.Denom())}
		},
	}
	cyclerMethods = map[string]method{
		"next": func(_ *state, v any, _ *callArgs) any {
			c := v.(*cycler)
			x := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return x
		},
		"reset": func(_ *state, v any, _ *callArgs) any { v.(*cycler).at = 0; return nil },
	}
}

func isIdentifier(t string) bool {
	for i, r := range t {
		if r != '_' && !unicode.IsLetter(r) && !unicode.Is(unicode.Nl, r) && (i == 0 || !unicode.IsDigit(r) && !unicode.In(r, unicode.Mn, unicode.Mc, unicode.Pc)) {
			return false
		}
	}
	return t != ""
}

func makeTrans(s *state, a *callArgs) any {
	v := a.positional(s, "maketrans", 1, 3)
	d := NewDict()
	if v[1] == unset {
		from, ok := v[0].(*Dict)
		if !ok {
			s.fail("maketrans takes a dict, or two or three strings")
		}
		s.charge(len(from.keys) * entryBytes)
		for i, k := range from.keys {
			if t, ok := text(k); ok {
				if utf8.RuneCountInString(t) != 1 {
					s.fail("maketrans: keys are single characters")
				}
				r, _ := utf8.DecodeRuneInString(t)
				k = int64(r)
			}
			s.put(d, k, from.vals[i])
		}
		return d
	}
	from, to := []rune(wants(s, "maketrans", v[0])), []rune(wants(s, "maketrans", v[1]))
	if len(from) != len(to) {
		s.fail("maketrans: the two strings have different lengths")
	}
	s.charge(len(from) * (entryBytes + 8))
	for i, r := range from {
		d.set(int64(r), int64(to[i]))
	}
	if v[2] != unset {
		gone := wants(s, "maketrans", v[2])
		s.charge(len(gone) * entryBytes)
		for _, r := range gone {
			d.set(int64(r), nil)
		}
	}
	return d
}
