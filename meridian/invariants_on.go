//go:build invariants

package meridian

// invariantsEnabled makes every Control.OnToken end with check.
const invariantsEnabled = true
