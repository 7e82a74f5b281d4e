package toolcall

import (
	"strings"
	"testing"
)

// samples are texts that a Part describes: with every alternative, with and without what is optional.
func samples(t *testing.T, p Expr) []string {
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
			{`"pattern"`, `"7"`}, {`"minimum":0`, "7"},
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
		one := samples(t, p.Repeat.Expr)
		two := join(one, samples(t, p.Repeat.Separator), one[:1])
		if p.Repeat.Max == 1 {
			return one
		}
		return append(one, two...)
	case p.Args != nil:
		return p.Args.samples(t)
	}
	return []string{""}
}

// samples are arguments of the tools of testTools.
func (a *Args) samples(t *testing.T) []string {
	type argument struct {
		name  string
		types types
		json  string
	}
	list := map[string][]argument{
		"get_weather": {{"days", typeNumber, "2"}, {"unit", typeString, `"celsius"`},
			{"location", typeString, `"Bern"`}},
		"search": {{"tags", typeArray, `["a"]`}, {"when", typeNull, "null"}, {"query", typeString, `"q"`}},
	}[a.Tool.Name]
	if len(a.Values) == 0 {
		var members []string
		for _, x := range list {
			members = append(members, `"`+x.name+`": `+x.json)
		}
		return []string{"{" + strings.Join(members, ", ") + "}"}
	}
	var texts []string
	for _, x := range list {
		for _, v := range a.Values {
			text := x.json
			if v.Style == AsText {
				text = strings.Trim(text, `"`)
			}
			if v.Types&x.types != 0 && v.Style != AsPython {
				texts = append(texts, samples(t, a.Open)[0]+x.name+samples(t, v.Open)[0]+text+samples(t, v.Close)[0]+
					v.end(x.name)+samples(t, a.Close)[0])
				break
			}
		}
	}
	if len(texts) == 0 {
		return []string{""}
	}
	return []string{strings.Join(texts, a.Between), texts[len(texts)-1]}
}

// Whatever a grammar made of Text lets a model write is read as calls of the tools, and as nothing else.
func TestTextIsRead(t *testing.T) {
	tools := testTools(t)
	list := []Tool{tools.list[0], tools.list[1], tools.list[2]}
	for i := range Syntaxes {
		f := &Syntaxes[i]
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
