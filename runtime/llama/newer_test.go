//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// unknownArchitecture reports whether err says that the linked llama.cpp does not know the architecture.
func unknownArchitecture(err error) bool {
	return errors.Is(err, runtime.ErrModel) && strings.Contains(err.Error(), "unknown model architecture: 'maincoder'")
}

// TestNewerArchitecture: a model of an architecture that is younger than the module's source is an engine like any
// other where the linked llama.cpp knows it. Where not, the error names the architecture, the llama.cpp and the way to
// a newer one.
func TestNewerArchitecture(t *testing.T) {
	path := model(t, ggufgen.TinyMaincoder())
	e, err := Open(runtime.Options{ModelPath: path, ContextTokens: 256, Sequences: 2, Threads: testThreads})
	if err != nil {
		for _, part := range []string{engineBuild(), "make ENGINE=", "docs/engines.md"} {
			if !unknownArchitecture(err) || !strings.Contains(err.Error(), part) {
				t.Fatalf("%v: want runtime.ErrModel with the architecture and %q", err, part)
			}
		}
		t.Logf("not checked on this llama.cpp: %v", err)
		return
	}
	if arch := e.Model().Architecture; arch != "maincoder" {
		t.Errorf("architecture %q", arch)
	}
	e.Close()
	enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine {
		o.ModelPath = path
		return mustOpen(t, o)
	})
}

// TestParts: every part is at work or named as missing, capabilities have the same lists, and where this package builds
// all of them nothing is missing: the kernels compute each format of weights that they take, with one row and with more.
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
				return slices.ContainsFunc(list, func(s string) bool { return s == p.name || strings.HasPrefix(s, p.name+" (") })
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
