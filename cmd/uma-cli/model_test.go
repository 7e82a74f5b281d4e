package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/gguf"
	"github.com/uma-serve/uma-serve/internal/hostmem"
	"github.com/uma-serve/uma-serve/internal/ui"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// What is repacked counts as memory in `model inspect`: shown, and in the sum and in whether the model fits. The pages
// of the file that it was made of count in the sum and not in what must fit, as they are not read again.
func TestInspectCountsTheRepackedCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	cfg := ggufgen.TinyWide()
	cfg.Type, cfg.Tied = ggufgen.Q4_0, true // the output matrix is copied, and the embeddings stay
	if err := ggufgen.Write(path, cfg); err != nil {
		t.Fatal(err)
	}
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	repack := info.Repacked(gguf.Processor{AVX2: true})
	kv, err := kvSizes(&info, repack, "f16", "f16", 1)
	if err != nil {
		t.Fatal(err)
	}
	c := kv.Contexts[0]
	if want := c.KVBytes + int64(info.TensorBytes+repack.Copy); c.TotalBytes != want || repack.Copy == 0 {
		t.Errorf("%d bytes in all with %d repacked, want %d", c.TotalBytes, repack.Copy, want)
	}
	embeddings := int64(cfg.VocabSize * cfg.Embedding / 32 * 18)
	if want := c.KVBytes + int64(info.TensorBytes) + embeddings; c.ResidentBytes != want {
		t.Errorf("%d bytes must stay, want %d", c.ResidentBytes, want)
	}
	for total, want := range map[int64]bool{c.ResidentBytes + gguf.Headroom: true, c.ResidentBytes + gguf.Headroom -
		1: false} {
		kv, err := kvSizes(&info, repack, "f16", "f16", uint64(total))
		if err != nil {
			t.Fatal(err)
		}
		if got := kv.Contexts[0].Fits; got == nil || *got != want {
			t.Errorf("on a machine of %d bytes it fits: %v, want %v", total, got, want)
		}
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := ui.Open(file)
	text := inspectionText(out, &inspection{Info: info, KV: kv, Repack: repack, Memory: hostmem.Memory{}})
	if want := "a copy of " + ui.Bytes(repack.Copy); !strings.Contains(text, want) {
		t.Errorf("%q is missing in\n%s", want, text)
	}
	if text := inspectionText(out, &inspection{Info: info, KV: kv}); strings.Contains(text, "repacked") {
		t.Errorf("nothing is repacked, and the text says so:\n%s", text)
	}
}
