//go:build cgo && (llama_engine || llama_system)

package llama

import (
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
