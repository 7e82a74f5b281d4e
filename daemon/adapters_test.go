package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// adapterFiles returns the options of two adapters, one and two, and of one that applies to every request.
func adapterFiles(t *testing.T) (one, two, always string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name+".gguf")
		if err := os.WriteFile(path, []byte("GGUF "+name), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return "one=" + file("one"), "two=" + file("two") + ":0.5", file("always")
}

// answered returns the text of a greedy answer.
func answered(t *testing.T, web *http.Client, fields string) (text string, cached int) {
	t.Helper()
	status, cached, body := askAs(t, web, `{"max_tokens":8,"temperature":0,"ignore_eos":true,`+
		`"prompt":"a prompt that is long enough to be kept and shared by those after it",`+fields+`}`)
	var got struct{ Choices []struct{ Text string } }
	if json.Unmarshal([]byte(body), &got); status != http.StatusOK || len(got.Choices) != 1 {
		t.Errorf("%s: %d %s", fields, status, body)
		return "", 0
	}
	return got.Choices[0].Text, cached
}

func TestAdapters(t *testing.T) {
	one, two, _ := adapterFiles(t)
	r := serve(t, fake.Config{}, "-c", "16384", "--parallel", "16", "--lora", one, "--lora", two)
	web := r.web()
	base, _ := answered(t, web, `"model":"fake"`)
	choices := []struct{ fields, same string }{
		{`"model":"fake"`, ""},
		{`"model":"one"`, `"lora":[{"id":0,"scale":1}]`},
		{`"model":"fake:two"`, `"lora":[{"id":1,"scale":0.5}]`},
		{`"lora_path":"ONE"`, `"model":"one"`},
		{`"lora":[{"id":0,"scale":0.25},{"id":1,"scale":1}]`, `"lora":[{"id":1,"scale":1},{"id":0,"scale":0.25}]`},
		{`"model":"one","lora":[]`, `"model":"fake"`},
	}
	alone := make([]string, len(choices))
	for i, c := range choices {
		text, cached := answered(t, web, c.fields)
		if alone[i] = text; i > 0 && i < 3 && (text == base || cached > 0) {
			t.Errorf("%s: %q with %d cached tokens, the model's is %q", c.fields, text, cached, base)
		}
		if c.same == "" {
			continue
		}
		if again, cached := answered(t, web, c.same); again != text || cached == 0 {
			t.Errorf("%s answers %q with %d cached tokens, %s %q", c.fields, text, cached, c.same, again)
		}
	}
	var wg sync.WaitGroup // 16 at once, of all kinds
	for k := range 48 {
		wg.Go(func() {
			i := k % len(choices)
			if text, _ := answered(t, web, choices[i].fields); text != alone[i] {
				t.Errorf("%s beside others: %q, alone %q", choices[i].fields, text, alone[i])
			}
		})
	}
	wg.Wait()
	for fields, want := range map[string]string{
		`"lora":[{"id":2,"scale":1}]`:                       "there are 0 one, 1 two",
		`"lora":[{"id":0,"scale":1},{"id":0,"scale":1}]`:    "twice",
		`"lora":[{"id":0,"scale":1001}]`:                    "-1000…1000",
		`"lora":[{"id":0}]`:                                 `no \"scale\"`,
		`"lora_path":"three"`:                               "there are 0 one, 1 two",
		`"lora":[` + strings.Repeat(`{},`, 16) + `{}` + `]`: "the maximum is 16",
	} {
		if status, _, body := askAs(t, web, `{"prompt":"x",`+fields+`}`); status != http.StatusBadRequest ||
			!strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %q", fields, status, body, want)
		}
	}
	if n := r.metrics.AdapterPasses.Value(); n == 0 {
		t.Error("no step had two mixes")
	}
}

// TestScalesOfAllRequests: llama-server's --lora FILE, and its list of adapters.
func TestScalesOfAllRequests(t *testing.T) {
	_, two, always := adapterFiles(t)
	r := serve(t, fake.Config{}, "-c", "4096", "--lora", always, "--lora", two)
	web := r.web()
	plain, _ := answered(t, web, `"lora":[]`)
	given, _ := answered(t, web, `"seed":1`)
	if plain == given {
		t.Errorf("%q with and without the adapter of every request", plain)
	}
	list := func(method, body string) (int, string) {
		req, err := http.NewRequest(method, "http://uma/lora-adapters", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	scales := func() string {
		var got []struct {
			ID    int
			Scale float32
			Name  string
		}
		status, body := list(http.MethodGet, "")
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		return fmt.Sprint(got)
	}
	if got := scales(); got != "[{0 1 always} {1 0 two}]" {
		t.Error(got)
	}
	if status, body := list(http.MethodPost, `[{"id":1,"scale":0.5}]`); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if got := scales(); got != "[{0 0 always} {1 0.5 two}]" {
		t.Error(got)
	}
	if text, cached := answered(t, web, `"seed":1`); text == plain || text == given || cached != 0 {
		t.Errorf("other scales: %q, %d cached tokens", text, cached)
	}
	for body, want := range map[string]string{`[{"id":7,"scale":1}]`: "there are 0 always, 1 two", `{}`: "array",
		`[`: "JSON"} {
		status, text := list(http.MethodPost, body)
		if status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}
