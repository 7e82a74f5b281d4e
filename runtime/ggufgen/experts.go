package ggufgen

import (
	"errors"
	"math"
)

// expertsUsed is the number of experts that a row takes.
const expertsUsed = 2

// TinyExperts is Tiny with four experts of half the width in each layer.
func TinyExperts() Config {
	c := Tiny()
	c.Name, c.Experts, c.FFN = "ggufgen-tiny-experts", 4, 96
	return c
}

func (c Config) validateExperts() error {
	switch {
	case c.Experts == 0:
		return nil
	case c.Arch != Llama:
		return errors.New("a model with Experts needs the architecture llama")
	case c.Experts < expertsUsed || c.Experts > 256:
		return errors.New("a model has 2…256 Experts, or none")
	}
	return nil
}

// planExperts adds a layer's gate and experts; matrix is plan's. The gate's logits have the standard deviation √d, so
// that a row rarely takes one of two experts by its last bits.
func (c Config) planExperts(blk string, matrix func(part, name string, rows, cols int, gain float64) *tensor) {
	d := c.Embedding
	matrix("", blk+"ffn_gate_inp", c.Experts, d, math.Sqrt(float64(d))).storage = storages[F32]
	experts := func(part, name string, rows, cols int) *tensor {
		t := matrix(part, blk+name+"_exps", rows*c.Experts, cols, ffnGain)
		t.experts = c.Experts
		return t
	}
	experts("", "ffn_gate", c.FFN, d)
	experts("", "ffn_up", c.FFN, d)
	experts(partDown, "ffn_down", d, c.FFN).zeroRow0 = true
}
