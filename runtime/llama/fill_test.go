//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_heads

package llama

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestFillIsOurs: ggml calls our function where a head rules out the tokens that it does not guess. What it fills is
// TestEagleGuessesItsTokens's.
func TestFillIsOurs(t *testing.T) {
	model := ggufgen.TinyTarget(false)
	filled()
	if _, _, err := headOf(t, model, ggufgen.Cached(t, ggufgen.EagleOf(model, ggufgen.HeadRandom))); err != nil {
		t.Fatal(err)
	}
	if !filled() {
		t.Error("a head with fewer tokens than its model was opened, and ggml has filled its logits")
	}
}
