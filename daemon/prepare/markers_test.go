package prepare

import (
	"os"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// templateOf is the text of a template of package template's tests.
func templateOf(t *testing.T, name string) string {
	t.Helper()
	src, err := os.ReadFile("../../model/template/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

// An answer that quotes thinking tags reaches a template whole, which would take the text before the closing one for a
// thought. A thought within an answer stays one.
func TestQuotedTagsAreText(t *testing.T) {
	for _, spelled := range []bool{false, true} {
		m := modelOf(t, fake.Config{Template: templateOf(t, "qwen3.jinja"), SpelledTags: spelled})
		for answer, want := range map[string]string{
			"Close it with </think> there.":               "Close it with </think> there.",
			"`<think>` begins it, `</think>` ends it":     "`<think>` begins it, `</think>` ends it",
			"Write <think>, then think.":                  "Write <think>, then think.",
			"<think>\nhidden\n</think>\n\nThe answer.":    "The answer.",
			"  <think>hidden</think>The answer.":          "The answer.",
			"hidden\n</think>\n\nThe answer.":             "The answer.",
			"<think>hidden </think> there</think>Answer.": "Answer.",
		} {
			q := wire.Request{Messages: []wire.Message{{Role: "user", Content: "a"},
				{Role: "assistant", Content: answer}, {Role: "user", Content: "b"}}}
			text, _, bad := m.Render(0, &q, nil)
			if bad != nil || !strings.Contains(text, "<|im_start|>assistant\n"+want+"<|im_end|>") {
				t.Errorf("spelled %v: %q: %v\n%s", spelled, answer, bad, text)
			}
		}
		q := wire.Request{Messages: []wire.Message{{Role: "user", Content: "a"},
			{Role: "assistant", Content: "It is `</think>`, and"}}}
		if text, _, bad := m.Render(0, &q, nil); bad != nil || !strings.HasSuffix(text, "It is `</think>`, and") {
			t.Errorf("spelled %v: continued: %v\n%s", spelled, bad, text)
		}
	}
}

// A template that refuses markers in an answer gets it without them: what a model wrote comes back with every request.
func TestRefusedMarkersAreText(t *testing.T) {
	m := modelOf(t, fake.Config{Markers: []string{"<|channel|>"}, Template: `{% for m in messages %}` +
		`{% if m.role == 'assistant' and '<|channel|>' in m.content %}{{ raise_exception('tags') }}{% endif %}` +
		`[{{ m.role }}]{{ m.content }}{% endfor %}`})
	q := wire.Request{Messages: []wire.Message{{Role: "user", Content: "a"},
		{Role: "assistant", Content: "Messages have a <|channel|> each."}, {Role: "user", Content: "b"}}}
	text, tokens, bad := m.Render(0, &q, nil)
	if bad != nil || !strings.Contains(text, "[assistant]Messages have a <|channel|> each.[user]b") {
		t.Errorf("%v\n%s", bad, text)
	}
	for _, tok := range tokens {
		if m.Vocab.IsControl(tok) && m.Vocab.Text(tok) == "<|channel|>" {
			t.Error("the answer's text became a control token")
		}
	}
}

// A last message with calls is rendered with them, and the next answer is opened: nothing can be written behind a call.
func TestCallAtTheEndIsNotContinued(t *testing.T) {
	m := modelOf(t, fake.Config{Template: templateOf(t, "qwen3.jinja")})
	for _, mode := range []wire.Continue{wire.ContinueLast, wire.ContinueOn, wire.ContinueOff} {
		q := wire.Request{Continue: mode, Messages: []wire.Message{{Role: "user", Content: "a"},
			{Role: "assistant", Content: "beside", ToolCalls: []wire.ToolCall{
				{ID: "c", Name: "look", Arguments: `{"x":"word"}`}}}}}
		p, bad := m.readPrompt(0, &q, nil)
		if bad != nil || p.continued || !strings.Contains(p.text, `beside`) || !strings.Contains(p.text, `"word"`) ||
			!strings.Contains(p.text[strings.Index(p.text, "word"):], "<|im_start|>assistant") {
			t.Errorf("mode %d: %v, continued %v\n%s", mode, bad, p.continued, p.text)
		}
	}
}

// A thought that is continued behind another answer: where the template takes no two answers in a row, the first one
// stays before the thought.
func TestThoughtBehindAnAnswerIsContinued(t *testing.T) {
	m := modelOf(t, fake.Config{Template: `{% set ns = namespace(prev='') %}{% for m in messages %}` +
		`{% if m.role == ns.prev %}{{ raise_exception('roles must alternate') }}{% endif %}{% set ns.prev = m.role %}` +
		`[{{ m.role }}]{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}` +
		`{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`})
	q := wire.Request{Messages: []wire.Message{{Role: "user", Content: "a"},
		{Role: "assistant", Content: "The answer."}, {Role: "assistant", ReasoningContent: "more of it"}}}
	p, bad := m.readPrompt(0, &q, nil)
	if bad != nil || !p.begin.Thinking || !strings.HasSuffix(p.text, "more of it") ||
		!strings.Contains(p.text, "The answer.") {
		t.Errorf("%v\n%s", bad, p.text)
	}
}
