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
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// posted sends a body and returns the status and the answer.
func posted(t *testing.T, web *http.Client, path, body string) (int, string) {
	t.Helper()
	resp, err := web.Post("http://uma"+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestAdaptersByRequest: vLLM's and SGLang's requests load and unload adapters; a running request of one that is
// unloaded ends as if it was not, and the cells of its prefixes are free then.
func TestAdaptersByRequest(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("GGUF "+name), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := file("one"), file("two")
	r := serve(t, fake.Config{}, "-c", "4096", "--parallel", "4")
	web := r.web()
	base, _ := answered(t, web, `"model":"fake"`)
	load := func(path, name, file, more string, status int, want string) {
		t.Helper()
		got, text := posted(t, web, path, fmt.Sprintf(`{"lora_name":%q,"lora_path":%q%s}`, name, file, more))
		if got != status || !strings.Contains(text, want) {
			t.Errorf("%s %s %s: %d %s, want %q", path, name, file, got, text, want)
		}
	}
	unload := func(path, name string, status int, want string) {
		t.Helper()
		if got, text := posted(t, web, path, fmt.Sprintf(`{"lora_name":%q}`, name)); got != status ||
			!strings.Contains(text, want) {
			t.Errorf("%s %s: %d %s, want %q", path, name, got, text, want)
		}
	}
	load("/v1/load_lora_adapter", "sql", one, "", 200, "Success: LoRA adapter 'sql' added successfully.")
	sql, _ := answered(t, web, `"model":"sql"`)
	if sql == base {
		t.Error("the adapter changes nothing")
	}
	load("/load_lora_adapter", "poet", two, `,"scale":0.5`, 200, `"poet":"`+two+`"`)
	poet, _ := answered(t, web, `"lora":[{"id":1,"scale":0.5}]`)
	if named, cached := answered(t, web, `"model":"fake:poet"`); named != poet || cached == 0 || poet == sql {
		t.Errorf("%q with %d cached tokens, by id %q", named, cached, poet)
	}

	// What is refused changes nothing.
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("no adapter"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ name, file, more, want string }{
		{"sql", two, "", "load_inplace"}, {"SQL", two, "", "loaded already"},
		{"new", bad, "", "no GGUF file"}, {"sql", bad, `,"load_inplace":true`, "no GGUF file"},
		{"new", pipe, "", "not a file"}, {"new", "/dev/zero", "", "not a file"}, {"new", dir, "", "folder"},
		{"new", bad + "x", "", "no such file"}, {"new", "one", "", "absolute path"}, {"new", "", "", "absolute path"},
		{"a/b", one, "", "lora_name"}, {"", one, "", "lora_name"}, {strings.Repeat("a", 65), one, "", "lora_name"},
		{"new", one, `,"scale":1001`, "-1000…1000"}, {"new", one, `,"scale":"x"`, "scale"},
	} {
		load("/v1/load_lora_adapter", x.name, x.file, x.more, 400, x.want)
		load("/load_lora_adapter", x.name, x.file, x.more, 400, `"success":false`)
	}
	for _, body := range []string{`{}`, `[`, `{"lora_name":5}`, `{"lora_name":"` + strings.Repeat("x", 70<<10) + `"}`} {
		for _, path := range []string{"/v1/load_lora_adapter", "/unload_lora_adapter"} {
			if status, text := posted(t, web, path, body); status != 400 {
				t.Errorf("%s %.40s: %d %s", path, body, status, text)
			}
		}
	}
	unload("/v1/unload_lora_adapter", "new", 404, "no adapter")
	unload("/unload_lora_adapter", "new", 404, `"success":false`)
	if again, cached := answered(t, web, `"model":"sql"`); again != sql || cached == 0 {
		t.Errorf("after what was refused: %q with %d cached tokens", again, cached)
	}

	// Another file under the same name, and what runs meanwhile.
	long := `{"model":"sql","prompt":"a prompt","max_tokens":600,"temperature":0,"ignore_eos":true,"lora_path":"sql"}`
	status, want := posted(t, web, "/v1/completions", long)
	if status != 200 {
		t.Fatalf("%d %s", status, want)
	}
	var wg sync.WaitGroup
	answers := make([]string, 4)
	for i := range answers {
		wg.Go(func() { _, answers[i] = posted(t, web, "/v1/completions", long) })
	}
	waitfor.True(t, "they run", func() bool { return r.loop.Load().state.requests.Load() == int64(len(answers)) })
	load("/v1/load_lora_adapter", "sql", two, `,"load_inplace":true`, 200, "added")
	unload("/v1/unload_lora_adapter", "poet", 200, "Success: LoRA adapter 'poet' removed successfully.")
	wg.Wait()
	text := func(body string) string {
		var got struct{ Choices []struct{ Text string } }
		if json.Unmarshal([]byte(body), &got); len(got.Choices) != 1 {
			t.Errorf("%s", body)
			return ""
		}
		return got.Choices[0].Text
	}
	for _, a := range answers {
		if text(a) != text(want) {
			t.Errorf("beside the change: %.60q, before it %.60q", text(a), text(want))
		}
	}
	if status, now := posted(t, web, "/v1/completions", long); status != 200 || text(now) == text(want) {
		t.Errorf("the new file answers as the old one: %d", status)
	}
	if status, _, body := askAs(t, web, `{"prompt":"x","lora":[{"id":1,"scale":1}]}`); status != 400 ||
		!strings.Contains(body, "there are 0 sql") {
		t.Errorf("the unloaded one: %d %s", status, body)
	}
	unload("/unload_lora_adapter", "sql", 200, `"loaded_adapters":{}`)
	waitfor.True(t, "all are freed, and their prefixes", func() bool {
		free := false
		r.inLoop(func(l *loop) {
			free = !l.model.mixes.Leaving()
			for _, e := range l.core.Tree().Entries(nil) {
				free = free && e.NS&(1<<31) == 0
			}
		})
		return free
	})
	if again, cached := answered(t, web, `"model":"fake"`); again != base || cached == 0 {
		t.Errorf("the model itself: %q with %d cached tokens, at first %q", again, cached, base)
	}
	if n := r.metrics.AdapterChanges.Value(); n != 5 {
		t.Errorf("%d changes", n)
	}
}
