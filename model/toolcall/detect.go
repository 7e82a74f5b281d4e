package toolcall

import (
	"encoding/json"
	"slices"
	"strings"
)

// Read returns the syntax in which a chat template rendered calls of tool, or nil: the first of Syntaxes whose parser
// reads exactly these calls back, else a syntax derived from the rendering (derived). turn is the rendering from the
// assistant's turn on, answer what of it follows the turn's header.
func Read(calls []Call, tool Tool, answer, turn string) (syntax *Syntax, derived bool) {
	tools := NewTools([]Tool{tool})
	for i := range Syntaxes {
		if f := &Syntaxes[i]; f.reads(calls, tools, answer, turn) {
			return f, false
		}
	}
	if f := derive(calls, answer); f != nil && f.reads(calls, tools, answer, turn) {
		return f, true
	}
	return nil, false
}

// reads reports whether the syntax's parser finds exactly calls.
func (f *Syntax) reads(calls []Call, tools *Tools, answer, turn string) bool {
	spec := f.resolve(nil)
	texts := []string{answer}
	if !f.Bare || len(spec.open) > 0 { // what has an opening is found anywhere
		texts = append(texts, turn)
	}
	for _, text := range texts {
		var c Collect
		p := NewParser(spec, tools, Options{})
		c.Add(p.Push([]byte(text)))
		c.Add(p.Finish())
		if slices.EqualFunc(c.Calls, calls, func(a, b Call) bool {
			return a.Name == b.Name && sameJSON(a.Arguments, b.Arguments)
		}) {
			return true
		}
	}
	return false
}

// sameJSON reports whether two texts are the same JSON value.
func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	p, err := json.Marshal(x) // with sorted keys
	q, err2 := json.Marshal(y)
	return err == nil && err2 == nil && string(p) == string(q)
}

// BySigns returns the syntax that a template's text is about, for a template that does not render calls; nil when there
// is none.
func BySigns(template string) *Syntax {
	for i := range Syntaxes {
		for _, signs := range Syntaxes[i].Signs {
			if !slices.ContainsFunc(signs, func(s string) bool { return !strings.Contains(template, s) }) {
				return &Syntaxes[i]
			}
		}
	}
	return nil
}

// ByVocab returns the syntax whose markers a vocabulary has as tokens, nil when there is none. has reports whether a
// text is a token.
func ByVocab(has func(text string) bool) *Syntax {
	for i := range Syntaxes {
		if v := Syntaxes[i].Vocab; len(v) > 0 && !slices.ContainsFunc(v, func(s string) bool { return !has(s) }) {
			return &Syntaxes[i]
		}
	}
	return nil
}

// ByName returns the syntax of that name, or nil.
func ByName(name string) *Syntax {
	for i := range Syntaxes {
		if Syntaxes[i].Name == name {
			return &Syntaxes[i]
		}
	}
	return nil
}
