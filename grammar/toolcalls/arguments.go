package toolcalls

import (
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/grammar/regex"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

var (
	anyObject = []byte(`{"type":"object"}`)
	// options: the arguments of a call are an object whatever a schema says; some schemas of tools come from OpenAPI.
	options = jsonschema.Options{Object: true, Nullable: true, Closed: true}
)

// freeNames are the names of arguments that no schema lists.
const freeNames = `[A-Za-z_][0-9A-Za-z_.-]{0,63}`

// arguments returns the arguments of a call.
func (c *compiler) arguments(a *toolcall.Args) grammar.Node {
	schema := a.Tool.Parameters
	if c.holder.seen = append(c.holder.seen, a.Tool); len(schema) == 0 || c.holder.free[a.Tool] != nil {
		schema = anyObject
	}
	n, err := c.object(a, schema)
	if err == nil {
		err = c.b.Err()
	}
	if err == nil || c.err != nil {
		return n
	}
	if err = c.holder.failed(a.Tool, err); err == errAgain && c.b.Err() == nil {
		c.again = true // the other tools may have such a schema too
	} else {
		c.err = err
	}
	return c.b.Nothing()
}

func (c *compiler) object(a *toolcall.Args, schema []byte) (n grammar.Node, err error) {
	if n, ok := c.objects[string(schema)]; ok {
		return n, nil
	}
	if len(a.Values) == 0 {
		n, err = jsonschema.Add(c.b, schema, options, c.limits)
	} else {
		n, err = c.oneByOne(a, schema)
	}
	if err == nil {
		c.objects[string(schema)] = n
	}
	return n, err
}

// oneByOne returns the arguments in a notation that writes them one by one.
func (c *compiler) oneByOne(a *toolcall.Args, schema []byte) (grammar.Node, error) {
	names, err := c.b.Regex().Parse("^(?:"+freeNames+")$", regex.ECMA)
	if err != nil {
		return 0, err
	}
	if slices.ContainsFunc(a.Values, func(v toolcall.Value) bool { return v.Named != "" }) {
		names = c.b.Regex().Nothing() // a grammar cannot repeat a name that it does not know
	}
	return jsonschema.AddMembers(c.b, schema, jsonschema.Notation{Separator: a.Between, Names: names,
		Member: func(v *jsonschema.Argument) grammar.Node { return c.argument(a, v, v.Name, 0) }}, options, c.limits)
}

// argument is one argument, with its name.
func (c *compiler) argument(a *toolcall.Args, v *jsonschema.Argument, text string, depth int) grammar.Node {
	name := c.b.Terminal(v.Names)
	if text != "" {
		name = c.b.Literal(escaped(text, a.Escaped))
	}
	var values []grammar.Node
	for i := range a.Values {
		w := &a.Values[i]
		shut := c.expr(&w.Close)
		if w.Named != "" {
			shut = c.b.Seq(shut, name, c.b.Literal(w.Named))
		}
		values = append(values, c.b.Seq(c.expr(&w.Open), c.value(a, w, v, text, depth), shut))
	}
	return c.b.Seq(c.expr(&a.Open), name, c.b.Alt(values...), c.expr(&a.Close))
}

// maxElements is the depth of elements within elements; deeper values are written as JSON.
const maxElements = 4

// elements returns the objects and lists that v may be, as elements. The parser takes what may be a string for one.
func (c *compiler) elements(a *toolcall.Args, v *jsonschema.Argument, depth int) grammar.Node {
	if depth == maxElements || v.Types()&jsonschema.String != 0 {
		return c.b.Nothing()
	}
	member := func(v *jsonschema.Argument) grammar.Node { return c.argument(a, v, v.Name, depth+1) }
	entry := func(v *jsonschema.Argument) grammar.Node { return c.argument(a, v, toolcall.Item, depth+1) }
	return c.b.Alt(
		v.Members(jsonschema.Notation{Separator: a.Between, Names: c.b.Regex().Nothing(), Member: member}),
		v.Items(a.Between, entry))
}

// plainName reports whether a key needs no quotes.
func plainName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("_.-", r))
	})
}

// containers returns the objects and lists that v may be, in the notation n. Others are written as JSON.
func (c *compiler) containers(n *toolcall.Nested, v *jsonschema.Argument, depth int) grammar.Node {
	if depth == maxElements {
		return v.JSON(jsonschema.Object | jsonschema.Array)
	}
	names, err := c.b.Regex().Parse("^(?:"+freeNames+")$", regex.ECMA)
	if err != nil {
		if c.err == nil {
			c.err = err
		}
		return c.b.Nothing()
	}
	member := func(v *jsonschema.Argument) grammar.Node {
		name := c.b.Terminal(v.Names)
		if v.Name != "" {
			name = c.b.Literal(v.Name)
		}
		if v.Name != "" && !plainName(v.Name) {
			return c.b.Nothing()
		}
		return c.b.Seq(c.b.Literal(n.KeyOpen), name, c.b.Literal(n.KeyClose), c.nested(n, v, depth+1))
	}
	entry := func(v *jsonschema.Argument) grammar.Node { return c.nested(n, v, depth+1) }
	members := v.Members(jsonschema.Notation{Separator: n.Separator, Names: names, Member: member})
	return c.b.Alt(
		c.b.Seq(c.b.Literal("{"), members, c.b.Literal("}")),
		c.b.Seq(c.b.Literal("["), v.Items(n.Separator, entry), c.b.Literal("]")))
}

// nested returns a value within a container.
func (c *compiler) nested(n *toolcall.Nested, v *jsonschema.Argument, depth int) grammar.Node {
	const scalars = jsonschema.Number | jsonschema.Boolean | jsonschema.Null
	if n.Quote == "" {
		return c.b.Alt(v.JSON(scalars|jsonschema.String), c.python(v), c.containers(n, v, depth))
	}
	quote := c.b.Literal(n.Quote)
	text := c.b.Terminal(c.without(v.Strings(), n.Quote))
	return c.b.Alt(c.b.Seq(quote, text, quote), v.JSON(scalars), c.containers(n, v, depth))
}

// escaped returns the name of an argument as it is written.
func escaped(name string, escape bool) string {
	if !escape {
		return name
	}
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(name)
}

// value adds the grammar of v's values in the notation of w.
func (c *compiler) value(a *toolcall.Args, w *toolcall.Value, v *jsonschema.Argument, name string, depth int,
) grammar.Node {
	of := jsonschema.Types(w.Types)
	switch w.Style {
	case toolcall.AsNested:
		return c.containers(a.Nested, v, 0)
	case toolcall.AsElements:
		return c.elements(a, v, depth)
	case toolcall.AsText:
		return c.text(a, w, v, name)
	case toolcall.AsPython:
		return c.python(v)
	}
	return v.JSON(of)
}

// text returns the strings that v may be, without quotes and escapes.
func (c *compiler) text(a *toolcall.Args, w *toolcall.Value, v *jsonschema.Argument, name string) grammar.Node {
	s, until := c.b.Regex(), w.Until
	if w.Named != "" {
		until += name + w.Named
	}
	if words, ok := v.Words(); ok { // the parser knows them
		if w.Lone != "" {
			kept := words[:0]
			for _, word := range words {
				if !strings.ContainsAny(word, w.Lone) {
					kept = append(kept, word)
				}
			}
			words = kept
		}
		return c.b.Terminal(c.without(s.Literals(words), until))
	}
	e := c.without(v.Strings(), until)
	if w.Named != "" && v.Types() == jsonschema.AllTypes { // elements are read as such where anything may come
		e = c.without(e, a.Open.Literal)
	}
	for _, lone := range w.Lone {
		e = c.without(e, string(lone))
	}
	if others := v.Types() &^ jsonschema.String; others != 0 && !w.Told {
		e = s.Minus(e, c.otherwise(others))
	}
	return c.b.Terminal(e)
}

// otherwise returns the texts that a parser reads as a value of the types t, or as a string in quotes.
func (c *compiler) otherwise(t jsonschema.Types) regex.Expr {
	s := c.b.Regex()
	parse := func(pattern string) regex.Expr {
		e, err := s.Parse(`^[ \t\r\n]*(?:`+pattern+`)[ \t\r\n]*$`, regex.ECMA)
		if err != nil && c.err == nil {
			c.err = err
		}
		return e
	}
	texts := []regex.Expr{parse(`"[^]*`)}
	for _, x := range []struct {
		t       jsonschema.Types
		pattern string
	}{
		{jsonschema.Number, `-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?`},
		{jsonschema.Boolean, `true|false|True|TRUE|False|FALSE`},
		{jsonschema.Null, `null`},
		// What begins with a brace and no key, or a bracket and no value, is a text: "{name}", "[draft]".
		{jsonschema.Object, `\{[ \t\r\n]*(?:["'}]|[^,)\]}:=]*[:=])[^]*`},
		{jsonschema.Array, `\[[ \t\r\n]*(?:["'\]\[{(0-9+._-]|true|false|null|True|False|None)[^]*`},
	} {
		if t&x.t != 0 {
			texts = append(texts, parse(x.pattern))
		}
	}
	return s.Or(texts...)
}

// python adds the grammar of v's values in Python's notation, which differs from JSON's for literals and strings.
func (c *compiler) python(v *jsonschema.Argument) grammar.Node {
	var alts []grammar.Node
	if no, yes := v.Booleans(); no || yes {
		if no {
			alts = append(alts, c.b.Literal("False"))
		}
		if yes {
			alts = append(alts, c.b.Literal("True"))
		}
	}
	if v.Types()&jsonschema.Null != 0 {
		alts = append(alts, c.b.Literal("None"))
	}
	if words, ok := v.Words(); ok {
		for _, word := range words {
			alts = append(alts, c.b.Literal("'"+strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\r", `\r`,
				"\t", `\t`).Replace(word)+"'"))
		}
	} else if v.Strings() == c.b.Regex().AnyText() { // others are written as JSON
		alts = append(alts, c.pattern("'"+pythonText+"'"))
	}
	return c.b.Alt(alts...)
}

// pythonText is the text between Python's single quotes. A backslash begins an escape, so it never stands before the
// quote that ends the text.
const pythonText = `(?:[^'\\]|\\[nrtbf"'\\/])*`
