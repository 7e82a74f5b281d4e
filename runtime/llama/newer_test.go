//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestNormedHeads: an architecture of 2026 is an engine like any other.
func TestNormedHeads(t *testing.T) {
	path := model(t, ggufgen.TinyMaincoder())
	contract(t, path)
}

// TestExperts: a mixture tells its experts and their bytes. (Its router is float32, whose kernels depend on the batch's
// shape, so that it cannot pass the contract to the bit.)
func TestExperts(t *testing.T) {
	const experts, used = 4, 2
	in, err := os.Open(model(t, ggufgen.Tiny()))
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
	kvs = append(kvs, gguffile.KV{Key: "llama.expert_count", Value: uint32(experts)},
		gguffile.KV{Key: "llama.expert_used_count", Value: uint32(used)})
	var list []gguffile.Tensor
	var expertBytes, all uint64
	for _, x := range tensors {
		block, what, _ := strings.Cut(strings.TrimPrefix(x.Name, "blk."), ".")
		if what == "ffn_gate.weight" || what == "ffn_up.weight" || what == "ffn_down.weight" {
			var one, stack bytes.Buffer
			if _, err := x.Data.WriteTo(&one); err != nil {
				t.Fatal(err)
			}
			for range experts {
				stack.Write(one.Bytes())
			}
			expertBytes += uint64(stack.Len())
			x.Name = strings.Replace(x.Name, ".weight", "_exps.weight", 1)
			x.Shape, x.Data = append(slices.Clone(x.Shape), experts), &stack
			if what == "ffn_gate.weight" {
				var router bytes.Buffer
				for i := range x.Shape[0] * experts {
					binary.Write(&router, binary.LittleEndian, float32(i%7)/7)
				}
				list = append(list, gguffile.Tensor{Name: "blk." + block + ".ffn_gate_inp.weight",
					Shape: []uint64{x.Shape[0], experts}, Data: &router})
			}
		}
		list = append(list, x)
	}
	for i := range list {
		n, err := list[i].Size()
		if err != nil {
			t.Fatal(err)
		}
		all += n
	}
	path := filepath.Join(t.TempDir(), "experts.gguf")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := gguffile.Write(out, kvs, list); err != nil {
		t.Fatal(err)
	}
	m := mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: 256}).Model()
	if m.Experts != experts || m.ExpertsUsed != used || m.ExpertBytes != expertBytes || m.Bytes != all {
		t.Errorf("%d of %d experts with %d of %d bytes, want %d of %d with %d of %d", m.ExpertsUsed, m.Experts,
			m.ExpertBytes, m.Bytes, used, experts, expertBytes, all)
	}
}

// TestParts: every part is at work or named as missing, and capabilities have the same lists. Where this package builds
// all of them nothing is missing: the kernels compute each format of weights that they take, with one row and with
// more.
func TestParts(t *testing.T) {
	defer UseKernels("auto")
	for _, kernels := range []string{"auto", "ggml"} {
		if err := UseKernels(kernels); err != nil {
			t.Fatal(err)
		}
		e := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256})
		if c := e.Capabilities(); !slices.Equal(c.LeftOut, LeftOut()) || !slices.Equal(c.Ours, Ours()) {
			t.Errorf("capabilities have %q and %q, the build %q and %q", c.Ours, c.LeftOut, Ours(), LeftOut())
		}
		for _, p := range parts {
			at := func(list []string) bool {
				return slices.ContainsFunc(list,
					func(s string) bool { return s == p.name || strings.HasPrefix(s, p.name+" (") })
			}
			chosen := Kernels() != "ggml" || !p.kernels // else it is ggml's turn, as was asked
			if at(Ours()) != (p.built && chosen) || at(LeftOut()) == p.built {
				t.Errorf("%s: built %v, ours %q, left out %q", p.name, p.built, Ours(), LeftOut())
			}
		}
		if builtBarrier != (len(e.(*engine).ComputeThreads(nil)) > 0) {
			t.Error("the barrier counts compute threads where it is built, and only there")
		}
		t.Logf("%s: ours %q, left out %q", Kernels(), Ours(), LeftOut())
	}
}

// TestUnknownArchitecture: the error names the architecture, the llama.cpp that does not know it, and the way to a
// newer one.
func TestUnknownArchitecture(t *testing.T) {
	f, err := os.Open(model(t, ggufgen.Tiny()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	pairs, tensors, err := gguffile.Read(f, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range pairs {
		if p.Key == "general.architecture" {
			pairs[i].Value = "llama-of-2040"
		}
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(gguffile.Write(out, pairs, tensors), out.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(runtime.Options{ModelPath: path, ContextTokens: 256, Threads: testThreads})
	for _, part := range []string{"unknown model architecture: 'llama-of-2040'", engineBuild(), "make ENGINE=",
		"docs/engines.md"} {
		if !errors.Is(err, runtime.ErrModel) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v: want runtime.ErrModel with %q", err, part)
		}
	}
}
