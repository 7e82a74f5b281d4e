package meridian

import (
	"os"
	"testing"

	"github.com/uma-serve/uma-serve/model/template"
)

// TestSuffixIsTheTemplates: the daemon has the line breaks behind a closing tag from what template.Texts joins, and
// they are those that the template writes there.
func TestSuffixIsTheTemplates(t *testing.T) {
	uma, err := os.ReadFile("../models/train/chatml.jinja")
	if err != nil {
		t.Fatal(err)
	}
	const turn, ask = `{% for m in messages %}{{ m.content }}`, `{% endfor %}{% if add_generation_prompt %}`
	for _, c := range []struct{ name, source, want string }{
		{"uma-tiny's", string(uma), "\n\n"},
		{"at the end of what it renders", turn + ask + `{{ '<think>\n</think>\n' }}{% endif %}`, "\n"},
		{"before the answer", turn + `{{ '<think>a</think>\n\n' }}` + ask + `{{ 'A:' }}{% endif %}`, "\n\n"},
	} {
		compiled, err := template.Compile(c.source)
		if err != nil {
			t.Fatal(err)
		}
		if got := suffixOf(compiled.Texts("", "<|im_end|>"), "</think>"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
