//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestCPUMoE: the experts of the first layers are in the host's memory, those of the others on the device, and the name
// of the device says so. The logits are those of the processor, within TestSplit's limit.
func TestCPUMoE(t *testing.T) {
	if testLayers(t) == 0 {
		t.Skip("UMA_TEST_GPU_LAYERS is not set: no device is to be used")
	}
	path := mixture(t, ggufgen.F32)
	row := func(e runtime.Engine) []float32 {
		b := e.Batch()
		b.Reset()
		for i := range 8 {
			b.Add(runtime.Token(10+i), runtime.Pos(i), 0, i == 7)
		}
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(e.Logits(7))
	}
	processor := row(mustOpen(t, runtime.Options{ModelPath: path, Threads: testThreads, ContextTokens: 256}))
	limit := (slices.Max(processor) - slices.Min(processor)) / 200
	var all uint64
	for _, moe := range []int{0, 1, 3, -1} {
		e := mustOpen(t, runtime.Options{ModelPath: path, Threads: testThreads, GPULayers: -1, CPUMoE: moe,
			ContextTokens: 256})
		var there uint64
		for _, d := range e.Capabilities().Placed {
			if d.Device != "CPU" {
				there += d.Weights
			}
		}
		info, name := e.Model(), e.Capabilities().DeviceName
		stay := runtime.HostExperts(info.Layers, info.Layers+1, moe)
		if moe == 0 {
			all = there
		}
		if want := all - info.ExpertBytes/uint64(info.Layers)*uint64(stay); there != want || there == 0 {
			t.Errorf("--n-cpu-moe %d: %d bytes of weights are on the device, want %d of %d", moe, there, want, all)
		}
		if said := strings.Contains(name, fmt.Sprintf("experts of %d of", stay)); said != (moe != 0) {
			t.Errorf("--n-cpu-moe %d: the device is called %q", moe, name)
		}
		for i, got := range row(e) {
			if d := got - processor[i]; !(max(d, -d) <= limit) {
				t.Fatalf("--n-cpu-moe %d: logit %d is %v, on the processor %v; the limit is %v apart", moe, i, got,
					processor[i], limit)
			}
		}
	}
}
