//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestGraphsAreReused: in steady decoding of one or several sequences at least nine steps of ten need no new graph, and
// the capability is what the first steps have shown.
func TestGraphsAreReused(t *testing.T) {
	for _, sequences := range []int{1, 4} {
		e := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 2048, Sequences: 4,
			GPULayers: testLayers(t)})
		if !e.Capabilities().PersistentGraph {
			t.Error("no graph was reused while the engine was opened")
		}
		graphs := e.(runtime.GraphReuser)
		const steps = 400
		before := graphs.GraphsReused()
		for i := range steps {
			b := e.Batch()
			b.Reset()
			for s := range sequences {
				b.Add(runtime.Token(5+i%7), runtime.Pos(i), runtime.Seq(s), true)
			}
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
		}
		if n := graphs.GraphsReused() - before; n < steps*9/10 || n > steps {
			t.Errorf("%d sequences: %d of %d steps reused a graph", sequences, n, steps)
		}
	}
}
