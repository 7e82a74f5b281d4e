package toolcalls

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// vocabulary has single bytes, some words, the markers of a syntax as control tokens, and an end.
type vocabulary struct {
	pieces  [][]byte
	markers []string
}

func newVocabulary(f *toolcall.Syntax, control bool) *vocabulary {
	v := &vocabulary{}
	for b := range 256 {
		v.pieces = append(v.pieces, []byte{byte(b)})
	}
	for _, w := range []string{"get", "_weather", "now", "location", "\": \"", "\"}", "</", "parameter", "é", "\n\n",
		" a"} {
		v.pieces = append(v.pieces, []byte(w))
	}
	if control {
		for _, text := range slices.Concat(f.Heads, f.Channels, []string{f.Typed}, f.Open, f.Close, f.Before,
			f.Middle, f.After, f.Params.Open, f.Params.Close, []string{f.Quote}) {
			if strings.HasPrefix(text, "<") && strings.HasSuffix(text, ">") && strings.Count(text, ">") == 1 &&
				!slices.Contains(v.markers, text) {
				v.markers = append(v.markers, text)
			}
		}
		if len(f.Heads) > 0 {
			v.markers = append(v.markers, "<|channel|>", "<|constrain|>", "<|message|>")
		}
	}
	return v
}

func (v *vocabulary) end() int32 { return int32(len(v.pieces) + len(v.markers)) }
func (v *vocabulary) Size() int  { return len(v.pieces) + len(v.markers) + 1 }
func (v *vocabulary) Piece(t int32) []byte {
	if int(t) < len(v.pieces) {
		return v.pieces[t]
	}
	return nil
}
func (v *vocabulary) Text(t int32) string {
	if i := int(t) - len(v.pieces); i >= 0 && i < len(v.markers) {
		return v.markers[i]
	}
	return string(v.Piece(t))
}
func (v *vocabulary) IsControl(t int32) bool { return int(t) >= len(v.pieces) }
func (v *vocabulary) Find(text string) int32 {
	if i := slices.Index(v.markers, text); i >= 0 {
		return int32(len(v.pieces) + i)
	}
	return -1
}

// read is text as a parser reads its tokens.
func (v *vocabulary) read(s *toolcall.Spec, text string) (out []byte) {
next:
	for text != "" {
		for i, m := range v.markers {
			if strings.HasPrefix(text, m) {
				out = append(out, s.Piece(int32(len(v.pieces)+i), nil)...)
				text = text[len(m):]
				continue next
			}
		}
		out = append(out, text[0])
		text = text[1:]
	}
	return out
}

// routed returns the text of a message with its header as a router passes it on.
func (v *vocabulary) routed(s *toolcall.Spec, text []byte) []byte {
	f := s.Syntax()
	end := v.read(s, "<|message|>")
	head, body, _ := bytes.Cut(text, end)
	if !s.Named() {
		return body
	}
	for _, marker := range []string{"<|channel|>", "<|constrain|>"} {
		head = bytes.ReplaceAll(head, v.read(s, marker), []byte(" "))
	}
	return slices.Concat(v.read(s, f.Before[0]), head, end, body)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

var tools = []toolcall.Tool{
	{Name: "get_weather",
		Parameters: []byte(`{"type":"object","properties":{"location":{"type":"string","maxLength":6},` +
			`"unit":{"type":"string","enum":["celsius","fahrenheit"]},"days":{"type":"integer","minimum":0,` +
			`"maximum":99},"tags":{"type":"array","items":{"type":"boolean"},"maxItems":2}},"required":["location"],` +
			`"additionalProperties":false}`)},
	{Name: "now", Parameters: []byte(`{"type":"object","properties":{},"additionalProperties":false}`)},
}

// arguments holds the parameters of the tools' schemas.
type arguments struct {
	Location *string
	Unit     *string
	Days     *int
	Tags     []bool
}

// Whatever a model may write under the grammar of a syntax is read as calls with arguments that fit their schemas.
// Where nothing bounds a text, the walk takes what ends it.
func TestWalksAreCalls(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range len(toolcall.Syntaxes) + 1 {
		f := &toolcall.JSON
		if i < len(toolcall.Syntaxes) {
			f = &toolcall.Syntaxes[i]
		}
		t.Run(f.Name, func(t *testing.T) {
			for _, control := range []bool{false, true} {
				v := newVocabulary(f, control)
				spec := f.Resolve(v)
				words := grammar.NewVocabulary(pieces(spec, v), []int32{v.end()})
				var ends [][]byte
				for _, text := range slices.Concat([]string{f.Params.Pad + first(f.Params.Close)}, f.Params.Close,
					[]string{f.Quote}, []string{"'"}, f.Middle, f.Close, []string{"\"}", "\""}, f.After,
					[]string{"}", "]", ")"}) {
					if text != "" {
						ends = append(ends, v.read(spec, text))
					}
				}
				for _, choice := range []toolcall.Choice{{Mode: toolcall.Required},
					{Mode: toolcall.Named, Name: "get_weather"}} {
					parallel := choice.Mode == toolcall.Required
					texts := []toolcall.Expr{spec.Text(tools, choice, parallel)}
					if spec.Headed() {
						texts = append(texts, spec.TextWithHeader(tools, choice, parallel))
					}
					var grammars []*grammar.Grammar
					for _, text := range texts {
						g, err := compile(text, false, jsonschema.Limits{})
						if err != nil {
							t.Fatal(err)
						}
						grammars = append(grammars, g)
					}
					for i := range 20 * len(grammars) {
						m := grammar.NewMatcher(grammars[i/20], words)
						p := toolcall.NewParser(spec, toolcall.NewTools(tools), toolcall.Options{Stream: true})
						var got toolcall.Collect
						var text []byte
						for step := 0; ; step++ {
							var allowed []int32
							for t, mask := int32(0), m.Mask(); t < int32(v.Size()); t++ {
								if mask[t/32]>>(t%32)&1 != 0 {
									allowed = append(allowed, t)
								}
							}
							if len(allowed) == 0 || step > 4000 {
								t.Fatalf("%d steps, no token after %q: %v", step, text, m.Err())
							}
							tok := allowed[r.IntN(len(allowed))]
							if slices.Contains(allowed, v.end()) && (step > 60 || r.IntN(4) == 0) {
								break
							}
							if step > 60 { // what ends the text, a call, a value
								if i := slices.IndexFunc(ends,
									func(end []byte) bool { return m.AcceptBytes(end) == nil }); i >= 0 {
									text = append(text, ends[i]...)
									continue
								}
							}
							if tok == v.end() {
								break
							}
							if err := m.Accept(tok); err != nil {
								t.Fatal(err)
							}
							piece := spec.Piece(tok, v.Piece(tok))
							text = append(text, piece...)
						}
						if i >= 20 {
							text = v.routed(spec, text)
						}
						got.Add(p.Push(text))
						got.Add(p.Finish())
						if len(got.Calls) == 0 || len(got.Reasons) > 0 || len(got.Text) > 0 {
							t.Fatalf("seed %d: %q is read as %q, %v, text %q", seed, text, got.Calls, got.Reasons,
								got.Text)
						}
						for _, c := range got.Calls {
							var a arguments
							d := json.NewDecoder(strings.NewReader(c.Arguments))
							d.DisallowUnknownFields()
							if err := d.Decode(&a); err != nil || c.Name == "get_weather" && a.Location == nil ||
								c.Name == "now" && strings.Trim(c.Arguments, "{} \t\n") != "" {
								t.Fatalf("seed %d: %s(%s) of %q: %v", seed, c.Name, c.Arguments, text, err)
							}
							if choice.Mode == toolcall.Named && c.Name != "get_weather" {
								t.Fatalf("%q calls %s", text, c.Name)
							}
						}
					}
				}
			}
		})
	}
}

// A schema that cannot be enforced is an error that names its keyword.
func TestRefusedSchemas(t *testing.T) {
	bad := []toolcall.Tool{{Name: "f", Parameters: []byte(`{"type":"object","properties":{"x":{"type":"nonsense"}}}`)}}
	spec := toolcall.ByName("hermes").Resolve(nil)
	if _, err := compile(spec.Text(bad, toolcall.Choice{Mode: toolcall.Required}, true), false,
		jsonschema.Limits{}); err == nil || !strings.Contains(err.Error(), "type") {
		t.Errorf("%v", err)
	}
}

// compile returns the grammar of p. The schema of a tool that cannot be enforced is an error that names the tool, and
// the keyword with its place (jsonschema.Error); with loose the arguments of such a tool are any object, unless it is
// strict.
func compile(p toolcall.Expr, loose bool, l jsonschema.Limits) (*grammar.Grammar, error) {
	return Build(l.Grammar, loose, func(b *grammar.Builder, h *Holder) (grammar.Node, error) { return h.Add(b, p, l) })
}

// pieces are the bytes of a vocabulary's tokens for grammar.NewVocabulary: their text, and markers of calls as the
// parser reads them.
func pieces(s *toolcall.Spec, v toolcall.Vocabulary) [][]byte {
	pieces := make([][]byte, v.Size())
	for t := range pieces {
		pieces[t] = s.Piece(int32(t), v.Piece(int32(t)))
	}
	return pieces
}
