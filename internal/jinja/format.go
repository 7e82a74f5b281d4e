package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is how one value is laid out: Python's format specification, of which a % format is another spelling.
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
	if i := strings.IndexFunc(digits, func(r rune) bool { return !decimal(byte(r)) }); i >= 0 && !strings.ContainsRune("xXob", rune(f.kind)) {
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
	f := spec{fill: " ", precision: -1}
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
	sign := flag("+- ")
	if f.sign = sign; sign == '-' {
		f.sign = 0
	}
	f.nonzero = flag("z") != 0
	f.alternate = flag("#") != 0
	zero := flag("0") != 0
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
	bad := func() { s.fail("format: %q does not suit a %s", layout, typeName(v)) }
	if rest != "" {
		bad()
	}
	switch v := v.(type) {
	case string, markup:
		t, _ := text(v)
		if f.kind != 0 && f.kind != 's' || sign != 0 || f.alternate || f.nonzero || f.group != "" || f.align == '=' && !zero {
			bad()
		}
		if f.align == '=' {
			f.align = '<'
		}
		if f.precision >= 0 {
			s.scan(len(t))
			t = t[:offset(t, f.precision)]
		}
		return f.pad(s, t, '<')
	case bool, int64, *big.Int:
		switch {
		case f.kind == 0 && f.precision < 0:
			if b, ok := v.(bool); ok { // as format(True, "5"): an int
				v = toInt(b)
			}
			f.kind = 'd'
			fallthrough
		case strings.IndexByte("bcdnoxX", f.kind) >= 0:
			if f.precision >= 0 || f.nonzero || f.group == "," && f.kind != 'd' || f.group != "" && (f.kind == 'c' || f.kind == 'n') {
				bad()
			}
			if f.kind == 'c' {
				if sign != 0 || f.alternate {
					bad()
				}
				return f.pad(s, character(s, v), '<')
			}
			return f.integer(s, v)
		case strings.IndexByte("eEfFgG%", f.kind) >= 0:
			return f.float(s, float(s, v))
		}
	case float64:
		if f.kind == 0 || strings.IndexByte("eEfFgGn%", f.kind) >= 0 {
			return f.float(s, v)
		}
	}
	bad()
	return ""
}

func character(s *state, v any) string {
	n, ok := integer(v)
	if !ok || n < 0 || n > utf8.MaxRune {
		s.fail("%s is no character's number", str(s, v))
	}
	return string(rune(n))
}

// formatMethod is str.format: {}, {0}, {name.attr[key]}, {!r} and {:spec}, in which fields may stand too.
func formatMethod(s *state, self string, a *callArgs, escaped bool) string {
	s.charge(len(a.names) * entryBytes)
	f := &formatter{s: s, args: a, named: a.byName(), escaped: escaped}
	return f.format(self, 2)
}

type formatter struct {
	s       *state
	args    *callArgs
	named   map[string]int
	lookup  *Dict // format_map's, instead of named arguments
	next    int
	manual  bool
	escaped bool // for markup: values are escaped
}

func (f *formatter) format(text string, depth int) string {
	s := f.s
	if depth < 0 {
		s.fail("format: fields are nested too deep")
	}
	b := buffer{s: s}
	for rest := text; ; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			b.put(rest)
			return b.String()
		}
		b.put(rest[:i])
		if i+1 < len(rest) && rest[i+1] == rest[i] {
			b.put(rest[i : i+1])
			rest = rest[i+2:]
			continue
		}
		if rest[i] == '}' {
			s.fail("format: a single } in the text")
		}
		end, open := i+1, 1
		for ; end < len(rest) && open > 0; end++ {
			switch rest[end] {
			case '{':
				open++
			case '}':
				open--
			case '[':
				if open == 1 {
					if j := strings.IndexByte(rest[end:], ']'); j >= 0 {
						end += j
					}
				}
			}
		}
		if open > 0 {
			s.fail("format: a single { in the text")
		}
		s.step()
		b.put(f.field(rest[i+1:end-1], depth))
		rest = rest[end:]
	}
}

// field is what stands between braces.
func (f *formatter) field(t string, depth int) string {
	s := f.s
	end := 0
	for end < len(t) && t[end] != '!' && t[end] != ':' {
		if t[end] == '[' {
			if j := strings.IndexByte(t[end:], ']'); j >= 0 {
				end += j
			}
		}
		end++
	}
	name, rest := t[:end], t[end:]
	v := f.value(name)
	if strings.HasPrefix(rest, "!") {
		if len(rest) < 2 || len(rest) > 2 && rest[2] != ':' {
			s.fail("format: a conversion is one letter")
		}
		switch rest[1] {
		case 'r':
			v = repr(s, v)
		case 's':
			v = str(s, v)
		case 'a':
			v = ascii(s, v)
		default:
			s.fail("format: unknown conversion !%c", rest[1])
		}
		rest = rest[2:]
	}
	layout := f.format(strings.TrimPrefix(rest, ":"), depth-1)
	if m, ok := v.(markup); ok && f.escaped {
		if layout != "" {
			s.fail("format: markup takes no specification")
		}
		return string(m)
	}
	text := formatted(s, v, layout)
	if f.escaped {
		return string(escape(s, text))
	}
	return text
}

func (f *formatter) value(name string) any {
	s := f.s
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	if first == "" {
		if f.manual {
			s.fail("format: {} after a numbered field")
		}
		first = strconv.Itoa(f.next)
		f.next++
	} else if digits(first, decimal) == len(first) {
		if f.next > 0 {
			s.fail("format: a numbered field after {}")
		}
		f.manual = true
	}
	var v any = unset
	if n, err := strconv.Atoi(first); err == nil && n >= 0 {
		if n < len(f.args.list) {
			v = f.args.list[n]
		}
	} else if f.lookup != nil {
		if x, ok := f.lookup.Get(first); ok {
			v = x
		}
	} else if i, ok := f.named[first]; ok {
		v = f.args.values[i]
	}
	if v == unset {
		s.fail("format: no argument for {%s}", name)
	}
	for rest != "" {
		s.step()
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			if end == 1 {
				s.fail("format: empty attribute in {%s}", name)
			}
			v, rest = s.attr(v, rest[1:end]), rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 2 {
			s.fail("format: a [ without its ] in {%s}", name)
		}
		if n, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil && decimal(rest[1]) {
			v = s.item(v, n)
		} else {
			v = s.item(v, rest[1:end])
		}
		rest = rest[end+1:]
	}
	return v
}

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
