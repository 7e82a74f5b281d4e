//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"regexp"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestExpertsPattern: the pattern finds the weights of experts in the layers that are named, and no others.
func TestExpertsPattern(t *testing.T) {
	if expertsPattern(0) != "" {
		t.Errorf("without layers the pattern is %q", expertsPattern(0))
	}
	all := []string{"blk.0.ffn_up_exps.weight", "blk.1.ffn_gate_exps.weight", "blk.1.ffn_gate_up_exps.weight",
		"blk.2.ffn_down_exps.bias", "blk.10.ffn_up_chexps.weight", "blk.12.ffn_up_exps.weight",
		"blk.0.ffn_up.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ffn_up_shexp.weight", "blk.0.attn_q.weight",
		"output.weight"}
	for n, want := range map[int]int{1: 1, 2: 3, 3: 4, 10: 4, 11: 5, 12: 5, 13: 6, mostLayers: 6, 1 << 16: 6, -1: 6} {
		pattern := regexp.MustCompile(expertsPattern(n))
		var got []string
		for _, name := range all {
			if pattern.MatchString(name) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, all[:want]) {
			t.Errorf("--n-cpu-moe %d: %v, want %v", n, got, all[:want])
		}
	}
}

// TestCPUMoE: the experts of the first layers are in the host's memory, those of the others on the device, and the
// model computes what it computes on the processor. Its weights are F32, see TestSplit.
func TestCPUMoE(t *testing.T) {
	if testLayers(t) == 0 {
		t.Skip("UMA_TEST_GPU_LAYERS is not set: no device is to be used")
	}
	path := mixture(t, ggufgen.F32)
	rows := func(layers, moe int) (rows [][]float32, there uint64, info runtime.ModelInfo, device string) {
		e := mustOpen(t, runtime.Options{ModelPath: path, Threads: testThreads, GPULayers: layers, CPUMoE: moe,
			ContextTokens: 512, Batch: 128, MicroBatch: 32, Sequences: 8})
		caps := e.Capabilities()
		for _, d := range caps.Placed {
			if d.Device != "CPU" {
				there += d.Weights
			}
		}
		return enginetest.Windows(t, e), there, e.Model(), caps.DeviceName
	}
	want, _, _, _ := rows(0, 0)
	_, all, info, _ := rows(-1, 0)
	each := info.ExpertBytes / uint64(info.Layers)
	for moe, stay := range map[int]int{1: 1, -1: info.Layers} {
		got, there, _, device := rows(-1, moe)
		if there != all-each*uint64(stay) {
			t.Errorf("--n-cpu-moe %d: %d bytes of weights are on %s, %d with all experts, which have %d in a layer", moe,
				there, device, all, each)
		}
		for i := range got {
			limit := (slices.Max(want[i]) - slices.Min(want[i])) / 200
			for j := range got[i] {
				if d := got[i][j] - want[i][j]; !(max(d, -d) <= limit) {
					t.Fatalf("--n-cpu-moe %d, row %d: logit %d is %v, on the processor %v; the limit is %v apart", moe, i,
						j, got[i][j], want[i][j], limit)
				}
			}
		}
	}
}
