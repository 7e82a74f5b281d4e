package prepare

import (
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestPreserve: thoughts of earlier turns are kept or dropped by the template's variable; without one they are dropped
// from the messages, and the request is told of those that the template drops although they are asked for.
func TestPreserve(t *testing.T) {
	const head = `{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = ` +
		`loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}` +
		`{% if m.reasoning_content and (WHEN) %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}` +
		`<|im_end|>{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
	const old, inTurn, dropped = "old thought", "new thought", "thoughts_dropped"
	msgs := []wire.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b", ReasoningContent: old},
		{Role: "user", Content: "c"}, {Role: "assistant", Content: "d", ReasoningContent: inTurn},
		{Role: "tool", Content: "e"}}
	for _, c := range []struct {
		when           string          // the template renders a thought
		kept           map[string]bool // by the wish
		told, hasPastV bool
	}{
		{"not clear_thinking or loop.index0 > ns.last", map[string]bool{"": true, "on": true}, false, true},
		{"keep_past_thinking or loop.index0 > ns.last", map[string]bool{"on": true}, false, true},
		{"loop.index0 > ns.last", map[string]bool{}, true, false},
		{"true", map[string]bool{"": true, "on": true}, false, false},
	} {
		m := modelOf(t, fake.Config{Template: strings.Replace(head, "WHEN", c.when, 1)})
		if m.noChat != nil {
			t.Fatal(m.noChat)
		}
		if got := len(m.Describe().ThinkPast) > 0; got != c.hasPastV {
			t.Errorf("%s: info names %q", c.when, m.Describe().ThinkPast)
		}
		for wish, preserve := range map[string]wire.Preserve{"": wire.PreserveDefault, "on": wire.PreserveOn,
			"off": wire.PreserveOff} {
			w := wire.DefaultRequest()
			w.Messages, w.Think.Preserve = msgs, preserve
			p, bad := m.readPrompt(0, &w, nil)
			if bad != nil {
				t.Fatal(bad)
			}
			told := false
			for _, change := range p.changes {
				told = told || change.Reason == dropped
			}
			if strings.Contains(p.text, old) != c.kept[wish] || !strings.Contains(p.text, inTurn) ||
				told != (c.told && wish == "on") {
				t.Errorf("%s, %q: told %v, %q", c.when, wish, told, p.text)
			}
		}
	}
	if !slices.ContainsFunc(msgs, func(m wire.Message) bool { return m.ReasoningContent == old }) {
		t.Error("the client's messages were changed")
	}
}
