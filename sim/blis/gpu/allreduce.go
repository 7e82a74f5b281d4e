package gpu

import (
	"fmt"
	"math"
)

// AllReduce is the cost of summing activations over the GPUs that share a model, twice a layer. The zero value costs
// nothing.
type AllReduce struct {
	GBs float64 // bandwidth between two of them, GB/s; 0 = infinite
	Us  float64 // latency of each sum, microseconds
}

func (a AllReduce) check() error {
	for _, f := range []struct {
		name string
		v    float64
	}{{"bandwidth", a.GBs}, {"latency", a.Us}} {
		if !(f.v >= 0) || math.IsInf(f.v, 0) {
			return fmt.Errorf("all-reduce %s = %v: must be finite and ≥ 0", f.name, f.v)
		}
	}
	return nil
}

// step returns the time of a step's sums in microseconds, for activations of width bytes. In a ring of n GPUs each
// sends and receives 2·(n-1)/n of the data.
func (a AllReduce) step(s *Shape, gpus float64, tokens int, width float64) float64 {
	if gpus <= 1 {
		return 0
	}
	us := 2 * float64(s.Layers) * a.Us
	if a.GBs > 0 {
		bytes := 2 * float64(s.Layers) * float64(tokens) * float64(s.Hidden) * width
		us += 1e6 * (2 * (gpus - 1) / gpus * bytes / (a.GBs * 1e9))
	}
	return us
}
