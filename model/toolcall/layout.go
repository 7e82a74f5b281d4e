package toolcall

import (
	"strings"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// gap is a place in the text of a call where white space is free.
type gap uint8

const (
	noGap         gap = iota
	afterOpen         // of a section
	beforeClose       //
	inList            // after its bracket
	beforeListEnd     //
	betweenCalls      //
	inBrace           // of an Envelope
	afterIDKey        //
	afterID           //
	afterNameKey      //
	afterName         //
	afterArgsKey      // or after a Middle
	afterArgs         //
	afterParam        //
	inMiddle          // between a parameter's key and its value
	gaps
)

// layout has the choices that a syntax leaves open, such as white space, as a model's template makes them.
type layout struct {
	space [gaps]string
	bare  bool // a call of a syntax that has an opening stands without it
	ids   bool // an optional id is there
	known bool
}

// What Syntax.Write shows of a syntax whose template renders no calls.
var (
	layoutTool  = Tool{Name: "layout", Parameters: []byte(`{"type":"object","properties":{"a":{"type":"string"}}}`)}
	layoutCalls = []Call{{Name: "layout", Arguments: `{"a":"b"}`}, {Name: "layout", Arguments: `{"a":"c"}`}}
)

// Laid returns the syntax with the layout of the first of texts in which a template rendered calls of tool; f itself if
// none shows it. Text then writes calls as the template does.
func (f *Syntax) Laid(calls []Call, tool Tool, texts ...string) *Syntax {
	for len(calls) > 0 {
		for _, text := range texts {
			if l, ok := f.layoutOf(calls, tool, text); ok {
				g := *f
				g.layout = l
				return &g
			}
		}
		calls = calls[:len(calls)-1] // a template may put more than the syntax around the second one
	}
	return f
}

// layoutOf finds where and how answer has calls.
func (f *Syntax) layoutOf(calls []Call, tool Tool, answer string) (layout, bool) {
	spec := f.resolve(nil)
	r := layoutReader{text: answer}
	for _, bare := range []bool{false, true} {
		for _, ids := range []bool{true, false} {
			spec.layout = layout{bare: bare, ids: ids}
			text := spec.text([]Tool{tool}, Choice{}, len(calls) > 1, &spec.layout)
			for at := range answer {
				r.layout = spec.layout
				if r.match(&text, at, func(end int) bool {
					return strings.Count(answer[at:end], tool.Name) >= len(calls)
				}) {
					r.layout.known = true
					return r.layout, true
				}
			}
		}
	}
	return layout{}, false
}

// layoutReader matches a Part to a text.
type layoutReader struct {
	text   string
	layout layout
	set    [gaps]bool
}

// match reports whether p and then next match the text after from bytes.
func (r *layoutReader) match(p *Expr, from int, next func(int) bool) bool {
	rest := r.text[from:]
	switch {
	case p.Literal != "":
		if strings.HasPrefix(rest, p.Literal) {
			return next(from + len(p.Literal))
		}
		n, f := stream.At([]byte(rest), []byte(p.Literal), true) // with other white space in it
		return f == stream.Yes && next(from+n)
	case p.Gap != noGap:
		n := 0
		for n < len(rest) && stream.IsSpace(rest[n]) {
			n++
		}
		if r.set[p.Gap] {
			return next(from + n)
		}
		r.set[p.Gap], r.layout.space[p.Gap] = true, rest[:n]
		if next(from + n) {
			return true
		}
		r.set[p.Gap] = false
		return false
	case p.Schema != nil:
		var j stream.JSON
		for n := range len(rest) {
			switch j.Step(rest[n]) {
			case stream.Done:
				return next(from + n + 1)
			case stream.More:
				if c := rest[n]; c >= '0' && c <= '9' && next(from+n+1) { // nothing ends a number
					return true
				}
			default:
				return false
			}
		}
		return false
	case p.Until != "":
		for n := strings.Index(rest, p.Until); n >= 0; n-- { // what follows may begin before the end
			if next(from + n) {
				return true
			}
		}
		return false
	case p.Pattern != "": // some text: what follows tells where it ends
		for n := range min(len(rest), maxName) {
			if next(from + n) {
				return true
			}
		}
		return false
	case p.Seq != nil:
		return r.sequence(p.Seq, from, next)
	case p.Any != nil:
		for i := range p.Any {
			if r.match(&p.Any[i], from, next) {
				return true
			}
		}
		return false
	case p.Repeat != nil:
		again := Expr{Seq: []Expr{p.Repeat.Separator, p.Repeat.Expr}}
		var more func(at, n int) bool
		more = func(at, n int) bool {
			return next(at) || (p.Repeat.Max == 0 || n < p.Repeat.Max) && r.match(&again, at, func(to int) bool {
				return to > at && more(to, n+1)
			})
		}
		return r.match(&p.Repeat.Expr, from, func(to int) bool { return more(to, 1) })
	case p.Args != nil:
		sketch := p.Args.sketch()
		return r.match(&sketch, from, next)
	case p.members != nil:
		return r.members(p.members, from, 0, next)
	}
	return next(from)
}

func (r *layoutReader) sequence(parts []Expr, at int, next func(int) bool) bool {
	if len(parts) == 0 {
		return next(at)
	}
	return r.match(&parts[0], at, func(to int) bool { return r.sequence(parts[1:], to, next) })
}

// members matches members that are not in seen, a bit each.
func (r *layoutReader) members(list []member, at int, seen uint, next func(int) bool) bool {
	for i := range list {
		if seen>>i&1 != 0 {
			continue
		}
		from := at
		if seen != 0 {
			if !strings.HasPrefix(r.text[at:], list[i].between) {
				break
			}
			from += len(list[i].between)
		}
		if r.match(&list[i].expr, from, func(to int) bool { return r.members(list, to, seen|1<<i, next) }) {
			return true
		}
	}
	return seen+1 == 1<<len(list) && next(at)
}
