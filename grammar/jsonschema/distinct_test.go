package jsonschema

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/regex"
)

// TestDistinctTexts: names and items are told apart by what they stand for, not by how they are written.
func TestDistinctTexts(t *testing.T) {
	v := bytesVocab()
	const counted = `{"type":"object","minProperties":2}`
	const witness = `{"type":"object","not":{"patternProperties":{"a":{"type":"string"}}}}`
	const unique = `{"type":"array","items":{"type":"string"},"uniqueItems":true}`
	for _, c := range []struct {
		schema, text string
		valid        bool
	}{
		{counted, `{"x": 1, "y": 2}`, true},
		{counted, `{"x": 1, "x": 2}`, false},
		{counted, `{"x": 1, "\u0078": 2}`, false},
		{counted, `{"x": 1, "\u0078y": 2}`, true},
		{witness, `{"a": 1}`, true},
		{witness, `{"a": 1, "b": "s"}`, true},
		{witness, `{"a": 1, "a": "s"}`, false}, // the last counts
		{witness, `{"a": "s", "a": 1}`, false}, // as no name comes twice
		{witness, `{"a": "s", "ba": 1}`, true},
		{unique, `["a", "\u0061"]`, false},
		{unique, `["\u0061", "a"]`, false},
		{unique, `["\/", "/"]`, false},
		{unique, `["\ud83d\ude00", "😀"]`, false},
		{unique, `["\ud83d\ude00", "😁"]`, true},
		{unique, `["a", "aa", "aaa", "A"]`, true},
		{`{"type":"array","items":{"type":"number"},"uniqueItems":true}`, `[1, 1.00]`, false},
		{`{"type":"array","items":{"type":"number"},"uniqueItems":true}`, `[-0, 0]`, false},
		{`{"type":"array","items":{"type":"number"},"uniqueItems":true}`, `[10, 1, 1.01, -1]`, true},
		{`{"type":"array","items":{"type":"integer","minimum":3},"uniqueItems":true}`, `[10, 3, 4, 10]`, false},
		{`{"type":"array","items":{"type":"integer","minimum":3},"uniqueItems":true}`, `[10, 3, 4, 100]`, true},
	} {
		for _, o := range []Options{{AnyForm: true}, {}} {
			g, err := Compile([]byte(c.schema), o, Limits{})
			if err != nil {
				t.Fatalf("%s: %v", c.schema, err)
			}
			if got := accepts(t, g, v, c.text); got && !c.valid || !got && c.valid && o.AnyForm {
				t.Errorf("%s, any form %v: %s is accepted: %v", c.schema, o.AnyForm, c.text, got)
			}
		}
	}
}

// TestManyDistinctItems: a list of items that must differ ends where no more are remembered, and what is written again
// is not accepted however much was between.
func TestManyDistinctItems(t *testing.T) {
	v := bytesVocab()
	g, err := Compile([]byte(`{"type":"array","items":{"type":"string"},"uniqueItems":true}`), Options{}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	m := grammar.NewMatcher(g, v)
	r := rand.New(rand.NewPCG(1, 2))
	say := func(text string) error { return m.AcceptBytes([]byte(text)) }
	if err := say("["); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if i > 0 {
			if err := say(", "); err != nil {
				t.Fatal(i, err)
			}
		}
		if i > 0 && say(fmt.Sprintf("\"item %d\"", r.IntN(i))) == nil {
			t.Fatalf("item %d repeats an earlier one", i)
		}
		if err := say(fmt.Sprintf("\"item %d\"", i)); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := say("]"); err != nil || !m.Done() || m.Err() != nil {
		t.Errorf("%v, %v", err, m.Err())
	}
	// Renewed in between, the grammar still knows what was written.
	g, err = Compile([]byte(`{"type":"array","items":{"type":"string"},"uniqueItems":true}`), Options{},
		Limits{Grammar: grammar.Limits{Expressions: 3000, States: 60}})
	if err != nil {
		t.Fatal(err)
	}
	m = grammar.NewMatcher(g, v)
	text := "["
	for i := range 40 {
		text += fmt.Sprintf("\"%d%s\",", i, strings.Repeat("x", 20))
	}
	if err := say(text); err != nil {
		t.Fatal(err)
	}
	if say(`"7`+strings.Repeat("x", 20)+`"`) == nil || say(`"7`+strings.Repeat("x", 21)+`"`) != nil {
		t.Errorf("after %d bytes: %v", len(text), m.Err())
	}
}

// TestTexts: how many texts there are is told within bounds, however long they are.
func TestTexts(t *testing.T) {
	c := &compiler{s: grammar.NewBuilder(grammar.Limits{}).Regex()}
	for _, x := range []struct {
		pattern string
		most    int
		want    plenty
		texts   int
	}{
		{"^[ab]c?$", 4, few, 4}, {"^[ab]c?$", 3, many, 0}, {"a", 1000, many, 0}, {"^a*$", 1000, many, 0},
		{"^$", 10, few, 1}, {"^x{600}[ab]$", 10, few, 2}, {"^[a-z]{2}x{9000}$", 1000, unknown, 0},
		{"^(x{5000})*$", 1000, unknown, 0}, {"^[a-z]{2}x{9000}$", 600, many, 0},
	} {
		e, err := c.s.Parse(x.pattern, regex.ECMA)
		if err != nil {
			t.Fatal(err)
		}
		if list, n := c.texts(e, x.most); n != x.want || len(list) != x.texts {
			t.Errorf("%s, most %d: %d, %d texts", x.pattern, x.most, n, len(list))
		}
	}
}
