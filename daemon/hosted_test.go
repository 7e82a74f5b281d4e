package daemon

import (
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// asked sends a body, and returns the answer with its header and what why says of its request.
func (r *running) asked(web *http.Client, path, body string) (status int, h http.Header, answer, why string) {
	r.t.Helper()
	resp, err := web.Post("http://uma"+path, "application/json", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	_, told := get(r.t, web, "/why?last=1")
	for _, q := range decode[reports.WhyReport](r.t, told).Requests {
		for _, d := range q.Decisions {
			why += d.Text + "\n"
		}
	}
	return resp.StatusCode, resp.Header, string(b), why
}

// hosted are bodies, without their last brace, with a tool that the API's own servers run, and a choice of it.
var hosted = []struct{ path, body, tools, choice string }{
	{"/v1/chat/completions", `{` + openAIQuestion, `"tools":[{"type":"browse_20270101"}]`,
		`"tool_choice":{"type":"browse_20270101"}`},
	{"/v1/responses", `{"input":"question","temperature":0`, `"tools":[{"type":"browse_20270101"}]`,
		`"tool_choice":{"type":"browse_20270101"}`},
	{"/v1/messages", `{"max_tokens":50,` + openAIQuestion, `"tools":[{"type":"browse_20270101","name":"browse"}]`,
		`"tool_choice":{"type":"tool","name":"browse"}`},
	{"/api/chat", `{` + openAIQuestion, `"tools":[{"type":"browse_20270101"}]`, `"think":false`},
}

// TestHostedToolsAreLeftOut: a tool that other servers run is left out, streamed or not: a Warning header and why say
// so.
func TestHostedToolsAreLeftOut(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{{Emit: "hello"}}}, "-c", "16384")
	web := r.web()
	for _, c := range hosted {
		for _, stream := range []string{"false", "true"} {
			status, h, body, why := r.asked(web, c.path, c.body+`,`+c.tools+`,"stream":`+stream+`}`)
			warning := strings.Join(h.Values("Warning"), "; ")
			if status != 200 || stream == "false" && !strings.Contains(body, "hello") ||
				!strings.Contains(why, "browse_20270101") ||
				!strings.HasPrefix(warning, `299 uma-serve "A tool of type browse_20270101 was left out`) {
				t.Errorf("%s, stream %s: %d %s\nWarning: %s\nwhy: %s", c.path, stream, status, body, warning, why)
			}
		}
	}
	r.nothingLeft()
}

// TestToolChoiceOfAHostedTool: a tool_choice of a tool that was left out asks for nothing, and so does "required"
// without any other tool.
func TestToolChoiceOfAHostedTool(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{{Emit: "hello"}}}, "-c", "16384")
	web := r.web()
	for _, c := range hosted {
		required := `"tool_choice":"required"`
		if c.path == "/v1/messages" {
			required = `"tool_choice":{"type":"any"}`
		}
		for _, choice := range []string{c.choice, required, `"tool_choice":{"type":"allowed_tools","mode":"required",` +
			`"tools":[{"type":"browse_20270101"}],"allowed_tools":{"mode":"required","tools":[` +
			`{"type":"browse_20270101"}]}}`} {
			if strings.Contains(choice, "allowed_tools") && c.path == "/v1/messages" {
				continue // Anthropic's API has no such choice
			}
			status, _, body, _ := r.asked(web, c.path, c.body+`,`+c.tools+`,`+choice+`,"stream":false}`)
			if status != 200 || !strings.Contains(body, "hello") {
				t.Errorf("%s %s: %d %s", c.path, choice, status, body)
			}
		}
	}
	r.nothingLeft()
}

// TestGenerateWithImages: images leave a placeholder in the prompt of /api/generate, as in a chat, and are left out of
// a raw one.
func TestGenerateWithImages(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "hello"}, {After: "raw", Emit: "hello"}}}, "-c", "4096")
	web := r.web()
	for _, more := range []string{"", `,"raw":true`} {
		status, h, body, why := r.asked(web, "/api/generate",
			`{"prompt":"raw","stream":false,"options":{"temperature":0},"images":["AA==","AA=="]`+more+`}`)
		if status != 200 || !strings.Contains(body, "hello") || !strings.Contains(why, "image") ||
			!strings.Contains(h.Get("Warning"), "image") {
			t.Errorf("%s: %d %s, warning %q, why %s", more, status, body, h.Get("Warning"), why)
		}
	}
	r.nothingLeft()
}

// TestTextDocumentsAreRead: the text of a document is part of the conversation.
func TestTextDocumentsAreRead(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "16384")
	web := r.web()
	count := func(blocks string) int {
		_, _, body := post(t, web, "/v1/messages/count_tokens", `{"messages":[{"role":"user","content":[`+blocks+
			`{"type":"text","text":"?"}]}]}`)
		return decode[struct {
			Input int `json:"input_tokens"`
		}](t, body).Input
	}
	const secret = "the secret is 42"
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	bare := count("")
	for _, source := range []string{`{"type":"text","media_type":"text/plain","data":"` + secret + `"}`,
		`{"type":"content","content":"` + secret + `"}`,
		`{"type":"content","content":[{"type":"text","text":"` + secret + `"}]}`,
		`{"type":"base64","media_type":"text/plain; charset=utf-8","data":"` + encoded + `"}`} {
		document := `{"type":"document","source":` + source + `},`
		if n := count(document); n < bare+len(secret) {
			t.Errorf("%s: %d tokens, %d without it", document, n, bare)
		}
		status, h, body, why := r.asked(web, "/v1/messages", `{"max_tokens":2,"messages":[{"role":"user","content":[`+
			document+`{"type":"text","text":"?"}]}]}`)
		if status != 200 || strings.Contains(why, "left out") || h.Get("Warning") != "" {
			t.Errorf("%s: %d %s\nwhy: %s", document, status, body, why)
		}
	}
	for path, body := range map[string]string{
		"/v1/responses": `{"max_output_tokens":2,"input":[{"role":"user","content":[{"type":"input_file","filename":` +
			`"a.txt","file_data":"data:text/plain;base64,` + encoded + `"}]}]}`,
		"/v1/chat/completions": `{"max_tokens":2,"messages":[{"role":"user","content":[{"type":"file","file":` +
			`{"filename":"a.json","file_data":"data:application/json;base64,` + encoded + `"}}]}]}`,
	} {
		status, h, out, why := r.asked(web, path, body)
		prompt, _ := cachedOf(t, []byte(out))
		if status != 200 || strings.Contains(why, "left out") || h.Get("Warning") != "" || prompt < bare+len(secret) {
			t.Errorf("%s: %d %s\nwhy: %s", path, status, out, why)
		}
		body = strings.Replace(strings.Replace(body, "text/plain", "image/png", 1), "application/json", "image/png", 1)
		if status, _, _, why = r.asked(web, path, body); status != 200 || !strings.Contains(why, "left out") {
			t.Errorf("%s: an image: %d, why: %s", path, status, why)
		}
	}
	r.nothingLeft()
}

// TestPreviousResponseWithACutCall: a conversation goes on behind a call that max_output_tokens has cut.
func TestPreviousResponseWithACutCall(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{After: "go on<|im_end|>\n<|im_start|>assistant\n", Emit: "All right."},
		{Emit: `<tool_call>{"name": "get_weather", "arguments": {"city": "Bern"}}</tool_call>`}}}, "-c", "16384")
	web := r.web()
	const tools = `"temperature":0,"tools":[{"type":"function","name":"get_weather","parameters":{"type":"object",` +
		`"properties":{"city":{"type":"string"}}}}]`
	for limit := 16; limit < 80; limit += 8 {
		_, _, body := post(t, web, "/v1/responses", `{"input":"weather?","max_output_tokens":`+
			strconv.Itoa(limit)+`,`+tools+`}`)
		first := decode[struct{ ID, Status string }](t, body)
		if first.ID == "" {
			t.Fatalf("%s", body)
		}
		status, _, body := post(t, web, "/v1/responses", `{"input":"go on","previous_response_id":"`+first.ID+`",`+
			tools+`}`)
		if status != 200 || !strings.Contains(string(body), "All right.") {
			t.Errorf("after %d tokens (%s): %d %s", limit, first.Status, status, body)
		}
	}
	r.nothingLeft()
}

// TestForcedArgumentsAreAnObject: the arguments of a forced call are an object, whatever the tool's schema leaves open.
func TestForcedArgumentsAreAnObject(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate}, "-c", "16384")
	web := r.web()
	for _, schema := range []string{`{}`, `{"properties":{"a":{"type":"integer"}}}`, `{"type":["object","null"]}`,
		`{"description":"anything"}`} {
		for seed := range 4 {
			_, _, body := post(t, web, "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"seed":`+
				strconv.Itoa(seed)+`,"max_tokens":400,"tool_choice":"required","tools":[{"type":"function",`+
				`"function":{"name":"f","parameters":`+schema+`}}]}`)
			got := decode[struct {
				Choices []struct {
					Finish  string `json:"finish_reason"`
					Message struct {
						Calls []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
					}
				}
			}](t, body)
			for _, c := range got.Choices[0].Message.Calls {
				if !strings.HasPrefix(c.Function.Arguments, "{") {
					t.Errorf("%s, seed %d: arguments %q", schema, seed, c.Function.Arguments)
				}
			}
			if len(got.Choices[0].Message.Calls) == 0 && got.Choices[0].Finish != "length" {
				t.Errorf("%s, seed %d: no call: %s", schema, seed, body)
			}
		}
	}
	r.nothingLeft()
}
