package jinja

import (
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// formatMethod is str.format: {}, {0}, {name.attr[key]} and {!r}, without specifications ({:>8}).
func formatMethod(s *state, self string, a *callArgs, escaped bool) string {
	s.charge(len(a.names) * entryBytes)
	f := &formatter{s: s, args: a, named: a.byName(), escaped: escaped}
	return f.format(self)
}

type formatter struct {
	s       *state
	args    *callArgs
	named   map[string]int
	next    int
	manual  bool
	escaped bool // for markup: values are escaped
}

func (f *formatter) format(text string) string {
	s := f.s
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
		b.put(f.field(rest[i+1 : end-1]))
		rest = rest[end:]
	}
}

// field returns the text of the replacement field t, the part between braces.
func (f *formatter) field(t string) string {
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
			s.fail("format: the conversion !a is not supported")
		default:
			s.fail("format: unknown conversion !%c", rest[1])
		}
		rest = rest[2:]
	}
	if rest != "" && rest != ":" {
		s.fail("format: the specification {%s} is not supported", rest)
	}
	if m, ok := v.(markup); ok && f.escaped {
		return string(m)
	}
	if f.escaped {
		return string(escape(s, v))
	}
	return str(s, v)
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
	} else if syntax.Digits(first, syntax.Decimal) == len(first) {
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
		if n, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil && syntax.Decimal(rest[1]) {
			v = s.item(v, n)
		} else {
			v = s.item(v, rest[1:end])
		}
		rest = rest[end+1:]
	}
	return v
}
