// Package gpu has BLIS's step times of models on GPUs, none of which uma-serve uses:
//
//	Published         111 sets of coefficients for latency.Blackbox
//	roofline          floating-point operations and bytes of a model's shape against a GPU's data sheet
//	crossmodel        four fitted coefficients over a model's shape
//	trained-roofline  seven fitted corrections to the roofline's terms
//
// Like package latency, it evaluates sums in the written order and keeps products apart with explicit conversions.
package gpu
