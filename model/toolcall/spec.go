package toolcall

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// Vocabulary is the part of runtime.Vocab that resolving a syntax needs. Find returns a negative number for no token.
type Vocabulary interface {
	Size() int
	Piece(t int32) []byte
	Text(t int32) string
	IsControl(t int32) bool
	Find(text string) int32
}

// Spec is a syntax in terms of one vocabulary. It is immutable and shared by all requests of a model.
//
// A marker that the vocabulary has as a token is recognised by that token only, as markers of thinking are (package
// meridian); any other marker by its text. Pieces says how a token tells the parser that it is one.
type Spec struct {
	syntax *Syntax

	open, close, before, middle, after, id [][]byte
	content, paramOpen, paramMiddle        [][]byte
	paramClose, attr                       [][]byte
	quote, pad                             []byte
	raw                                    [2][]byte
	heads                                  []string
	channels                               []string
	typed                                  string
	keys                                   Keys

	starts []start   // what ends plain text
	first  [256]bool // their first bytes

	tokens map[int32][]byte
	stop   []int32
	layout layout
}

// start is a text that ends plain text.
type start struct {
	text []byte
	kind startKind
}

type startKind uint8

const (
	startOpen startKind = iota
	startBefore
	startContent
	startWeak
)

// Resolve returns the syntax in terms of v; nil stands for a vocabulary that has none of its markers as tokens.
func (f *Syntax) Resolve(v Vocabulary) *Spec {
	s := f.resolve(v)
	if s.layout = f.layout; !s.layout.known { // no template has told
		s.layout = f.Laid(layoutCalls, layoutTool, f.Write(layoutCalls), f.Write(layoutCalls[:1])).layout
	}
	return s
}

// resolve is Resolve without a layout.
func (f *Syntax) resolve(v Vocabulary) *Spec {
	s := &Spec{syntax: f, keys: f.Keys, tokens: map[int32][]byte{}}
	known := map[string]string{} // marker → as Push reads it
	if v != nil {
		texts := f.texts()
		for id := range int32(v.Size()) {
			piece, control := v.Piece(id), v.IsControl(id)
			if !control && !marker(piece) {
				continue
			}
			text := v.Text(id)
			if text == "" || known[text] != "" ||
				!slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, text) }) {
				continue
			}
			fence := tags.ShownFence
			if len(piece) == 0 {
				fence = tags.HiddenFence
			}
			s.tokens[id] = append(append([]byte{fence}, text...), tags.FenceEnd)
			known[text] = string(s.tokens[id])
		}
		for _, text := range f.Stop {
			if id := v.Find(text); id >= 0 {
				s.stop = append(s.stop, id)
			}
		}
	}
	list := func(texts []string) (out [][]byte) {
		for _, t := range texts {
			if t = strings.TrimSpace(t); t != "" {
				out = append(out, []byte(fenced(t, known)))
			}
		}
		slices.SortStableFunc(out, func(a, b []byte) int { return cmp.Compare(len(b), len(a)) })
		return out
	}
	s.open, s.close, s.before, s.middle = list(f.Open), list(f.Close), list(f.Before), list(f.Middle)
	s.after, s.id = list(f.After), list(f.ID)
	for _, t := range f.Content {
		s.content = append(s.content, []byte(fenced(t, known)))
	}
	p := &f.Params
	s.paramOpen, s.paramMiddle, s.paramClose, s.attr = list(p.Open), list(p.Middle), list(p.Close), list(p.Attr)
	s.quote, s.pad = []byte(fenced(f.Quote, known)), []byte(p.Pad)
	for _, text := range f.Heads {
		s.heads = append(s.heads, fenced(text, known))
	}
	for _, text := range f.Channels {
		s.channels = append(s.channels, fenced(text, known))
	}
	s.typed = fenced(f.Typed, known)
	s.raw = [2][]byte{[]byte(p.Raw[0]), []byte(p.Raw[1])}
	for i, k := range [...]*[]string{&s.keys.Name, &s.keys.Arguments, &s.keys.ID} {
		*k = slices.Concat(*k, [...][]string{jsonKeys.Name, jsonKeys.Arguments, jsonKeys.ID}[i])
	}

	add := func(kind startKind, texts [][]byte) {
		for _, t := range texts {
			s.starts = append(s.starts, start{t, kind})
			s.first[t[0]] = true
		}
	}
	add(startContent, s.content)
	add(startOpen, s.open)
	add(startWeak, list(f.Weak))
	if len(s.open) == 0 || f.Bare {
		add(startBefore, s.before)
	}
	slices.SortStableFunc(s.starts, func(a, b start) int { return cmp.Compare(len(b.text), len(a.text)) })
	return s
}

// Syntax returns the syntax that s was made of.
func (s *Spec) Syntax() *Syntax { return s.syntax }

// Stop returns the tokens that end the turn after a call.
func (s *Spec) Stop() []int32 { return s.stop }

// Begun returns the end of a prompt that begins a call or the answer's text, for Options.Begun; "" if there is none.
func (s *Spec) Begun(prompt string) string {
	for _, list := range [...][][]byte{s.before, s.open} {
		for _, lit := range list {
			if strings.HasSuffix(prompt, string(stream.Unfenced(bytes.Clone(lit)))) {
				return string(lit)
			}
		}
	}
	return ""
}

// Speaks reports whether a prompt ends with what begins text of the answer as well as calls, so that a marker of text
// follows even where no tools are offered.
func (s *Spec) Speaks(prompt string) bool { return len(s.content) > 0 && s.Begun(prompt) != "" }

// Piece returns what a Parser must read for a token: its marker between fences, or piece as it is.
func (s *Spec) Piece(t int32, piece []byte) []byte {
	if fenced, ok := s.tokens[t]; ok {
		return fenced
	}
	return piece
}

// texts returns all texts of the syntax.
func (f *Syntax) texts() []string {
	p := &f.Params
	return slices.Concat(f.Open, f.Weak, f.Close, f.Before, f.Middle, f.After, f.ID, f.Content, p.Open, p.Middle,
		p.Close, p.Attr, f.Heads, f.Channels, []string{f.Quote, f.Typed})
}

// marker reports whether a visible piece has the shape of a marker.
func marker(piece []byte) bool {
	if len(piece) < 3 {
		return false
	}
	for _, b := range [...][2]string{{"<", ">"}, {"[", "]"}, {"◁", "▷"}} {
		if bytes.HasPrefix(piece, []byte(b[0])) && bytes.HasSuffix(piece, []byte(b[1])) {
			return true
		}
	}
	return false
}

// fenced returns a text with each marker in it that is a token as a token's Piece is.
func fenced(text string, known map[string]string) string {
	var b strings.Builder
next:
	for i := 0; i < len(text); {
		for j := len(text); j > i+1; j-- {
			if f, ok := known[text[i:j]]; ok {
				b.WriteString(f)
				i = j
				continue next
			}
		}
		b.WriteByte(text[i])
		i++
	}
	return b.String()
}
