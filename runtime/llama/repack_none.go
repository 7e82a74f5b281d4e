//go:build cgo && llama_system

package llama

// repackedBytes is 0: the installed library repacks, but its public interface does not tell how much.
func (e *engine) repackedBytes() uint64 { return 0 }
