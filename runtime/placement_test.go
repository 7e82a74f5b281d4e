package runtime

import (
	"regexp"
	"slices"
	"testing"
)

// TestHostExperts counts by llama.cpp's rule: layer i of n is on a device from i = n+1-on on, and layer n is the
// output.
func TestHostExperts(t *testing.T) {
	for layers := range 6 {
		for on := range layers + 3 {
			for moe := -1; moe < layers+3; moe++ {
				want := 0
				for i := range layers {
					if i >= layers+1-on && (moe < 0 || i < moe) {
						want++
					}
				}
				if got := HostExperts(layers, on, moe); got != want {
					t.Errorf("%d layers, %d of them and the output on devices, --n-cpu-moe %d: %d, want %d", layers, on,
						moe, got, want)
				}
			}
		}
	}
}

// TestExpertsPattern: the pattern finds the weights of experts in the layers that are named, and no others.
func TestExpertsPattern(t *testing.T) {
	if ExpertsPattern(0) != "" {
		t.Errorf("without layers the pattern is %q", ExpertsPattern(0))
	}
	all := []string{"blk.0.ffn_up_exps.weight", "blk.1.ffn_gate_exps.weight", "blk.1.ffn_gate_up_exps.weight",
		"blk.2.ffn_down_exps.bias", "blk.10.ffn_up_chexps.weight", "blk.12.ffn_up_exps.weight",
		"blk.0.ffn_up.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ffn_up_shexp.weight", "blk.0.attn_q.weight",
		"output.weight"}
	for n, want := range map[int]int{1: 1, 2: 3, 3: 4, 10: 4, 11: 5, 12: 5, 13: 6, MostLayers: 6, 1 << 16: 6, -1: 6} {
		pattern := regexp.MustCompile(ExpertsPattern(n))
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
