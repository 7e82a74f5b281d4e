//go:build cgo && llama_engine

package llama

// The static libraries that make builds with llama.cpp's own cmake (scripts/engine.sh). make passes their names, the
// folders of the headers, and the tags of what does not fit that llama.cpp.

// #cgo CXXFLAGS: -std=c++17
// #if !__has_include("uma_engine.h")
// #error the tag llama_engine is set by make; for a plain go build: eval "$(make -s env)"
// #endif
// #include "uma_engine.h"
import "C"

// engineBuild names the version and commit of llama.cpp, or the sum of its sources where they are no clean commit.
func engineBuild() string { return C.UMA_ENGINE_BUILD }
