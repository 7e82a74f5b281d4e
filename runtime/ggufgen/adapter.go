package ggufgen

import (
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// Adapter describes a LoRA adapter with random weights for a decoder of Config: a pair of matrices for each of its
// attention's and feed-forward network's weights.
type Adapter struct {
	Rank  int     // of the pairs, 1 … 64
	Alpha float32 // as in the file; 0 = none, the weights count as they are
	Seed  uint64
	// Invocation are the tokens from which on an activated adapter (aLoRA) counts; empty for an ordinary one.
	Invocation []uint32
}

// adapterGain is the size of what a pair adds to its product, relative to the product's: large enough that an answer is
// another one, small enough that it is one still.
const adapterGain = 0.5

// WriteAdapter writes an adapter for the model of cfg to path. Errors wrap ErrConfig or are the file system's.
func WriteAdapter(path string, cfg Config, a Adapter) error {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	if a.Rank < 1 || a.Rank > 64 || cfg.Arch.encoder() {
		return fmt.Errorf("%w: an adapter has a rank of 1 … 64 and a decoder", ErrConfig)
	}
	kv := []gguffile.KV{{Key: "general.type", Value: "adapter"},
		{Key: "general.architecture", Value: string(cfg.Arch)}, {Key: "adapter.type", Value: "lora"},
		{Key: "adapter.lora.alpha", Value: a.Alpha}}
	if len(a.Invocation) > 0 {
		kv = append(kv, gguffile.KV{Key: "adapter.alora.invocation_tokens", Value: a.Invocation})
	}
	var tensors []gguffile.Tensor
	add := func(name string, rows, cols int, std float64) {
		h := fnv.New64a()
		h.Write([]byte(name))
		t := &tensor{name: name, rows: rows, cols: cols, storage: storages[F32], std: float32(std),
			seed: h.Sum64() ^ a.Seed*0xbf58476d1ce4e5b9}
		// Like the model's own layers, an adapter does not write the bias channel.
		t.zeroRow0 = strings.HasSuffix(name, "lora_b") && rows == cfg.Embedding
		tensors = append(tensors, gguffile.Tensor{Name: name, Type: t.storage.kind, Shape: t.shape(), Data: t})
	}
	scale := 1.0 // of the product, as in llama.cpp
	if a.Alpha != 0 {
		scale = float64(a.Alpha) / float64(a.Rank)
	}
	for _, t := range cfg.plan(cfg.vocabulary()) {
		if t.rows == 0 || !strings.HasPrefix(t.name, "blk.") {
			continue
		}
		add(t.name+".lora_a", a.Rank, t.cols, 1/math.Sqrt(float64(t.cols)))
		add(t.name+".lora_b", t.rows, a.Rank, adapterGain/scale/math.Sqrt(float64(a.Rank)))
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create adapter: %w", err)
	}
	if err = gguffile.Write(f, kv, tensors); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
