package llama

import (
	"strings"
	"unicode/utf8"
)

// Two things keep llama.cpp from tokenizing any text in one piece.
//
// Most BPE vocabularies split a text into words by std::regex, which recurses once per character of a match, 360 bytes
// each: a line of 29,000 letters, blanks or dots overflows a thread's 8 MB and ends the process (seen with the
// pre-tokenizers qwen2, gpt-4o, tekken, deepseek and others). So all but short texts are tokenized on a thread with
// deepStack bytes, of which only what is needed is ever touched, and what looks like one endless word is cut.
//
// Markers are looked for in all that is left of a text, once for each marker found: 65,536 of them, 800 kB, took 7 s.
// So a text with markers is cut in front of one from time to time, where it makes no difference to the result.
const (
	shallow     = 512       // bytes of text that fit every thread's stack
	deepStack   = 256 << 20 // bytes
	longestRun  = 64 << 10  // characters without a border between words; longer ones are cut
	markerPiece = 16 << 10  // bytes after which a text is cut at the next marker
)

// cuts knows where texts for one vocabulary may be cut.
type cuts struct {
	recursive bool // words are found by recursion
	atMarkers bool // a text may be cut in front of a marker

	markers [256][]marker // by first byte
	longest int           // bytes of the longest marker
}

type marker struct {
	text string
	cut  bool // nothing before it belongs to it
}

func (c *cuts) add(text string, cut bool) {
	if text != "" {
		c.markers[text[0]] = append(c.markers[text[0]], marker{text, cut})
		c.longest = max(c.longest, len(text))
	}
}

// at is the longest marker that text has at i.
func (c *cuts) at(text string, i int) (m marker) {
	for _, x := range c.markers[text[i]] {
		if len(x.text) > len(m.text) && strings.HasPrefix(text[i:], x.text) {
			m = x
		}
	}
	return m
}

// inside is where a marker begins that i lies inside of, else i.
func (c *cuts) inside(text string, i int) int {
	for j := max(0, i-c.longest+1); j < i; j++ {
		if j+len(c.at(text, j).text) > i {
			return j
		}
	}
	return i
}

// first is the length of the first piece of text; the rest is the next piece's.
func (c *cuts) first(text string, parseSpecial bool) int {
	run := 0
	prev := byte(0)
	for i := 0; i < len(text); i++ {
		b := text[i]
		if parseSpecial && c.atMarkers && i >= markerPiece && len(c.markers[b]) > 0 {
			if m := c.at(text, i); m.cut && c.inside(text, i) == i {
				return i
			}
		}
		if !c.recursive || !utf8.RuneStart(b) {
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

// isPlain: ASCII letters and digits. No pre-tokenizer's word goes on from one of these over a blank.
func isPlain(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z'
}
