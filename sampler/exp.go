package sampler

import "math"

// exp returns e^x for x ≤ 0 with a relative error below 1e-9, and 0 for x below -700. It exists because math.Exp would
// be most of the cost of a softmax over a row.
//
// With k the nearest integer to x·N/ln 2, e^x = 2^(k/N) · e^r and |r| ≤ ln 2/(2N): the fraction of 2^(k/N) comes from a
// table, its integer part goes into the exponent bits, and three terms of the Taylor series suffice for e^r (r³/6 <
// 5e-10 with N = 256).
func exp(x float32) float64 {
	if !(x >= -700) { // NaN too
		return 0
	}
	// Adding 1.5·2^52 leaves the rounded integer in a float64's low bits.
	const shift = 3 << 51
	y := float64(x)
	t := y*(expN/math.Ln2) + shift
	k := int64(math.Float64bits(t)) << 16 >> 16 // two's complement below the exponent bits
	r := y - (t-shift)*(math.Ln2/expN)
	scaled := math.Float64frombits(expTable[uint64(k)%expN] + uint64(k>>expBits)<<52)
	return scaled * (1 + r*(1+r*0.5))
}

const (
	expBits = 8
	expN    = 1 << expBits
)

// expTable[i] is the bits of 2^(i/N).
var expTable = func() (t [expN]uint64) {
	for i := range t {
		t[i] = math.Float64bits(math.Exp2(float64(i) / expN))
	}
	return t
}()
