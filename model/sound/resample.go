package sound

import "math"

// resampler changes the rate of samples by a windowed sinc, whose cut-off is the lower rate's highest frequency. At
// equal rates samples pass as they are.
type resampler struct {
	from, to int         // the rates, divided by their greatest common divisor
	phases   [][]float32 // weights of the samples around a place between two of them; nil: equal rates
	reach    int         // of the weights, on each side
	in       []float32   // samples that are still needed
	base     int         // place of in[0] among all samples
	out      []float32
}

const (
	lobes     = 24  // of the sinc on each side
	maxPhases = 512 // at most 2 MB of weights; places between two phases take the nearer one
	passed    = 0.94
)

func newResampler(from, to int) *resampler {
	a, b := from, to
	for b > 0 {
		a, b = b, a%b
	}
	r := &resampler{from: from / a, to: to / a}
	if from == to {
		return r
	}
	cut := passed * min(1, float64(to)/float64(from)) // of the highest frequency of the samples
	r.reach = int(math.Ceil(lobes / cut))
	r.phases = make([][]float32, min(r.to, maxPhases))
	for p := range r.phases {
		r.phases[p] = weights(float64(p)/float64(len(r.phases)), cut, r.reach)
	}
	r.in = make([]float32, r.reach) // silence before the first sample
	r.base = -r.reach
	return r
}

// weights returns those of the samples -reach+1 … reach around the place at, 0 … 1. They add up to 1.
func weights(at, cut float64, reach int) []float32 {
	w, sum := make([]float64, 2*reach), 0.
	for i := range w {
		x := float64(i-reach+1) - at
		w[i] = cut
		if x != 0 {
			w[i] = math.Sin(math.Pi*cut*x) / (math.Pi * x)
		}
		u := x / float64(reach)
		w[i] *= max(0, 0.42+0.5*math.Cos(math.Pi*u)+0.08*math.Cos(2*math.Pi*u)) // Blackman's window
		sum += w[i]
	}
	out := make([]float32, len(w))
	for i := range w {
		out[i] = float32(w[i] / sum)
	}
	return out
}

// add takes the next samples.
func (r *resampler) add(samples []float32) {
	if r.phases == nil {
		r.out = append(r.out, samples...)
		return
	}
	r.in = append(r.in, samples...)
	r.emit(len(r.in) + r.base)
}

// emit appends what samples before the place end suffice for.
func (r *resampler) emit(end int) {
	for {
		n := len(r.out) * r.from
		at, between := n/r.to, n%r.to
		phase := (between*len(r.phases) + r.to/2) / r.to
		if phase == len(r.phases) {
			at, phase = at+1, 0
		}
		first := at - r.reach + 1 - r.base
		if at+r.reach >= end {
			if first > len(r.in)/2 { // the samples before it are not needed any more
				r.in = append(r.in[:0], r.in[first:]...)
				r.base += first
			}
			return
		}
		sum := float32(0)
		in := r.in[first:]
		for i, w := range r.phases[phase] {
			sum += w * in[i]
		}
		r.out = append(r.out, sum)
	}
}

// end returns all samples.
func (r *resampler) end() []float32 {
	if r.phases != nil {
		total := len(r.in) + r.base
		r.in = append(r.in, make([]float32, 2*r.reach+2)...) // silence behind the last sample
		r.emit(len(r.in) + r.base)
		r.out = r.out[:min(len(r.out), max(1, (total*r.to+r.from-1)/r.from))]
	}
	return r.out
}
