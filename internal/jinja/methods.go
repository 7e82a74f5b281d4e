package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mutators are Python's methods that change their object; the sandbox chat templates run in refuses them.
var mutators = []string{"append", "extend", "insert", "pop", "popitem", "remove", "reverse", "sort", "clear", "update", "setdefault"}

type method[T any] = func(s *state, self T, a callArgs) (any, error)

var dictMethods = map[string]method[*Dict]{
	"items": func(s *state, d *Dict, _ callArgs) (any, error) {
		s.charge(len(d.keys) * 3 * itemBytes)
		list := make([]any, len(d.keys))
		for i, k := range d.keys {
			list[i] = Tuple{k, d.m[k]}
		}
		return list, nil
	},
	"keys": func(_ *state, d *Dict, _ callArgs) (any, error) { return d.keys, nil },
	"values": func(s *state, d *Dict, _ callArgs) (any, error) {
		s.charge(len(d.keys) * itemBytes)
		list := make([]any, len(d.keys))
		for i, k := range d.keys {
			list[i] = d.m[k]
		}
		return list, nil
	},
	"copy": func(_ *state, d *Dict, _ callArgs) (any, error) { return d, nil },
	"get": func(_ *state, d *Dict, a callArgs) (any, error) {
		v, err := a.bind("get", 1, "key", "default")
		if err != nil {
			return nil, err
		}
		k, err := key(v[0])
		if err != nil {
			return nil, err
		}
		if x, ok := d.m[k]; ok {
			return x, nil
		}
		if v[1] == (missing{}) {
			return nil, nil
		}
		return v[1], nil
	},
}

var listMethods = map[string]method[[]any]{
	"copy": func(_ *state, l []any, _ callArgs) (any, error) { return l, nil },
	"count": func(s *state, l []any, a callArgs) (any, error) {
		v, err := a.bind("count", 1, "value")
		if err != nil {
			return nil, err
		}
		n := int64(0)
		for _, x := range l {
			n += toInt(equal(s, x, v[0]))
		}
		return n, nil
	},
	"index": func(s *state, l []any, a callArgs) (any, error) {
		v, err := a.bind("index", 1, "value")
		if err != nil {
			return nil, err
		}
		for i, x := range l {
			if equal(s, x, v[0]) {
				return int64(i), nil
			}
		}
		return nil, errors.New("index: the value is not in the list")
	},
}

// simple is a string method without arguments.
func simple(name string, f func(string) any) method[string] {
	return func(s *state, self string, a callArgs) (any, error) {
		if _, err := a.bind(name, 0); err != nil {
			return nil, err
		}
		s.charge(4 * len(self))
		return f(self), nil
	}
}

// strip makes strip, lstrip and rstrip: without an argument blanks go, with one the characters in it.
func strip(name string, left, right bool) method[string] {
	return func(s *state, self string, a callArgs) (any, error) {
		v, err := a.bind(name, 0, "chars")
		if err != nil {
			return nil, err
		}
		cut := unicode.IsSpace
		switch set := v[0].(type) {
		case missing, nil:
		case string:
			s.charge(len(set))
			cut = func(r rune) bool { return strings.ContainsRune(set, r) }
			if len(set) > 64 && len(self) > 64 { // keep the cost linear
				m := map[rune]bool{}
				for _, r := range set {
					m[r] = true
				}
				cut = func(r rune) bool { return m[r] }
			}
		default:
			return nil, fmt.Errorf("%s takes a string, not a %s", name, typeName(set))
		}
		s.charge(4 * len(self))
		if left {
			self = strings.TrimLeftFunc(self, cut)
		}
		if right {
			self = strings.TrimRightFunc(self, cut)
		}
		return self, nil
	}
}

// affix makes startswith and endswith, which also take a tuple of strings.
func affix(name string, has func(s, affix string) bool) method[string] {
	return func(s *state, self string, a callArgs) (any, error) {
		v, err := a.bind(name, 1, "affix")
		if err != nil {
			return nil, err
		}
		list, ok := v[0].(Tuple)
		if !ok {
			list = Tuple{v[0]}
		}
		for _, x := range list {
			t, ok := x.(string)
			if !ok {
				return nil, fmt.Errorf("%s takes a string, not a %s", name, typeName(x))
			}
			s.charge(len(t))
			if has(self, t) {
				return true, nil
			}
		}
		return false, nil
	}
}

// text is a method of string arguments, the first required of them required.
func text(name string, required int, params []string, f func(s *state, self string, v []string) (any, error)) method[string] {
	return func(s *state, self string, a callArgs) (any, error) {
		v, err := a.bind(name, required, params...)
		if err != nil {
			return nil, err
		}
		list := make([]string, len(v))
		for i, x := range v {
			t, ok := x.(string)
			if !ok && x != (missing{}) {
				return nil, fmt.Errorf("%s takes a string, not a %s", name, typeName(x))
			}
			list[i] = t
		}
		s.charge(4 * len(self))
		return f(s, self, list)
	}
}

// characters is a byte offset in s as a character offset.
func characters(s string, at int) any {
	if at < 0 {
		return int64(-1)
	}
	return int64(utf8.RuneCountInString(s[:at]))
}

// every reports whether s is not empty and f holds for all its characters.
func every(f func(rune) bool) func(string) any {
	return func(s string) any {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !f(r) })
	}
}

var strMethods map[string]method[string]

func init() { // filled here because format refers back to str and attr
	strMethods = map[string]method[string]{
		"strip": strip("strip", true, true), "lstrip": strip("lstrip", true, false), "rstrip": strip("rstrip", false, true),
		"startswith": affix("startswith", strings.HasPrefix), "endswith": affix("endswith", strings.HasSuffix),
		"upper":      simple("upper", func(s string) any { return upper(s) }),
		"lower":      simple("lower", func(s string) any { return strings.ToLower(s) }),
		"casefold":   simple("casefold", func(s string) any { return strings.ToLower(s) }),
		"title":      simple("title", func(s string) any { return title(s) }),
		"capitalize": simple("capitalize", func(s string) any { return capitalize(s) }),
		"isdigit":    simple("isdigit", every(unicode.IsDigit)),
		"isnumeric":  simple("isnumeric", every(unicode.IsNumber)),
		"isdecimal":  simple("isdecimal", every(unicode.IsDigit)),
		"isalpha":    simple("isalpha", every(unicode.IsLetter)),
		"isalnum":    simple("isalnum", every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })),
		"isspace":    simple("isspace", every(unicode.IsSpace)),
		"isupper":    simple("isupper", func(s string) any { return s == strings.ToUpper(s) && s != strings.ToLower(s) }),
		"islower":    simple("islower", func(s string) any { return s == strings.ToLower(s) && s != strings.ToUpper(s) }),
		"split":      split("split", false), "rsplit": split("rsplit", true),
		"splitlines": splitLines,
		"replace":    replace,
		"format":     format,
		"find": text("find", 1, []string{"sub"}, func(_ *state, self string, v []string) (any, error) {
			return characters(self, strings.Index(self, v[0])), nil
		}),
		"rfind": text("rfind", 1, []string{"sub"}, func(_ *state, self string, v []string) (any, error) {
			return characters(self, strings.LastIndex(self, v[0])), nil
		}),
		"index": text("index", 1, []string{"sub"}, func(_ *state, self string, v []string) (any, error) {
			if i := strings.Index(self, v[0]); i >= 0 {
				return characters(self, i), nil
			}
			return nil, errors.New("index: the text is not in the string")
		}),
		"count": text("count", 1, []string{"sub"}, func(_ *state, self string, v []string) (any, error) {
			return int64(strings.Count(self, v[0])), nil
		}),
		"removeprefix": text("removeprefix", 1, []string{"prefix"}, func(_ *state, self string, v []string) (any, error) {
			return strings.TrimPrefix(self, v[0]), nil
		}),
		"removesuffix": text("removesuffix", 1, []string{"suffix"}, func(_ *state, self string, v []string) (any, error) {
			return strings.TrimSuffix(self, v[0]), nil
		}),
		"partition": text("partition", 1, []string{"sep"}, func(_ *state, self string, v []string) (any, error) {
			if before, after, ok := strings.Cut(self, v[0]); ok {
				return Tuple{before, v[0], after}, nil
			}
			return Tuple{self, "", ""}, nil
		}),
		"rpartition": text("rpartition", 1, []string{"sep"}, func(_ *state, self string, v []string) (any, error) {
			if i := strings.LastIndex(self, v[0]); i >= 0 {
				return Tuple{self[:i], v[0], self[i+len(v[0]):]}, nil
			}
			return Tuple{"", "", self}, nil
		}),
		"join": func(s *state, self string, a callArgs) (any, error) {
			v, err := a.bind("join", 1, "iterable")
			if err != nil {
				return nil, err
			}
			items, err := iterate(s, v[0])
			if err != nil {
				return nil, err
			}
			for _, x := range items {
				if _, ok := x.(string); !ok {
					return nil, fmt.Errorf("join takes strings, not a %s", typeName(x))
				}
			}
			return join(s, items, self), nil
		},
		"zfill": func(s *state, self string, a callArgs) (any, error) {
			v, err := a.bind("zfill", 1, "width")
			if err != nil {
				return nil, err
			}
			w, _ := integer(v[0])
			zeros, err := s.repeat("0", w-int64(utf8.RuneCountInString(self)))
			if sign := strings.IndexAny(self, "+-"); sign == 0 && err == nil {
				return self[:1] + zeros.(string) + self[1:], nil
			}
			return zeros.(string) + self, err
		},
		"ljust": justify("ljust", 0, 1), "rjust": justify("rjust", 1, 0), "center": justify("center", 1, 1),
	}
}

// justify pads with spaces; left and right are the shares of the padding.
func justify(name string, left, right int) method[string] {
	return func(s *state, self string, a callArgs) (any, error) {
		v, err := a.bind(name, 1, "width", "fill")
		if err != nil {
			return nil, err
		}
		w, ok := integer(v[0])
		fill, fok := v[1].(string)
		if v[1] == (missing{}) {
			fill, fok = " ", true
		}
		if !ok || !fok || utf8.RuneCountInString(fill) != 1 {
			return nil, fmt.Errorf("%s takes a width and one character", name)
		}
		n := int64(utf8.RuneCountInString(self))
		pad := max(0, w-n)
		l := pad * int64(left) / int64(left+right)
		if left == right { // Python's center puts the odd one left when the width is odd
			l = pad/2 + pad&w&1
		}
		before, _ := s.repeat(fill, l)
		after, _ := s.repeat(fill, pad-l)
		return before.(string) + self + after.(string), nil
	}
}

// upper knows the one common letter whose capital is two.
func upper(s string) string { return strings.ReplaceAll(strings.ToUpper(s), "ß", "SS") }

func title(s string) string {
	start := true
	return strings.Map(func(r rune) rune {
		defer func() { start = !unicode.IsLetter(r) }()
		if start {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	return string(unicode.ToTitle(r)) + strings.ToLower(s[n:])
}

func join(s *state, items []any, sep string) string {
	var b strings.Builder
	for i, x := range items {
		if i > 0 {
			s.charge(len(sep))
			b.WriteString(sep)
		}
		t := str(s, x)
		s.charge(len(t))
		b.WriteString(t)
	}
	return b.String()
}

func split(name string, fromRight bool) method[string] {
	return func(s *state, self string, a callArgs) (any, error) {
		v, err := a.bind(name, 0, "sep", "maxsplit")
		if err != nil {
			return nil, err
		}
		most := int64(-1)
		if v[1] != (missing{}) {
			n, ok := integer(v[1])
			if !ok {
				return nil, fmt.Errorf("%s: maxsplit is an int", name)
			}
			most = n
		}
		var parts []string
		switch sep := v[0].(type) {
		case missing, nil:
			parts = splitBlanks(self, most, fromRight)
		case string:
			if sep == "" {
				return nil, fmt.Errorf("%s: empty separator", name)
			}
			s.charge(len(self) + strings.Count(self, sep)*itemBytes)
			switch {
			case most < 0:
				parts = strings.Split(self, sep)
			case !fromRight:
				parts = strings.SplitN(self, sep, int(min(most, int64(len(self))))+1)
			default:
				rest := self
				for ; most > 0; most-- {
					i := strings.LastIndex(rest, sep)
					if i < 0 {
						break
					}
					parts = append(parts, rest[i+len(sep):])
					rest = rest[:i]
				}
				parts = append(parts, rest)
				slices.Reverse(parts)
			}
		default:
			return nil, fmt.Errorf("%s takes a string, not a %s", name, typeName(sep))
		}
		s.charge(len(self) + len(parts)*itemBytes)
		return fromGo(parts), nil
	}
}

// splitBlanks splits at runs of blanks, at most most times when that is not negative.
func splitBlanks(s string, most int64, fromRight bool) (parts []string) {
	if most < 0 {
		return strings.Fields(s)
	}
	if fromRight {
		for s = strings.TrimRightFunc(s, unicode.IsSpace); s != ""; most-- {
			i := strings.LastIndexFunc(s, unicode.IsSpace)
			if i < 0 || most == 0 {
				parts = append(parts, s)
				break
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+n:])
			s = strings.TrimRightFunc(s[:i], unicode.IsSpace)
		}
		slices.Reverse(parts)
		return parts
	}
	for s = strings.TrimLeftFunc(s, unicode.IsSpace); s != ""; most-- {
		i := strings.IndexFunc(s, unicode.IsSpace)
		if i < 0 || most == 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = strings.TrimLeftFunc(s[i:], unicode.IsSpace)
	}
	return parts
}

func splitLines(s *state, self string, a callArgs) (any, error) {
	v, err := a.bind("splitlines", 0, "keepends")
	if err != nil {
		return nil, err
	}
	s.charge(len(self) + strings.Count(self, "\n")*itemBytes)
	var list []any
	for line := range strings.Lines(strings.ReplaceAll(self, "\r\n", "\n")) {
		if v[0] == (missing{}) || !truth(v[0]) {
			line = strings.TrimSuffix(line, "\n")
		}
		list = append(list, line)
	}
	return list, nil
}

func replace(s *state, self string, a callArgs) (any, error) {
	v, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	old, ok1 := v[0].(string)
	with, ok2 := v[1].(string)
	if !ok1 || !ok2 {
		return nil, errors.New("replace takes strings")
	}
	n := -1
	if v[2] != (missing{}) && v[2] != nil {
		c, ok := integer(v[2])
		if !ok {
			return nil, errors.New("replace: count is an int")
		}
		n = int(min(c, int64(len(self))+1))
	}
	s.charge(len(self))
	if hits := strings.Count(self, old); hits > 0 {
		s.charge(len(self) + min(hits, 1<<31)*min(len(with), 1<<31))
	}
	return strings.Replace(self, old, with, n), nil
}

// format is str.format for the fields templates use: {}, {0}, {name}, without format specifications.
func format(s *state, self string, a callArgs) (any, error) {
	var b strings.Builder
	auto := 0
	for rest := self; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:i])
		if i+1 < len(rest) && rest[i+1] == rest[i] {
			b.WriteByte(rest[i])
			rest = rest[i+2:]
			continue
		}
		end := strings.IndexByte(rest[i:], '}')
		if rest[i] == '}' || end < 0 {
			return nil, errors.New("format: a single brace")
		}
		field := rest[i+1 : i+end]
		rest = rest[i+end+1:]
		var v any = missing{}
		if field == "" {
			field = strconv.Itoa(auto)
			auto++
		}
		if n, err := strconv.Atoi(field); err == nil && n >= 0 && n < len(a.list) {
			v = a.list[n]
		} else if j := slices.Index(a.names, field); j >= 0 {
			v = a.values[j]
		}
		if v == (missing{}) {
			return nil, fmt.Errorf("format: no argument for {%s}", field)
		}
		t := str(s, v)
		s.charge(len(t))
		b.WriteString(t)
	}
	s.charge(len(self))
	return b.String(), nil
}

// percent is Python's "format" % values for %s, %r, %d, %i, %f, %x and %%, with flags, width and precision.
func percent(s *state, f string, v any) (any, error) {
	values, ok := v.(Tuple)
	if !ok {
		values = Tuple{v}
	}
	var b strings.Builder
	s.charge(len(f))
	for i := 0; i < len(f); i++ {
		if f[i] != '%' {
			b.WriteByte(f[i])
			continue
		}
		j := i + 1
		for j < len(f) && strings.IndexByte("-+ 0123456789.", f[j]) >= 0 {
			j++
		}
		if j == len(f) || j-i > 8 {
			return nil, errors.New("incomplete % format")
		}
		spec, verb := f[i:j], f[j]
		i = j
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		if len(values) == 0 {
			return nil, errors.New("more % formats than values")
		}
		x := values[0]
		values = values[1:]
		s.charge(1 << 10) // a width of three digits at most
		if width := strings.TrimLeft(spec[1:], "-+ 0"); len(strings.SplitN(width, ".", 2)[0]) > 3 || strings.Count(spec, ".") > 1 || len(spec[strings.LastIndexByte(spec, '.')+1:]) > 4 {
			return nil, fmt.Errorf("%%%s%c: width or precision above 999", spec[1:], verb)
		}
		n, isInt, isNumber := number(x)
		switch {
		case verb == 's' || verb == 'r':
			t := str(s, x)
			if verb == 'r' {
				var q strings.Builder
				repr(s, &q, x)
				t = q.String()
			}
			s.charge(len(t))
			fmt.Fprintf(&b, spec+"s", t)
		case !isNumber:
			return nil, fmt.Errorf("%%%c wants a number, not a %s", verb, typeName(x))
		case verb == 'd' || verb == 'i' || verb == 'u' || verb == 'x' || verb == 'X':
			whole := int64(n)
			if isInt {
				whole, _ = integer(x)
			}
			if verb == 'i' || verb == 'u' {
				verb = 'd'
			}
			fmt.Fprintf(&b, spec+string(verb), whole)
		case verb == 'f' || verb == 'e' || verb == 'g' || verb == 'F':
			fmt.Fprintf(&b, spec+string(verb), n)
		default:
			return nil, fmt.Errorf("unknown %% format %q", verb)
		}
	}
	if len(values) > 0 && ok {
		return nil, errors.New("fewer % formats than values")
	}
	return b.String(), nil
}
