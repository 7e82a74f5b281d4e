//go:build cgo && (llama_engine || llama_system) && (llama_system || llama_no_repacked)

package llama

import "github.com/uma-serve/uma-serve/runtime"

// repackedBytes is 0: this build cannot ask the library how much it repacks.
func (e *engine) repackedBytes() uint64 { return 0 }

// placedOf is nil: this build cannot ask the library for the memory of devices.
func placedOf(*engine) []runtime.DeviceMemory { return nil }

const builtRepacked = false
