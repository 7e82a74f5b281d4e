//go:build invariants || race

package invariants

// Enabled reports whether this build checks invariants.
const Enabled = true

const size = 1
