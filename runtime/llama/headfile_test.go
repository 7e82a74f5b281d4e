//go:build cgo && llama_engine && !llama_no_heads

package llama

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// opener opens engines on the model of a file.
func opener(path string) enginetest.Open {
	return func(t *testing.T, o runtime.Options) runtime.Engine {
		o.ModelPath, o.Threads = path, testThreads
		e, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

// TestContractOfAFile: the engines' contract with an EAGLE-3 head, whose width is not the model's, and with a DFlash
// head.
func TestContractOfAFile(t *testing.T) {
	model := ggufgen.TinyTarget(false)
	for name, head := range map[string]ggufgen.Config{"eagle3": ggufgen.EagleOf(model, ggufgen.HeadRandom),
		"dflash": ggufgen.DFlashOf(model, ggufgen.HeadRandom, 7)} {
		t.Run(name, func(t *testing.T) {
			enginetest.RunHead(t, opener(ggufgen.Cached(t, model)),
				&runtime.Options{ModelPath: ggufgen.Cached(t, head)})
		})
	}
}

// TestBlocksThatKnow: each guess of the generated DFlash head that knows its model is what the model says behind the
// guesses before it.
func TestBlocksThatKnow(t *testing.T) {
	const size = 5
	model := ggufgen.TurnTarget()
	e, h, err := headOf(t, model, ggufgen.Cached(t, ggufgen.DFlashOf(model, ggufgen.HeadKnows, size)))
	if err != nil {
		t.Fatal(err)
	}
	if h.Block() != size {
		t.Fatalf("a block has %d guesses", h.Block())
	}
	e.KeepStates(true)
	text := []runtime.Token{20}
	for n := 1; n < 60; n++ {
		e.Batch().Reset()
		e.Batch().Add(text[n-1], runtime.Pos(n-1), 0, true)
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		next, _ := e.Argmax(0)
		text = append(text, next)
		if next != text[n-1]+1 {
			t.Fatalf("the model says token %d behind token %d", next, text[n-1])
		}
		h.Batch().Reset()
		h.Follow(h.Batch().Add(next, runtime.Pos(n), 0, false), e.State(0))
		for i := range size {
			h.Batch().Add(0, runtime.Pos(n+1+i), 0, true)
		}
		if err := h.Decode(); err != nil {
			t.Fatal(err)
		}
		for i := range size {
			if tok, _ := h.(runtime.RowScanner).Argmax(1 + i); tok != next+1+runtime.Token(i) {
				t.Fatalf("position %d: guess %d behind token %d is token %d", n, i, next, tok)
			}
		}
		if !h.SeqRemove(0, runtime.Pos(n+1), -1) {
			t.Fatal("guesses could not be removed")
		}
	}
}

// headOf opens a model and a head for it.
func headOf(t *testing.T, model ggufgen.Config, path string) (*engine, runtime.Head, error) {
	t.Helper()
	e := mustOpen(t, runtime.Options{ModelPath: ggufgen.Cached(t, model), ContextTokens: 512, Batch: 128, Sequences: 4,
		Threads: testThreads}).(*engine)
	h, err := e.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 64, Sequences: 2,
		File: &runtime.Options{ModelPath: path}})
	if err == nil {
		t.Cleanup(func() { h.Close() })
	}
	return e, h, err
}

// TestEagleThatKnows: the guesses of the generated head that knows its model are the tokens that the model says,
// although it has neither embeddings nor an output matrix.
func TestEagleThatKnows(t *testing.T) {
	model := ggufgen.TinyTarget(true)
	e, h, err := headOf(t, model, ggufgen.Cached(t, ggufgen.EagleOf(model, ggufgen.HeadKnows)))
	if err != nil {
		t.Fatal(err)
	}
	knows(t, e, h)
	in, of := h.Model(), e.Model()
	if in.Architecture != gguf.ArchEagle || in.SharedBytes == 0 || in.SharedBytes >= in.Bytes || in.Bytes >= of.Bytes {
		t.Errorf("the head is %+v", in)
	}
}

// TestEagleGuessesItsTokens: a head with fewer tokens than its model guesses none of the others.
func TestEagleGuessesItsTokens(t *testing.T) {
	model := ggufgen.TinyTarget(false)
	_, h, err := headOf(t, model, ggufgen.Cached(t, ggufgen.EagleOf(model, ggufgen.HeadRandom)))
	if err != nil {
		t.Fatal(err)
	}
	h.Batch().Reset()
	h.Batch().Add(300, 7, 1, true)
	if err := h.Decode(); err != nil {
		t.Fatal(err)
	}
	row := h.Logits(0)
	if len(row) != model.VocabSize {
		t.Fatalf("a row has %d logits of %d tokens", len(row), model.VocabSize)
	}
	for tok, x := range row {
		if (x > -1e30) != (tok%2 == 0) { // see ggufgen.EagleOf
			t.Errorf("the logit of token %d is %v", tok, x)
		}
	}
}

// TestEaglesThatDoNotFit: OpenHead says what does not fit.
func TestEaglesThatDoNotFit(t *testing.T) {
	model := ggufgen.TinyTarget(false)
	head := ggufgen.EagleOf(model, ggufgen.HeadRandom)
	wide, deep, shared := head, head, ggufgen.EagleOf(model, ggufgen.HeadKnows)
	wide.Target = &ggufgen.Target{Width: 96, All: 4, Reads: [3]int{1, 2, 3}}
	deep.Target = &ggufgen.Target{Width: 64, All: 40, Reads: [3]int{1, 20, 39}}
	shared.VocabSize++
	damaged := filepath.Join(t.TempDir(), "damaged.gguf")
	if err := os.WriteFile(damaged, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path, want string
	}{
		"a model":        {ggufgen.Cached(t, model), `it is no head: its architecture is "llama"`},
		"another width":  {ggufgen.Cached(t, wide), "an embedding of 96, and the model's is 64"},
		"another depth":  {ggufgen.Cached(t, deep), "the model has layers 0 … 3"},
		"another vocab":  {ggufgen.Cached(t, shared), "no output matrix, and the model's does not fit"},
		"no file":        {damaged + "x", "no such file"},
		"a damaged file": {damaged, "not a usable GGUF file"},
		"no layer": {without(t, ggufgen.Cached(t, head), "blk.0.attn_norm_2.weight"),
			"blk.0.attn_norm_2.weight"},
	} {
		t.Run(name, func(t *testing.T) {
			_, h, err := headOf(t, model, c.path)
			if h != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want %q", h, err, c.want)
			}
		})
	}
	path := ggufgen.Cached(t, head)
	e := mustOpen(t, runtime.Options{ModelPath: ggufgen.Cached(t, ggufgen.TinySWA()), ContextTokens: 256}).(*engine)
	if h, err := e.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 32, Sequences: 1,
		File: &runtime.Options{ModelPath: path}}); h != nil || err == nil || !strings.Contains(err.Error(), "gemma2") {
		t.Errorf("an architecture without such heads: %v, %v", h, err)
	}
}

// without writes a file again without one of its tensors.
func without(t *testing.T, path, tensor string) string {
	t.Helper()
	kvs, tensors := apart(t, path)
	return together(t, kvs, slices.DeleteFunc(tensors, func(of gguffile.Tensor) bool { return of.Name == tensor }))
}

// apart reads the pairs and the tensors of a file.
func apart(t *testing.T, path string) ([]gguffile.KV, []gguffile.Tensor) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() }) // the tensors are read from it
	st, err := in.Stat()
	if err != nil {
		t.Fatal(err)
	}
	kvs, tensors, err := gguffile.Read(in, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	return kvs, tensors
}

// together writes a file of pairs and tensors.
func together(t *testing.T, kvs []gguffile.KV, tensors []gguffile.Tensor) string {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "m.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(gguffile.Write(out, kvs, tensors), out.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}

// inputsOf are the architectures whose graph yields the inputs of layers in the llama.cpp of engine.lock, by its
// sources: what sets t_layer_inp. That of qwen4exp has them in several widths, which llama.cpp's own copy refuses.
var inputsOf = []string{"bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2",
	"lfm2moe", "llama", "mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h",
	"nemotron_h_moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next"}

// TestFilesOfArchitectures: the engines' contract for heads with a file on a random model of each architecture, and of
// the others a refusal. UMA_ARCHS_READY is the folder of the models to which scripts/archs.sh -heads has given a
// vocabulary.
func TestFilesOfArchitectures(t *testing.T) {
	dir := os.Getenv("UMA_ARCHS_READY")
	if dir == "" {
		t.Skip("UMA_ARCHS_READY is not set")
	}
	list, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no models: %v", err)
	}
	seen := map[string]bool{}
	for _, path := range list {
		info, err := gguf.Brief(path)
		if err != nil {
			t.Fatal(err)
		}
		arch := info.Architecture
		kinds := []ggufgen.Arch{ggufgen.Eagle3, ggufgen.DFlash}
		if arch == string(ggufgen.Gemma4) {
			kinds = append(kinds, ggufgen.Gemma4Assistant)
		}
		for _, kind := range kinds {
			t.Run(filepath.Base(path)+"/"+string(kind), func(t *testing.T) {
				file := &runtime.Options{ModelPath: headFor(t, path, kind)}
				if slices.Contains(inputsOf, arch) {
					seen[arch] = true
					enginetest.RunHead(t, opener(path), file)
					return
				}
				e, err := Open(runtime.Options{ModelPath: path, ContextTokens: 256, Sequences: 4, Threads: testThreads})
				if err != nil { // such as a diffusion model
					if !strings.Contains(err.Error(), arch) {
						t.Error(err)
					}
					return
				}
				defer e.Close()
				h, err := e.(runtime.Headed).OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 32, Sequences: 1,
					File: file})
				if h != nil || err == nil || !strings.Contains(err.Error(), "does not yield") && !e.Model().Encoder {
					t.Errorf("%v, %v: want a refusal", h, err)
				}
			})
		}
	}
	for _, arch := range inputsOf {
		if !seen[arch] {
			t.Errorf("there is no model of %s", arch)
		}
	}
}

// headFor writes a head for the model of a file, with its vocabulary.
func headFor(t *testing.T, path string, kind ggufgen.Arch) string {
	t.Helper()
	head := filepath.Join(t.TempDir(), "head.gguf")
	if err := ggufgen.WriteHeadFor(head, path, kind); err != nil {
		t.Fatal(err)
	}
	return head
}
