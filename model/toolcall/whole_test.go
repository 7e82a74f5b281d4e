package toolcall

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// wholeTools are the tools of the answers below.
func wholeTools() *Tools {
	return NewTools([]Tool{
		{Name: "get_weather", Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"},` +
			`"unit":{"type":"string"}},"required":["city"]}`)},
		{Name: "search", Description: "Searches.", Parameters: []byte(`{"type":"object","properties":{` +
			`"query":{"type":"string"},"limit":{"type":"integer"}},"required":["query"]}`)},
		{Name: "now"},
	})
}

// wild are answers as small models write them: each is one call or two.
var wild = []string{
	`{"name": "get_weather", "arguments": {"city": "Paris"}}`,
	`{"name":"get_weather","arguments":{"city":"Paris"}}`,
	"{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Paris\"\n  }\n}",
	`{"name": "get_weather", "parameters": {"city": "Paris"}}`,
	`{"name": "get_weather", "args": {"city": "Paris"}}`,
	`{"name": "get_weather", "input": {"city": "Paris"}}`,
	`{"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}`,
	`{"function": "get_weather", "arguments": {"city": "Paris"}}`,
	`{"function": "get_weather", "parameters": {"city": "Paris"}}`,
	`{"function_name": "get_weather", "arguments": {"city": "Paris"}}`,
	`{"tool": "get_weather", "arguments": {"city": "Paris"}}`,
	`{"tool": "get_weather", "args": {"city": "Paris", "unit": "C"}}`,
	`{"tool_name": "get_weather", "parameters": {"city": "Paris"}}`,
	`{"tool": "get_weather", "tool_input": {"city": "Paris"}}`,
	`{"action": "get_weather", "action_input": {"city": "Paris"}}`,
	`{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}`,
	`{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}`,
	`{"type": "function", "function": {"name": "get_weather", "parameters": {"city": "Paris"}}}`,
	`{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}`,
	`{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}`,
	`{"function_call": {"name": "get_weather", "arguments": {"city": "Paris"}}}`,
	`{"tool_call": {"name": "get_weather", "arguments": {"city": "Paris"}}}`,
	`{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}`,
	`{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "get_weather", ` +
		`"arguments": "{\"city\":\"Paris\"}"}}]}`,
	`{"arguments": {"city": "Paris"}, "name": "get_weather"}`,
	`{"parameters": {"city": "Paris"}, "function": "get_weather"}`,
	`{"type": "tool_use", "id": "toolu_01", "name": "get_weather", "input": {"city": "Paris"}}`,
	`[{"name": "get_weather", "arguments": {"city": "Paris"}}]`,
	"[\n  {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n]",
	`[{"name": "get_weather", "parameters": {"city": "Paris"}}, {"name": "search", "parameters": {"query": "x"}}]`,
	`[{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]`,
	`[{"tool": "get_weather", "args": {"city": "Paris"}}]`,
	"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n" +
		"{\"name\": \"search\", \"arguments\": {\"query\": \"y\"}}",
	"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}},\n" +
		"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}",
	"```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n```",
	"```\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n```",
	"```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Paris\"\n  }\n}\n```\n",
	"```json\n[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]\n```",
	"```tool_call\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n```",
	"```tool_code\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}\n```",
	"```JSON\n{\"function\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}\n```",
	"```json\n{\"tool_calls\": [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]}\n```",
	"```json\n{\"type\": \"function\", \"function\": " +
		"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}}\n```",
	"```xml\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n```",
	"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
	"<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}",
	"<tools>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tools>",
	"<function_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</function_call>",
	"<functioncall> {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}} </functioncall>",
	"<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
	"<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
	"<function=get_weather>{\"city\": \"Paris\"}</function>",
	`[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]`,
	`[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]`,
	`functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]`,
	`<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>`,
	`<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|/tool_call|>`,
	`{"get_weather": {"city": "Paris"}}`,
	`{"name": "now"}`,
	`{"name": "now", "arguments": {}}`,
	"\n\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"unit\": \"celsius\"}}",
	"  {\"name\" : \"search\" , \"arguments\" : {\"query\" : \"a \\\"b\\\" {c}\", \"limit\" : 5}}  ",
}

// TestWholeAnswers: an answer that is a call as a whole is one, however it is cut into pieces, for models of each
// syntax.
func TestWholeAnswers(t *testing.T) {
	tools := wholeTools()
	if len(wild) < 60 {
		t.Fatalf("%d answers", len(wild))
	}
	for i := range Syntaxes {
		f := &Syntaxes[i]
		spec, missed := f.Resolve(nil), 0
		for _, text := range wild {
			one := parse(spec, tools, Options{Whole: true}, []byte(text))
			if len(one.Calls) == 0 || !onlySpace(one.Text) {
				missed++
				t.Logf("%s: %q: %s", f.Name, text, report(one))
				continue
			}
			for _, c := range one.Calls {
				if !json.Valid([]byte(c.Arguments)) || c.Name != "now" && len(c.Arguments) < 10 {
					t.Errorf("%s: %q: %+v", f.Name, text, c)
				}
			}
			var pieces [][]byte
			for i := range len(text) {
				pieces = append(pieces, []byte(text[i:i+1]))
			}
			if got := report(parse(spec, tools, Options{Whole: true}, pieces...)); got != report(one) {
				t.Errorf("%s: %q\n%s\nin pieces:\n%s", f.Name, text, report(one), got)
			}
		}
		if missed*20 > len(wild) {
			t.Errorf("%s: %d of %d answers are no call", f.Name, missed, len(wild))
		}
	}
}

// ordinary returns JSON that is an answer and no call.
func ordinary() (list []string) {
	list = []string{
		`{"name": "Bo", "age": 7}`, `{"name": "search engine", "arguments": {"query": "x"}}`,
		`{"name": "get_weather"}`, `{"name": "get_weather", "description": "Returns the weather", "parameters": ` +
			`{"type": "object", "properties": {"city": {"type": "string"}}}}`,
		`{"name": "search", "arguments": ["query"]}`, `{"name": "search", "arguments": {"q": "x"}}`,
		`{"name": "search", "arguments": {"query": "x", "site": "y"}}`,
		`{"name": "search", "arguments": {"query": "x"}, "why": "because"}`,
		`{"tool": "hammer", "args": ["nail"]}`, `{"function": "f(x) = x", "arguments": {"x": 1}}`, `{}`, `[]`, `[{}]`,
		`{"type": "function", "text": "search"}`, `{"arguments": {"query": "x"}}`, `{"tools": ["search", "now"]}`,
		`[{"name": "get_weather", "description": "x"}, {"name": "search"}]`,
		`[{"name": "Ann"}, {"name": "Bo"}]`, `["search", "now"]`, `{"search": "x"}`, `{"search": {"engine": "x"}}`,
		"```json\n{\"name\": \"Bo\"}\n```", "```json\n{\"tools\": []}\n```", "```python\nprint(\"search\")\n```",
		"{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}\nThis is how you call it.",
		"```json\n{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}\n```\nThis calls the tool.",
		`{"id": 5, "name": "search"}`, `{"id": "5", "type": "user"}`, `{"input": "x", "output": "y"}`,
		`{"action": "buy", "input": {"query": "x"}}`, `{"calls": 3}`, `<tool>hammer</tool>`,
		`<tools></tools>`, `[1, 2]`,
		`{"name": "now", "time": "12:00"}`, `{"name": "nowhere"}`, `{"type": "object", "properties": {}}`,
	}
	r := rand.New(rand.NewPCG(1, 2))
	keys := []string{"name", "id", "type", "title", "city", "arguments", "result", "function", "items", "input",
		"query"}
	words := []string{"Paris", "search results", "weather", "user", "function", "Bo", "get", "42", "nowadays", "object"}
	var value func(depth int) any
	value = func(depth int) any {
		switch n := r.IntN(7); {
		case n < 3 || depth > 2:
			return words[r.IntN(len(words))]
		case n == 3:
			return r.IntN(1000)
		case n == 4:
			return []any{value(depth + 1), value(depth + 1)}
		}
		m := map[string]any{}
		for range 1 + r.IntN(4) {
			m[keys[r.IntN(len(keys))]] = value(depth + 1)
		}
		return m
	}
	for len(list) < 240 {
		b, err := json.MarshalIndent(map[string]any{keys[r.IntN(len(keys))]: value(0), "name": value(1)}, "", "  ")
		if err != nil {
			panic(err)
		}
		if text := string(b); len(list)%3 == 0 {
			list = append(list, "```json\n"+text+"\n```")
		} else {
			list = append(list, text)
		}
	}
	return list
}

// TestOrdinaryAnswersAreNoCalls: JSON that only looks like a call stays the answer, unchanged.
func TestOrdinaryAnswersAreNoCalls(t *testing.T) {
	tools := wholeTools()
	for i := range Syntaxes {
		spec := Syntaxes[i].Resolve(nil)
		for _, text := range ordinary() {
			without := parse(spec, tools, Options{}, []byte(text))
			got := parse(spec, tools, Options{Whole: true}, []byte(text))
			if report(got) != report(without) {
				t.Errorf("%s: %q: %s", Syntaxes[i].Name, text, report(got))
			}
		}
	}
}

// TestWholeIsHeldBackBriefly: what cannot become a call is given at once.
func TestWholeIsHeldBackBriefly(t *testing.T) {
	tools := wholeTools()
	for text, want := range map[string]string{
		`{"answer": 1`: `{"answer": 1`, `{"name": "Bo`: `{"name": "Bo`, `Hello`: `Hello`,
		"```python\nx": "```python\nx",
		`{ "x"`:        `{ "x"`, `[1, 2`: `[1, 2`, `<b>`: `<b>`, `{"name": "get_weather", `: ``, `{"nam`: ``, "``": ``,
		`{"type": "funct`: ``, `{"type": "user`: `{"type": "user`, "```json\n{\"na": ``, `{"id": 7`: `{"id": 7`,
	} {
		p := NewParser(ByName("gemma-4").Resolve(nil), tools, Options{Whole: true})
		var got strings.Builder
		for _, c := range []byte(text) {
			for _, e := range p.Push([]byte{c}) {
				fmt.Fprintf(&got, "%s", e.Text)
			}
		}
		if got.String() != want {
			t.Errorf("%q: %q is given, want %q", text, got.String(), want)
		}
		var c Collect
		c.Add(p.Finish())
		if rest := got.String() + string(c.Text); rest != text {
			t.Errorf("%q: at its end %q", text, rest)
		}
	}
}
