package jsonschema

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar"
)

// bytesVocab has a token for each byte, and one that ends a text.
func bytesVocab() *grammar.Vocabulary {
	pieces := make([][]byte, 257)
	for i := range 256 {
		pieces[i] = []byte{byte(i)}
	}
	return grammar.NewVocabulary(pieces, []int32{256})
}

// accepts reports whether text is one of g's.
func accepts(t testing.TB, g *grammar.Grammar, v *grammar.Vocabulary, text string) bool {
	t.Helper()
	m := grammar.NewMatcher(g, v)
	err := m.AcceptBytes([]byte(text))
	if m.Err() != nil {
		t.Fatalf("%.100s: %v", text, m.Err())
	}
	if err != nil && !errors.Is(err, grammar.ErrRejected) {
		t.Fatalf("%.100s: %v", text, err)
	}
	return err == nil && m.MayEnd()
}

// instances is a schema with texts, one line of a file of cases. Error is what a refusal says, in part.
type instances struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Tests  []struct {
		Valid bool            `json:"valid"`
		Data  json.RawMessage `json:"data"`
	} `json:"tests"`
	Error string `json:"error"`
}

func readCases(t testing.TB, path string) []instances {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []instances
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "//") {
			continue
		}
		var c instances
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatalf("%s:%d: %v", path, n, err)
		}
		out = append(out, c)
	}
	return out
}

// TestCases checks the schemas of testdata/cases.jsonl against their instances, with the white space and the order of
// members that the file has.
func TestCases(t *testing.T) {
	v := bytesVocab()
	for _, c := range readCases(t, "testdata/cases.jsonl") {
		g, err := Compile(c.Schema, Options{AnyForm: true}, Limits{})
		if c.Error != "" {
			if err == nil || !strings.Contains(err.Error(), c.Error) {
				t.Errorf("%s: error %v, want one with %q", c.Name, err, c.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for _, i := range c.Tests {
			if accepts(t, g, v, string(i.Data)) != i.Valid {
				t.Errorf("%s: valid %v, and the grammar says otherwise: %s", c.Name, i.Valid, i.Data)
			}
		}
	}
}

func TestForms(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","é\n"]}},"required":["a"]}`
	v := bytesVocab()
	for _, c := range []struct {
		options Options
		text    string
		want    bool
	}{
		{Options{}, `{"a":1,"b":"x"}`, true},
		{Options{}, `{"a": 1, "b": "x"}`, true},
		{Options{}, "{\n  \"a\": 1,\n  \"b\": \"x\"\n}", true},
		{Options{}, `{"b":"x","a":1}`, false},
		{Options{AnyForm: true}, `{"b":"x","a":1}`, true},
		{Options{}, `{"a":1.0}`, false},
		{Options{AnyForm: true}, `{"a":1.0}`, true},
		{Options{}, `{"a":1,"c":null,"d":[]}`, true},
		{Options{}, `{"c":null,"a":1}`, false},
		{Options{AnyForm: true}, `{"c":null,"a":1}`, true},
		{Options{AnyForm: true}, `{"a":1,"a":2}`, false},
		{Options{AnyForm: true}, `{"\u0061":"x","a":1}`, false}, // an a by another name is no additional member
		{Options{}, `{"a":1,"b":"é\n"}`, true},
		{Options{}, `{ }`, false},
		{Options{Whitespace: Compact}, `{"a":1,"b":"x"}`, true},
		{Options{Whitespace: Compact}, `{"a": 1}`, false},
		{Options{}, " {\"a\":1}", false},
		{Options{Whitespace: Free}, " {\t\"a\" :\r\n1 } ", true},
		{Options{}, `{"a":1 ,"b":"x"}`, false},
		{Options{}, "{" + strings.Repeat(" ", 2) + `"a":1}`, false},
		{Options{}, "{\n" + strings.Repeat(" ", 20) + `"a":1}`, true},
		{Options{}, "{\n" + strings.Repeat(" ", 21) + `"a":1}`, false},
	} {
		g, err := Compile([]byte(schema), c.options, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if accepts(t, g, v, c.text) != c.want {
			t.Errorf("%+v: %s: accepted %v, want %v", c.options, c.text, !c.want, c.want)
		}
	}
}

// TestNumbersEnd: a number has at most 20 digits before the point and behind it, unless the schema has no such number.
func TestNumbersEnd(t *testing.T) {
	v, zeros := bytesVocab(), strings.Repeat("0", 30)
	for _, c := range []struct {
		schema, text string
		options      Options
		want         bool
	}{
		{`{"type":"number","minimum":0,"maximum":1}`, "0." + zeros[:19] + "1", Options{}, true},
		{`{"type":"number","minimum":0,"maximum":1}`, "0." + zeros[:20] + "1", Options{}, false},
		{`{"type":"number","minimum":0,"maximum":1}`, "0." + zeros[:20] + "1", Options{AnyForm: true}, true},
		{`{"type":"number"}`, "-1" + zeros[:19] + ".5e-300", Options{}, false},
		{`{"type":"number"}`, "-1" + zeros[:19] + ".5e-299", Options{}, true},
		{`{"type":"number"}`, "1" + zeros[:20], Options{}, false},
		{`{"type":"integer"}`, "18446744073709551615", Options{}, true},
		{`{"type":"integer"}`, "1" + zeros[:20], Options{}, false},
		{`{"type":"integer","multipleOf":1000}`, "17000", Options{}, true},
		{`{"type":"integer","multipleOf":1000}`, "1" + zeros[:20], Options{}, false},
		{`{"type":"number","minimum":1e25}`, "1" + zeros[:25], Options{}, true},
		{`{"const":1e25}`, "1" + zeros[:25], Options{}, true},
	} {
		g, err := Compile([]byte(c.schema), c.options, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if accepts(t, g, v, c.text) != c.want {
			t.Errorf("%+v: %s: %s accepted: %v, want %v", c.options, c.schema, c.text, !c.want, c.want)
		}
	}
}

func TestErrorsNameTheirPlace(t *testing.T) {
	for _, c := range []struct {
		schema, pointer, keyword string
		kind                     error
	}{
		{`{"properties":{"a/b":{"items":[{"type":"array","items":{"type":["string","array"]},"uniqueItems":true}]}}}`,
			"/properties/a~1b/items/0", "uniqueItems", ErrUnsupported},
		{`{"type":"strin"}`, "", "type", ErrInvalid},
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`, "/properties/a", "$ref", ErrInvalid},
		{`{"$ref":"https://example.com/other.json"}`, "", "$ref", ErrInvalid},
		{`{"type":"string","pattern":"(a"}`, "", "pattern", ErrInvalid},
		{`{"type":"string","pattern":"(a)\\1"}`, "", "pattern", ErrUnsupported},
		{`{"type":"string","format":"idn-hostname"}`, "", "format", ErrUnsupported},
		{`{"extends":{"type":"string"}}`, "", "extends", ErrUnsupported},
		{`{"allOf":[{"$ref":"#"}]}`, "", "$ref", ErrUnsupported},
		{`{"type":"object","minProperties":5000}`, "", "minProperties", ErrUnsupported},
		{`{"type":"array","items":{"type":"integer","minimum":1,"maximum":9},"uniqueItems":true}`, "", "uniqueItems",
			ErrUnsupported},
		{`{"type":"number","multipleOf":0}`, "", "multipleOf", ErrUnsupported},
		{`{"minLength":-1}`, "", "minLength", ErrInvalid},
		{`[]`, "", "", ErrInvalid},
		{`{`, "", "", ErrInvalid},
		{"{\"const\":\"a\xff\"}", "", "", ErrInvalid},
		{`{"type":"string","enum":[1]}`, "", "", ErrUnsatisfiable},
		{`false`, "", "", ErrUnsatisfiable},
		{strings.Repeat(`{"not":`, 300) + `{}` + strings.Repeat(`}`, 300), "", "", ErrLimit},
		{`{"enum":["` + strings.Repeat("a", 1<<20) + `"]}`, "", "", ErrLimit},
	} {
		_, err := Compile([]byte(c.schema), Options{}, Limits{})
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Errorf("%.80s: error %v, want an *Error", c.schema, err)
			continue
		}
		if e.Pointer != c.pointer || e.Keyword != c.keyword || !errors.Is(err, c.kind) {
			t.Errorf("%.80s: %v at %q, keyword %q; want %v at %q, keyword %q", c.schema, err, e.Pointer, e.Keyword,
				c.kind, c.pointer, c.keyword)
		}
	}
}

func TestLimitsAreNamed(t *testing.T) {
	many := `{"oneOf":[` + strings.Repeat(`{"type":"object","properties":{"a":{},"b":{"minimum":1},"c":{"maximum":1}}`+
		`,"required":["b","c"]},`, 30) + `{}]}`
	for _, c := range []struct {
		schema string
		limits Limits
		name   string
	}{
		{`{"type":"string"}`, Limits{Bytes: 5}, "Limits.Bytes"},
		{`{"items":{"items":{"items":{}}}}`, Limits{Depth: 2}, "Limits.Depth"},
		{`{"properties":{"a":{"type":"null"},"b":{"type":"string"},"c":{"minimum":1}}}`, Limits{Schemas: 3},
			"Limits.Schemas"},
		{many, Limits{Alternatives: 2}, "Limits.Alternatives"},
		{many, Limits{Work: 10}, "Limits.Work"},
	} {
		_, err := Compile([]byte(c.schema), Options{}, c.limits)
		if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%.60s: error %v, want one that names %s", c.schema, err, c.name)
		}
	}
}

func TestObject(t *testing.T) {
	v := bytesVocab()
	g, err := Compile([]byte(`{"type":"object"}`), Options{}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{`{}`: true, `{"a":[1,{"b":null}]}`: true, `[]`: false, `"a"`: false,
		`{"a"}`: false} {
		if accepts(t, g, v, text) != want {
			t.Errorf("object: %s: accepted %v", text, !want)
		}
	}
}

// TestStop: compiling ends with ErrStopped soon after Stop says so, wherever it is.
func TestStop(t *testing.T) {
	var alts []string
	for i := range 4 {
		alts = append(alts,
			fmt.Sprintf(`{"type":"object","properties":{"a":{"pattern":"^[a-z]{%d,9}x?[%d-9]*"},"b":{"$ref":"#"}}}`, i,
				i))
	}
	schema := []byte(`{"oneOf":[` + strings.Join(alts, ",") + `]}`)
	asked, most := 0, 0
	stop := func() bool { asked++; return asked > most }
	most = 1 << 30
	if _, err := Compile(schema, Options{}, Limits{Grammar: grammar.Limits{Stop: stop}}); errors.Is(err,
		grammar.ErrStopped) {
		t.Fatal(err)
	}
	all := asked
	if all < 100 {
		t.Fatalf("asked %d times", all)
	}
	each := 1
	if testing.Short() {
		each = 3
	}
	for i := 0; i < 10; i += each {
		asked, most = 0, all*i/10
		_, err := Compile(schema, Options{}, Limits{Grammar: grammar.Limits{Stop: stop}})
		if !errors.Is(err, grammar.ErrStopped) || asked > most+1 {
			t.Errorf("stopped at question %d of %d: %v after %d", most, all, err, asked)
		}
	}
}

// TestUnevaluatedWork: looking for what is evaluated is bounded where references double at each level.
func TestUnevaluatedWork(t *testing.T) {
	defs := []string{`"d0":{"properties":{"a":{}}}`}
	for i := range 60 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i))
	}
	schema := `{"$ref":"#/$defs/d60","unevaluatedProperties":false,"$defs":{` + strings.Join(defs, ",") + `}}`
	if _, err := Compile([]byte(schema), Options{}, Limits{}); !errors.Is(err, ErrLimit) ||
		!strings.Contains(err.Error(), "Limits.Work") {
		t.Error(err)
	}
}
