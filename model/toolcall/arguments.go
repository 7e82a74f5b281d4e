package toolcall

import "strings"

// Item is the name of a list's entries in the style AsElements.
const Item = itemName

// Args describes the arguments of a call of Tool. Without Values they are one JSON object, otherwise each stands
// by itself: Open, its name, one of Values and Close.
type Args struct {
	Tool    *Tool
	Between string // two of them
	Open    Expr
	Values  []Value
	Close   Expr
	Escaped bool // names are escaped as in XML attributes
	Nested  *Nested
}

// Nested is the notation of values of style AsNested: {key: value, …} and [value, …].
type Nested struct {
	KeyOpen, KeyClose string // around a key
	Separator         string
	Quote             string // around a string without escapes; "": strings, and other scalars, are JSON or Python
}

// Value is the notation of values of some types. What a parser makes of the text depends on the types that the tool's
// schema allows (param.read), so a grammar must leave out the texts that would be read as another type: see Told and
// Lone.
type Value struct {
	Types types // JSON types, as jsonschema.Types
	Style Style
	Open  Expr // around the value
	Close Expr
	// Named, unless it is empty: Close is followed by the argument's name and Named.
	Named string
	Until string // text that a value of style AsText does not hold; with Named, if the name and Named follow
	// Told: Open tells the type. Otherwise a text of style AsText that is JSON of another type of the schema is a value
	// of that type.
	Told bool
	// Lone are characters that a value of style AsText does not hold.
	Lone string
}

// Style is the kind of notation of a value.
type Style uint8

const (
	AsJSON     Style = iota
	AsText           // a string without quotes and escapes
	AsPython         // None, True and False; strings in single quotes
	AsNested         // objects and lists in the syntax's own notation: see Nested
	AsElements       // objects and lists as arguments again; the entries of a list are named Item
)

// arguments describes the arguments of t.
func (w writer) arguments(t *Tool) Expr {
	s, f := w.Spec, w.syntax
	a := &Args{Tool: t, Escaped: f.Escaped}
	others := anyType &^ typeString
	switch f.Notation {
	case Tagged:
		a.Open, a.Close = firstLiteral(s.paramOpen, f.Params.Open), w.space(afterParam)
		a.Values = w.elements()
	case Braces:
		quote := literal(s.quote)
		a.Between, a.Close = ",", Expr{}
		a.Values = []Value{{Types: typeString, Style: AsText, Open: Expr{Seq: []Expr{literal(":"), quote}},
			Close: quote, Until: quote.Literal, Told: true}, {Types: others, Open: literal(":")},
			{Types: typeObject | typeArray, Style: AsNested, Open: literal(":")}}
		a.Nested = &Nested{KeyClose: ":", Separator: ",", Quote: quote.Literal}
	case Keywords:
		a.Between = ", "
		a.Values = []Value{{Types: anyType, Open: literal("=")}, {Types: anyType, Style: AsPython, Open: literal("=")},
			{Types: typeObject | typeArray, Style: AsNested, Open: literal("=")}}
		a.Nested = &Nested{KeyOpen: `"`, KeyClose: `": `, Separator: ", "}
	}
	return Expr{Args: a}
}

// elements returns the ways in which an element holds a value.
func (w writer) elements() (list []Value) {
	s, p := w.Spec, &w.syntax.Params
	middle, shut := firstLiteral(s.paramMiddle, p.Middle), firstLiteral(s.paramClose, p.Close)
	seq := func(parts ...Expr) Expr {
		var out []Expr
		for _, x := range parts {
			if before, after, ok := strings.Cut(x.Literal, "\n"); ok && before != "" && after != "" {
				out = append(out, literal(before), w.space(inMiddle), literal(after))
			} else if x.Literal != "" {
				out = append(out, x)
			}
		}
		return Expr{Seq: out}
	}
	pad := literal(p.Pad)
	add := func(types types, style Style, attr string) {
		v := Value{Types: types, Style: style, Close: seq(pad, shut), Until: shut.Literal, Told: attr != ""}
		if attr != "" {
			v.Open = seq(firstLiteral(s.attr, p.Attr), literal(attr), middle, pad)
		} else {
			v.Open = seq(middle, pad)
		}
		list = append(list, v)
	}
	others := anyType &^ typeString
	switch {
	case p.Nested:
		v := Value{Types: typeString, Style: AsText, Open: middle, Close: shut, Named: middle.Literal,
			Until: shut.Literal}
		list = append(list, v)
		v.Types, v.Style = others, AsJSON
		list = append(list, v)
		v.Types, v.Style = typeObject|typeArray, AsElements
		list = append(list, v)
	case len(p.Attr) == 0:
		add(typeString, AsText, "")
		if p.Raw[0] != "" { // a text with one of these is written in a raw section
			list[0].Lone = "<&\n"
			list = append(list, Value{Types: typeString, Style: AsText, Until: p.Raw[1],
				Open: seq(middle, literal(p.Raw[0])), Close: seq(literal(p.Raw[1]), shut)})
		}
		add(others, AsJSON, "")
	case w.syntax.Escaped: // types by name
		add(typeString, AsText, "string")
		for _, name := range typeWords {
			add(typeNames[name], AsJSON, name)
		}
	default:
		add(typeString, AsText, "true")
		add(others, AsJSON, "false")
	}
	return list
}

// typeWords are the types other than string, as syntaxes with types by name have them.
var typeWords = []string{"object", "array", "number", "boolean", "null"}

// sketch is a's text for arguments of any values, for layoutReader.
func (a *Args) sketch() Expr {
	if len(a.Values) == 0 {
		return Expr{Schema: []byte("{}")}
	}
	var list []member
	for _, name := range propertyNames(a.Tool.Parameters) {
		var values []Expr
		for _, v := range a.Values {
			values = append(values, Expr{Seq: []Expr{v.Open, v.sketch(), v.Close, literal(v.end(name))}})
		}
		list = append(list, member{Expr{Seq: []Expr{a.Open, literal(name), {Any: values}, a.Close}}, a.Between})
	}
	return Expr{members: list}
}

// end returns the text behind Close.
func (v *Value) end(name string) string {
	if v.Named == "" {
		return ""
	}
	return name + v.Named
}

func (v *Value) sketch() Expr {
	switch v.Style {
	case AsText:
		return Expr{Until: v.Until}
	case AsPython:
		return Expr{Seq: []Expr{literal("'"), {Until: "'"}, literal("'")}}
	case AsElements:
		return Expr{Until: v.Until}
	}
	return Expr{Schema: []byte("{}")}
}
