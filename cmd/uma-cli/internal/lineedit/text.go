package lineedit

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// text is the text in the editor, with its cursor.
type text struct {
	s  string
	at int // Invariant: the cursor's byte offset, at the beginning of a rune or len(s).
}

// cluster returns the first grapheme cluster of s, what a reader takes for one character, and its width in columns.
func cluster(s string) (first string, width int) {
	if len(s) > 0 && s[0] >= 0x20 && s[0] < 0x7f && (len(s) == 1 || s[1] < 0x80) {
		return s[:1], 1
	}
	first, _, width, _ = uniseg.FirstGraphemeClusterInString(s, -1)
	return first, width
}

func (t *text) set(s string) { t.s, t.at = s, len(s) }

func (t *text) insert(s string) {
	t.s = t.s[:t.at] + s + t.s[t.at:]
	t.at += len(s)
}

// before returns the byte offset at which the grapheme cluster before the cursor begins.
func (t *text) before() int {
	from := strings.LastIndexByte(t.s[:t.at], '\n') + 1
	if from == t.at {
		return max(t.at-1, 0)
	}
	for from < t.at {
		c, _ := cluster(t.s[from:])
		if from+len(c) >= t.at {
			break
		}
		from += len(c)
	}
	return from
}

// after returns the byte offset at which the grapheme cluster at the cursor ends.
func (t *text) after() int {
	if t.at == len(t.s) {
		return t.at
	}
	c, _ := cluster(t.s[t.at:])
	return t.at + len(c)
}

// lineStart and lineEnd are the ends of the cursor's line.
func (t *text) lineStart() int { return strings.LastIndexByte(t.s[:t.at], '\n') + 1 }

func (t *text) lineEnd() int {
	if i := strings.IndexByte(t.s[t.at:], '\n'); i >= 0 {
		return t.at + i
	}
	return len(t.s)
}

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '_'
}

func inBlankWord(r rune) bool { return !unicode.IsSpace(r) }

// wordBefore returns the beginning of the word that ends at or before the cursor.
func (t *text) wordBefore(in func(rune) bool) int {
	head := strings.TrimRightFunc(t.s[:t.at], func(r rune) bool { return !in(r) })
	return len(strings.TrimRightFunc(head, in))
}

// wordAfter returns the end of the word that begins at or after the cursor.
func (t *text) wordAfter(in func(rune) bool) int {
	tail := strings.TrimLeftFunc(t.s[t.at:], func(r rune) bool { return !in(r) })
	return len(t.s) - len(strings.TrimLeftFunc(tail, in))
}

// cut removes the text between the cursor and to, and returns it.
func (t *text) cut(to int) string {
	from, end := min(t.at, to), max(t.at, to)
	gone := t.s[from:end]
	t.s, t.at = t.s[:from]+t.s[end:], from
	return gone
}

// swap exchanges the clusters around the cursor, at the end of a line the two before it.
func (t *text) swap() {
	if t.at == t.lineEnd() {
		t.at = t.before()
	}
	mid := t.at
	if mid <= t.lineStart() {
		return
	}
	from, end := t.before(), t.after()
	t.s, t.at = t.s[:from]+t.s[mid:end]+t.s[from:mid]+t.s[end:], end
}

// valid makes s UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }
