//go:build !race

// Package race tells tests whether the race detector is in the binary: it takes memory and time that are not the
// code's.
package race

// Enabled reports it.
const Enabled = false
