package template

import (
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/model/toolcall"
)

// What a model once wrote as a call's arguments is rendered as it was written, by every template.
func TestBrokenArgumentsAreRenderedAsWritten(t *testing.T) {
	for name, src := range allTemplates(t) {
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, arguments := range []string{`{`, `{"location": "Par`, `NaN`, `{"a": NaN}`, `[1]`, `"x"`, `null`, `7`,
			"{\"a\": \"b\nc\"}", `{"a":1,}`, `{"a":1}{"b":2}`, "```json\n{\"a\":1}\n```", "", "no JSON"} {
			in := Input{Tools: offered, AddGenerationPrompt: true, Now: time.Unix(0, 0), Messages: []Message{
				{Role: "user", Content: "firstquestion"},
				{Role: "assistant", Calls: []toolcall.Call{{ID: "call_1", Name: "get_weather", Arguments: arguments}}},
				{Role: "tool", CallID: "call_1", Content: "theresult"}, {Role: "user", Content: "lastquestion"}}}
			out, err := tmpl.Render(in)
			if err != nil {
				t.Errorf("%s: %q: %v", name, arguments, err)
				continue
			}
			_, turn, _ := strings.Cut(out, "firstquestion")
			squeezed := func(s string) string { return strings.Join(strings.Fields(s), "") }
			if !strings.Contains(turn, "get_weather") || !strings.Contains(squeezed(turn), squeezed(arguments)) ||
				!inOrder(turn, []string{"theresult", "lastquestion"}) {
				t.Errorf("%s: %q: %s", name, arguments, turn)
			}
		}
	}
}

// Calls without ids get ids by position where the template needs them, and results are matched to their calls.
func TestCallsWithoutIDsAreMatchedByPosition(t *testing.T) {
	for name, src := range allTemplates(t) {
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(name, err)
		}
		in := Input{Tools: offered, AddGenerationPrompt: true, Now: time.Unix(0, 0), Messages: []Message{
			{Role: "user", Content: "question"},
			{Role: "assistant", Calls: []toolcall.Call{{Name: "get_weather", Arguments: `{"location":"argone"}`},
				{Name: "lookup", Arguments: `{"word":"argtwo"}`}}},
			{Role: "tool", Name: "lookup", Content: "resulttwo"}, {Role: "tool", Content: "resultone"}}}
		out, err := tmpl.Render(in)
		if err != nil || !inOrder(out, []string{"argone", "argtwo"}) ||
			!tmpl.tools.showIDs && !inOrder(out, []string{"resultone", "resulttwo"}) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// A thought before a call comes back under the name that the template reads.
func TestThoughtsComeBackUnderTheTemplatesName(t *testing.T) {
	const loop = `{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>` +
		`{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}</tool_call>{% endfor %}`
	conversation := func(content string) Input {
		return Input{Messages: []Message{{Role: "user", Content: "q"}, {Role: "assistant", Content: content,
			ReasoningContent: "mythought",
			Calls:            []toolcall.Call{{ID: "c1", Name: "lookup", Arguments: `{"word":"w"}`}}},
			{Role: "tool", CallID: "c1", Content: "r"}}, AddGenerationPrompt: true, Now: time.Unix(0, 0)}
	}
	for _, name := range thoughtNames {
		tmpl, err := Compile(loop + `{{ m.` + name + ` or "" }}{% endfor %}`)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := tmpl.Render(conversation("")); err != nil || !strings.Contains(out, "mythought") {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	parts, err := Compile(strings.Replace(loop, `{{ m.content }}`, `{% if m.content is string %}{{ m.content }}`+
		`{% else %}{% for p in m.content or [] %}{% if p.type == 'thinking' %}[THINK]{{ p.thinking }}[/THINK]`+
		`{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}`, 1) + `{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := parts.Render(conversation("beside")); err != nil ||
		!strings.Contains(out, "[THINK]mythought[/THINK]beside<tool_call>") {
		t.Errorf("parts: %q, %v", out, err)
	}
	for _, name := range []string{"openai-gpt-oss-120b", "LFM2.5-8B-A1B"} {
		tmpl, err := Compile(published(t)[name+".jinja"])
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"", "besidetext"} {
			if out, err := tmpl.Render(conversation(content)); err != nil || !strings.Contains(out, "mythought") ||
				!strings.Contains(out, content) {
				t.Errorf("%s: %q, %v", name, out, err)
			}
		}
	}
}

// Further messages do not change how the beginning of a conversation is rendered, which the cache holds.
func TestLaterMessagesKeepThePrefix(t *testing.T) {
	s := shape{turns: "suasuausau"}
	in, _ := s.build()
	for _, name := range []string{"builtin gemma", "builtin mistral", "builtin llama2", "builtin chatml"} {
		src, _ := Builtin(strings.TrimPrefix(name, "builtin "))
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		before := ""
		for n := 3; n < len(in.Messages); n += 3 { // after each answer
			part := in
			part.Messages, part.AddGenerationPrompt = in.Messages[:n], false
			out, err := tmpl.Render(part)
			if err != nil || !strings.HasPrefix(out, before) {
				t.Errorf("%s: %d messages: %v\n%q\n%q", name, n, err, before, out)
			}
			before = out
		}
	}
}

// gpt-oss leaves out text beside calls once an answer follows: it becomes a message before them, and the calls stay
// what they are.
func TestTextBesideCallsStays(t *testing.T) {
	tmpl, err := Compile(published(t)["openai-gpt-oss-120b.jinja"])
	if err != nil {
		t.Fatal(err)
	}
	s := shape{turns: "subrbrau", tools: true}
	in, words := s.build()
	in.Messages[2].ReasoningContent = "mythought"
	out, changes, err := tmpl.RenderChanged(in)
	if err != nil || s.fault(out, words, false) != "" || strings.Count(out, "<|start|>assistant to=functions.") != 2 {
		t.Errorf("%v, %q\n%s", err, s.fault(out, words, false), out)
	}
	if len(changes) != 1 || changes[0].Reason != "text_before_calls" || changes[0].Times != 2 {
		t.Errorf("changes %v", changes)
	}
	in.Messages = in.Messages[:4] // no answer follows: text and thought are one
	out, err = tmpl.Render(in)
	if err != nil || !strings.Contains(out, "<|channel|>analysis<|message|>mythought\n\nLooking") {
		t.Errorf("%v\n%s", err, out)
	}
	in.Messages[2].Calls[0].Arguments = `{"location": "cut` // it becomes text, which must not go into a thought
	out, err = tmpl.Render(in)
	if err != nil || !strings.Contains(out, "Looking beside") || !strings.Contains(out, `"cut`) {
		t.Errorf("%v\n%s", err, out)
	}
}
