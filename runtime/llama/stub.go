//go:build !cgo || !(llama_engine || llama_system)

package llama

import (
	"errors"
	"math"

	"github.com/uma-serve/uma-serve/runtime"
)

// Open returns runtime.ErrNotBuilt: this binary was built without cgo and has no llama.cpp.
func Open(runtime.Options) (runtime.Engine, error) { return nil, runtime.ErrNotBuilt }

// UseKernels returns runtime.ErrNotBuilt: a build without cgo has no kernels.
func UseKernels(string) error { return runtime.ErrNotBuilt }

// Kernels is "": a build without cgo has none.
func Kernels() string { return "" }

// DrainLogs does nothing in a build without llama.cpp.
func DrainLogs() {}

func setLogLevel(int32) {}

// ArgMax returns the first index of the largest of logits, and that value: -1 when none is above -Inf. NaN never wins.
func ArgMax(logits []float32) (runtime.Token, float32) {
	best, at := float32(math.Inf(-1)), runtime.NoToken
	for i, x := range logits {
		if x > best {
			best, at = x, runtime.Token(i)
		}
	}
	return at, best
}

// ErrStopped is returned by Open when Options.Progress returns false.
var ErrStopped = errors.New("model load stopped")

// Backends are none: a build without cgo computes on no device.
func Backends() runtime.Backends { return runtime.Backends{} }

// Ours is nil: a build without cgo has nothing.
func Ours() []string { return nil }

// LeftOut is nil: a build without cgo has nothing.
func LeftOut() []string { return nil }

// Floats returns runtime.ErrNotBuilt: a build without llama.cpp decodes no weights.
func Floats(uint32, []byte, []float32) error { return runtime.ErrNotBuilt }
