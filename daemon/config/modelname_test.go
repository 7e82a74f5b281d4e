package config

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

// TestDownload: a model of --hf-repo that no place has whole is downloaded into the models directory.
func TestDownload(t *testing.T) {
	dir, _ := modelsFolder(t)
	log := slog.New(slog.DiscardHandler)
	file := func(p *puller, repo string) (string, error) {
		c, err := load(t, []string{"-hf", repo, "--models-dir", dir}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Puller = p
		if err := c.Locate(t.Context(), log); err != nil {
			return "", err
		}
		return c.ModelFile(t.Context(), log)
	}
	p := &puller{path: filepath.Join(dir, "new.gguf")}
	if path, err := file(p, "org/new:Q8_0"); len(p.asked) != 1 || p.asked[0] != "hf.co/org/new:Q8_0 to "+dir ||
		path != p.path || err != nil {
		t.Errorf("%q, %s, %v", p.asked, path, err)
	}
	if path, err := file(p, "org/half"); len(p.asked) != 2 || path != p.path || err != nil {
		t.Errorf("a model of which a file is missing: %q, %s, %v", p.asked, path, err)
	}
	if path, err := file(p, "org/repo"); len(p.asked) != 2 || filepath.Base(path) != "repo-Q4_K_M.gguf" || err != nil {
		t.Errorf("a model that is there: %q, %s, %v", p.asked, path, err)
	}
	if _, err := file(&puller{err: errors.New("the disk is full")}, "org/new"); err == nil ||
		err.Error() != "download hf.co/org/new: the disk is full" {
		t.Errorf("%v", err)
	}
}

// TestDraftModelByName: --draft-model takes the names that --model takes.
func TestDraftModelByName(t *testing.T) {
	dir, _ := modelsFolder(t)
	log := slog.New(slog.DiscardHandler)
	for name, want := range map[string]string{"mine": filepath.Join(dir, "mine.gguf"), "./x": "./x",
		"none.gguf": "none.gguf"} {
		c := &Config{Model: "/m", ModelsDir: dir, DraftModel: name}
		if err := c.Locate(t.Context(), log); err != nil || c.DraftModel != want {
			t.Errorf("%s is %q, %v", name, c.DraftModel, err)
		}
	}
	c := &Config{Model: "/m", ModelsDir: dir, DraftModel: "nowhere"}
	if err := c.Locate(t.Context(), log); err == nil || !strings.Contains(err.Error(), "--draft-model") ||
		!strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v", err)
	}
}
