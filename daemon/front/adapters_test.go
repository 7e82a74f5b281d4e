package front

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestAdaptersAreModels: the name of an adapter finds the process of its model, which answers with it, and the list of
// models has it.
func TestAdaptersAreModels(t *testing.T) {
	file := filepath.Join(t.TempDir(), "adapter.gguf")
	if err := os.WriteFile(file, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{}, []string{"one", "two"}, func(c *config.Config) {
		c.Models[1].Options = map[string]string{"lora": "sql=" + file + ",one=" + file}
	})
	for name, want := range map[string]string{"sql": "I am two", "two:SQL": "I am two", "two-alias:sql": "I am two",
		"one": "I am one", "two:one": "I am two"} {
		if got, err := whole(r.dial(), request(name, nil)); err != nil || got != want {
			t.Errorf("%q answers %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := whole(r.dial(), request("one:sql", nil)); code(err) != wire.ModelNotFound {
		t.Errorf("another model's adapter: %v", err)
	}
	status, text := r.http().do("GET", "/v1/models", "")
	var list wire.ServedModels
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	i := slices.IndexFunc(list.Data, func(m wire.ServedModel) bool { return m.ID == "sql" })
	if i < 0 || list.Data[i].Parent != "two" || !slices.Contains(list.Data[i].Aliases, "two:sql") {
		t.Errorf("%s", text)
	}
	if status, text := r.http().do("GET", "/lora-adapters?model=two", ""); status != http.StatusOK ||
		!strings.Contains(text, `"name":"sql"`) {
		t.Errorf("%d %s", status, text)
	}
}
