package ui

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// wrapped returns the lines of a terminal of so many columns after text with line breaks, CSI nD and CSI K. A character
// in the last column leaves the cursor there, as terminals do; the next one begins a line.
func wrapped(s string, columns int) (lines []string) {
	var line []string // of one cell each, "" behind a wide one
	at := 0
	end := func() { lines, line, at = append(lines, strings.Join(line, "")), nil, 0 }
	for s != "" {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			i := strings.IndexAny(rest, "DKm")
			if n, _ := strconv.Atoi(rest[:i]); rest[i] == 'D' {
				at = max(at-n, 0)
			} else if rest[i] == 'K' {
				line = line[:at]
			}
			s = rest[i+1:]
			continue
		}
		r := string([]rune(s)[0])
		s = s[len(r):]
		switch n := Width(r); {
		case r == "\n":
			end()
		case n == 0:
			line[at-1] += r
		default:
			if at+n > columns {
				end()
			}
			if line, at = append(line[:at], r), at+n; n == 2 {
				line = append(line, "")
			}
		}
	}
	return append(lines, strings.Join(line, ""))
}

// Lines of an answer break at spaces, however its text is divided; code and long words stay as they are.
func TestTerminalWrapsAtWords(t *testing.T) {
	const columns = 24
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"words", "The quick brown fox jumps over the lazy dog.\nAnd again.",
			[]string{"The quick brown fox", "jumps over the lazy", "dog.", "And again."}},
		{"to the last column but one", "aaaaaaaaaaa bbbbbbbbbbb cc", []string{"aaaaaaaaaaa bbbbbbbbbbb", "cc"}},
		{"an address", "See https://example.org/a/long/address now.",
			[]string{"See ", "https://example.org/a/lo", "ng/address now."}},
		{"a fence", "```\nx := one + two + three + four\n```\nfive six seven eight nine ten",
			[]string{"```", "x := one + two + three +", " four", "```", "five six seven eight", "nine ten"}},
		{"indented code", "    x := one + two + three", []string{"    x := one + two + thr", "ee"}},
		{"a table", "| one | two | three | four |", []string{"| one | two | three | fo", "ur |"}},
		{"wide characters", "日本語日本語日本語日本語日本語", []string{"日本語日本語日本語日本", "語日本語"}},
		{"combining characters", strings.Repeat("e\u0301", 11) + " " + strings.Repeat("e\u0301", 13),
			[]string{strings.Repeat("e\u0301", 11) + " ", strings.Repeat("e\u0301", 13)}},
		{"an indented item", "  - one two three four five", []string{"  - one two three four ", "five"}},
	} {
		for size := 1; size <= len(c.text); size += 1 + size/3 {
			var out strings.Builder
			term := Window(&out, true, columns, 10)
			rest := []rune(c.text)
			for len(rest) > 0 {
				n := min(size, len(rest))
				if err := term.Text(string(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			got := wrapped(out.String(), columns)
			for i := range got {
				got[i] = strings.TrimRight(got[i], " ")
			}
			want := strings.Split(strings.TrimRight(strings.Join(c.want, "\n"), " "), "\n")
			for i := range want {
				want[i] = strings.TrimRight(want[i], " ")
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s in pieces of %d: %q, not %q", c.name, size, got, want)
				break
			}
		}
	}
}

// Whatever comes in whatever pieces, what is shown has the text's words in their order, no line is wider than the
// window, and none but a long word's is broken within a word.
func TestWrapKeepsTheWords(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			columns := narrowest + r.IntN(40)
			var words []string
			for range 60 {
				words = append(words, strings.Repeat(string('a'+rune(r.IntN(26))), 1+r.IntN(columns-2)))
			}
			text := strings.Join(words, " ")
			var out strings.Builder
			term := Window(&out, true, columns, 10)
			if r.IntN(2) == 0 {
				term.Print("> ")
			}
			for rest := text; rest != ""; {
				n := 1 + r.IntN(min(len(rest), 12))
				term.Text(rest[:n])
				rest = rest[n:]
			}
			lines := wrapped(out.String(), columns)
			for _, l := range lines {
				if len(l) > columns {
					t.Fatalf("%q has %d of %d columns", l, len(l), columns)
				}
			}
			shown := strings.Fields(strings.TrimPrefix(strings.Join(lines, "\n"), "> "))
			if strings.Join(shown, " ") != text {
				t.Fatalf("%q shows %q", lines, text)
			}
		})
	}
}

// Nothing but the text goes to a pipe or to a terminal without escapes.
func TestWrapNeedsEscapes(t *testing.T) {
	text := strings.Repeat("word ", 50)
	for _, tty := range []bool{false, true} {
		var out strings.Builder
		term := New(&out, tty, false, func() int { return 30 })
		if err := term.Text(text); err != nil || out.String() != text {
			t.Errorf("terminal %v: %q, %v", tty, out.String(), err)
		}
	}
}
