package jsonschema

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/uma-serve/uma-serve/grammar"
)

// validate compiles schema with an independent validator; nil where it does not take the schema.
func validate(schema []byte) *validator.Schema {
	doc, err := validator.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("mem:schema", doc); err != nil {
		return nil
	}
	s, err := c.Compile("mem:schema")
	if err != nil {
		return nil
	}
	return s
}

// walk follows random bytes that the grammar allows. Behind long bytes it prefers those that end things. It returns the
// text, and whether it ended.
func walk(t testing.TB, m *grammar.Matcher, r *rand.Rand, long int) (string, bool) {
	m.Reset()
	var text []byte
	for len(text) < 20*long {
		mask := m.Mask()
		if err := m.Err(); err != nil {
			t.Logf("%q: %v", text, err)
			return "", false
		}
		has := func(b int) bool { return mask[b/32]>>(b%32)&1 != 0 }
		if has(256) && (len(text) > long || r.IntN(4) == 0) {
			return string(text), true
		}
		next := -1
		if len(text) > long {
			for _, b := range []byte("\"]}:,0a") {
				if has(int(b)) && (b != ',' || r.IntN(2) == 0) {
					next = int(b)
					break
				}
			}
		}
		if next < 0 {
			var allowed []int
			for b := range 256 {
				if has(b) {
					allowed = append(allowed, b)
				}
			}
			if len(allowed) == 0 {
				if has(256) {
					return string(text), true
				}
				t.Fatalf("nothing may follow %q", text)
			}
			next = allowed[r.IntN(len(allowed))]
		}
		text = append(text, byte(next))
		if err := m.Accept(int32(next)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	}
	return string(text), false
}

// checkWalk fails when text is not valid for schema by s.
func checkWalk(t testing.TB, name string, s *validator.Schema, text string) {
	t.Helper()
	v, err := validator.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Errorf("%s: %q is not JSON: %v", name, text, err)
		return
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%s: %q is not valid: %v", name, text, err)
	}
}

// TestWalksOfCases holds random texts of the grammars of testdata/cases.jsonl to an independent validator.
func TestWalksOfCases(t *testing.T) {
	v := bytesVocab()
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range readCases(t, "testdata/cases.jsonl") {
		s := validate(c.Schema)
		for _, o := range []Options{{}, {AnyForm: true}} {
			g, err := Compile(c.Schema, o, Limits{})
			if err != nil || s == nil {
				continue
			}
			m := grammar.NewMatcher(g, v)
			ended := 0
			for range 50 {
				if text, ok := walk(t, m, r, 60); ok {
					ended++
					checkWalk(t, c.Name, s, text)
				}
			}
			if ended < 25 {
				t.Errorf("%s: %d of 50 walks ended", c.Name, ended)
			}
		}
	}
}

// TestWalksOfMaskBench does the same 1,000 times for each class of the visible schemas.
func TestWalksOfMaskBench(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes of walks")
	}
	data := golden(t, "maskbench-1500.jsonl.gz")
	file := t.TempDir() + "/cases.jsonl"
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	classes := map[string][]instances{}
	for _, c := range readCases(t, file) {
		class, _, ok := strings.Cut(c.Name, "---")
		if !ok {
			class, _, _ = strings.Cut(c.Name, "_")
		}
		classes[class] = append(classes[class], c)
	}
	v := bytesVocab()
	r := rand.New(rand.NewPCG(3, 4))
	for class, cases := range classes {
		done, ended, compiled := 0, 0, 0
		for _, c := range cases {
			g, err := Compile(c.Schema, Options{}, Limits{})
			s := validate(c.Schema)
			if err != nil || s == nil {
				continue
			}
			compiled++
			m := grammar.NewMatcher(g, v)
			for range 1 + 1000/len(cases) {
				done++
				if text, ok := walk(t, m, r, 200); ok {
					ended++
					checkWalk(t, c.Name, s, text)
				}
			}
		}
		t.Logf("%s: %d schemas, %d walks, %d ended", class, compiled, done, ended)
	}
}

// FuzzCompile holds any schema to the limits, and what its grammar writes to an independent validator.
func FuzzCompile(f *testing.F) {
	for _, c := range readCases(f, "testdata/cases.jsonl") {
		f.Add([]byte(c.Schema), uint64(1))
	}
	v := bytesVocab()
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		l := Limits{Bytes: 4096, Depth: 40, Schemas: 2000, Alternatives: 40, Work: 5000,
			Grammar: grammar.Limits{Nodes: 5000, Expressions: 20_000, States: 500, Threads: 200}}
		g, err := Compile(schema, Options{AnyForm: seed%2 == 0}, l)
		if err != nil {
			return
		}
		m := grammar.NewMatcher(g, v)
		text, ok := walk(t, m, rand.New(rand.NewPCG(seed, 1)), 40)
		if !ok {
			return
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("%s: %q is not JSON", schema, text)
		}
		if s := validate(schema); s != nil {
			checkWalk(t, string(schema), s, text)
		}
	})
}
