//go:build cgo && !llama_stub && !llama_system && !llama_engine

package llama

import (
	_ "github.com/ollama/ollama/llama/llama.cpp/src"      // llama.cpp as C++ source
	_ "github.com/ollama/ollama/ml/backend/ggml/ggml/src" // registers the devices built in: CPU, and Metal on macOS
)

// #cgo CXXFLAGS: -std=c++17
import "C"

// engineBuild names the llama.cpp these sources are; a test compares it with go.mod.
func engineBuild() string { return "llama.cpp ec98e2002 (ollama v0.17.4)" }
