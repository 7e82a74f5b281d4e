package template

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/model/toolcall"
)

// documented returns the table of published templates in docs/tools.md: template → syntax, how it was found.
func documented(t *testing.T) map[string][2]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "## Published templates")
	out := map[string][2]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(section,
		-1) {
		if m[2] != "syntax" && !strings.HasPrefix(m[1], "---") {
			out[m[1]] = [2]string{m[2], m[3]}
		}
	}
	return out
}

// The syntax of every published template is the one that docs/tools.md lists.
func TestPublishedForms(t *testing.T) {
	want := documented(t)
	for name, src := range published(t) {
		name = strings.TrimSuffix(name, ".jinja")
		tmpl, err := Compile(src)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := tmpl.Tools()
		if got := [2]string{r.Syntax.Name, r.Found}; got != want[name] {
			t.Errorf("docs/tools.md: want | %s | %s | %s |, it has %q", name, got[0], got[1], want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("docs/tools.md lists %s, which is no published template", name)
	}
}

var offered = []toolcall.Tool{
	{Name: "get_weather", Description: "The weather of <a> city & \"more\"",
		Parameters: []byte(`{"type":"object","properties":{"location":{"type":"string","description":"where"},` +
			`"days":{"type":"integer","description":"how many"}},"required":["location"]}`)},
	{Name: "lookup", Description: "Looks up",
		Parameters: []byte(`{"type":"object","properties":{"word":{"type":"string","description":"é"}}}`)},
}

func conversationWithCalls() []Message {
	return []Message{
		{Role: "system", Content: "Be brief."},
		{Role: "user", Content: "question-one"},
		{Role: "assistant", Calls: []toolcall.Call{
			{ID: "call_aaaaaaaaaa", Name: "get_weather", Arguments: `{"location": "Paris-1", "days": 2}`},
			{ID: "call_bbbbbbbbbb", Name: "lookup", Arguments: `{"word": "two words-2"}`},
		}},
		{Role: "tool", CallID: "call_aaaaaaaaaa", Content: "sunny-3"},
		{Role: "tool", CallID: "call_bbbbbbbbbb", Content: "found-4"},
		{Role: "assistant", Content: "answer-5"},
		{Role: "user", Content: "question-six"},
		{Role: "assistant", Content: "let me-7",
			Calls: []toolcall.Call{{ID: "123456789", Name: "lookup", Arguments: `{}`}}},
		{Role: "tool", CallID: "123456789", Name: "lookup", Content: "none-8"},
	}
}

// Every published template renders a conversation with tools, parallel calls and their results: nothing of it is lost,
// in whatever way the template takes it, and the calls read back in the model's syntax.
func TestPublishedConversations(t *testing.T) {
	for name, src := range published(t) {
		t.Run(strings.TrimSuffix(name, ".jinja"), func(t *testing.T) {
			tmpl, err := Compile(src)
			if err != nil {
				t.Fatal(err)
			}
			out, err := tmpl.Render(Input{Messages: conversationWithCalls(), Tools: offered, AddGenerationPrompt: true,
				BOS: "<s>", EOS: "</s>", Now: time.Unix(0, 0)})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"get_weather", "lookup", "Be brief.", "question-one", "Paris-1",
				"two words-2", "sunny-3", "found-4", "answer-5", "question-six", "none-8"} {
				// which shows it beside the last question only
				if !strings.Contains(out, want) && !(want == "Be brief." && strings.Contains(name, "Nemo")) {
					t.Errorf("%q is lost in\n%s", want, out)
				}
			}
			at := strings.Index(out, "question-one")
			if at < 0 {
				t.Fatal("no question")
			}
			var c toolcall.Collect
			p := toolcall.NewParser(tmpl.Tools().Syntax.Resolve(nil), toolcall.NewTools(offered), toolcall.Options{})
			turn := out[at+len("question-one"):]
			// it is found at the answer's beginning only
			if tmpl.Tools().Syntax.Bare && !strings.Contains(turn, "<tool_call>") {
				turn = turn[max(0, strings.Index(turn, `{"name"`)):]
			}
			c.Add(p.Push([]byte(turn)))
			c.Add(p.Finish())
			names := []string{}
			for _, call := range c.Calls {
				names = append(names, call.Name)
			}
			want := []string{"get_weather", "lookup", "lookup"}
			if n := min(len(names), len(want)); n == 0 || !slices.Equal(names[:n], want[:n]) ||
				n < 3 && !tmpl.Tools().Syntax.Bare {
				t.Errorf("calls %q\n%s", names, out)
			}
		})
	}
}

// A template with unknown markers gets a syntax derived from its renderings.
func TestDerivedForms(t *testing.T) {
	rename := func(pairs ...string) func(string) string { return strings.NewReplacer(pairs...).Replace }
	all := published(t)
	for _, c := range []struct {
		template string
		edit     func(string) string
	}{
		{"Qwen-Qwen3-0.6B", rename("tool_call>", "fn_use>")},
		{"Qwen-Qwen2.5-7B-Instruct", rename("<tool_call>", "[FN]", "</tool_call>", "[/FN]")},
		{"NVIDIA-Nemotron-Nano-v2", rename("TOOLCALL>", "USE>")},
		{"CohereForAI-c4ai-command-r7b-12-2024-tool_use", rename("_ACTION|>", "_DEED|>")},
		{"MiniMax-M2", rename("minimax:tool_call", "acme:calls", "<invoke", "<do", "</invoke", "</do", "<parameter",
			"<arg", "</parameter", "</arg")},
		{"Qwen3-Coder", rename("tool_call>", "use>", "<function=", "<fn=", "</function>", "</fn>", "<parameter=", "<p=",
			"</parameter>", "</p>")},
		{"deepseek-ai-DeepSeek-V3.2", rename("｜DSML｜", "｜ACME｜")},
		{"GLM-4.7-Flash", rename("tool_call>", "use>", "arg_key>", "k>", "arg_value>", "v>")},
		{"tencent-Hy3", rename(":opensource", ":acme", "tool_sep", "sep")},
		{"deepseek-ai-DeepSeek-V3.1", rename("tool▁", "fn▁")},
		{"Mistral-Small-3.2-24B-Instruct-2506", rename("[TOOL_CALLS]", "[FN]", "[ARGS]", "[WITH]", "[CALL_ID]",
			"[ID]")},
		{"Apertus-8B-Instruct", rename("tools_prefix", "fn_begin", "tools_suffix", "fn_end")},
	} {
		t.Run(c.template, func(t *testing.T) {
			tmpl, err := Compile(c.edit(all[c.template+".jinja"]))
			if err != nil {
				t.Fatal(err)
			}
			if r := tmpl.Tools(); r.Found != "derived" || !r.Calls {
				out, err := tmpl.Render(Input{Messages: conversationWithCalls(), Tools: offered})
				t.Errorf("syntax %s, %s\n%s, %v", r.Syntax.Name, r.Found, out, err)
			}
		})
	}
}

// What a template takes is found by rendering.
func TestTemplateTakes(t *testing.T) {
	render := func(src string, msgs ...Message) string {
		t.Helper()
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		out, err := tmpl.Render(Input{Messages: msgs, Tools: offered[1:]})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const (
		head = `{% for t in tools %}{{ t.function.name }};{% endfor %}`
		loop = `{% for m in messages %}[{{ m.role }}]{{ m.content }}`
		call = `{% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": `
		tail = `}</tool_call>{% endfor %}{% endfor %}`
	)
	ask := Message{Role: "user", Content: "q"}
	use := Message{Role: "assistant",
		Calls: []toolcall.Call{{ID: "call_1", Name: "lookup", Arguments: `{"word":  "x"}`}}}
	result := Message{Role: "tool", CallID: "call_1", Content: "found"}
	for _, c := range []struct{ name, src, want string }{
		{"text as it was written", head + loop + call + `{{ c.function.arguments }}` + tail,
			`lookup;[user]q[assistant]<tool_call>{"name": "lookup", "arguments": {"word":  ` +
				`"x"}}</tool_call>[tool]found`},
		{"an object", head + loop + call + `{{ c.function.arguments|tojson }}` + tail,
			`lookup;[user]q[assistant]<tool_call>{"name": "lookup", "arguments": {"word": ` +
				`"x"}}</tool_call>[tool]found`},
		{"null beside calls", head + `{% for m in messages %}[{{ m.role }}]{% if m.content is none %}` + call +
			`{{ c.function.arguments }}` +
			`}</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}`,
			`lookup;[user]q[assistant]<tool_call>{"name": "lookup", "arguments": {"word":  ` +
				`"x"}}</tool_call>[tool]found`},
		{"no calls, no results", head + `{% for m in messages %}{% if m.role in ["user", "assistant"] %}[{{ m.role ` +
			`}}]{{ m.content }}{% endif %}{% endfor %}`,
			"lookup;[user]q[assistant]<tool_call>\n{\"name\": \"lookup\", \"arguments\": {\"word\":  \"x\"}}\n" +
				"</tool_call>[user]<tool_response>\nfound\n</tool_response>"},
		{"tools under another name", strings.ReplaceAll(head, "in tools", "in functions") + loop + `{% endfor %}`,
			"lookup;[user]q[assistant]<tool_call>\n{\"name\": \"lookup\", \"arguments\": {\"word\":  \"x\"}}\n" +
				"</tool_call>[tool]found"},
	} {
		if got := render(c.src, ask, use, result); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
	if got := render(loop+`{% endfor %}`, ask); !strings.HasPrefix(got, "[system]You can call the functions below.") ||
		!strings.Contains(got, `{"name":"lookup","description":"Looks up","parameters":{"type":"object"`) {
		t.Errorf("without tools: %q", got)
	}
	tmpl, err := Compile(head + loop + call + `{{ c.function.arguments|tojson }}` + tail)
	if err != nil {
		t.Fatal(err)
	}
	use.Calls[0].Arguments = `["x"]`
	if out, err := tmpl.Render(Input{Messages: []Message{ask, use}}); err != nil ||
		!strings.Contains(out, `"arguments": ["x"]}`) {
		t.Errorf("arguments that are a list: %q, %v", out, err)
	}
}

// An id that a template does not take is replaced by one that it takes, the same for a call and its result.
func TestShortIDs(t *testing.T) {
	tmpl, err := Compile(published(t)["Mistral-Small-3.2-24B-Instruct-2506.jinja"])
	if err != nil {
		t.Fatal(err)
	}
	msgs := conversationWithCalls()
	msgs[7].Content = "" // the template drops text beside calls, so that these become text
	out, err := tmpl.Render(Input{Messages: msgs, Tools: offered})
	if err != nil {
		t.Fatal(err)
	}
	id := tmpl.callID("call_aaaaaaaaaa")
	if len(id) != 9 || strings.Count(out, id) != 2 || strings.Count(out, "123456789") != 2 {
		t.Errorf("id %q in %s", id, out)
	}
}

// before are the texts that p allows before the first argument of a call, ending with a NUL; false: white space in them
// is free.
func before(p *toolcall.Expr) (texts []string, exact bool) {
	switch {
	case p.Gap != 0:
		return nil, false
	case p.Repeat != nil:
		return before(&p.Repeat.Expr)
	case p.Any != nil:
		for i := range p.Any {
			t, ok := before(&p.Any[i])
			if !ok {
				return nil, false
			}
			texts = append(texts, t...)
		}
		return texts, true
	case p.Seq != nil:
		texts = []string{""}
		for i := range p.Seq {
			next, ok := before(&p.Seq[i])
			if !ok {
				return nil, false
			}
			var all []string
			for _, head := range texts {
				for _, tail := range next {
					all = append(all, head+tail)
				}
			}
			if texts = all; strings.HasSuffix(texts[0], "\x00") {
				return texts, true
			}
		}
		return texts, true
	case p.Schema != nil || p.Args != nil || p.Pattern != "":
		return []string{"\x00"}, true
	}
	return []string{p.Literal}, true
}

// What a model must write before the arguments of a required call is what its template renders there.
func TestRequiredCallsAreWrittenAsRendered(t *testing.T) {
	rendered := 0
	for name, src := range published(t) {
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(name, err)
		}
		r := tmpl.Tools()
		spec := r.Syntax.Resolve(nil)
		choice := toolcall.Choice{Mode: toolcall.Required}
		part := spec.Text([]toolcall.Tool{probeTool}, choice, true)
		if spec.Headed() {
			part = spec.TextWithHeader([]toolcall.Tool{probeTool}, choice, true)
		}
		texts, exact := before(&part)
		if !exact || len(texts) == 0 {
			t.Errorf("%s: white space before the arguments of a required call is free", name)
			continue
		}
		if !r.Calls {
			continue
		}
		out, err := tmpl.Render(Input{Messages: []Message{{Role: "user", Content: "q"},
			{Role: "assistant", Calls: probeCalls[:1]}}, Tools: []toolcall.Tool{probeTool}, Now: time.Unix(0, 0)})
		if err != nil {
			t.Fatal(name, err)
		}
		if rendered++; !slices.ContainsFunc(texts, func(s string) bool {
			head, _, _ := strings.Cut(s, "\x00")
			return head != "" && strings.Contains(out, head)
		}) {
			t.Errorf("%s: %q is not in\n%s", name, texts, out[max(0, len(out)-400):])
		}
	}
	if rendered < 25 {
		t.Errorf("%d templates render calls", rendered)
	}
}
