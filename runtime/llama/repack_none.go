//go:build cgo && (llama_engine || llama_system) && (llama_system || llama_no_repacked)

package llama

// repackedBytes is 0: this build cannot ask the library how much it repacks.
func (e *engine) repackedBytes() uint64 { return 0 }

const builtRepacked = false
