package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

func wordWrap(s *state, v any, a *callArgs) any {
	p := a.bind(s, "wordwrap", 0, "width", "break_long_words", "wrapstring", "break_on_hyphens")
	w := wrapper{s: s, width: 79, long: p[1] == unset || truth(p[1]), hyphens: p[3] == unset || truth(p[3])}
	if p[0] != unset {
		w.width = int(max(0, min(count(s, "wordwrap", p[0]), 1<<40)))
	}
	end := "\n"
	if !isNone(p[2]) {
		end = wants(s, "wordwrap", p[2])
	}
	t, ok := text(v)
	if !ok {
		s.fail("wordwrap wants a string, not a %s", typeName(v))
	}
	b := buffer{s: s}
	for i, line := range splitLines(s, t, false) {
		if i > 0 {
			b.put(end)
		}
		for j, part := range w.wrap(line) {
			if j > 0 {
				b.put(end)
			}
			b.put(part)
		}
	}
	return b.String()
}

// wrapper fills lines as Python's textwrap does.
type wrapper struct {
	s             *state
	width         int
	long, hyphens bool
}

// blank reports whether r is white space for textwrap.
func blank(r rune) bool { return strings.ContainsRune("\t\n\v\f\r ", r) }

// chunks are the pieces of a line that may not be broken further: words, blanks, and parts of words up to a hyphen.
func (w *wrapper) chunks(line string) (list []string) {
	r := []rune(line)
	at := func(i int) rune {
		if i < 0 || i >= len(r) {
			return 0
		}
		return r[i]
	}
	letter := func(i int) bool { return isWord(at(i)) && !unicode.IsDigit(at(i)) && at(i) != '_' }
	punctuated := func(i int) bool { return i >= 0 && (isWord(at(i)) || strings.ContainsRune(`!"'&.,?`, at(i))) }
	// dashes returns the end of a run of two or more hyphens before a word, or 0.
	dashes := func(i int) int {
		j := i
		for at(j) == '-' {
			j++
		}
		if j >= i+2 && isWord(at(j)) {
			return j
		}
		return 0
	}
	for i := 0; i < len(r); {
		j := i + 1
		switch {
		case blank(r[i]):
			for j < len(r) && blank(r[j]) {
				j++
			}
		case w.hyphens && punctuated(i-1) && dashes(i) > 0:
			j = dashes(i)
		default:
			for j < len(r) && !blank(r[j]) {
				if w.hyphens {
					if at(j) == '-' && (letter(j-2) && letter(j-1) || letter(j-3) && at(j-2) == '-' && letter(j-1)) &&
						letter(j+1) && (letter(j+2) || at(j+2) == '-' && letter(j+3)) {
						j++
						break
					}
					if punctuated(j-1) && dashes(j) > 0 {
						break
					}
				}
				j++
			}
		}
		list = append(list, string(r[i:j]))
		i = j
	}
	return list
}

func (w *wrapper) wrap(line string) (lines []string) {
	w.s.charge(24 * len(line))
	w.s.scan(64 * len(line))
	if w.width <= 0 {
		w.s.fail("wordwrap wants a width above 0")
	}
	rest := w.chunks(line)
	slices.Reverse(rest) // the next one is last
	for len(rest) > 0 {
		w.s.step()
		var current []string
		size := 0
		take := func(c string) {
			current = append(current, c)
			size += utf8.RuneCountInString(c)
		}
		if last := rest[len(rest)-1]; len(lines) > 0 && strings.TrimFunc(last, isSpace) == "" {
			rest = rest[:len(rest)-1]
		}
		for len(rest) > 0 && size+utf8.RuneCountInString(rest[len(rest)-1]) <= w.width {
			take(rest[len(rest)-1])
			rest = rest[:len(rest)-1]
		}
		if len(rest) > 0 && utf8.RuneCountInString(rest[len(rest)-1]) > w.width {
			c := rest[len(rest)-1]
			w.s.charge(len(c))
			switch {
			case w.long:
				end := offset(c, w.width-size)
				if w.hyphens {
					if i := strings.LastIndexByte(c[:end], '-'); i > 0 && strings.Trim(c[:i], "-") != "" {
						end = i + 1
					}
				}
				take(c[:end])
				rest[len(rest)-1] = c[end:]
			case len(current) == 0:
				take(c)
				rest = rest[:len(rest)-1]
			}
		}
		if n := len(current); n > 0 && strings.TrimFunc(current[n-1], isSpace) == "" {
			current = current[:n-1]
		}
		if len(current) > 0 {
			w.s.charge(itemBytes)
			lines = append(lines, strings.Join(current, ""))
		}
	}
	return lines
}
