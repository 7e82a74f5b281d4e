//go:build cgo && !llama_stub && (llama_system || llama_engine)

package llama

// #include "bridge.h"
import "C"

// freeContext frees a context of which no graph is being computed.
func freeContext(ctx *C.struct_llama_context) { C.llama_free(ctx) }
