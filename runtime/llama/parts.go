//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"slices"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/runtime/llama/kernels"
)

func init() { buildinfo.Engine = engineBuild() }

// A part is code of this package beside or in the place of ggml's own (docs/engines.md).
type part struct {
	name  string
	built bool
	// kernels: it works with our kernels alone, so that --kernels ggml turns it off.
	kernels bool
	// try has ggml compute something small that the part should take over, and returns what it did not take: nil =
	// all of it. A compiler cannot see that ggml calls another function now. nil: there is nothing to try.
	try func() (ours, missed []string)
}

var parts = []part{
	{"products", builtProducts, true, tryProducts},
	{"attention", builtAttention, true, tryAttention},
	{"positions", builtPositions, true, nil}, // Open looks whether it knows the cells of the context
	{"keep", builtKeep, true, tryKeep},
	{"norms", kernels.BuiltNorms, true, tryNorms},
	{"barrier", builtBarrier, false, tryBarrier},
	{"images", builtImages, false, nil},
	{"grids", builtGrids, false, nil},
	{"repacked", builtRepacked, false, nil},
	{"adapters", builtAdapters, false, nil},
	{"heads", builtHeads, false, nil},
	{"probe", builtProbe, false, nil}, // Open looks whether llama.cpp calls it
}

// tryNorms computes a few norms and a rotation.
func tryNorms() (ours, missed []string) {
	start()
	return nil, kernels.TryNorms()
}

// tried remembers what trying gave, for each set of kernels.
var tried struct {
	sync.Mutex
	ours, left map[string][]string
}

// try returns what of the parts is at work with the kernels in use, and what is not: "products" or, where a part takes
// only some formats of weights, "products (q4_K q6_K)".
func try() (ours, left []string) {
	start()
	tried.Lock()
	defer tried.Unlock()
	kernels := Kernels()
	if left, ok := tried.left[kernels]; ok {
		return tried.ours[kernels], left
	}
	for _, p := range parts {
		switch {
		case !p.built:
			left = append(left, p.name)
		case p.kernels && kernels == "ggml":
		case p.try == nil:
			ours = append(ours, p.name)
		default:
			took, missed := p.try()
			switch {
			case missed == nil && took == nil:
				ours = append(ours, p.name)
			case missed == nil:
				ours = append(ours, p.name+" ("+strings.Join(took, " ")+")")
			case took == nil:
				left = append(left, p.name)
			default:
				ours = append(ours, p.name+" ("+strings.Join(took, " ")+")")
				left = append(left, p.name+" ("+strings.Join(missed, " ")+")")
			}
		}
	}
	if tried.left == nil {
		tried.ours, tried.left = map[string][]string{}, map[string][]string{}
	}
	tried.ours[kernels], tried.left[kernels] = ours, left
	return ours, left
}

// Ours names the parts of this package that are at work, with the formats of weights that "products" computes: each is
// tried on something small when this is first called. UseKernels changes it.
func Ours() []string {
	ours, _ := try()
	return slices.Clone(ours)
}

// LeftOut names what is missing of what the binding puts beside or in the place of ggml's own code, because the system
// has no such code, because it does not fit the llama.cpp that is linked, or because that llama.cpp does not call it
// (docs/engines.md). nil: nothing is missing.
func LeftOut() []string {
	_, left := try()
	return slices.Clone(left)
}

// Exact reports whether a row's logits depend on its sequence alone, bit for bit, in a model whose weights all have
// types that the kernels take: not on the rows that share its step, nor on the places of its cells. ggml's code
// guarantees neither.
func Exact() bool {
	return Kernels() != "ggml" && !slices.ContainsFunc(LeftOut(), func(p string) bool {
		name, _, _ := strings.Cut(p, " ")
		return !slices.Contains([]string{"norms", "barrier", "images", "grids", "repacked", "heads", "probe"}, name)
	})
}
