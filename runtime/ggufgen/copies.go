package ggufgen

import (
	"errors"
	"math"
	"math/rand/v2"
)

// A model with Config.Copies continues a text as it went on before: behind a token that has occurred earlier it says
// the one that mostly followed there. Its first two layers are an induction circuit written by hand (Olsson et al.,
// arXiv 2209.11895); the others compute as always and add nothing. The residual stream has
//
//	channel 0                 the bias channel, as in every model of this package
//	channel 1                 one
//	code: HeadDim channels    the token's code, ±1 each; then that of the token it says
//	before: HeadDim/2         the second half of the previous token's code
//
// Head 0 of layer 0 attends to the previous position, by rotary phases alone, and copies half of its code to before.
// Head 0 of layer 1 attends where before is its token's code, by the channels that rotate least, and adds what stands
// there to code. The output matrix has the codes of the tokens. The first token of a text has none before it and takes
// itself for it, so a text should not begin with a token that occurs again.
const (
	copyOne    = 1 // channel
	copyCode   = 2 // first channel
	copyBase   = 2e9
	copyNear   = 16.0 // layer 0's query and key: attention then is e^-18 two positions away
	copyMatch  = 3.2  // layer 1's: e^-15 where a dozen of 32 signs differ
	copyGain   = 4.0  // of the said token's code over the current one
	copyLogits = 0.25 // of a code's channel in the final norm
)

// copyChannels returns the number of channels of the circuit.
func (c Config) copyChannels() int { return copyCode + c.HeadDim + c.HeadDim/2 }

// validateCopies reports why the circuit does not fit into the shape.
func (c Config) validateCopies() error {
	switch {
	case !c.Copies:
		return nil
	case c.Arch != Llama || !c.Tied || c.Layers < 2:
		return errors.New("a model with Copies needs the architecture llama, tied embeddings and two layers")
	case c.HeadDim < 32 || c.HeadDim%4 != 0 || c.Embedding < c.copyChannels():
		return errors.New("a model with Copies needs heads of 32 channels or more and an embedding of 2 + 1.5 × " +
			"HeadDim")
	}
	return nil
}

// code writes the ±1 code of a token.
func code(dst []float32, token int) {
	rng := rand.NewPCG(uint64(token), 0x2545f4914f6cdd1d)
	for i := range dst {
		dst[i] = 1
		if i%64 == 0 {
			continue
		}
		if rng.Uint64()&1 == 0 {
			dst[i] = -1
		}
	}
}

// copies rewrites the plan of a model with Copies.
func (c Config) copies(plan []*tensor) {
	h, d := c.HeadDim, float64(c.Embedding)
	before := copyCode + h
	// The norm of a state: the code, one, half a code where before is set, and the bias channel.
	rms := func(ones float64) float64 { return math.Sqrt((ones + biasEntry*biasEntry) / d) }
	first, second := 1/rms(float64(h)+1), 1/rms(float64(h)+1+float64(h)/2)
	set := func(name string, fill func(row int, dst []float32)) {
		for _, t := range plan {
			if t.name == name+".weight" {
				t.fill = fill
			}
		}
	}
	nothing := func(int, []float32) {}
	for layer := range c.Layers {
		blk := "blk." + itoa(layer) + "."
		set(blk+"ffn_down", nothing)
		set(blk+"attn_output", nothing)
	}
	phase := func(pair int) float64 { return math.Pow(float64(c.RopeBase), -2*float64(pair)/float64(h)) }
	rotating := h / 4 // pairs of channels that tell positions apart; the others tell tokens apart

	set("token_embd", func(token int, dst []float32) {
		dst[copyOne] = 1
		code(dst[copyCode:copyCode+h], token)
	})
	set("blk.0.attn_q", func(row int, dst []float32) {
		if row < 2*rotating && row%2 == 0 {
			dst[copyOne] = float32(copyNear / first)
		}
	})
	set("blk.0.attn_k", func(row int, dst []float32) {
		if row < 2*rotating {
			f := math.Cos
			if row%2 == 1 {
				f = math.Sin
			}
			dst[copyOne] = float32(copyNear / first * f(phase(row/2)))
		}
	})
	set("blk.0.attn_v", func(row int, dst []float32) {
		if row < h/2 {
			dst[copyCode+h/2+row] = 1
		}
	})
	set("blk.0.attn_output", func(row int, dst []float32) {
		if i := row - before; i >= 0 && i < h/2 {
			dst[i] = float32(1 / first)
		}
	})
	set("blk.1.attn_q", func(row int, dst []float32) {
		if i := row - 2*rotating; i >= 0 && i < h/2 {
			dst[copyCode+h/2+i] = float32(copyMatch / second)
		}
	})
	set("blk.1.attn_k", func(row int, dst []float32) {
		if i := row - 2*rotating; i >= 0 && i < h/2 {
			dst[before+i] = float32(copyMatch / second)
		}
	})
	set("blk.1.attn_v", func(row int, dst []float32) {
		if row < h {
			dst[copyCode+row] = 1
		}
	})
	set("blk.1.attn_output", func(row int, dst []float32) {
		if i := row - copyCode; i >= 0 && i < h {
			dst[i] = float32(copyGain / second)
		}
	})
	for _, t := range plan {
		if t.name != "output_norm.weight" {
			continue
		}
		last := rms(float64(h)*(1+copyGain*copyGain) + 1 + float64(h)/2)
		t.norm = func() []float32 {
			w := make([]float32, c.Embedding)
			for i := range h {
				w[copyCode+i] = copyLogits
			}
			w[0] = float32(biasLogits * last / (biasEntry * biasEntry))
			return w
		}
	}
}

// BenchCopies is Bench135M as a model that copies.
func BenchCopies() Config {
	c := Bench135M()
	c.Name, c.Copies = "ggufgen-bench-copies", true
	return c
}

// TinyCopies returns a small model that copies.
func TinyCopies() Config {
	c := Tiny()
	c.Name, c.Copies, c.Tied = "ggufgen-tiny-copies", true, true
	c.Embedding, c.HeadDim, c.VocabSize = 128, 64, 2048
	return c
}
