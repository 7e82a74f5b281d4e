//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// cogvlm is a small model of that architecture: Llama's tensors, with the projections of attention in one, and beside
// them those for images.
func cogvlm(t *testing.T) string {
	t.Helper()
	cfg := ggufgen.Tiny()
	cfg.KVHeads = cfg.Heads
	in, err := os.Open(model(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		t.Fatal(err)
	}
	kvs, tensors, err := gguffile.Read(in, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	for i := range kvs {
		if kvs[i].Key == "general.architecture" {
			kvs[i].Value = "cogvlm"
		}
		kvs[i].Key = strings.Replace(kvs[i].Key, "llama.", "cogvlm.", 1)
	}
	var list []gguffile.Tensor
	qkv := map[string]*bytes.Buffer{}
	for _, x := range tensors {
		block, what, _ := strings.Cut(strings.TrimPrefix(x.Name, "blk."), ".")
		switch what {
		case "attn_q.weight", "attn_k.weight", "attn_v.weight": // in this order
			if qkv[block] == nil {
				qkv[block] = &bytes.Buffer{}
			}
			if _, err := x.Data.WriteTo(qkv[block]); err != nil {
				t.Fatal(err)
			}
			if what != "attn_v.weight" {
				continue
			}
			x.Name, x.Shape, x.Data = "blk."+block+".attn_qkv.weight", []uint64{x.Shape[0], 3 * x.Shape[1]}, qkv[block]
		}
		list = append(list, x)
		image := strings.NewReplacer(".ffn_norm", ".", ".ffn_", ".vis_", ".attn_norm", ".", ".attn_", ".vis_attn_")
		if name := image.Replace(x.Name); strings.Contains(name, ".vis_") {
			x.Name = name
			if b, ok := x.Data.(*bytes.Buffer); ok {
				x.Data = bytes.NewBuffer(b.Bytes())
			}
			list = append(list, x)
		}
	}
	path := filepath.Join(t.TempDir(), "cogvlm.gguf")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := gguffile.Write(out, kvs, list); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEveryRow: the logits of a row are those of its token, where llama.cpp computes all rows too.
func TestEveryRow(t *testing.T) {
	path := cogvlm(t)
	tokens := []runtime.Token{70, 71, 90, 65, 100, 33, 72, 80}
	const wanted = 3
	answer := func(step int) []float32 {
		e := mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: 256})
		for at := 0; ; at += step {
			b := e.Batch()
			b.Reset()
			for i := at; i < at+step; i++ {
				b.Add(tokens[i], runtime.Pos(i), 0, i%4 == wanted)
			}
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			for i := range step {
				if got := e.Logits(i) != nil; got != ((at+i)%4 == wanted) {
					t.Fatalf("steps of %d, row %d has logits: %v", step, at+i, got)
				}
				if b.Logits[i] != 0 != ((at+i)%4 == wanted) {
					t.Fatalf("steps of %d: the batch was changed at row %d", step, at+i)
				}
			}
			if at+step == len(tokens) {
				return e.Logits(step - 1)
			}
		}
	}
	want := answer(1)
	for _, step := range []int{2, 4, 8} {
		token, value := ArgMax(answer(step))
		if best, at := ArgMax(want); token != best || value-at > 0.05 || at-value > 0.05 {
			t.Errorf("in steps of %d: token %d with %.3f, alone: %d with %.3f", step, token, value, best, at)
		}
	}
}
