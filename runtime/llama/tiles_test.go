//go:build linux && amd64 && cgo && llama_engine && !llama_no_products

package llama

import (
	goruntime "runtime"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestTilesStayShaped: ggml shapes the tiles of AMX once in a thread and expects them to stay so. Products of ours and
// of ggml's follow each other on one thread, as in a model of which some weights have a format that ours do not take.
func TestTilesStayShaped(t *testing.T) {
	defer UseKernels("auto")
	if err := UseKernels("amx"); err != nil {
		t.Skipf("no AMX: %v", err)
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	cfg := ggufgen.TinyWide()
	cfg.Type = ggufgen.Q8_0
	path := ggufgen.Cached(t, cfg)
	const rows = 64
	kernels := []string{"amx", "ggml"}
	var engines []runtime.Engine
	for _, k := range kernels {
		engines = append(engines, mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: 256, Threads: 1,
			Kernels: k}))
	}
	for range 3 {
		for i, e := range engines {
			if err := UseKernels(kernels[i]); err != nil {
				t.Fatal(err)
			}
			e.SeqRemove(0, 0, -1)
			b := e.Batch()
			b.Reset()
			for pos := range rows {
				b.Add(runtime.Token(pos+3), runtime.Pos(pos), 0, pos == rows-1)
			}
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
