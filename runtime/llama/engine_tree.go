//go:build cgo && !llama_stub && llama_engine && !llama_system

package llama

// The static libraries of a llama.cpp tree: make ENGINE=… (scripts/engine.sh) builds them and passes their names, the
// folders of the tree's headers and the tags of what does not fit it.

// #cgo CXXFLAGS: -std=c++17
// #if !__has_include("uma_engine.h")
// #error the tag llama_engine is set by: make ENGINE=/path/to/llama.cpp
// #endif
// #include "uma_engine.h"
import "C"

// engineBuild names the tree's commit, or the sum of its sources where it is no clean checkout.
func engineBuild() string { return C.UMA_ENGINE_BUILD }
