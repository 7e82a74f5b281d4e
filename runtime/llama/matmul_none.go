//go:build cgo && (llama_engine || llama_system) && (!linux || (!amd64 && !arm64) || llama_system || llama_no_products)

package llama

import "fmt"

// UseKernels takes "auto" and "ggml", which are the same here: this build has no kernels for products.
func UseKernels(name string) error {
	if name != "auto" && name != "ggml" {
		return fmt.Errorf("kernels %q: this build has only ggml's", name)
	}
	return nil
}

// Kernels is "ggml": this build has no others.
func Kernels() string { return "ggml" }

func registerKernels() {}

func tryProducts() (ours, missed []string) { return nil, nil }

const builtProducts = false
