package api_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/gemini"
	"github.com/uma-serve/uma-serve/daemon/api/llamaserver"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// clientField is a row of testdata/fields.json: a field that a client's library or another server has.
type clientField struct {
	name  string   // its path: messages[].content[].text
	kinds []string // values of "type" of the object that has it; "" = the object has none
	types []string // JSON types of its values, or values
	from  []string // libraries and servers
}

func (f *clientField) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&f.name, &f.kinds, &f.types, &f.from})
}

type clientFields struct {
	Versions  map[string]string
	Endpoints map[string][]clientField
}

func readClientFields(t *testing.T) (in clientFields) {
	t.Helper()
	b, err := os.ReadFile("testdata/fields.json")
	if err == nil {
		err = json.Unmarshal(b, &in)
	}
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func allShapes() map[string]*wire.Shape {
	all := openai.Shapes()
	maps.Copy(all, anthropic.Shapes())
	maps.Copy(all, ollama.Shapes())
	return all
}

// makesRequests are the endpoints where a field without a row is one of a request.
func makesRequests(endpoint string) bool {
	return !strings.Contains(endpoint, "embed") && endpoint != "/api/show"
}

// state is the state of a field in docs/fields.md.
type state struct {
	// honoured, ignored, refused, "NEW", or "" for a part of a value that is passed on or left out as a whole
	use  string
	but  []string
	why  string
	kind string // of "" in an object of a type that is left out as a whole
}

func stateOf(endpoint string, f *clientField) state {
	head, rest, nested := strings.Cut(f.name, ".")
	head = strings.TrimSuffix(head, "[]")
	if nested && head == "options" && topState(endpoint, head, false).use == "honoured" { // ollama's have a table
		return topState("options", rest, true)
	}
	if !nested {
		return topState(endpoint, head, makesRequests(endpoint))
	}
	if topState(endpoint, head, makesRequests(endpoint)).use != "honoured" {
		return state{}
	}
	var shape *wire.Shape
	if s := allShapes()[endpoint]; s != nil {
		shape = s.Inner[head]
	}
	if shape == nil {
		shape = wire.RequestShape().Inner[head]
	}
	names := strings.Split(rest, ".")
	for i, name := range names {
		if shape == nil {
			return state{}
		}
		bare := strings.TrimSuffix(name, "[]")
		if i == len(names)-1 {
			if shape.Kinds != nil && !slices.ContainsFunc(f.kinds, func(k string) bool {
				return slices.Contains(shape.Kinds, k)
			}) {
				return state{kind: strings.Join(f.kinds, ", ")}
			}
			switch {
			case slices.Contains(shape.Read, bare):
				return state{use: "honoured"}
			case slices.Contains(shape.Ignored, bare):
				return state{use: "ignored"}
			}
			return state{use: "NEW"}
		}
		shape = shape.Inner[bare]
	}
	return state{}
}

func topState(endpoint, name string, request bool) state {
	for _, row := range allTables()[endpoint] {
		if row.Name == name {
			return state{use: [...]string{"honoured", "ignored", "refused"}[row.Use], but: row.But, why: row.Why}
		}
	}
	u, ok := wire.FieldOf(name)
	switch {
	case !ok || !request:
		return state{use: "NEW"}
	case u.Refused:
		return state{use: "refused", but: u.But, why: u.Why}
	case u.Ignored:
		return state{use: "ignored"}
	}
	return state{use: "honoured"}
}

const fieldsHead = `# Fields of clients

Written by %[1]sgo test ./daemon/api -run TestFields -rewrite%[1]s from the types of the clients' libraries, which
%[1]sscripts/fields.py%[1]s reads:
%[2]s.
The states are those of the decoder.

- **honoured**: the field has its effect, or an error says which values it may have.
- **ignored**: it cannot change the answer.
- **refused**: ignoring it would not give the answer asked for; the values in parentheses ask for nothing
  and are accepted.
- **NEW**: the server has no state for it yet. It is left out, and told in the header %[1]sX-Uma-Ignored%[1]s
  ([http.md](http.md#unknown-fields)).

Members of objects that are left out as a whole (a hosted tool, an image), and of JSON schemas, are not listed.
`

// fieldsDoc is docs/fields.md.
func fieldsDoc(in clientFields) string {
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(in.Versions)) {
		versions = append(versions, name+" "+in.Versions[name])
	}
	var out strings.Builder
	fmt.Fprintf(&out, fieldsHead, "`", strings.Join(versions, ", "))
	for _, endpoint := range slices.Sorted(maps.Keys(in.Endpoints)) {
		fmt.Fprintf(&out, "\n## %s\n\n| field | state | of |\n|---|---|---|\n", endpoint)
		for i := range in.Endpoints[endpoint] {
			f := &in.Endpoints[endpoint][i]
			s := stateOf(endpoint, f)
			if s.use == "" {
				continue
			}
			text := s.use
			if len(s.but) > 0 {
				text += " (`" + strings.Join(s.but, "`, `") + "`)"
			}
			if s.why != "" {
				text += ": " + s.why
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", f.name, text, strings.Join(f.from, ", "))
		}
	}
	return out.String()
}

// TestFieldsDocumented: docs/fields.md has the fields of testdata/fields.json with the states that the decoder has.
func TestFieldsDocumented(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "fields.md")
	want := fieldsDoc(readClientFields(t))
	if flag.Lookup("rewrite").Value.String() == "true" { // datadriven's
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("docs/fields.md is not what the decoder does (%v): go test ./daemon/api -run TestFields -rewrite", err)
	}
}

// allRoutes are the routes of all APIs.
func allRoutes(s *api.Server) []api.Route {
	seen := map[string]bool{}
	var list []api.Route
	for _, r := range slices.Concat(openai.Routes(s), anthropic.Routes(s), llamaserver.Routes(s), ollama.Routes(s),
		gemini.Routes(s)) {
		if key := r.Method + " " + r.Path; !seen[key] {
			seen[key] = true
			list = append(list, r)
		}
	}
	return list
}

// least is the smallest body of each endpoint.
var least = map[string]string{
	"/v1/chat/completions": `"messages":[{"role":"user","content":"x"}]`, "/v1/completions": `"prompt":"x"`,
	"/v1/embeddings": `"input":"x"`, "/v1/responses": `"input":"x"`,
	"/v1/messages":  `"max_tokens":9,"messages":[{"role":"user","content":"x"}]`,
	"/api/chat":     `"messages":[{"role":"user","content":"x"}],"stream":false`,
	"/api/generate": `"prompt":"x","stream":false`, "/api/embed": `"input":"x"`, "/api/embeddings": `"prompt":"x"`,
	"/api/show": `"model":"tiny"`, "/completion": `"prompt":"x"`, "/infill": `"input_prefix":"x","input_suffix":"y"`,
	"/tokenize": `"content":"x"`, "/rerank": `"query":"x","documents":["y"]`, "/embedding": `"content":"x"`,
	"/apply-template": `"messages":[{"role":"user","content":"x"}]`,
}

// ask sends the smallest body with more members, which replace its own.
func ask(t *testing.T, url, endpoint, more string) (status int, ignored, body string) {
	t.Helper()
	var all, over map[string]json.RawMessage
	if err := json.Unmarshal([]byte("{"+least[endpoint]+"}"), &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte("{"+more+"}"), &over); err != nil {
		t.Fatalf("%s: %v", more, err)
	}
	maps.Copy(all, over)
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	status, head, body := apitest.Do(t, http.MethodPost, url+endpoint, string(b), 0)
	return status, head.Get(api.HeaderIgnored), body
}

func serveAll(t *testing.T) string {
	b := &apitest.Backend{Answer: func(*wire.Request) []wire.Event {
		return []wire.Event{apitest.Progress(2), apitest.Text("t"), apitest.EOS(wire.Stop)}
	}}
	return apitest.Serve(t, b, allRoutes)
}

func (f *clientField) sample(endpoint string) string {
	last := strings.TrimSuffix(f.name[strings.LastIndexByte(f.name, '.')+1:], "[]")
	for _, key := range []string{endpoint + " " + f.name, f.name, last} {
		if v, ok := plausible[key]; ok {
			return v
		}
	}
	if len(f.types) > 0 {
		switch typ := f.types[0]; typ {
		case "boolean":
			return "true"
		case "integer":
			return "1"
		case "number":
			return "0.5"
		case "array":
			return "[]"
		case "object":
			return "{}"
		case "string":
			return `"x"`
		default:
			return typ
		}
	}
	return "null"
}

// body is the member of a body that holds the field.
func (f *clientField) body(shape *wire.Shape, value string) string {
	names := strings.Split(f.name, ".")
	out := value
	for i := len(names) - 1; i >= 0; i-- {
		bare := strings.TrimSuffix(names[i], "[]")
		member := fmt.Sprintf("%q:%s", bare, out)
		if i == 0 {
			return member
		}
		if i == len(names)-1 && f.kinds[0] != "" && bare != "type" {
			kind := f.kinds[0]
			for _, k := range f.kinds {
				if shape != nil && slices.Contains(shape.Kinds, k) {
					kind = k
				}
			}
			member = fmt.Sprintf(`"type":%q,%s`, kind, member)
		}
		out = "{" + member + "}"
		if strings.HasSuffix(names[i-1], "[]") {
			out = "[" + out + "]"
		}
	}
	return out
}

// plausible are values of fields for which those of their types are not: by endpoint and field, by field, or by its
// last name.
var plausible = map[string]string{
	"model": `"tiny"`, "allowed_token_ids": `[1]`, "logit_bias": `{}`, "prompt_logprobs": `0`,
	"reasoning_effort": `"low"`,
	"messages":         `[{"role":"user","content":"x"}]`, "response_format": `{"type":"json_object"}`, "prompt": `"x"`,
	"json_schema": `{}`, "structured_outputs": `{"regex":"x"}`, "thinking_token_budget": `8`, "input": `"x"`,
	"continue_final_message": `false`, "thinking": `{"type":"enabled","budget_tokens":8}`, "service_tier": `"default"`,
	"truncation": `"auto"`, "previous_response_id": `null`,
	"thread": `null`, "/v1/messages tool_choice": `{"type":"auto"}`,
	"tool_choice": `"auto"`, "/v1/messages service_tier": `"auto"`,
}

// TestFieldsBehave: each field of docs/fields.md does what its state says.
func TestFieldsBehave(t *testing.T) {
	url := serveAll(t)
	in := readClientFields(t)
	for _, endpoint := range slices.Sorted(maps.Keys(in.Endpoints)) {
		for i := range in.Endpoints[endpoint] {
			f := &in.Endpoints[endpoint][i]
			s := stateOf(endpoint, f)
			if s.use == "" {
				continue
			}
			value := f.sample(endpoint)
			if s.use == "refused" && slices.Contains(s.but, value) {
				value = `"another value"`
			}
			var shape *wire.Shape
			head, rest, nested := strings.Cut(strings.ReplaceAll(f.name, "[]", ""), ".")
			if nested && head != "options" {
				shape = wire.RequestShape().Inner[head]
				if own := allShapes()[endpoint]; own != nil && own.Inner[head] != nil {
					shape = own.Inner[head]
				}
				for names := strings.Split(rest, "."); len(names) > 1; names = names[1:] {
					shape = shape.Inner[names[0]]
				}
			}
			more := f.body(shape, value)
			status, ignored, body := ask(t, url, endpoint, more)
			told := slices.ContainsFunc(strings.Split(ignored, ", "), func(e string) bool {
				e, _, _ = strings.Cut(e, " ")
				return e == f.name
			})
			switch {
			case told != (s.use == "NEW"):
				t.Errorf("%s {%s}: %s, and it is told: %q", endpoint, more, s.use, ignored)
			case s.use == "refused" && (status != http.StatusBadRequest || !strings.Contains(body, f.name)):
				t.Errorf("%s {%s}: %d %s", endpoint, more, status, body)
			case s.use != "refused" && !nested && status != http.StatusOK:
				t.Errorf("%s {%s}: %s: %d %s", endpoint, more, s.use, status, body)
			}
			for _, but := range s.but {
				if status, _, body := ask(t, url, endpoint, f.body(shape, but)); status != http.StatusOK {
					t.Errorf("%s {%s}: %d %s", endpoint, f.body(shape, but), status, body)
				}
			}
		}
	}
}

// TestUnknownFieldsAreTold: fields that are in no table are left out and told by all APIs, and none is refused.
func TestUnknownFieldsAreTold(t *testing.T) {
	url := serveAll(t)
	message := func(in string) string { return `"messages":[{"role":"user","content":"x",` + in + `}]` }
	tool := func(in string) string { return `"tools":[{"type":"function","function":{"name":"f",` + in + `}}]` }
	n := 0
	for _, c := range [][3]string{ // endpoint, members, told
		{"/v1/chat/completions", `"flux_mode":"on"`, "flux_mode"},
		{"/v1/chat/completions", `"agent_hint":{"a":[1]}`, "agent_hint"},
		{"/v1/chat/completions", `"type":"chat"`, "type"}, {"/v1/chat/completions", `"event":"x"`, "event"},
		{"/v1/chat/completions", `"temprature":0.5`, "temprature (did you mean temperature?)"},
		{"/v1/chat/completions", `"max_completions_tokens":5`,
			"max_completions_tokens (did you mean max_completion_tokens?)"},
		{"/v1/chat/completions", `"thinking_level":"low"`, "thinking_level (did you mean think?)"},
		{"/v1/chat/completions", `"router_metadata":[]`, "router_metadata"},
		{"/v1/chat/completions", message(`"sentiment":1`), "messages[].sentiment"},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":[{"type":"text","text":"x","weight":2}]}]`,
			"messages[].content[].weight"},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y",` +
			`"tool_calls":[{"id":"1","type":"function","cost":1,"function":{"name":"f","arguments":"{}"}}]}]`,
			"messages[].tool_calls[].cost"},
		{"/v1/chat/completions", tool(`"timeout_ms":5`), "tools[].function.timeout_ms"},
		{"/v1/chat/completions", `"tools":[{"type":"function","vendor":"x","function":{"name":"f"}}]`,
			"tools[].vendor"},
		{"/v1/chat/completions", `"response_format":{"type":"json_object","indent":2}`, "response_format.indent"},
		{"/v1/chat/completions",
			`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},"x":1}}`,
			"response_format.json_schema.x"},
		{"/v1/chat/completions", `"stream_options":{"include_use":true}`,
			"stream_options.include_use (did you mean include_usage?)"},
		{"/v1/chat/completions", `"think":{"mod":"on"}`, "think.mod (did you mean mode?)"},
		{"/v1/chat/completions", `"structured_outputs":{"yaml":1}`, "structured_outputs.yaml"},
		{"/v1/chat/completions", `"slo":{"target_ms":5}`, "slo.target_ms"},
		{"/v1/completions", `"flux_mode":1`, "flux_mode"},
		{"/v1/completions", `"best_off":1`, "best_off (did you mean best_of?)"},
		{"/v1/embeddings", `"quantize":true`, "quantize"}, {"/v1/embeddings", `"temperature":1`, "temperature"},
		{"/v1/responses", `"flux_mode":1`, "flux_mode"},
		{"/v1/responses", `"input":[{"role":"user","content":"x","mood":1}]`, "input[].mood"},
		{"/v1/responses", `"input":[{"role":"user","content":[{"type":"input_text","text":"x","mood":1}]}]`,
			"input[].content[].mood"},
		{"/v1/responses", `"reasoning":{"depth":3}`, "reasoning.depth"},
		{"/v1/responses", `"text":{"tone":3}`, "text.tone"},
		{"/v1/responses", `"tools":[{"type":"function","name":"f","price":1}]`, "tools[].price"},
		{"/v1/messages", `"flux_mode":1`, "flux_mode"}, {"/v1/messages", message(`"mood":1`), "messages[].mood"},
		{"/v1/messages", `"messages":[{"role":"user","content":[{"type":"text","text":"x","mood":1}]}]`,
			"messages[].content[].mood"},
		{"/v1/messages", `"system":[{"type":"text","text":"x","mood":1}]`, "system[].mood"},
		{"/v1/messages", `"tools":[{"name":"f","input_schema":{},"price":1}]`, "tools[].price"},
		{"/v1/messages", `"thinking":{"type":"disabled","depth":1}`, "thinking.depth"},
		{"/api/chat", `"flux_mode":1`, "flux_mode"}, {"/api/chat", `"options":{"temprature":1}`,
			"options.temprature (did you mean temperature?)"},
		{"/api/chat", message(`"mood":1`), "messages[].mood"}, {"/api/generate", `"flux_mode":1`, "flux_mode"},
		{"/api/embed", `"flux_mode":1`, "flux_mode"}, {"/api/show", `"flux_mode":1`, "flux_mode"},
		{"/completion", `"flux_mode":1`, "flux_mode"}, {"/infill", `"flux_mode":1`, "flux_mode"},
		{"/tokenize", `"flux_mode":1`, "flux_mode"}, {"/rerank", `"flux_mode":1`, "flux_mode"},
		{"/embedding", `"flux_mode":1`, "flux_mode"}, {"/apply-template", `"flux_mode":1`, "flux_mode"},
	} {
		n++
		status, ignored, body := ask(t, url, c[0], c[1])
		want := http.StatusOK
		if c[0] == "/apply-template" || c[0] == "/infill" || c[0] == "/rerank" { // this model cannot do them
			want, _, _ = ask(t, url, c[0], "")
		}
		if status != want || ignored != c[2] || strings.Contains(body, "not known") {
			t.Errorf("%s {%s}: %d, told %q; want %q; %s", c[0], c[1], status, ignored, c[2], body)
		}
	}
	if n < 40 {
		t.Errorf("%d fields", n)
	}
}

// TestUnknownFieldsAreBounded: names of a hostile client neither grow a header nor end it.
func TestUnknownFieldsAreBounded(t *testing.T) {
	url := serveAll(t)
	var many strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&many, `"x%d":1,`, i)
	}
	status, ignored, body := ask(t, url, "/v1/chat/completions", many.String()+`"y":2`)
	if status != http.StatusOK || strings.Count(ignored, ",") != 16 || !strings.HasSuffix(ignored, ", and 19985 more") {
		t.Errorf("%d %q %s", status, ignored, body)
	}
	for _, name := range []string{`a\r\nSet-Cookie: b`, `a\u0000b`, `a,b`, `é\u2028"\\`, strings.Repeat("z", 5000)} {
		_, ignored, _ := ask(t, url, "/v1/chat/completions", `"`+strings.ReplaceAll(name, `"`, `\"`)+`":1`)
		if ignored == "" || len(ignored) > 80 || strings.ContainsAny(ignored, "\r\n\x00,") {
			t.Errorf("%q: %q", name, ignored)
		}
	}
	parts := strings.Repeat(`{"role":"user","content":"x","mood":1},`, 3000)
	_, ignored, _ = ask(t, url, "/v1/chat/completions", `"messages":[`+parts+`{"role":"user","content":"x"}]`)
	if ignored != "messages[].mood" {
		t.Errorf("%q", ignored)
	}
	_, ignored, _ = ask(t, url, "/v1/chat/completions",
		`"flux_mode":null,"messages":[{"role":"user","content":"x","m":null}]`)
	if ignored != "" {
		t.Errorf("null: %q", ignored)
	}
}
