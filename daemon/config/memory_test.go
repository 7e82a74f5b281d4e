package config

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/models"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// The check at start counts what cannot be paged out: the KV pool, the repacked copy of weights, and with --no-mmap the
// weights. Its sentence names each, and an option that helps.
func TestMemoryCheckCountsTheRepackedCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	cfg := ggufgen.TinyWide()
	cfg.Type = ggufgen.Q4_K
	if err := ggufgen.Write(path, cfg); err != nil {
		t.Fatal(err)
	}
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	here := gguf.Processor{AVX2: true}
	copied := int64(info.Repacked(here).Copy)
	per, err := info.KVBytesPerToken("f16", "f16")
	if err != nil || copied < 1<<20 || per == 0 {
		t.Fatalf("%d bytes are repacked, %d a token, %v", copied, per, err)
	}
	const cells = 1024
	kv, weights := cells*per, int64(info.TensorBytes)
	for name, c := range map[string]struct {
		args      []string
		p         gguf.Processor
		available int64
		want      []string // nil: it fits
	}{
		"fits to the byte": {nil, here, kv + copied, nil},
		"a byte less": {nil, here, kv + copied - 1,
			[]string{"1024 cells of 4096 bytes (--ctx-size) need 4.00 MiB", "the weights repacked for this processor " +
				"2.", "use --ctx-size 576 or less", "or --no-repack"}},
		"the copy alone is more":   {nil, here, copied - 1, []string{"are available: use --no-repack"}},
		"without a copy":           {[]string{"--no-repack"}, here, kv, nil},
		"without one by its alias": {NormalizeArgs([]string{"-nr"}), here, kv, nil},
		"another processor":        {nil, gguf.Processor{}, kv, nil},
		"the pool alone":           {[]string{"--no-repack"}, here, kv - 1, []string{"use --ctx-size 576 or less"}},
		"nothing is mapped":        {[]string{"--no-mmap"}, here, kv + weights, nil},
		"nothing is mapped, less": {[]string{"--no-mmap"}, here, kv + weights - 1,
			[]string{"because of --no-mmap", "or no --no-mmap"}},
		"unknown": {nil, here, 0, nil},
	} {
		fs, dc, _ := NewFlagSet()
		if err := fs.Parse(append([]string{"-m", path, "-c", "1024", "--gpu-layers", "0"}, c.args...)); err != nil {
			t.Fatal(err)
		}
		err := dc.checkAvailable(path, c.available, c.p)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %q in it", name, err, part)
			}
		}
	}
}

// TestDraftModelIsCounted: the draft model is part of the memory that its model's process is expected to take.
func TestDraftModelIsCounted(t *testing.T) {
	model, draft := ggufgen.Cached(t, ggufgen.Tiny()), ggufgen.Cached(t, ggufgen.TinyCopies())
	c, err := load(t, []string{"-m", model, "--draft-model", draft, "--ctx-size", "1024", "--gpu-layers", "0",
		"--cache-ram", "0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	alone := *c
	alone.DraftModel = ""
	with, err1 := c.Estimate()
	without, err2 := alone.Estimate()
	need := c.draftNeed(c.processor())
	if err1 != nil || err2 != nil || need.Weights == 0 || need.KV == 0 || with-without != int64(need.Total()) {
		t.Errorf("%d bytes with the draft model, %d without; it needs %+v; %v, %v", with, without, need, err1, err2)
	}
	p := gguf.Processor{}
	least := int64(c.draftNeed(p).Anonymous(true))
	for least += 512; alone.checkAvailable(model, least, p) != nil; least += 512 {
	}
	if err := c.checkAvailable(model, least, p); err == nil || !strings.Contains(err.Error(), "the draft model") {
		t.Errorf("%d bytes: %v", least, err)
	}
	if err := c.checkAvailable(model, 2*least, p); err != nil {
		t.Errorf("%d bytes: %v", 2*least, err)
	}
	if c.Speculate = "off"; c.draftNeed(p).Total() != 0 {
		t.Error("a draft model that is not loaded is counted")
	}
}

// TestModelsOwnContext: without --ctx-size a model trained on less than the default starts with what it was trained on,
// the built-in one with 2,048.
func TestModelsOwnContext(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	builtIn, err := models.Default()
	if err != nil {
		t.Fatal(err)
	}
	long := ggufgen.Tiny()
	long.Context = 8192
	for _, x := range []struct {
		path string
		args []string
		want int
	}{
		{builtIn, nil, 2048},
		{builtIn, []string{"-c", "4096"}, 4096},
		{builtIn, []string{"-c", "0"}, 0},
		{builtIn, []string{"--config", write(t, "ctx-size = 4096\n")}, 4096},
		{ggufgen.Cached(t, long), nil, 4096},
		{ggufgen.Cached(t, ggufgen.TinyLearned()), nil, 256},
		{ggufgen.Cached(t, ggufgen.TinyLearned()), []string{"-c", "2048"}, 256},
		{ggufgen.Cached(t, ggufgen.TinyLearned()), []string{"-c", "128"}, 128},
		{"/nonexistent", nil, 4096},
	} {
		c, err := load(t, x.args, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ContextTokens(x.path); got != x.want {
			t.Errorf("%s %q: %d cells, want %d", filepath.Base(x.path), x.args, got, x.want)
		}
	}
}
