// Package latency predicts how long one step of the engine takes from what is in its batch.
//
// All times are in ticks of one microsecond. A prediction is cut, never rounded, to whole ticks, and a step lasts at
// least one. Sums are evaluated in the written order and products are kept apart with explicit conversions, so that
// a machine with fused multiply-add gives the same tick.
//
//	blackbox    a + b·prefill tokens + c·decode tokens, fitted against one server
//	calibrated  the same plus d·attended and e·read KV tokens: what a running uma-serve has learned
//
// Package sim/blis/gpu has the models that BLIS computes from a transformer's shape and a GPU's data sheet.
package latency
