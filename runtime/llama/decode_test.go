//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestSubmit runs the contract with every second batch in two halves, Submit and Wait. On the processor Submit computes
// the batch; make device-check runs the contract where a device does so beside the host.
func TestSubmit(t *testing.T) {
	path := model(t, ggufgen.Tiny())
	enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine {
		o.ModelPath, o.Threads = path, testThreads
		e, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if c := e.Capabilities(); c.Beside {
			t.Fatalf("a step on the processor is said to be computed beside it: %+v", c)
		}
		e.(*engine).caps.Beside = true
		return e
	})
}
