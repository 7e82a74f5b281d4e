package toolcall

import (
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// Expr describes a text that a grammar is to make a model write: the calls of an answer. Exactly one of its fields is
// set. The literals are as a Parser reads them: a marker that is a token is between fences (package tags), so that
// a grammar over the bytes of Spec.Piece takes the token and nothing else.
type Expr struct {
	Literal string  // this text
	Gap     gap     // white space, or none
	Schema  []byte  // a JSON value of this schema
	Until   string  // text without this, which follows
	Pattern string  // text that matches this regular expression
	Seq     []Expr  // one after another
	Any     []Expr  // one of them
	Repeat  *Repeat // one several times
	Args    *Args   // of a call

	members []member // in any order; for layoutReader
}

// Repeat is an Expr that comes Min to Max times (0: without bound), with Separator between.
type Repeat struct {
	Expr, Separator Expr
	Min, Max        int
}

// member is an Expr that comes once among others in any order. Members are separated by between, all by the same.
type member struct {
	expr    Expr
	between string
}

func literal[T string | []byte](text T) Expr { return Expr{Literal: string(text)} }

// Text returns what calls of tools look like: one of choice, or several if parallel. With Named only Choice.Name is
// called. Where the choice requires a call it is written as the model's template writes it: nothing outside the
// arguments is left open. Otherwise white space is free, and what models write otherwise.
func (s *Spec) Text(tools []Tool, choice Choice, parallel bool) Expr {
	var l *layout
	if choice.Mode >= Required && s.layout.known {
		l = &s.layout
	}
	return s.text(tools, choice, parallel, l)
}

// text is Text in the layout l, with its own white space if that is known; nil: in any.
func (s *Spec) text(tools []Tool, choice Choice, parallel bool, l *layout) Expr {
	w := writer{s, l}
	var calls []Expr
	for i := range tools {
		if choice.Mode != Named || tools[i].Name == choice.Name {
			calls = append(calls, w.callText(&tools[i]))
		}
	}
	call := Expr{Any: calls}
	f := s.syntax
	most := 1
	if parallel && !f.Single {
		most = 0
	}
	open, shut := firstLiteral(s.open, f.Open), firstLiteral(s.close, f.Close)
	repeat := func(p Expr, separator Expr) Expr {
		return Expr{Repeat: &Repeat{Expr: p, Separator: separator, Min: 1, Max: most}}
	}
	section := func(p Expr) Expr {
		var seq []Expr
		if open.Literal != "" {
			seq = append(seq, open, w.space(afterOpen))
		}
		if seq = append(seq, p); shut.Literal != "" {
			seq = append(seq, w.space(beforeClose), shut)
		}
		switch {
		case !f.Bare, l != nil && !l.bare:
			return Expr{Seq: seq}
		case l != nil:
			return p
		}
		return Expr{Any: []Expr{{Seq: seq}, p}} // the model also writes it alone
	}
	switch {
	case f.list():
		between := Expr{Seq: []Expr{literal(","), w.space(betweenCalls)}}
		return section(Expr{Seq: []Expr{literal("["), w.space(inList), repeat(call, between), w.space(beforeListEnd),
			literal("]")}})
	case len(s.before) == 0 || f.each():
		return repeat(section(call), w.space(betweenCalls))
	}
	return section(repeat(call, w.space(betweenCalls)))
}

// writer describes calls in a layout; nil: in any.
type writer struct {
	*Spec
	layout *layout
}

// space is white space at g: that of the layout, if it is known.
func (w writer) space(g gap) Expr {
	if w.layout != nil && w.layout.known {
		return literal(w.layout.space[g])
	}
	return Expr{Gap: g}
}

// optionalID is p or nothing, as the layout says.
func (w writer) optionalID(p Expr) Expr {
	switch {
	case w.layout == nil:
		return Expr{Any: []Expr{p, {}}}
	case w.layout.ids:
		return p
	}
	return Expr{}
}

// list reports whether calls are written as a list: it decides the written form; both are read.
func (f *Syntax) list() bool {
	switch f.Notation {
	case Keyed, Keywords:
		return true
	case Envelope:
		return !f.each() && len(f.Open) > 0 && !f.Bare && !f.Single
	}
	return false
}

// each reports whether each call has a section to itself.
func (f *Syntax) each() bool {
	return len(f.Close) > 0 && (f.Close[0] == "</tool_call>" || f.Notation == Braces)
}

// firstLiteral returns the compiled form of texts[0].
func firstLiteral(compiled [][]byte, texts []string) Expr {
	if len(texts) == 0 {
		return Expr{}
	}
	for _, c := range compiled {
		if string(stream.Unfenced(slices.Clone(c))) == strings.TrimSpace(texts[0]) {
			return literal(c)
		}
	}
	return literal(texts[0])
}

// callText describes a call of one tool.
func (w writer) callText(t *Tool) Expr {
	s, f := w.Spec, w.syntax
	arguments := w.arguments(t)
	name := string(stream.AppendQuoted(nil, t.Name))
	before, middle, after := firstLiteral(s.before, f.Before), firstLiteral(s.middle, f.Middle),
		firstLiteral(s.after, f.After)
	var seq []Expr
	add := func(parts ...Expr) {
		for _, p := range parts {
			if p.Literal != "" || p.Gap != noGap || p.Schema != nil || p.Until != "" || p.Pattern != "" ||
				p.Seq != nil || p.Any != nil || p.Repeat != nil || p.Args != nil {
				seq = append(seq, p)
			}
		}
	}
	switch f.Notation {
	case Envelope:
		add(literal("{"))
		if ids := f.Keys.ID; len(ids) > 0 {
			add(w.space(inBrace), w.optionalID(Expr{Seq: []Expr{literal(`"` + ids[0] + `":`), w.space(afterIDKey),
				{Schema: []byte(`{"type":"string","pattern":"^[0-9]{1,3}$"}`)}, literal(","), w.space(afterID)}}))
		}
		add(literal(`"`+s.keys.Name[0]+`":`), w.space(afterNameKey), literal(name+`,`), w.space(afterName),
			literal(`"`+s.keys.Arguments[0]+`":`), w.space(afterArgsKey), arguments, w.space(afterArgs), literal("}"))
	case Keyed:
		add(literal(`{`+name+`:`), w.space(afterArgsKey), arguments, literal("}"))
	case Object:
		add(before, literal(f.NameTag+f.Prefix+t.Name))
		if f.Suffixed {
			add(literal(":"), Expr{Schema: []byte(`{"type":"integer","minimum":0}`)})
		}
		if id := firstLiteral(s.id, f.ID); id.Literal != "" {
			add(w.optionalID(Expr{Seq: []Expr{id, {Pattern: "[0-9A-Za-z]{1,32}"}}}))
		}
		add(w.space(afterName), middle, w.space(afterArgsKey), arguments, w.space(afterArgs), after)
	case Tagged:
		add(before, literal(t.Name))
		if id := firstLiteral(s.id, f.ID); id.Literal != "" {
			number := []byte(`{"type":"integer","minimum":0,"maximum":999}`)
			add(w.optionalID(Expr{Seq: []Expr{id, {Schema: number}}}))
		}
		add(middle, w.space(afterArgsKey), arguments, after)
	case Braces:
		add(before, literal(t.Name), middle, arguments, literal("}"))
	case Keywords:
		add(literal(t.Name), middle, arguments, literal(")"))
	}
	return Expr{Seq: seq}
}

// optional is p or nothing.
func optional(p Expr) Expr { return Expr{Any: []Expr{p, {}}} }
