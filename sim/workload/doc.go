// Package workload makes the requests a simulation serves: generated from a specification, or read from a trace.
//
// A [Source] hands out requests in the order of their arrival, one at a time, so that a simulation of ten million
// needs no more memory than one of ten. A source that is also a [Reactive] answers what happened to a request with
// the next one (closed loop, sessions).
//
// Generation reproduces BLIS's random streams (Go's math/rand source, stream seeds derived by FNV-1a), so the
// same specification and seed give the same rows; see [Spec].
package workload
