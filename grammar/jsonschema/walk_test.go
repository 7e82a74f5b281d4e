package jsonschema

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
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
	c.UseRegexpEngine(ecmaDot)
	if err := c.AddResource("mem:schema", doc); err != nil {
		return nil
	}
	s, err := c.Compile("mem:schema")
	if err != nil {
		return nil
	}
	return s
}

// ecmaDot compiles a pattern for Go's regexp with the dot of ECMA-262, which matches no line terminator; Go's matches
// all of them but the line feed.
func ecmaDot(pattern string) (validator.Regexp, error) {
	var b strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			b.WriteByte(c)
			i++
			b.WriteByte(pattern[i])
			continue
		case c == '.' && !class:
			b.WriteString(`[^\n\r\x{2028}\x{2029}]`)
			continue
		case c == '[':
			class = true
		case c == ']':
			class = false
		}
		b.WriteByte(pattern[i])
	}
	return regexp.Compile(b.String())
}

// walker walks through a grammar on a vocabulary of bytes and of the strings of its schema, quoted.
type walker struct {
	m      *grammar.Matcher
	r      *rand.Rand
	pieces [][]byte
}

// newWalker is a walker through g, with the strings of texts: its schema and perhaps instances.
func newWalker(g *grammar.Grammar, r *rand.Rand, texts ...[]byte) *walker {
	w := &walker{r: r, pieces: make([][]byte, 257)}
	for i := range 256 {
		w.pieces[i] = []byte{byte(i)}
	}
	seen := map[string]bool{}
	var collect func(v *value)
	add := func(s string) {
		if q := quote(s); len(q) < 60 && !seen[q] && len(seen) < 5000 {
			seen[q] = true
			w.pieces = append(w.pieces, []byte(q))
		}
	}
	collect = func(v *value) {
		if v.kind == stringValue {
			add(v.text)
		}
		for _, it := range v.items {
			collect(it)
		}
		for _, m := range v.members {
			add(m.name)
			collect(m.value)
		}
	}
	for _, text := range texts {
		if v, err := parseValue(text, 1000); err == nil {
			collect(v)
		}
	}
	w.m = grammar.NewMatcher(g, grammar.NewVocabulary(w.pieces, []int32{256}))
	return w
}

// walk follows random tokens that the grammar allows. Behind long bytes it prefers those that end things. It returns
// the text, and whether it ended.
func (w *walker) walk(t testing.TB, long int) (string, bool) {
	w.m.Reset()
	var text []byte
	for len(text) < 20*long {
		mask := w.m.Mask()
		if err := w.m.Err(); err != nil {
			t.Logf("%q: %v", text, err)
			return "", false
		}
		has := func(b int) bool { return mask[b/32]>>(b%32)&1 != 0 }
		if has(256) && (len(text) > long || w.r.IntN(4) == 0) {
			return string(text), true
		}
		next := w.choose(has, len(text) > long)
		if next == 256 {
			return string(text), true
		}
		if next < 0 {
			t.Fatalf("nothing may follow %q", text)
		}
		text = append(text, w.pieces[next]...)
		if err := w.m.Accept(int32(next)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	}
	return string(text), false
}

func (w *walker) choose(has func(int) bool, hurry bool) int {
	if hurry && w.r.IntN(8) > 0 {
		for _, b := range []byte("]}") {
			if has(int(b)) {
				return int(b)
			}
		}
	}
	var single, whole []int
	for i := range w.pieces {
		if !has(i) {
			continue
		}
		if i > 256 {
			whole = append(whole, i)
		} else if i < 256 {
			single = append(single, i)
		}
	}
	switch {
	case len(whole) > 0 && w.r.IntN(4) > 0:
		return whole[w.r.IntN(len(whole))]
	case hurry && w.r.IntN(8) > 0:
		for _, b := range []byte("\"1ntf") { // the end of a string, and the shortest values
			if has(int(b)) {
				return int(b)
			}
		}
	}
	switch {
	case len(single) > 0:
		return single[w.r.IntN(len(single))]
	case len(whole) > 0:
		return whole[w.r.IntN(len(whole))]
	case has(256):
		return 256
	}
	return -1
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
	r := rand.New(rand.NewPCG(1, 2))
	walks := 50
	if testing.Short() {
		walks = 20
	}
	for _, c := range readCases(t, "testdata/cases.jsonl") {
		s := validate(c.Schema)
		for _, o := range []Options{{}, {AnyForm: true}} {
			g, err := Compile(c.Schema, o, Limits{})
			if err != nil || s == nil {
				continue
			}
			texts := [][]byte{c.Schema}
			for _, i := range c.Tests {
				texts = append(texts, i.Data)
			}
			w := newWalker(g, r, texts...)
			ended := 0
			for range walks {
				if text, ok := w.walk(t, 60); ok {
					ended++
					checkWalk(t, c.Name, s, text)
				}
			}
			if ended*10 < walks {
				t.Errorf("%s: %d of %d walks ended", c.Name, ended, walks)
			}
		}
	}
}

// maxFailed is the number of walks without an end after which a schema is left alone.
const maxFailed = 20

var walks = flag.Int("walks", 60, "random texts of each class of schemas in TestWalksOfMaskBench")

// TestWalksOfMaskBench does the same -walks times for each class of the visible schemas.
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
	r := rand.New(rand.NewPCG(3, 4))
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		cases := classes[class]
		type schema struct {
			name   string
			s      *validator.Schema
			w      *walker
			ended  int
			failed int
		}
		var schemas []*schema
		for _, c := range cases {
			g, err := Compile(c.Schema, Options{}, Limits{})
			if s := validate(c.Schema); err == nil && s != nil {
				schemas = append(schemas, &schema{name: c.Name, s: s, w: newWalker(g, r, c.Schema)})
			}
		}
		done, ended := 0, 0
		for round := 0; ended < *walks && len(schemas) > 0 && round < 4**walks; round++ {
			c := schemas[round%len(schemas)]
			if c.ended == 0 && c.failed >= maxFailed {
				continue
			}
			done++
			if text, ok := c.w.walk(t, 200); ok {
				ended, c.ended = ended+1, c.ended+1
				checkWalk(t, c.name, c.s, text)
			} else {
				c.failed++
			}
		}
		never := 0
		for _, c := range schemas {
			if c.failed > 0 && c.ended == 0 {
				t.Logf("%s: none of %d walks ended", c.name, c.failed)
				never++
			}
		}
		t.Logf("%s: %d schemas, %d walks, %d ended; of %d schemas none", class, len(schemas), done, ended, never)
		if ended < *walks && len(schemas) > 0 {
			t.Errorf("%s: %d of %d walks ended, want %d", class, ended, done, *walks)
		}
	}
}

// FuzzCompile holds any schema to the limits, and what its grammar writes to an independent validator.
func FuzzCompile(f *testing.F) {
	for _, c := range readCases(f, "testdata/cases.jsonl") {
		f.Add([]byte(c.Schema), uint64(1))
	}
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		l := Limits{Bytes: 4096, Depth: 40, Schemas: 2000, Alternatives: 40, Work: 5000,
			Grammar: grammar.Limits{Nodes: 5000, Expressions: 20_000, States: 500, Threads: 200}}
		g, err := Compile(schema, Options{AnyForm: seed%2 == 0}, l)
		if err != nil {
			return
		}
		text, ok := newWalker(g, rand.New(rand.NewPCG(seed, 1)), schema).walk(t, 40)
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
