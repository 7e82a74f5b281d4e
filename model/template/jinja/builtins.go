package jinja

import (
	"fmt"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// builtins are the global names every template has.
var builtins map[string]any

func init() {
	builtins = map[string]any{}
	for name, call := range map[string]func(s *state, a *callArgs) any{
		"range": rangeOf, "namespace": newNamespace, "dict": newDict, "joiner": joiner,
		"raise_exception": raise, "strftime_now": strftimeNow,
	} {
		builtins[name] = &function{name, call}
	}
	for _, name := range []string{"cycler", "lipsum"} {
		builtins[name] = &function{name, func(s *state, _ *callArgs) any {
			s.fail("%s is not supported", name)
			return nil
		}}
	}
}

// maxRange is the longest range, as in Jinja2's sandbox.
const maxRange = 100_000

func rangeOf(s *state, a *callArgs) any {
	a.positional(s, "range", 1, 3)
	n := [3]int64{0, 0, 1}
	for i, v := range a.list {
		n[i] = count(s, "range", v)
	}
	start, stop, by := n[0], n[1], n[2]
	if len(a.list) == 1 {
		start, stop = 0, n[0]
	}
	const far = 1 << 40 // keeps the arithmetic below from wrapping
	if by == 0 || max(start, stop, by) > far || min(start, stop, by) < -far {
		s.fail("range: a step of 0 or a bound beyond 2^40")
	}
	length := max(0, (stop-start+by-1)/by)
	if by < 0 {
		length = max(0, (start-stop-by-1)/-by)
	}
	if length > maxRange {
		s.limit("items of a range", maxRange)
	}
	return &rangeValue{start, stop, by, length}
}

func newNamespace(s *state, a *callArgs) any {
	s.charge(frameBytes)
	return &namespace{newDict(s, a).(*Dict)}
}

func newDict(s *state, a *callArgs) any {
	d := NewDict()
	if len(a.list) > 1 {
		s.fail("dict takes at most one positional argument")
	}
	put := func(k, v any) {
		s.charge(entryBytes)
		s.put(d, k, v)
	}
	for _, v := range a.list {
		if from, ok := v.(*Dict); ok {
			for i, k := range from.keys {
				put(k, from.vals[i])
			}
			continue
		}
		each(s, v, func(x any) {
			pair := items(s, x)
			if len(pair) != 2 {
				s.fail("dict wants pairs")
			}
			put(pair[0], pair[1])
		})
	}
	for i, name := range a.names {
		put(name, a.values[i])
	}
	return d
}

func raise(s *state, a *callArgs) any {
	r := &Raised{str(s, a.bind(s, "raise_exception", 1, "message")[0])}
	panic(&syntax.Error{Line: s.line, Msg: r.Message, Err: r})
}

func joiner(s *state, a *callArgs) any {
	sep := a.bind(s, "joiner", 0, "sep")[0]
	if sep == unset {
		sep = ", "
	}
	used := false
	s.charge(frameBytes)
	return &function{"joiner", func(s *state, a *callArgs) any {
		a.positional(s, "a joiner", 0, 0)
		if used {
			return sep
		}
		used = true
		return ""
	}}
}

func strftimeNow(s *state, a *callArgs) any {
	format := wants(s, "strftime_now", a.bind(s, "strftime_now", 1, "format")[0])
	s.chargeProduct(24, len(format))
	text, err := strftime(s.now, format)
	if err != nil {
		s.fail("%v", err)
	}
	return text
}

// layouts are C's time formats in Go's.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'm': "01", 'y': "06",
	'Y': "2006",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'P': "pm", 'Z': "MST", 'z': "-0700", 'j': "002",
	'D': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'r': "03:04:05 PM",
	'c': "Mon Jan _2 15:04:05 2006",
	'x': "01/02/06", 'X': "15:04:05", 'n': "\n", 't': "\t", 'k': "_15", 'l': "_3",
}

// strftime formats t by the C codes templates use.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		c, flag := format[i], byte(0)
		if strings.IndexByte("-_0^", c) >= 0 && i+1 < len(format) { // %-d: no leading zero
			i++
			c, flag = format[i], c
		}
		v := ""
		switch layout, ok := layouts[c]; {
		case c == '%':
			v = "%"
		case c == 'f':
			v = fmt.Sprintf("%06d", t.Nanosecond()/1000)
		case c == 's':
			v = fmt.Sprint(t.Unix())
		case c == 'u':
			v = fmt.Sprint((int(t.Weekday())+6)%7 + 1)
		case c == 'w':
			v = fmt.Sprint(int(t.Weekday()))
		case c == 'C':
			v = fmt.Sprintf("%02d", t.Year()/100)
		case c == 'G' || c == 'V' || c == 'g':
			year, week := t.ISOWeek()
			v = fmt.Sprintf("%02d", map[byte]int{'G': year, 'V': week, 'g': year % 100}[c])
		case c == 'U' || c == 'W': // weeks begin on Sunday or Monday
			first := int(t.Weekday())
			if c == 'W' {
				first = (first + 6) % 7
			}
			v = fmt.Sprintf("%02d", (t.YearDay()+6-first)/7)
		case c == 'k':
			v = fmt.Sprintf("%2d", t.Hour())
		case c == 'l':
			v = fmt.Sprintf("%2d", (t.Hour()+11)%12+1)
		case ok:
			v = t.Format(layout)
		default:
			return "", fmt.Errorf("strftime_now does not know %%%c", c)
		}
		switch flag {
		case '-':
			if strings.IndexByte("cDFrRTxX", c) >= 0 {
				break
			}
			if v = strings.TrimLeft(v, "0 "); v == "" {
				v = "0"
			}
		case '_':
			for j := 0; j < len(v)-1 && v[j] == '0'; j++ {
				v = v[:j] + " " + v[j+1:]
			}
		case '0':
			v = strings.ReplaceAll(v, " ", "0")
		case '^':
			v = strings.ToUpper(v)
		}
		b.WriteString(v)
	}
	return b.String(), nil
}
