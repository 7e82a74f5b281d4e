package memory

// Check verifies the invariants.
func Check(f *Fabric) error { return f.check() }
