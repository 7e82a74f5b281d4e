package runtime

import "testing"

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
