// Package cuts knows where a text may be cut before it is tokenized, so that the tokens stay the same.
package cuts

import (
	"strings"
	"unicode/utf8"
)

// Two things keep llama.cpp from tokenizing any text in one piece.
//
// Most BPE vocabularies split a text into words by std::regex, which recurses once per character of a match, 360 bytes
// each: a line of 29,000 letters, blanks or dots overflows a thread's 8 MB and ends the process (seen with the
// pre-tokenizers qwen2, gpt-4o, tekken, deepseek and others). So all but short texts are tokenized on a thread with
// DeepStack bytes, of which only the used part is touched, and an extremely long word is cut.
//
// For each marker found, llama.cpp searches the whole rest of the text for markers: 65,536 of them, 800 kB, took 7 s.
// So a long text with markers is cut in front of some of them, which does not change the result.
//
// Where a vocabulary allows it (Cuts.Words), texts are cut into pieces of some hundred bytes: they need no deep stack,
// which makes tokenizing them twice as fast, and the same beginning always has the same pieces, which the daemon
// remembers.
const (
	Shallow     = 512       // bytes of text that fit every thread's stack
	DeepStack   = 256 << 20 // bytes
	longestRun  = 64 << 10  // characters without a border between words; longer ones are cut
	markerPiece = 16 << 10  // bytes after which a text is cut at the next marker
	wordPiece   = 256       // bytes after which a text is cut at the next border that Words allows
)

// Cuts knows where texts for one vocabulary may be cut.
type Cuts struct {
	Recursive bool // words are found by recursion
	AtMarkers bool // a text may be cut in front of a marker
	// Words: a text may be cut between an ASCII letter or digit and the blank behind it. Splitters by regular
	// expression look no farther back than the match they are in, and ahead only over blanks and digits; no match goes
	// from a letter or digit on to a blank. Where a vocabulary has no split there (superbpe), it has tokens that lie
	// across: see Crosses.
	Words bool

	markers [256][]marker // by first byte
	longest int           // bytes of the longest marker
}

type marker struct {
	text string
	cut  bool // nothing before it belongs to it
}

// Add adds a marker, a text that is one token. cut: nothing before it belongs to it.
func (c *Cuts) Add(text string, cut bool) {
	if text != "" {
		c.markers[text[0]] = append(c.markers[text[0]], marker{text, cut})
		c.longest = max(c.longest, len(text))
	}
}

// at returns the longest marker that text has at i.
func (c *Cuts) at(text string, i int) (m marker) {
	for _, x := range c.markers[text[i]] {
		if len(x.text) > len(m.text) && strings.HasPrefix(text[i:], x.text) {
			m = x
		}
	}
	return m
}

// inside returns the start of the marker that contains i, or i.
func (c *Cuts) inside(text string, i int) int {
	for j := max(0, i-c.longest+1); j < i; j++ {
		if j+len(c.at(text, j).text) > i {
			return j
		}
	}
	return i
}

// Crosses reports whether a token continues from a letter or digit across a blank. Where none does, no merge of BPE
// does.
func Crosses(piece []byte) bool {
	for i := 1; i < len(piece); i++ {
		if isPlain(piece[i-1]) && isBlank(piece[i]) {
			return true
		}
	}
	return false
}

// touched reports whether a marker contains i or ends there: it might include the blanks behind it.
func (c *Cuts) touched(text string, i int) bool {
	for j := max(0, i-c.longest); j < i; j++ {
		if j+len(c.at(text, j).text) >= i {
			return true
		}
	}
	return false
}

// Part returns the least length in [from, to) at which text can be cut without changing its tokens; len(text) when
// there is none.
func (c *Cuts) Part(text string, from, to int, parseSpecial bool) int {
	for i := max(from, 1); i < min(to, len(text)); i++ {
		if parseSpecial && c.AtMarkers && len(c.markers[text[i]]) > 0 {
			if m := c.at(text, i); m.cut && c.inside(text, i) == i {
				return i
			}
		}
		if c.Words && isBlank(text[i]) && isPlain(text[i-1]) && !c.touched(text, i) {
			return i
		}
	}
	return len(text)
}

// First returns the length of the first piece of text.
func (c *Cuts) First(text string, parseSpecial bool) int {
	if c.Words {
		if n := c.Part(text, wordPiece, longestRun, parseSpecial); n < len(text) {
			return n
		}
	}
	run := 0
	prev := byte(0)
	for i := 0; i < len(text); i++ {
		b := text[i]
		if parseSpecial && c.AtMarkers && i >= markerPiece && len(c.markers[b]) > 0 {
			if m := c.at(text, i); m.cut && c.inside(text, i) == i {
				return i
			}
		}
		if !c.Recursive || !utf8.RuneStart(b) {
			continue
		}
		if isBlank(prev) && isPlain(b) || isPlain(prev) && isBlank(b) {
			run = 0
		}
		prev = b
		if run++; run > longestRun {
			if j := c.inside(text, i); j > 0 {
				return j
			}
		}
	}
	return len(text)
}

func isBlank(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// isPlain: ASCII letters and digits. No pre-tokenizer's word continues from one of these across a blank.
func isPlain(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z'
}
