package stream

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// Loose turns values in a notation that is not JSON into JSON while they are read: Python's literals (Keywords,
// Python), and Gemma's objects, whose keys have no quotes and whose strings are between the syntax's quotes (Braces).
type Loose struct {
	quote []byte // Gemma's; nil: Python's ' and "
	words bool   // a word that is no literal is a string

	state looseState
	stack []byte // what closes each open container
	close []byte // what ends the string being read
	key   bool   // the string is a key
	comma bool   // one is to be written if another item follows
}

type looseState uint8

const (
	looseValue looseState = iota
	looseFirst            // a value, or the container's end
	looseKeyFirst
	looseKey
	looseColon
	looseNext
	looseString
)

// Keywords prepares for the arguments of a call, after its parenthesis.
func (l *Loose) Keywords() { l.reset(nil, false, looseKeyFirst, ')') }

// Braces prepares for Gemma's arguments, after their brace.
func (l *Loose) Braces(quote []byte) { l.reset(quote, true, looseKeyFirst, '}') }

// Python prepares for a single value.
func (l *Loose) Python() { l.reset(nil, false, looseValue) }

func (l *Loose) reset(quote []byte, words bool, state looseState, stack ...byte) {
	l.quote, l.words, l.state, l.stack, l.close, l.comma = quote, words, state, append(l.stack[:0], stack...), nil,
		false
}

// Value converts a text that is one value, and appends it to out. It returns false for any other text.
func (l *Loose) Value(out *[]byte, text []byte) bool {
	n, v := l.Read(out, text, true)
	return v == Done && len(bytes.TrimSpace(text[n:])) == 0
}

// Read converts as much of text as can be told, appends it to out, and returns the bytes read. final says that no text
// follows. The verdict is Done where the arguments, or the single value, end.
func (l *Loose) Read(out *[]byte, text []byte, final bool) (n int, v Verdict) {
	for n < len(text) {
		if l.state != looseString && IsSpace(text[n]) {
			n++
			continue
		}
		m, v := l.step(out, text[n:], final)
		if n += m; v != More || m == 0 {
			return n, v
		}
	}
	return n, More
}

// step reads one part of the text: a string's piece, a word, or a sign. It reads nothing where it cannot tell yet.
func (l *Loose) step(out *[]byte, text []byte, final bool) (n int, v Verdict) {
	c := text[0]
	switch l.state {
	case looseString:
		return l.inString(out, text, final)
	case looseColon:
		if c != ':' && c != '=' {
			return 0, Bad
		}
		*out = append(*out, ':')
		l.state = looseValue
		return 1, More
	case looseNext:
		switch {
		case c == l.stack[len(l.stack)-1]:
			return 1, l.pop(out)
		case c != ',':
			return 0, Bad
		}
		if l.state = looseFirst; l.inObject() {
			l.state = looseKeyFirst // a comma may end a list
		}
		l.comma = true
		return 1, More
	case looseKey, looseKeyFirst, looseFirst:
		if c == l.stack[len(l.stack)-1] {
			return 1, l.pop(out)
		}
	}
	key := l.state == looseKey || l.state == looseKeyFirst
	if n := l.quoted(out, text, key, final); n > 0 {
		return n, More
	} else if l.undecided(text, final) {
		return 0, More
	}
	if !key {
		if end, ok := closers[c]; ok {
			if len(l.stack) == MaxNesting {
				return 0, Bad
			}
			l.item(out)
			l.stack = append(l.stack, end)
			if l.state = looseFirst; end == '}' {
				l.state = looseKeyFirst
				*out = append(*out, '{')
			} else {
				*out = append(*out, '[')
			}
			return 1, More
		}
	}
	return l.word(out, text, key, final)
}

var closers = map[byte]byte{'{': '}', '[': ']', '(': ')'}

// inObject reports whether the innermost container has keys: the call's own parenthesis has.
func (l *Loose) inObject() bool {
	n := len(l.stack)
	return l.stack[n-1] == '}' || n == 1 && l.stack[0] == ')'
}

func (l *Loose) pop(out *[]byte) Verdict {
	l.comma = false
	end := byte(']')
	if l.inObject() {
		end = '}'
	}
	*out = append(*out, end)
	l.stack = l.stack[:len(l.stack)-1]
	return l.ended()
}

// item begins an item of a container.
func (l *Loose) item(out *[]byte) {
	if l.comma {
		*out, l.comma = append(*out, ','), false
	}
}

func (l *Loose) ended() Verdict {
	if len(l.stack) == 0 {
		return Done
	}
	l.state = looseNext
	return More
}

// quotes are Python's, the longer first.
var quotes = [][]byte{[]byte(`"""`), []byte(`'''`), []byte(`"`), []byte(`'`)}

// quoted begins a string, if text does, and returns the length of its quote; else 0.
func (l *Loose) quoted(out *[]byte, text []byte, key, final bool) (n int) {
	list := quotes
	if l.quote != nil {
		list = [][]byte{l.quote, quotes[2]}
	}
	for _, q := range list {
		switch _, f := At(text, q, final); f {
		case Wait:
			return 0
		case Yes:
			l.close, l.key, l.state = q, key, looseString
			l.item(out)
			*out = append(*out, '"')
			return len(q)
		}
	}
	return 0
}

// undecided reports whether text may be the beginning of a quote.
func (l *Loose) undecided(text []byte, final bool) bool {
	if l.quote != nil {
		_, f := At(text, l.quote, final)
		return f == Wait
	}
	return text[0] == '"' || text[0] == '\''
}

// inString reads a piece of a string.
func (l *Loose) inString(out *[]byte, text []byte, final bool) (n int, v Verdict) {
	switch _, f := At(text, l.close, final); f {
	case Wait:
		return 0, More
	case Yes:
		ends, known := l.closes(text[len(l.close):], final)
		if !known {
			return 0, More
		}
		if ends {
			*out = append(*out, '"')
			if l.state = looseColon; !l.key {
				return len(l.close), l.ended()
			}
			return len(l.close), More
		}
	}
	c := text[0]
	switch {
	case c == '\\' && (l.quote == nil || len(l.close) == 1):
		return l.escape(out, text, final)
	case c >= utf8.RuneSelf && !IsFence(c) && !utf8.FullRune(text) && !final:
		return 0, More
	}
	_, size := utf8.DecodeRune(text)
	*out, _ = AppendString(*out, text[:size], true)
	return size, More
}

// closes reports whether the quote before text ends the string. Models do not escape a quote within a string, so a
// single one does only where what holds the string continues: an argument of a call by another or by the call's end.
func (l *Loose) closes(text []byte, final bool) (ends, known bool) {
	if len(l.close) > 1 {
		return true, true
	}
	i := afterSpace(text, 0)
	if i == len(text) {
		return true, final
	}
	argument := len(l.stack) == 1 && l.stack[0] == ')'
	switch c := text[i]; {
	case l.key:
		return c == ':' || c == '=', true
	case c == ')' && argument:
		if i = afterSpace(text, i+1); i == len(text) {
			return true, final
		}
		return text[i] == ']' || text[i] == ',' || text[i] == ';' || text[i] == '<' || IsFence(text[i]), true
	case c == ',' && argument:
		for i = afterSpace(text, i+1); i < len(text) && NameByte(text[i]); i++ {
		}
		if i = afterSpace(text, i); i == len(text) {
			return true, final
		}
		return text[i] == '=' || text[i] == ')', true
	default:
		return c == ',' || c == ')' || c == ']' || c == '}', true
	}
}

// afterSpace returns where the white space at i ends.
func afterSpace(text []byte, i int) int {
	for i < len(text) && IsSpace(text[i]) {
		i++
	}
	return i
}

// escape reads a backslash in a string.
func (l *Loose) escape(out *[]byte, text []byte, final bool) (n int, v Verdict) {
	if len(text) < 2 {
		if !final {
			return 0, More
		}
		*out = append(*out, `\\`...)
		return 1, More
	}
	digits := 0
	switch c := text[1]; c {
	case 'n', 'r', 't', 'b', 'f', '"', '\\', '/':
		*out = append(*out, '\\', c)
		return 2, More
	case '\'':
		*out = append(*out, c)
		return 2, More
	case '\n':
		return 2, More
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	}
	if digits > 0 {
		if len(text) < 2+digits && !final {
			return 0, More
		}
		if r, err := strconv.ParseUint(string(text[2:min(len(text), 2+digits)]), 16, 32); err == nil && len(text) >= 2+
			digits {
			if digits == 4 && r >= 0xD800 && r < 0xE000 { // half of a pair: JSON writes it the same way
				*out = append(*out, text[:6]...)
			} else {
				*out, _ = AppendString(*out, utf8.AppendRune(nil, rune(r)), true)
			}
			return 2 + digits, More
		}
	}
	*out = append(*out, `\\`...) // an unknown escape is text
	return 1, More
}

// maxWord bounds a word: a key, a number, a literal.
const maxWord = 256

// word reads a value or key without quotes.
func (l *Loose) word(out *[]byte, text []byte, key, final bool) (n int, v Verdict) {
	for n < len(text) && !ends(text[n], key) {
		if n++; n > maxWord {
			return 0, Bad
		}
	}
	if n == len(text) && !final {
		return 0, More
	}
	w := bytes.TrimSpace(text[:n])
	switch {
	case len(w) == 0:
		return 0, Bad
	case key:
		l.item(out)
		*out = AppendQuoted(*out, w)
		l.state = looseColon
		return n, More
	}
	l.item(out)
	switch string(w) {
	case "True", "true":
		*out = append(*out, "true"...)
	case "False", "false":
		*out = append(*out, "false"...)
	case "None", "null":
		*out = append(*out, "null"...)
	default:
		switch {
		case ValidJSON(w) != 0:
			*out = append(*out, w...)
		case isNumber(w):
			*out = appendNumber(*out, w)
		case l.words:
			*out = AppendQuoted(*out, w)
		default:
			return 0, Bad
		}
	}
	return n, l.ended()
}

// ends reports whether c ends a word.
func ends(c byte, key bool) bool {
	switch c {
	case ',', ')', ']', '}':
		return true
	case ':', '=':
		return key
	}
	return IsFence(c)
}

// isNumber reports whether w is a number that JSON writes otherwise: 07, 1_000, +1, .5, 5.
func isNumber(w []byte) bool {
	for _, c := range w {
		if !(c >= '0' && c <= '9' || c == '_' || c == '.' || c == '+' || c == '-' || c == 'e' || c == 'E') {
			return false
		}
	}
	_, err := strconv.ParseFloat(string(bytes.ReplaceAll(w, []byte("_"), nil)), 64)
	return err == nil
}

func appendNumber(out, w []byte) []byte {
	text := string(bytes.ReplaceAll(w, []byte("_"), nil))
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return strconv.AppendInt(out, n, 10)
	}
	f, _ := strconv.ParseFloat(text, 64)
	return strconv.AppendFloat(out, f, 'g', -1, 64)
}
