// Package latency predicts how long one step of the engine takes from what is in its batch.
//
// All times are in ticks of one microsecond. A prediction is cut, never rounded, to whole ticks, and a step lasts at
// least one. Sums are evaluated in the written order and products are kept apart with explicit conversions, so that
// a machine with fused multiply-add gives the same tick.
//
// The models, from the least to the most that they must know:
//
//	blackbox          a + b·prefill tokens + c·decode tokens, fitted against one server ([Published] has 111 fits)
//	calibrated        the same plus d·attended and e·read KV tokens: what a running uma-serve has learned
//	roofline          floating-point operations and bytes of a model's shape against a GPU's data sheet
//	crossmodel        four fitted coefficients over a model's shape
//	trained-roofline  seven fitted corrections to the roofline's terms
package latency
