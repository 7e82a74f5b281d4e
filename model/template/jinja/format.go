package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is the format specification of one value, as in Python. A % format is another notation of it.
type spec struct {
	fill      string
	align     byte // '<', '>', '^', '=' or 0 for the kind's own
	sign      byte // '+', ' ' or 0
	alternate bool // #: 0x and such before the digits
	nonzero   bool // z: no negative zero
	width     int
	group     string // "," or "_" between thousands
	precision int    // -1: not given
	kind      byte
}

// pad fills t up to the width.
func (f *spec) pad(s *state, t string, align byte) string {
	if f.align != 0 {
		align = f.align
	}
	n := f.width - utf8.RuneCountInString(t)
	s.charge(len(t))
	if n <= 0 {
		return t
	}
	s.chargeProduct(n, len(f.fill))
	left := 0
	switch align {
	case '>':
		left = n
	case '^':
		left = n / 2
	}
	return strings.Repeat(f.fill, left) + t + strings.Repeat(f.fill, n-left)
}

// number lays out sign, prefix (0x) and digits: padding may stand between them, and separators among the digits.
func (f *spec) number(s *state, negative bool, prefix, digits string) string {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case f.sign != 0:
		sign = string(f.sign)
	}
	whole := len(digits)
	if i := strings.IndexFunc(digits, func(r rune) bool { return !decimal(byte(r)) }); i >= 0 &&
		!strings.ContainsRune("xXob", rune(f.kind)) {
		whole = i
	}
	inner := f.align == '='
	if f.group != "" {
		every := 3
		if strings.ContainsRune("xXob", rune(f.kind)) && f.kind != 0 {
			every = 4
		}
		least := 0
		if inner && f.fill == "0" { // zeros take part in the grouping
			least = f.width - len(sign) - len(prefix) - (len(digits) - whole)
		}
		s.charge(2 * (whole + max(least, 0)))
		digits = grouped(digits[:whole], f.group, every, least) + digits[whole:]
	}
	if !inner {
		return f.pad(s, sign+prefix+digits, '>')
	}
	n := f.width - len(sign) - len(prefix) - len(digits)
	s.chargeProduct(max(n, 0), len(f.fill))
	return sign + prefix + strings.Repeat(f.fill, max(n, 0)) + digits
}

// grouped puts a separator before every so many digits, with zeros in front until least characters are there.
func grouped(digits, separator string, every, least int) string {
	var parts []string
	for size := 0; ; {
		n := min(every, len(digits))
		part := digits[len(digits)-n:]
		digits = digits[:len(digits)-n]
		if want := least - size; want > n && n < every {
			part = strings.Repeat("0", min(every, max(want, 1))-n) + part
		} else if n == 0 { // a separator does not come first
			part = "0"
		}
		parts = append(parts, part)
		size += len(part) + len(separator)
		if digits == "" && size-len(separator) >= least {
			break
		}
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, separator)
}

// integer lays out an integer.
func (f *spec) integer(s *state, v any) string {
	n := bigOf(v)
	var digits, prefix string
	switch f.kind {
	case 'b', 'o', 'x', 'X':
		s.charge(n.BitLen() * 2)
		digits = new(big.Int).Abs(n).Text(map[byte]int{'b': 2, 'o': 8, 'x': 16, 'X': 16}[f.kind])
		if f.kind == 'X' {
			digits = strings.ToUpper(digits)
		}
		if f.alternate {
			prefix = "0" + string(f.kind)
		}
	default:
		digits = strings.TrimPrefix(s.formatInt(v), "-")
	}
	return f.number(s, n.Sign() < 0, prefix, digits)
}

// float lays out a float.
func (f *spec) float(s *state, x float64) string {
	precision := f.precision
	s.charge(max(precision, 0) + 512)
	digits, negative := "", math.Signbit(x)
	x = math.Abs(x)
	switch {
	case math.IsInf(x, 0) || math.IsNaN(x):
		digits, negative, f.group = formatFloat(x), negative && !math.IsNaN(x), ""
		if f.kind == '%' {
			digits += "%"
		}
	default:
		switch f.kind {
		case 0: // the shortest that reads back the same, or like g with a digit after the point
			if precision < 0 {
				digits = formatFloat(x)
			} else {
				digits = general(x, max(precision, 1), true, f.alternate)
			}
		case 'g', 'G', 'n':
			if precision < 0 {
				precision = 6
			}
			digits = general(x, max(precision, 1), false, f.alternate)
		case '%':
			if precision < 0 {
				precision = 6
			}
			digits = strconv.FormatFloat(x*100, 'f', precision, 64) + "%"
		default:
			if precision < 0 {
				precision = 6
			}
			digits = strconv.FormatFloat(x, f.kind|0x20, precision, 64)
			if f.alternate && precision == 0 {
				if i := strings.IndexByte(digits, 'e'); i >= 0 {
					digits = digits[:i] + "." + digits[i:]
				} else {
					digits += "."
				}
			}
		}
	}
	if f.kind == 'E' || f.kind == 'F' || f.kind == 'G' {
		digits = strings.ToUpper(digits)
	}
	if f.nonzero && strings.Trim(digits, "0.%") == "" {
		negative = false
	}
	return f.number(s, negative, "", digits)
}

// general is the layout of g: so many significant digits, an exponent where that is shorter, no zeros at the end
// (keep: all of them). withPoint asks for at least one digit after the point.
func general(x float64, precision int, withPoint, keep bool) string {
	t := strconv.FormatFloat(x, 'e', precision-1, 64)
	mantissa, exp, _ := strings.Cut(t, "e")
	e, _ := strconv.Atoi(exp)
	limit := precision
	if withPoint {
		limit--
	}
	if x == 0 {
		e = 0
	}
	if e < -4 || e >= limit {
		if !keep && strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + "e" + exp
	}
	t = strconv.FormatFloat(x, 'f', max(precision-1-e, 0), 64)
	if keep {
		if !strings.Contains(t, ".") {
			t += "."
		}
		return t
	}
	if strings.Contains(t, ".") {
		t = strings.TrimRight(strings.TrimRight(t, "0"), ".")
	}
	if withPoint && !strings.Contains(t, ".") {
		t += ".0"
	}
	return t
}

// leadingInt reads a run of digits from the start of t.
func leadingInt(s *state, t string) (n int, rest string, ok bool) {
	i := digits(t, decimal)
	if i = strings.IndexByte(t[:i]+"_", '_'); i == 0 {
		return 0, t, false
	}
	n, err := strconv.Atoi(t[:i])
	if err != nil || n > math.MaxInt32 {
		s.fail("a width or precision is too large")
	}
	return n, t[i:], true
}

// formatted is Python's format(v, layout).
func formatted(s *state, v any, layout string) string {
	if layout == "" {
		return str(s, v)
	}
	f, sign, zero, ok := parseSpec(s, layout)
	if ok {
		var t string
		switch v := v.(type) {
		case string, markup:
			t, ok = f.formatText(s, v, sign, zero)
		case bool, int64, *big.Int:
			t, ok = f.formatInt(s, v, sign)
		case float64:
			if ok = f.kind == 0 || strings.IndexByte("eEfFgGn%", f.kind) >= 0; ok {
				t = f.float(s, v)
			}
		default:
			ok = false
		}
		if ok {
			return t
		}
	}
	s.fail("format: %q does not suit a %s", layout, typeName(v))
	return ""
}

// parseSpec parses a format specification. sign and zero are its sign character and whether its width begins with 0; ok
// is false if text is left.
func parseSpec(s *state, layout string) (f spec, sign byte, zero, ok bool) {
	f = spec{fill: " ", precision: -1}
	rest := layout
	isAlign := func(t string) bool { return t != "" && strings.IndexByte("<>=^", t[0]) >= 0 }
	if _, n := utf8.DecodeRuneInString(rest); isAlign(rest[n:]) {
		f.fill, f.align, rest = rest[:n], rest[n], rest[n+1:]
	} else if isAlign(rest) {
		f.align, rest = rest[0], rest[1:]
	}
	flag := func(chars string) byte {
		if rest != "" && strings.IndexByte(chars, rest[0]) >= 0 {
			c := rest[0]
			rest = rest[1:]
			return c
		}
		return 0
	}
	sign = flag("+- ")
	if f.sign = sign; sign == '-' {
		f.sign = 0
	}
	f.nonzero = flag("z") != 0
	f.alternate = flag("#") != 0
	zero = flag("0") != 0
	if zero && f.align == 0 {
		f.align = '='
	}
	if zero && f.fill == " " {
		f.fill = "0"
	}
	f.width, rest, _ = leadingInt(s, rest)
	if c := flag(",_"); c != 0 {
		f.group = string(c)
	}
	if flag(".") != 0 {
		var ok bool
		if f.precision, rest, ok = leadingInt(s, rest); !ok {
			s.fail("format: a precision is missing in %q", layout)
		}
	}
	if rest != "" {
		f.kind, rest = rest[0], rest[1:]
	}
	return f, sign, zero, rest == ""
}

// formatText formats a string. ok is false if the specification is for numbers.
func (f *spec) formatText(s *state, v any, sign byte, zero bool) (_ string, ok bool) {
	if f.kind != 0 && f.kind != 's' || sign != 0 || f.alternate || f.nonzero || f.group != "" || f.align == '=' &&
		!zero {
		return "", false
	}
	t, _ := text(v)
	if f.align == '=' {
		f.align = '<'
	}
	if f.precision >= 0 {
		s.scan(len(t))
		t = t[:offset(t, f.precision)]
	}
	return f.pad(s, t, '<'), true
}

// formatInt formats an integer, as an integer, a character or a float. ok is false if the specification is for strings.
func (f *spec) formatInt(s *state, v any, sign byte) (_ string, ok bool) {
	if f.kind == 0 && f.precision < 0 {
		if b, isBool := v.(bool); isBool { // like format(True, "5"): an int
			v = toInt(b)
		}
		f.kind = 'd'
	}
	switch {
	case f.kind != 0 && strings.IndexByte("bcdnoxX", f.kind) >= 0:
		if f.precision >= 0 || f.nonzero || f.group == "," && f.kind != 'd' ||
			f.group != "" && (f.kind == 'c' || f.kind == 'n') {
			return "", false
		}
		if f.kind != 'c' {
			return f.integer(s, v), true
		}
		if sign != 0 || f.alternate {
			return "", false
		}
		return f.pad(s, character(s, v), '<'), true
	case f.kind != 0 && strings.IndexByte("eEfFgG%", f.kind) >= 0:
		return f.float(s, float(s, v)), true
	}
	return "", false
}

func character(s *state, v any) string {
	n, ok := integer(v)
	if !ok || n < 0 || n > utf8.MaxRune {
		s.fail("%s is no character's number", str(s, v))
	}
	return string(rune(n))
}
