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

// TestPinnedSourceLacksIt: the generated model is of an architecture that the module's source does not know. When this
// fails the module has moved on: choose another architecture.
func TestPinnedSourceLacksIt(t *testing.T) {
	if !strings.Contains(engineBuild(), "(ollama ") {
		t.Skipf("%s is not the module's source", engineBuild())
	}
	e, err := Open(runtime.Options{ModelPath: model(t, ggufgen.TinyMaincoder())})
	if err == nil {
		e.Close()
	}
	if !unknownArchitecture(err) {
		t.Errorf("opening it: %v", err)
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
