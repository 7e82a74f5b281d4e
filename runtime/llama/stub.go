//go:build !cgo

package llama

import "github.com/uma-serve/uma-serve/runtime"

// Open returns runtime.ErrNotBuilt: this binary was built without cgo and has no llama.cpp.
func Open(runtime.Options) (runtime.Engine, error) { return nil, runtime.ErrNotBuilt }

// DrainLogs does nothing in a build without llama.cpp.
func DrainLogs() {}

func setLogLevel(int32) {}
