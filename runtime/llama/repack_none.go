//go:build cgo && llama_system

package llama

// repackedBytes is 0: the installed library repacks, but its API does not report how much.
func (e *engine) repackedBytes() uint64 { return 0 }
