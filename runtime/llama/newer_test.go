//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestNormedHeads: an architecture of 2026 is an engine like any other.
func TestNormedHeads(t *testing.T) {
	path := model(t, ggufgen.TinyMaincoder())
	enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine {
		o.ModelPath = path
		return mustOpen(t, o)
	})
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

// TestLeftOut: every part is either built or named, and capabilities have the same list.
func TestLeftOut(t *testing.T) {
	e := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256})
	if got := e.Capabilities().LeftOut; !slices.Equal(got, LeftOut()) {
		t.Errorf("capabilities have %q, the build %q", got, LeftOut())
	}
	if slices.Contains(LeftOut(), "products") != !builtProducts || Exact() && len(LeftOut()) > 0 &&
		slices.ContainsFunc(LeftOut(), func(p string) bool { return p != "barrier" && p != "repacked" }) {
		t.Errorf("left out: %q; exact: %v", LeftOut(), Exact())
	}
	if builtBarrier != (len(e.(*engine).ComputeThreads(nil)) > 0) {
		t.Error("the barrier counts compute threads where it is built, and only there")
	}
}
