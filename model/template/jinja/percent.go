package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// percent is Python's "format" % values. escaped: the format is markup, and what is put in is escaped.
func percent(s *state, format string, v any, escaped bool) string {
	values, isTuple := v.(Tuple)
	mapping, _ := v.(*Dict)
	if !isTuple {
		values = Tuple{v}
	}
	used := 0
	take := func() any {
		if used == len(values) {
			s.fail("more %% formats than values")
		}
		used++
		return values[used-1]
	}
	b := buffer{s: s}
	for rest := format; ; {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			b.put(rest)
			break
		}
		b.put(rest[:i])
		s.step()
		if rest = rest[i+1:]; strings.HasPrefix(rest, "%") {
			b.put("%")
			rest = rest[1:]
			continue
		}
		var value any = unset
		if strings.HasPrefix(rest, "(") { // %(name)s
			end, open := 1, 1
			for ; end < len(rest) && open > 0; end++ {
				switch rest[end] {
				case '(':
					open++
				case ')':
					open--
				}
			}
			if open > 0 {
				s.fail("%% format: a ( without its )")
			}
			if mapping == nil {
				s.fail("%%(name) formats want a dict")
			}
			x, ok := mapping.Get(rest[1 : end-1])
			if !ok {
				s.fail("%% format: no value for %q", rest[1:end-1])
			}
			value, rest = x, rest[end:]
			used = len(values)
		}
		f := spec{fill: " ", precision: -1, align: '>'}
		flags := strings.TrimLeft(rest, "-+ 0#")
		set := rest[:len(rest)-len(flags)]
		rest = flags
		star := func() int {
			n, ok := integer(take())
			if !ok || n > math.MaxInt32 || n < -math.MaxInt32 {
				s.fail("%% format: * wants an int")
			}
			return int(n)
		}
		if strings.HasPrefix(rest, "*") {
			if f.width, rest = star(), rest[1:]; f.width < 0 {
				f.width, set = -f.width, set+"-"
			}
		} else {
			f.width, rest, _ = leadingInt(s, rest)
		}
		if strings.HasPrefix(rest, ".") {
			if rest = rest[1:]; strings.HasPrefix(rest, "*") {
				f.precision, rest = max(star(), 0), rest[1:]
			} else {
				f.precision, rest, _ = leadingInt(s, rest)
			}
		}
		if rest != "" && strings.IndexByte("hlL", rest[0]) >= 0 {
			rest = rest[1:]
		}
		if rest == "" {
			s.fail("incomplete %% format")
		}
		if value == unset {
			value = take()
		}
		f.kind, rest = rest[0], rest[1:]
		b.put(f.conversion(s, set, value, escaped))
	}
	if used < len(values) && mapping == nil && !unused(v) {
		s.fail("fewer %% formats than values")
	}
	return b.String()
}

// unused reports whether a single value may stand behind a format that takes none: Python lets anything that can be
// subscripted but is no tuple or string.
func unused(v any) bool {
	switch v.(type) {
	case []any, *rangeValue, Undefined:
		return true
	}
	return false
}

// conversion is one % format.
func (f *spec) conversion(s *state, flags string, v any, escaped bool) string {
	zero := strings.Contains(flags, "0")
	if strings.Contains(flags, "-") {
		f.align, zero = '<', false
	}
	if strings.Contains(flags, "+") {
		f.sign = '+'
	} else if strings.Contains(flags, " ") {
		f.sign = ' '
	}
	f.alternate = strings.Contains(flags, "#")
	if _, ok := number(v); ok && zero && strings.IndexByte("diuoxXeEfFgG", f.kind) >= 0 {
		f.align, f.fill = '=', "0"
	}
	switch f.kind {
	case 's', 'r', 'a':
		t := ""
		switch {
		case f.kind == 's' && escaped:
			t = string(escape(s, v))
		case f.kind == 's':
			t = str(s, v)
		case f.kind == 'r':
			t = repr(s, v)
		default:
			t = ascii(s, v)
		}
		if escaped && f.kind != 's' {
			t = string(escape(s, t))
		}
		if f.precision >= 0 {
			s.scan(len(t))
			t = t[:offset(t, f.precision)]
		}
		return f.pad(s, t, '>')
	case 'c':
		if t, ok := text(v); ok {
			if utf8.RuneCountInString(t) != 1 {
				s.fail("%%c wants an int or one character")
			}
			return f.pad(s, t, '>')
		}
		return f.pad(s, character(s, v), '>')
	case 'd', 'i', 'u', 'o', 'x', 'X':
		switch x := v.(type) {
		case float64:
			if strings.IndexByte("oxX", f.kind) >= 0 {
				s.fail("%%%c wants an int, not a float", f.kind)
			}
			v = truncate(s, x)
		case bool, int64, *big.Int:
		default:
			s.fail("%%%c wants a number, not a %s", f.kind, typeName(v))
		}
		if f.kind == 'i' || f.kind == 'u' {
			f.kind = 'd'
		}
		text := f.integerWithPrecision(s, v)
		return text
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if _, ok := number(v); !ok {
			s.fail("%%%c wants a number, not a %s", f.kind, typeName(v))
		}
		return f.float(s, float(s, v))
	}
	s.fail("%s", fmt.Sprintf("unknown %% format %q", f.kind))
	return ""
}

// integerWithPrecision is integer for % formats, where a precision is a least number of digits.
func (f *spec) integerWithPrecision(s *state, v any) string {
	if f.precision < 0 {
		return f.integer(s, v)
	}
	bare := spec{fill: "0", align: '=', width: f.precision, kind: f.kind}
	digits := bare.integer(s, new(big.Int).Abs(bigOf(v)))
	prefix := ""
	if f.alternate && f.kind != 'd' {
		prefix = "0" + string(f.kind)
	}
	return f.number(s, bigOf(v).Sign() < 0, prefix, digits)
}
