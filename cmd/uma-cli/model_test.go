package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/model/gguf"
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
	kv, err := kvSizes(&info, repack, "f16", "f16", gguf.Need{}, 1)
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
		kv, err := kvSizes(&info, repack, "f16", "f16", gguf.Need{}, uint64(total))
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

// TestInspectCountsTheDraftModel: inspect adds the memory of a draft model to that of each context, and says why one
// does not fit the model.
func TestInspectCountsTheDraftModel(t *testing.T) {
	model, other := ggufgen.Tiny(), ggufgen.Tiny()
	other.Name, other.VocabSize = "other", 2*model.VocabSize
	file, wrong := ggufgen.Cached(t, model), ggufgen.Cached(t, other)
	info, err := gguf.Inspect(file)
	if err != nil {
		t.Fatal(err)
	}
	d, need, err := inspectDraft(&info, file, 8192, true)
	if err != nil || d.Differs != "" || d.Tokens != 4096 || d.TotalBytes != int64(need.Total()) || need.KV == 0 ||
		need.Weights == 0 {
		t.Errorf("%+v, %+v, %v", d, need, err)
	}
	alone, err := kvSizes(&info, gguf.Repacking{}, "f16", "f16", gguf.Need{}, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	both, err := kvSizes(&info, gguf.Repacking{}, "f16", "f16", need, 1<<40)
	if err != nil || both.Contexts[0].TotalBytes-alone.Contexts[0].TotalBytes != d.TotalBytes ||
		both.Contexts[0].ResidentBytes-alone.Contexts[0].ResidentBytes != int64(need.Resident()) {
		t.Errorf("alone %+v, with the draft model %+v, %v", alone.Contexts[0], both.Contexts[0], err)
	}
	both, err = kvSizes(&info, gguf.Repacking{}, "f16", "f16", gguf.Need{Weights: 1 << 40}, 1<<40)
	if err != nil || *both.Contexts[0].Fits {
		t.Error("a draft model as large as the memory fits")
	}
	if d, _, err = inspectDraft(&info, wrong, 100, false); err != nil || !strings.Contains(d.Differs, "1,024 tokens") {
		t.Errorf("%+v, %v", d, err)
	}
	text := inspectionText(ui.Open(os.Stdout), &inspection{Info: info, KV: alone, Draft: d})
	if !strings.Contains(text, "draft model") || !strings.Contains(text, "cannot draft") {
		t.Error(text)
	}
	if _, _, err := inspectDraft(&info, "/nonexistent.gguf", 100, false); err == nil ||
		!strings.Contains(err.Error(), "--draft-model") {
		t.Errorf("%v", err)
	}
}
