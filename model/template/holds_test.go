package template

import (
	"strings"
	"testing"
)

// TestRewritingTemplatesAreRenderedOnce: a conversation is rendered once by a template that rewrites its texts, so that
// they are not found, as by one that does not.
func TestRewritingTemplatesAreRenderedOnce(t *testing.T) {
	const loop = `{% for m in messages %}[{{ m.role }}]{{ TEXT }}{% endfor %}`
	for _, text := range []string{"m.content", "m.content|replace(' ', '_')",
		"(m.content|lower if m.role == 'system' else m.content)",
		"(m.content|upper if m.role == 'tool' else m.content)",
		"(m.content|upper if m.role == 'assistant' else m.content)"} {
		tmpl, err := Compile(strings.ReplaceAll(loop, "TEXT", text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		in := Input{Messages: []Message{{Role: "system", Content: "Be So Brief."},
			{Role: "user", Content: "What Is it"}, {Role: "assistant", Content: "An Answer here"},
			{Role: "user", Content: "And This now"}}, native: true}
		out, err := tmpl.Render(in)
		if err != nil || !tmpl.holds(out, in.Messages, &in) {
			t.Errorf("%s: %q does not pass for complete, %v", text, out, err)
		}
	}
}

// No template rewrites what a user, a system prompt, an assistant or a tool says, as far as it renders it at all.
func TestPublishedTemplatesDoNotRewrite(t *testing.T) {
	for name, src := range outputTemplates(t) {
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		if tmpl.rewrites != [kinds]bool{} {
			t.Logf("%s rewrites %v", name, tmpl.rewrites)
		}
	}
}
