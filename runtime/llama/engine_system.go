//go:build cgo && llama_system

package llama

// #cgo CXXFLAGS: -std=c++17
// #cgo pkg-config: llama
// #include "bridge.h"
import "C"

// engineBuild names the installed llama.cpp by its ggml version, the only version that the library reports.
func engineBuild() string {
	return "llama.cpp (system, ggml " + C.GoString(C.ggml_version()) + " " + C.GoString(C.ggml_commit()) + ")"
}
