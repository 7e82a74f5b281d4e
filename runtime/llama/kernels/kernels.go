//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_products

package kernels

// #cgo CXXFLAGS: -std=c++17
import "C"

import "embed"

// Headers are in this package's archive so that a change of one compiles runtime/llama again, which includes them: Go
// looks for changed headers only in a package's own folder. The linker leaves them out of programs.
//
//go:embed *.h
var Headers embed.FS
