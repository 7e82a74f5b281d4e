package sampler

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// maxStopBytes is the longest stop string; ipc/wire refuses longer ones.
const maxStopBytes = 256

// TextStream turns the bytes of tokens into text for a client. It holds back only:
//
//   - the first bytes of an incomplete character. Each invalid byte is shown as U+FFFD, as in Go's
//     conversions.
//   - the longest suffix of the text that may begin a stop string.
//
// The stop string that is complete first ends the text (the longest, if several end together); the text before it is
// shown. The output does not depend on the division of the bytes into tokens.
//
// A returned slice is valid until the next Push or Pass; appending to it does not change the stream. The zero value has
// no stop strings.
type TextStream struct {
	stops   []stopMatcher
	stopped int // 1 + index of the stop string that matched; 0 = none

	// buf is decoded text: buf[:shown] was returned by the last call, buf[shown:] is held back.
	buf   []byte
	shown int
	part  [utf8.UTFMax]byte // part[:n] begins a character. Invariant: !utf8.FullRune(part[:n]) for n > 0
	n     int
}

// stopMatcher searches for one string byte by byte (Knuth, Morris, Pratt).
type stopMatcher struct {
	s    string
	fail []int16 // fail[i]: the longest proper prefix of s that s[:i+1] ends with
	at   int     // length of the longest prefix of s that the text ends with. Invariant: it is held back until a match
}

// Init makes the stream empty and sets its stop strings. It ignores invalid ones, which no text can contain.
func (t *TextStream) Init(stops []string) {
	*t = TextStream{buf: t.buf[:0], stops: t.stops[:0]}
	if t.buf == nil {
		t.buf = make([]byte, 0, 128)
	}
	for _, s := range stops {
		if s == "" || len(s) > maxStopBytes || !utf8.ValidString(s) {
			continue
		}
		m := stopMatcher{s: s, fail: make([]int16, len(s))}
		for i := 1; i < len(s); i++ {
			m.step(s[i])
			m.fail[i] = int16(m.at)
		}
		m.at = 0
		t.stops = append(t.stops, m)
	}
}

// step moves the matcher over one byte and reports whether that completed the string. Do not call it after that.
func (m *stopMatcher) step(c byte) bool {
	for m.at > 0 && m.s[m.at] != c {
		m.at = int(m.fail[m.at-1])
	}
	if m.s[m.at] == c {
		m.at++
	}
	return m.at == len(m.s)
}

// Stopped returns the stop string that ended the text; "" when there is none.
func (t *TextStream) Stopped() string {
	if t.stopped == 0 {
		return ""
	}
	return t.stops[t.stopped-1].s
}

// Push adds the bytes of a token and returns the text that may be shown now, and whether a stop string ended the text.
// After the end, Push returns nothing.
func (t *TextStream) Push(piece []byte) (text []byte, stopped bool) {
	if t.stopped > 0 {
		return nil, true
	}
	held := t.decode(piece)
	t.shown = t.search(held)
	return t.buf[:t.shown:t.shown], t.stopped > 0
}

// Pass adds the bytes of a token without looking for stop strings, for example of thinking, and returns all text except
// an incomplete character. A stop string does not match across passed text.
func (t *TextStream) Pass(piece []byte) (text []byte) {
	if t.stopped > 0 {
		return nil
	}
	t.decode(piece)
	t.forgetMatches()
	t.shown = len(t.buf)
	return t.buf[:t.shown:t.shown]
}

// Flush returns the held-back text at the end of the stream. The slice returned by the call before remains valid. A
// stop string that ends in U+FFFD may match only now.
func (t *TextStream) Flush() []byte {
	if t.stopped > 0 {
		return nil
	}
	from, held := t.shown, len(t.buf)
	for range t.n { // each byte of the incomplete character is invalid now
		t.buf = utf8.AppendRune(t.buf, utf8.RuneError)
	}
	t.n = 0
	end := t.search(held)
	if t.stopped == 0 {
		end = len(t.buf)
	}
	t.forgetMatches()
	t.shown = end
	return t.buf[from:end:end]
}

// search moves the matchers over buf[from:] and returns how much of buf may be shown.
func (t *TextStream) search(from int) (end int) {
	if len(t.stops) == 0 {
		return len(t.buf)
	}
	for i := from; i < len(t.buf); i++ {
		longest := 0
		for j := range t.stops {
			if m := &t.stops[j]; m.step(t.buf[i]) && len(m.s) > longest {
				longest, t.stopped = len(m.s), j+1
			}
		}
		if longest > 0 {
			// Invariant: buf holds the whole match, because its beginning was held back.
			return i + 1 - longest
		}
	}
	held := 0
	for i := range t.stops {
		held = max(held, t.stops[i].at)
	}
	return len(t.buf) - held
}

func (t *TextStream) forgetMatches() {
	for i := range t.stops {
		t.stops[i].at = 0
	}
}

// decode drops the shown text, appends the text of piece to the held-back text, and returns where it begins in buf.
func (t *TextStream) decode(piece []byte) (begin int) {
	t.buf = append(t.buf[:0], t.buf[t.shown:]...)
	t.shown = 0
	begin = len(t.buf)
	// Complete the unfinished character first: each iteration adds a byte and removes the complete characters.
	for t.n > 0 && len(piece) > 0 {
		t.part[t.n] = piece[0]
		t.n++
		piece = piece[1:]
		for t.n > 0 && utf8.FullRune(t.part[:t.n]) {
			r, size := utf8.DecodeRune(t.part[:t.n])
			t.buf = utf8.AppendRune(t.buf, r)
			t.n = copy(t.part[:], t.part[size:t.n])
		}
	}
	if utf8.Valid(piece) {
		t.buf = append(t.buf, piece...)
		return begin
	}
	for len(piece) > 0 {
		if !utf8.FullRune(piece) {
			t.n = copy(t.part[:], piece)
			break
		}
		r, size := utf8.DecodeRune(piece)
		t.buf = utf8.AppendRune(t.buf, r)
		piece = piece[size:]
	}
	return begin
}

// check panics when an invariant is broken. Tests call it after every step.
func (t *TextStream) check() {
	if t.n > 0 && utf8.FullRune(t.part[:t.n]) {
		panic(fmt.Sprintf("sampler: %q is held back as unfinished", t.part[:t.n]))
	}
	if held := t.buf[t.shown:]; t.stopped == 0 {
		for _, m := range t.stops {
			if !bytes.HasSuffix(held, []byte(m.s[:m.at])) {
				panic(fmt.Sprintf("sampler: %q may be forming, %q is held back", m.s[:m.at], held))
			}
		}
	}
}
