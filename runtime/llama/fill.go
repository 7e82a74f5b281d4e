//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_heads

package llama

// #cgo LDFLAGS: -Wl,--wrap=ggml_compute_forward_fill
// #include <stdbool.h>
// bool uma_filled(void);
import "C"

// filled reports whether our function has filled a tensor since the last call (fill.cpp).
func filled() bool { return bool(C.uma_filled()) }
