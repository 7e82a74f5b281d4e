package toolcall

import (
	"strings"
	"testing"
)

// samples are texts that a Part describes: with every alternative, with and without what is optional.
func samples(t *testing.T, p Part) []string {
	join := func(lists ...[]string) []string {
		out := []string{""}
		for _, list := range lists {
			var next []string
			for _, head := range out {
				for _, tail := range list {
					next = append(next, head+tail)
				}
			}
			out = next[:min(len(next), 64)]
		}
		return out
	}
	switch {
	case p.Literal != "":
		return []string{p.Literal}
	case p.Gap != noGap:
		return []string{"", "\n"}
	case p.Pattern != "":
		return []string{"a1B2c3D4e"}
	case p.Until != "":
		return []string{"some text", ""}
	case p.Schema != nil:
		text := string(p.Schema)
		for _, c := range [][2]string{
			{`"pattern"`, `"7"`}, {`"properties":{"location"`, `{"location": "Bern", "unit": "celsius", "days": 2}`},
			{`"properties":{"query"`, `{"query":"q"}`}, {`"minimum":0`, "7"},
			{`"type":"integer"`, "3"}, {`"type":"number"`, "0.5"}, {`"type":"array"`, `["a"]`},
			{`"type":"boolean"`, "true"},
			{`"enum":["celsius"`, `"celsius"`}, {`"anyOf"`, "null"}, {`"oneOf"`, "1"}, {`{}`, `{"a":1}`},
			{`"type":"object"`, "{}"}, {`"type":"string"`, `"s"`},
		} {
			if strings.Contains(text, c[0]) {
				return []string{c[1]}
			}
		}
		t.Fatalf("no instance of %s", text)
	case p.Seq != nil:
		var lists [][]string
		for _, x := range p.Seq {
			lists = append(lists, samples(t, x))
		}
		return join(lists...)
	case p.Any != nil:
		var out []string
		for _, x := range p.Any {
			out = append(out, samples(t, x)...)
		}
		return out
	case p.Repeat != nil:
		one := samples(t, p.Repeat.Part)
		two := join(one, samples(t, p.Repeat.Separator), one[:1])
		if p.Repeat.Max == 1 {
			return one
		}
		return append(one, two...)
	case p.Members != nil:
		var all, required []string
		for i := len(p.Members) - 1; i >= 0; i-- { // in another order
			m := &p.Members[i]
			text := samples(t, m.Part)[0]
			if all = append(all, text); m.Required {
				required = append(required, text)
			}
		}
		return []string{strings.Join(all, p.Members[0].Between), strings.Join(required, p.Members[0].Between)}
	}
	return []string{""}
}

// Whatever a grammar made of Text lets a model write is read as calls of the tools, and as nothing else.
func TestTextIsRead(t *testing.T) {
	tools := testTools(t)
	list := []Tool{tools.list[0], tools.list[1], tools.list[2]}
	for i := range Forms {
		f := &Forms[i]
		for _, v := range []*vocabulary{nil, tokenized(f, false)} {
			spec := f.Resolve(nil)
			if v != nil {
				spec = f.Resolve(v)
			}
			for _, c := range []struct {
				choice   Choice
				parallel bool
			}{{Choice{}, true}, {Choice{}, false}, {Choice{Mode: Required}, true}, {Choice{Mode: Required}, false},
				{Choice{Mode: Named, Name: "now"}, false}} {
				texts := samples(t, spec.Text(list, c.choice, c.parallel))
				if len(texts) < 2 && !f.Single && c.choice.Mode == Auto {
					t.Errorf("%s: %d samples", f.Name, len(texts))
				}
				for _, text := range texts {
					got := parse(spec, tools, Options{Stream: true}, []byte(text))
					ok := len(got.Text) == 0 && len(got.Reasons) == 0 && len(got.Calls) > 0 &&
						(c.parallel || len(got.Calls) == 1)
					for _, call := range got.Calls {
						ok = ok && (c.choice.Mode != Named || call.Name == "now")
					}
					if !ok {
						t.Fatalf("%s, %+v: %q is read as\n%s", f.Name, c, text, report(got))
					}
				}
			}
		}
	}
}

// A parameter that refers to a definition has it in its schema.
func TestTextHasDefinitions(t *testing.T) {
	tool := Tool{Name: "f",
		Parameters: []byte(`{"type":"object","properties":{"x":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"integer"}}` +
			`}`)}
	p := properties(tool.Parameters)
	if len(p) != 1 || p[0].types != typeNumber || string(p[0].schema) != `{"$defs":{"n":{"type":"integer"}},`+
		`"allOf":[{"$ref":"#/$defs/n"}]}` {
		t.Errorf("%+v %s", p, p[0].schema)
	}
}
