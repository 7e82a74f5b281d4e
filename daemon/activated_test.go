package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestActivatedAdapter: an activated adapter (aLoRA) shares the cells before its invocation with the model and with
// other adapters, those behind it with requests of the same place, and every answer is that of a server without a
// prefix cache.
func TestActivatedAdapter(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name+".gguf")
		if err := os.WriteFile(path, []byte("GGUF "+name+"\ninvocation [check]"), 0o600); err != nil {
			t.Fatal(err)
		}
		return name + "=" + path
	}
	one, two := file("one"), file("two")
	const talk = "a conversation that is long enough to be kept and shared by those after it "
	const more = "[check] is it so? yes it is, and another text of this conversation follows "
	steps := []struct {
		model, prompt string
		least, most   int // cached tokens; a token is a byte
	}{
		{"fake", talk, 0, 0},
		{"one", talk + "[check] is it so?", len(talk), len(talk)},
		{"two", talk + "[check] is it so?", len(talk), len(talk)},
		{"one", talk + "[check] is it so? no", len(talk + "[check] is it so?"), len(talk + "[check] is it so?")},
		// The model's own cells end where the adapter's begin.
		{"fake", talk + "[check] is it so?", len(talk), len(talk)},
		// The newest invocation counts: what was the adapter's is the model's there.
		{"one", talk + more + "[check] true?", len(talk + "[check] is it so?"), len(talk + "[check] is it so?")},
		{"two", talk + more + "[check] true?", len(talk + more), len(talk + more)},
		{"fake", talk + more + "and so on", len(talk + more), len(talk + more)},
		// Without an invocation there is no adapter.
		{"one", talk + more[7:], len(talk), len(talk)},
		{"one", talk + "and nothing else", len(talk), len(talk)},
		{"fake", talk + "and nothing else", len(talk+"and nothing else") - 1, len(talk+"and nothing else") - 1},
		{"one", "[check] " + talk, 0, 0},
		{"two", "[check] " + talk, 0, 0},
		{"fake", "[check] " + talk, 0, 0},
	}
	ask := func(web *http.Client, model, prompt string) (string, int) {
		body, err := json.Marshal(map[string]any{"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0,
			"ignore_eos": true})
		if err != nil {
			t.Fatal(err)
		}
		status, cached, answer := askAs(t, web, string(body))
		var got struct{ Choices []struct{ Text string } }
		if json.Unmarshal([]byte(answer), &got); status != http.StatusOK || len(got.Choices) != 1 {
			t.Fatalf("%s, %q: %d %s", model, prompt, status, answer)
		}
		return got.Choices[0].Text, cached
	}
	fresh := serve(t, fake.Config{}, "-c", "16384", "--no-prefix-cache", "--lora", one, "--lora", two).web()
	r := serve(t, fake.Config{}, "-c", "16384", "--lora", one, "--lora", two)
	web := r.web()
	texts := map[string]string{}
	for i, s := range steps {
		want, _ := ask(fresh, s.model, s.prompt)
		got, cached := ask(web, s.model, s.prompt)
		if got != want {
			t.Errorf("%d: %s on %q: %q, without a prefix cache %q", i, s.model, s.prompt, got, want)
		}
		if cached < s.least || cached > s.most {
			t.Errorf("%d: %s on %q: %d tokens were cached, want %d to %d", i, s.model, s.prompt, cached, s.least,
				s.most)
		}
		texts[fmt.Sprint(s.model, " ", s.prompt)] = got
	}
	if q := talk + "[check] is it so?"; texts["one "+q] == texts["fake "+q] || texts["one "+q] == texts["two "+q] {
		t.Error("the adapters change nothing: the test shows nothing")
	}
}
