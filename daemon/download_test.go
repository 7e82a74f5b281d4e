package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/models/store/storetest"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// puller stands for package models/pull.
type puller struct {
	path string
	err  error
}

func (p *puller) Pull(context.Context, store.Name, string) (string, error) { return p.path, p.err }

// noModels hides the models of this machine from the store, and returns a models directory.
func noModels(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for _, name := range []string{"XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE",
		"OLLAMA_MODELS"} {
		t.Setenv(name, filepath.Join(dir, "none"))
	}
	return filepath.Join(dir, "models")
}

// opened runs a daemon and returns the options with which it opens the engine, which then ends it, or its error before.
func opened(t *testing.T, p *puller, args ...string) (o runtime.Options, err error) {
	t.Helper()
	c, err := load(t, append(args, "--socket", filepath.Join(t.TempDir(), "s")), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Puller = p
	enough := errors.New("enough")
	err = Run(t.Context(), c, slog.New(slog.DiscardHandler), func(opened runtime.Options) (runtime.Engine, error) {
		o = opened
		return nil, enough
	})
	if err == nil {
		t.Errorf("%q: the daemon ended without an error", args)
	}
	if errors.Is(err, enough) {
		err = nil
	}
	return o, err
}

// TestDownloadAtStart: a model of --hf-repo is downloaded while the daemon answers that it loads, and the error of a
// download ends the daemon.
func TestDownloadAtStart(t *testing.T) {
	dir := noModels(t)
	p := &puller{path: filepath.Join(dir, "new.gguf")}
	if o, err := opened(t, p, "-hf", "org/new:Q8_0", "--models-dir", dir); err != nil || o.ModelPath != p.path {
		t.Errorf("%q, %v", o.ModelPath, err)
	}
	p = &puller{err: errors.New("the disk is full")}
	if _, err := opened(t, p, "-hf", "org/new", "--models-dir", dir); err == nil ||
		err.Error() != "download hf.co/org/new: the disk is full" {
		t.Errorf("%v", err)
	}
}

// TestTableOfModel: -m NAME of a [models.NAME] table serves the table's model with its options.
func TestTableOfModel(t *testing.T) {
	dir := noModels(t)
	storetest.Copy(t, filepath.Join(dir, "mine.gguf"), ggufgen.Cached(t, ggufgen.Tiny()))
	file := filepath.Join(t.TempDir(), "uma.toml")
	if err := os.WriteFile(file, []byte("[models.big]\nmodel = \"mine\"\naliases = [\"chat\"]\nctx-size = 640\n"+
		"threads = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := opened(t, nil, "-m", "Chat", "--models-dir", dir, "--config", file)
	if err != nil || o.ModelPath != filepath.Join(dir, "mine.gguf") || o.ContextTokens != 640 || o.Threads != 1 {
		t.Errorf("%v, %+v", err, o)
	}
}
