package daemon

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
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
		err := dc.checkMemory(path, c.available, c.p)
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
