package runtime

import (
	"errors"
	"os"
)

// ErrAdapter: the file of an adapter cannot be used with this model; the text says why.
var ErrAdapter = errors.New("adapter cannot be loaded")

// MaxMixes is the largest number of a mix of adapters.
const MaxMixes = 255

// Adapter is an id that Adapters.LoadAdapter returned.
type Adapter int

// AdapterInfo are facts about a loaded adapter.
type AdapterInfo struct {
	Bytes int64 // of its file, of which nearly all are weights that are in memory then
	// Invocation are the tokens of an activated adapter (aLoRA): rows before the last place that they have in a prompt
	// are computed without it. Empty for any other adapter.
	Invocation []Token
}

// Scaled is an adapter of a mix and the factor of its weights.
type Scaled struct {
	Adapter Adapter
	Scale   float32
}

// Adapters is an optional interface of an Engine: small matrices (LoRA: Hu et al., 2021) that are added to products of
// the model's weights. Each row of a batch is computed with one mix of adapters (Batch.UseMix), whatever the others
// have. Rows of one mix are computed together, so a Decode has as many passes as its batch has mixes. A sequence's rows
// with mix 0 are computed first.
type Adapters interface {
	// LoadAdapter reads an adapter, a GGUF file, from f's beginning and leaves f open. The error wraps ErrAdapter.
	LoadAdapter(f *os.File) (Adapter, AdapterInfo, error)
	// UnloadAdapter frees an adapter. No mix may have it.
	UnloadAdapter(Adapter)
	// SetMix says what mix n, 1 … MaxMixes, consists of; no parts = of nothing. It takes effect with the next Decode.
	SetMix(n uint8, parts []Scaled)
}
