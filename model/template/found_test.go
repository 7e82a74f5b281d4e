package template

import (
	"slices"
	"testing"
)

// TestFormsThatAreFound: a template that shows tools and tells nothing of calls has the syntax of the model's
// vocabulary; one that renders calls in an unknown syntax is not taken for hermes because it has "<tool_call>" in it.
func TestFormsThatAreFound(t *testing.T) {
	const shows = `{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}` +
		`{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}`
	for _, c := range []struct{ template, syntax, found string }{
		{shows + `{% endfor %}`, "lfm2", "vocabulary"},
		{shows + `{% endfor %}{# <tool_call> #}`, "hermes", "signs"},
		{shows + `{% for c in m.tool_calls or [] %}{{ '~~' + c.function.name + '~~<tool_call>~~' }}{% endfor %}` +
			`{% endfor %}`,
			"hermes", "signs"},
		{shows + `{% for c in m.tool_calls or [] %}{{ '~~' + c.function.name + '~~' }}{% endfor %}{% endfor %}` +
			`{# <tool_call> #}`, "json", "unread"},
	} {
		tmpl, err := Compile(c.template)
		if err != nil {
			t.Fatal(err)
		}
		tmpl.AskVocabulary(func(text string) bool {
			return slices.Contains([]string{"<|tool_call_start|>", "<|tool_call_end|>"}, text)
		})
		if got := tmpl.Tools(); got.Syntax.Name != c.syntax || got.Found != c.found {
			t.Errorf("%s: %s (%s), want %s (%s)", c.template, got.Syntax.Name, got.Found, c.syntax, c.found)
		}
	}
}
