package gguf

import "math/bits"

// DefaultContext is the context, in tokens, of a model that was trained on as much or more and is served without a
// number.
const DefaultContext = 4096

// DraftContext is the context of a draft model, in tokens, unless its model or its training has a shorter one.
const DraftContext = 8192

// MinContext is the least context, in tokens, that a model is served with: a chat template alone takes some dozens of
// tokens, and llama.cpp cuts the batch to a smaller context.
const MinContext = 64

// Headroom is the memory, in bytes, left beside weights and KV cells: compute buffers, the daemon, the rest of the
// system.
const Headroom = 512 << 20

// Context returns the context that the model is served with where none is asked for: beyond what it was trained on its
// answers are noise.
func (i *Info) Context() int64 {
	if i.TrainContext >= MinContext && i.TrainContext < DefaultContext {
		return i.Limited(i.TrainContext)
	}
	return i.Limited(DefaultContext)
}

// Limited returns the context that the model can be served with where so many tokens are asked for: a position behind
// the table of learned positions has no embedding, and llama.cpp ends the process there.
func (i *Info) Limited(context int64) int64 {
	if i.Positions > 0 && context > i.Positions {
		return i.Positions
	}
	return context
}

// Need is the memory, in bytes, that serving a model takes on the processor.
type Need struct {
	Weights uint64 `json:"weights_bytes"` // of the files' tensors, which are mapped
	KV      uint64 `json:"kv_bytes"`
	Repacking
}

// Need returns the memory of the model with a context of so many tokens and K and V of these types. r is its repacked
// copy.
func (i *Info) Need(context int64, typeK, typeV string, r Repacking) (Need, error) {
	per, err := i.KVBytesPerToken(typeK, typeV)
	if err != nil {
		return Need{}, err
	}
	kv := uint64(maxNeed) // a header can claim any number of heads
	if over, n := bits.Mul64(uint64(max(context, 0)), uint64(max(per, 0))); over == 0 && per >= 0 {
		kv = min(n, maxNeed)
	}
	return Need{Weights: min(i.TensorBytes, maxNeed), KV: kv, Repacking: r}, nil
}

// maxNeed keeps sums within 64 bits.
const maxNeed = 1 << 60

// Total counts every byte once, pages that are not read again included.
func (n Need) Total() uint64 { return n.Weights + n.KV + n.Copy }

// Resident returns the part of Total that must stay in memory for full speed: the file's pages of repacked weights are
// not read again.
func (n Need) Resident() uint64 { return n.Total() - n.Spared }

// Anonymous returns the part that the system cannot page out to the model's file, and without which the engine cannot
// start. Without mapping each tensor lies in memory once, repacked or not, but for embeddings that are looked up and
// multiplied with.
func (n Need) Anonymous(mapped bool) uint64 {
	if mapped {
		return n.KV + n.Copy
	}
	return n.KV + n.Weights - n.Spared + n.Copy
}

// Fits reports whether the model runs at full speed in so many bytes of memory.
func (n Need) Fits(bytes uint64) bool { return n.Resident()+Headroom <= bytes }
