//go:build cgo && llama_engine && !llama_no_heads

package llama

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// needGraph skips the test where llama.cpp has no graph for the heads of arch: make engine-bump may take an older one.
func needGraph(t *testing.T, arch string) {
	t.Helper()
	if !headGraph(arch) {
		t.Skipf("%s has no graph for heads of %s", engineBuild(), arch)
	}
}

// withHead opens a model with its head, as it is opened for answers.
func withHead(t *testing.T, path string) (*engine, runtime.Head) {
	t.Helper()
	needGraph(t, "glm4moe")
	e := mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: 512, Batch: 128, Sequences: 4,
		Threads: testThreads, Head: true}).(*engine)
	h, err := e.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 64, Sequences: 2})
	if err != nil || h == nil {
		t.Fatalf("the head: %v, %v", h, err)
	}
	t.Cleanup(func() { h.Close() })
	return e, h
}

// TestHeadGraphs: llama.cpp has had a graph for each architecture of headed since 0.5.0, and make finds it.
func TestHeadGraphs(t *testing.T) {
	var major, minor int
	if _, err := fmt.Sscanf(engineBuild(), "llama.cpp %d.%d.", &major, &minor); err != nil || major == 0 && minor < 5 {
		t.Skipf("%s is older than 0.5.0, or has no version", engineBuild())
	}
	for arch := range headed {
		if !headGraph(arch) {
			t.Errorf("%s has no graph for heads of %s", engineBuild(), arch)
		}
	}
}

func TestContractWithAHead(t *testing.T) {
	needGraph(t, "glm4moe")
	contract(t, ggufgen.Cached(t, ggufgen.TinyHead(ggufgen.HeadRandom)))
}

// TestHeadThatKnows: the guesses of the generated head that knows its model, behind the states of the model's rows and
// behind its own, are the tokens that the model says. Benchmarks of heads rest on it.
func TestHeadThatKnows(t *testing.T) {
	e, h := withHead(t, ggufgen.Cached(t, ggufgen.TinyHead(ggufgen.HeadKnows)))
	knows(t, e, h)
}

// knows tests that the head of a model knows what it says.
func knows(t *testing.T, e *engine, h runtime.Head) {
	t.Helper()
	e.KeepStates(true)
	best := func(e runtime.Engine, row int) runtime.Token {
		tok, _ := e.(runtime.RowScanner).Argmax(row)
		return tok
	}
	const tokens, guesses = 60, 3
	text := []runtime.Token{300}
	right := 0
	for len(text) < tokens {
		n := len(text)
		e.Batch().Reset()
		e.Batch().Add(text[n-1], runtime.Pos(n-1), 0, true)
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		text = append(text, best(e, 0))
		at, tok, state := n, text[n], e.State(0)
		said := make([]runtime.Token, 0, guesses)
		for range guesses {
			h.Batch().Reset()
			h.Batch().Add(tok, runtime.Pos(at), 0, true)
			h.Follow(0, state)
			if err := h.Decode(); err != nil {
				t.Fatal(err)
			}
			if tok, state = best(h, 0), h.State(0); !h.Shared() {
				at++
			}
			said = append(said, tok)
		}
		if !h.SeqRemove(0, runtime.Pos(n+1), -1) {
			t.Fatal("guesses could not be removed")
		}
		// What the model says behind them.
		follows := text[n]
		for i, tok := range said {
			e.Batch().Reset()
			e.Batch().Add(follows, runtime.Pos(n+i), 0, true)
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			if follows = best(e, 0); follows == tok {
				right++
			}
		}
		if !e.SeqRemove(0, runtime.Pos(n), -1) {
			t.Fatal("rows could not be removed")
		}
	}
	if all := guesses * (tokens - 1); right < all*95/100 {
		t.Errorf("%d of %d guesses are what the model says", right, all)
	}
}

// TestHeadsThatAreNotUsed: OpenHead says why.
func TestHeadsThatAreNotUsed(t *testing.T) {
	e := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256, Head: true}).(*engine)
	if h, err := e.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 32, Sequences: 1}); h != nil || err != nil {
		t.Errorf("a model without a head has %v, %v", h, err)
	}
	e = mustOpen(t, runtime.Options{ModelPath: ggufgen.Cached(t, ggufgen.TinyHead(ggufgen.HeadRandom)),
		ContextTokens: 256}).(*engine)
	if h, err := e.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 32, Sequences: 1}); h != nil || err == nil {
		t.Errorf("a model that was loaded without its head has %v, %v", h, err)
	}
}

// withLayer writes the model of a file with one of its layers again as a head, before which state and token are joined.
func withLayer(t *testing.T, path, arch string, again int) string {
	t.Helper()
	in, err := os.Open(path)
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
	layers, width := 0, 0
	for i, kv := range kvs {
		switch n, _ := kv.Value.(uint32); kv.Key {
		case arch + ".block_count":
			layers, kvs[i].Value = int(n), n+1
		case arch + ".embedding_length":
			width = int(n)
		}
	}
	for i, kv := range kvs { // one entry for each layer
		switch of := kv.Value.(type) {
		case []bool:
			if len(of) == layers {
				kvs[i].Value = append(slices.Clone(of), false)
			}
		case []uint32:
			if len(of) == layers {
				kvs[i].Value = append(slices.Clone(of), of[again])
			}
		case []int32:
			if len(of) == layers {
				kvs[i].Value = append(slices.Clone(of), of[again])
			}
		}
	}
	if layers < 1 || width < 1 {
		t.Fatalf("%s has %d layers of %d", path, layers, width)
	}
	kvs = slices.DeleteFunc(kvs, func(kv gguffile.KV) bool { return kv.Key == arch+".nextn_predict_layers" })
	kvs = append(kvs, gguffile.KV{Key: arch + ".nextn_predict_layers", Value: uint32(1)})
	old, blk := fmt.Sprintf("blk.%d.", again), fmt.Sprintf("blk.%d.", layers)
	for _, of := range slices.Clone(tensors) {
		if rest, ok := strings.CutPrefix(of.Name, old); ok {
			of.Name = blk + rest
			tensors = append(tensors, of)
		}
	}
	add := func(name string, shape ...uint64) {
		n := uint64(1)
		for _, d := range shape {
			n *= d
		}
		tensors = append(tensors, gguffile.Tensor{Name: blk + "nextn." + name + ".weight", Shape: shape,
			Data: values{int(n), len(shape) == 1}})
	}
	w := uint64(width)
	add("eh_proj", 2*w, w)
	add("enorm", w)
	add("hnorm", w)
	add("shared_head_norm", w)
	out := filepath.Join(t.TempDir(), arch+".gguf")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := gguffile.Write(f, kvs, tensors); err != nil {
		t.Fatal(err)
	}
	return out
}

// values are F32 numbers: ones, or random.
type values struct {
	n    int
	ones bool
}

func (v values) WriteTo(w io.Writer) (int64, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 0, 4*v.n)
	for range v.n {
		x := float32(1)
		if !v.ones {
			x = float32(rng.NormFloat64() / 16)
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	n, err := w.Write(b)
	return int64(n), err
}

// TestHeadsOfArchitectures: the engines' contract for heads on a random model of each architecture of headed, with one
// of its layers as a head. UMA_ARCHS_READY is the folder of the models that make archs has given a vocabulary.
func TestHeadsOfArchitectures(t *testing.T) {
	dir := os.Getenv("UMA_ARCHS_READY")
	if dir == "" {
		t.Skip("UMA_ARCHS_READY is not set")
	}
	for arch := range headed {
		if arch == "glm4moe" { // that of make archs has positions in several dimensions; TestContractWithAHead has it
			continue
		}
		t.Run(arch, func(t *testing.T) {
			needGraph(t, arch)
			path := filepath.Join(dir, arch+"-moe.gguf")
			if _, err := os.Stat(path); err != nil {
				path = filepath.Join(dir, arch+"-dense.gguf")
			}
			path = withLayer(t, path, arch, 1)
			enginetest.RunHead(t, opener(path), nil)
		})
	}
}
