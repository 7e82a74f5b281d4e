package workload

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDatasetsOfThisMachine: a data set that Hugging Face's library has downloaded is found without --file, the newest
// copy of several; a broken link is none; without a copy the error says what to do.
func TestDatasetsOfThisMachine(t *testing.T) {
	home := t.TempDir()
	hub := filepath.Join(home, "hub")
	put := func(path string, age time.Duration) string {
		full := filepath.Join(hub, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		text := `[{"conversations":[{"from":"human","value":"How are you?"}]}]`
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(full, at, at); err != nil {
			t.Fatal(err)
		}
		return full
	}
	for _, v := range []string{"HF_HUB_CACHE", "XDG_CACHE_HOME"} {
		t.Setenv(v, "")
	}
	t.Setenv("HF_HOME", home)
	if _, err := New("sharegpt", DefaultOptions()); err == nil ||
		!strings.Contains(err.Error(), "name it with --file") || !strings.Contains(err.Error(), hub) {
		t.Errorf("without a copy: %v", err)
	}
	const repo = "datasets--anon8231489123--ShareGPT_Vicuna_unfiltered/snapshots/"
	put(repo+"a/ShareGPT_V3_unfiltered_cleaned_split.json", time.Hour)
	newest := put(repo+"b/ShareGPT_V3_unfiltered_cleaned_split_no_imsorry.json", time.Minute)
	if err := os.MkdirAll(filepath.Join(hub, repo, "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(hub, repo, "c/ShareGPT_V3_unfiltered_cleaned_split.json")
	if err := os.Symlink("nowhere", broken); err != nil {
		t.Fatal(err)
	}
	if got, err := findDataset("sharegpt", os.Getenv); err != nil || got != newest {
		t.Errorf("found %s, %v; want %s", got, err, newest)
	}
	if p, err := New("sharegpt", DefaultOptions()); err != nil || len(p.Requests) == 0 ||
		p.Requests[0].Messages[0].Content != "How are you?" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, c := range []struct{ env, want string }{
		{"HF_HUB_CACHE=/x", "/x"}, {"HF_HOME=/h", "/h/hub"}, {"XDG_CACHE_HOME=/c", "/c/huggingface/hub"},
		{"HOME=/home/u", "/home/u/.cache/huggingface/hub"},
	} {
		name, value, _ := strings.Cut(c.env, "=")
		if got := hubCache(func(v string) string {
			if v == name {
				return value
			}
			return ""
		}); got != c.want {
			t.Errorf("%s: %s, want %s", c.env, got, c.want)
		}
	}
}
