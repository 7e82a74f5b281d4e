//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama/known"
)

// renamed is a small model of Llama's under another architecture's name, its tensors as edit makes them.
func renamed(t *testing.T, cfg ggufgen.Config, arch string,
	edit func([]gguffile.Tensor) []gguffile.Tensor, more ...gguffile.KV) (path string) {
	t.Helper()
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
			kvs[i].Value = arch
		}
		kvs[i].Key = strings.Replace(kvs[i].Key, "llama.", arch+".", 1)
	}
	path = filepath.Join(t.TempDir(), arch+".gguf")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := gguffile.Write(out, append(kvs, more...), edit(tensors)); err != nil {
		t.Fatal(err)
	}
	return path
}

// cogvlm has the projections of attention in one tensor, and beside Llama's those for images.
func cogvlm(t *testing.T) string {
	cfg := ggufgen.Tiny()
	cfg.KVHeads = cfg.Heads
	return renamed(t, cfg, "cogvlm", func(tensors []gguffile.Tensor) (list []gguffile.Tensor) {
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
				x.Name, x.Data = "blk."+block+".attn_qkv.weight", qkv[block]
				x.Shape = []uint64{x.Shape[0], 3 * x.Shape[1]}
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
		return list
	})
}

// chameleon normalises queries and keys, head by head, and has tokens that are images.
func chameleon(t *testing.T) string {
	cfg := ggufgen.Tiny()
	cfg.VocabSize, cfg.KVHeads = known.HiddenTokens["chameleon"][1]+64, cfg.Heads
	head := cfg.Embedding / cfg.Heads
	return renamed(t, cfg, "chameleon", func(tensors []gguffile.Tensor) []gguffile.Tensor {
		for i := range cfg.Layers {
			for _, name := range []string{"attn_q_norm", "attn_k_norm"} {
				var ones bytes.Buffer
				for range cfg.Embedding {
					binary.Write(&ones, binary.LittleEndian, float32(1))
				}
				tensors = append(tensors, gguffile.Tensor{Name: fmt.Sprintf("blk.%d.%s.weight", i, name),
					Shape: []uint64{uint64(head), uint64(cfg.Heads)}, Data: &ones})
			}
		}
		return tensors
	})
}

// TestEveryRow: the logits of a row are those of its token, whichever rows are asked for, also where llama.cpp computes
// all rows or cannot do without one. Tokens that are hidden are hidden in each row.
func TestEveryRow(t *testing.T) {
	for arch, path := range map[string]string{"cogvlm": cogvlm(t), "chameleon": chameleon(t)} {
		t.Run(arch, func(t *testing.T) { testEveryRow(t, path, known.HiddenTokens[arch]) })
	}
}

func testEveryRow(t *testing.T, path string, hidden [2]int) {
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
				if row := e.Logits(i); row != nil {
					for id := hidden[0]; id < hidden[1]; id++ {
						if row[id] != -math.MaxFloat32 {
							t.Fatalf("steps of %d, row %d: token %d has %g", step, at+i, id, row[id])
						}
					}
				}
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
