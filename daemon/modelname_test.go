package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/models/store/storetest"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// puller stands for package models/pull.
type puller struct {
	asked []string
	path  string
	err   error
}

func (p *puller) Pull(_ context.Context, name store.Name, dir string) (string, error) {
	p.asked = append(p.asked, name.String()+" to "+dir)
	return p.path, p.err
}

// modelsFolder makes a models directory with a model, one of which a file is missing, and one of two quantisations of a
// repository, and takes the other programs' folders away.
func modelsFolder(t *testing.T) (dir, tiny string) {
	t.Helper()
	tiny = ggufgen.Cached(t, ggufgen.Tiny())
	dir = t.TempDir()
	t.Setenv("HOME", dir)
	for _, name := range []string{"XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE",
		"OLLAMA_MODELS"} {
		t.Setenv(name, filepath.Join(dir, "none"))
	}
	dir = filepath.Join(dir, "models")
	storetest.Copy(t, filepath.Join(dir, "mine.gguf"), tiny)
	storetest.Copy(t, filepath.Join(dir, "hf.co", "org", "repo", "repo-Q4_K_M.gguf"), tiny)
	if err := os.MkdirAll(filepath.Join(dir, "hf.co", "org", "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := ggufgen.Split(tiny, filepath.Join(dir, "hf.co", "org", "half"), "half-Q8_0", 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files[1]); err != nil {
		t.Fatal(err)
	}
	return dir, tiny
}

// TestLocate: what --model and --hf-repo stand for.
func TestLocate(t *testing.T) {
	dir, tiny := modelsFolder(t)
	t.Chdir(t.TempDir())
	storetest.Copy(t, "here", tiny)
	if err := os.Mkdir("mine", 0o755); err != nil { // a folder is no model, and hides none
		t.Fatal(err)
	}
	for _, x := range []struct {
		args       string
		model, hub string // after Locate
		err        string
	}{
		{"", "", "", ""},
		{"-m mine", filepath.Join(dir, "mine.gguf"), "", ""},
		{"-m min", filepath.Join(dir, "mine.gguf"), "", ""},
		{"-m org/repo", filepath.Join(dir, "hf.co/org/repo/repo-Q4_K_M.gguf"), "", ""},
		{"-m here", "here", "", ""},
		{"-m ./mine", "./mine", "", ""},
		{"-m /nonexistent", "/nonexistent", "", ""},
		{"-m nonexistent.gguf", "nonexistent.gguf", "", ""},
		{"-m a@b", "a@b", "", ""},
		{"-m nine", "", "", `model "nine": there is no such model on this machine, but mine; ` +
			`uma-cli models lists what there is, uma-cli pull downloads a model`},
		{"-m org/half:Q8_0", "", "",
			"model org/half:Q8_0 (uma-serve): the model is not whole: 1 of 2 files are missing (2)"},
		{"-hf org/repo", filepath.Join(dir, "hf.co/org/repo/repo-Q4_K_M.gguf"), "", ""},
		{"-hf hf.co/org/repo:q4_k_m", filepath.Join(dir, "hf.co/org/repo/repo-Q4_K_M.gguf"), "", ""},
		{"-hf org/repo:Q8_0", "", "",
			"org/repo:Q8_0 is not on this machine, whole; uma-cli pull hf.co/org/repo:Q8_0 downloads it"},
		{"-hf org/half --offline", "", "", "--offline: org/half is not on this machine, whole; " +
			"start without --offline, or uma-cli pull hf.co/org/half"},
	} {
		c, err := load(t, append(NormalizeArgs(strings.Fields(x.args)), "--models-dir", dir), nil)
		if err != nil {
			t.Fatal(err)
		}
		switch err := c.Locate(t.Context(), slog.New(slog.DiscardHandler)); {
		case x.err == "" && (err != nil || c.Model != x.model || c.HFRepo != x.hub):
			t.Errorf("%s: %q, %q, %v, want %q", x.args, c.Model, c.HFRepo, err, x.model)
		case x.err != "" && (err == nil || err.Error() != x.err):
			t.Errorf("%s: %v, want %q", x.args, err, x.err)
		}
	}
}

// TestDownload: a model of --hf-repo that no place has whole is downloaded into the models directory while the daemon
// answers that it loads, and its error ends the daemon.
func TestDownload(t *testing.T) {
	dir, _ := modelsFolder(t)
	start := func(p *puller, repo string) error {
		fs, c, _ := NewFlagSet()
		if err := fs.Parse(NormalizeArgs([]string{"-hf", repo, "--models-dir", dir, "--socket",
			filepath.Join(t.TempDir(), "s"), "--progress=false"})); err != nil {
			t.Fatal(err)
		}
		if err := c.Load(nil); err != nil {
			t.Fatal(err)
		}
		c.Puller = p
		opened := ""
		err := Run(t.Context(), c, slog.New(slog.DiscardHandler), func(o runtime.Options) (runtime.Engine, error) {
			opened = o.ModelPath
			return nil, errors.New("opened " + opened)
		})
		if err == nil {
			t.Errorf("%s: the daemon ended without an error", repo)
		}
		return err
	}
	p := &puller{path: filepath.Join(dir, "new.gguf")}
	if err := start(p, "org/new:Q8_0"); len(p.asked) != 1 || p.asked[0] != "hf.co/org/new:Q8_0 to "+dir ||
		!strings.Contains(err.Error(), "opened "+p.path) {
		t.Errorf("%q, %v", p.asked, err)
	}
	if err := start(p, "org/half"); len(p.asked) != 2 || !strings.Contains(err.Error(), "opened "+p.path) {
		t.Errorf("a model of which a file is missing: %q, %v", p.asked, err)
	}
	if err := start(p, "org/repo"); len(p.asked) != 2 || !strings.Contains(err.Error(), "repo-Q4_K_M.gguf") {
		t.Errorf("a model that is there: %q, %v", p.asked, err)
	}
	if err := start(&puller{err: errors.New("the disk is full")},
		"org/new"); err.Error() != "download hf.co/org/new: the disk is full" {
		t.Errorf("%v", err)
	}
}

// TestTableOfModel: -m NAME of a [models.NAME] table serves the table's model with its options.
func TestTableOfModel(t *testing.T) {
	dir, _ := modelsFolder(t)
	c, err := load(t, []string{"-m", "Chat", "--models-dir", dir, "--socket", filepath.Join(t.TempDir(), "s"),
		"--progress=false",
		"--config", write(t,
			"[models.big]\nmodel = \"mine\"\naliases = [\"chat\"]\nctx-size = 640\nthreads = 1\n")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var opened runtime.Options
	err = Run(t.Context(), c, slog.New(slog.DiscardHandler), func(o runtime.Options) (runtime.Engine, error) {
		opened = o
		return nil, errors.New("enough")
	})
	if err == nil || opened.ModelPath != filepath.Join(dir, "mine.gguf") || opened.ContextTokens != 640 ||
		opened.Threads != 1 {
		t.Errorf("%v, %+v", err, opened)
	}
}
