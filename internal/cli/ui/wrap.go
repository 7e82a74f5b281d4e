package ui

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// wrap breaks a model's text, as it streams, into lines of a window at spaces. Characters are written at once; when a
// word reaches the margin, its shown part is erased and written on the next line. Code stays as it is: lines between
// fences, lines indented by four columns or a tab, rows of tables. So does a word as long as a line, which the terminal
// breaks: an address that is copied has no line break in it.
type wrap struct {
	col   int    // of the cursor
	from  int    // the column at which the newest word begins
	word  []byte // its text
	long  bool   // the terminal breaks it
	head  []byte // how the line began
	fence bool   // within fences
}

const (
	narrowest = 20 // columns of a window; lines of a narrower one are the terminal's to break
	maxHead   = 8  // bytes of a line that tell what it is
)

// begin starts an answer with the cursor in column col, where our own text has left it. An answer begins outside
// fences.
func (w *wrap) begin(col int) {
	*w = wrap{col: col, from: col, word: w.word[:0], head: w.head[:0]}
}

// next begins a line of the text.
func (w *wrap) next() { w.col, w.from, w.word, w.long = 0, 0, w.word[:0], false }

// code reports whether the line is not to be broken.
func (w *wrap) code() bool {
	switch h := string(w.head); {
	case w.fence, strings.HasPrefix(h, "    "), strings.HasPrefix(h, "\t"), strings.HasPrefix(h, "|"):
		return true
	}
	return w.fences()
}

// fences reports whether the line is a fence.
func (w *wrap) fences() bool {
	h := strings.TrimLeft(string(w.head), " ")
	return strings.HasPrefix(h, "```") || strings.HasPrefix(h, "~~~")
}

// push returns what to write for the text s in a window of so many columns.
func (w *wrap) push(s string, width int) string {
	if width < narrowest {
		return s
	}
	most := width - 1 // behind the last column a terminal does not say where the cursor is
	out := make([]byte, 0, len(s)+16)
	for _, r := range s {
		if r == '\n' {
			if w.fences() {
				w.fence = !w.fence
			}
			w.next()
			w.head = w.head[:0]
			out = append(out, '\n')
			continue
		}
		if len(w.head) < maxHead {
			w.head = utf8.AppendRune(w.head, r)
		}
		n := Width(string(r))
		space := r == ' ' || r == '\t'
		if r == '\t' {
			n = 8 - w.col%8
		}
		if w.col+n > most && n > 0 && !w.long && !w.code() {
			switch {
			case space: // the break takes its place
				w.next()
				out = append(out, '\n')
				continue
			case n > 1: // scripts of wide characters are broken anywhere
				w.next()
				out = append(out, '\n')
			case w.from > 0:
				if back := w.col - w.from; back > 0 {
					out = append(append(append(out, "\x1b["...), strconv.Itoa(back)...), "D\x1b[K"...)
				}
				out = append(append(out, '\n'), w.word...)
				w.col, w.from = w.col-w.from, 0
			default:
				w.long = true
			}
		}
		out = utf8.AppendRune(out, r)
		if w.col += n; w.col > width { // the terminal has broken the line
			w.col = n
		}
		if space || n > 1 {
			w.from, w.word, w.long = w.col, w.word[:0], false
			continue
		}
		if !w.long {
			w.word = utf8.AppendRune(w.word, r)
		}
	}
	return string(out)
}

// column returns the column of the cursor after our own text s, which may be styled, from a column on.
func column(s string, from int) int {
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s, from = s[i+1:], 0
	}
	return from + plainWidth(s)
}
