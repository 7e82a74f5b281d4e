package ggufgen

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// TinyGemma4 is a small Gemma 4: three windowed layers, each before a full one. still: see Config.Still.
func TinyGemma4(still bool) Config {
	c := Tiny()
	c.Name, c.Arch, c.Layers, c.Window, c.Tied, c.Still = "ggufgen-tiny-gemma4", Gemma4, 6, 32, false, still
	if still {
		c.Name, c.LogitScale = c.Name+"-still", headScale
	}
	return c
}

// AssistantOf returns the head of a Gemma4, which reads the model's cells. A HeadKnows needs a model that is Still and
// not Tied, and says what it says.
func AssistantOf(c Config, kind Head) Config {
	c = c.withDefaults()
	c.Name += "-assistant-" + string(kind)
	c.Target = &Target{Width: c.Embedding, All: c.Layers}
	c.Arch, c.Head, c.Layers, c.Tied, c.Template, c.Still = Gemma4Assistant, kind, 3, false, "", false
	c.Embedding += quantBlock
	if kind == HeadRandom {
		c.Seed++ // weights of the same name are not the model's
	}
	return c
}

func (c Config) validateAssistant() error {
	switch t := c.Target; {
	case t == nil || c.Tied || c.Copies || c.Still || c.Turns:
		return errors.New("a gemma4-assistant needs a Target, and is neither Tied, Still, Copies nor Turns")
	case t.Width < 1 || t.Width == c.Embedding || c.Head == HeadKnows && t.Width > c.Embedding:
		return fmt.Errorf("the Target has a width of %d, the assistant of %d", t.Width, c.Embedding)
	case c.Head != HeadKnows && c.Head != HeadRandom:
		return errors.New("a gemma4-assistant needs a Head")
	}
	return nil
}

// windowed4 reports whether a layer has a window. A Gemma4 has them at even layers, an assistant at all but the last.
func (c Config) windowed4(layer int) bool {
	if c.Arch == Gemma4Assistant {
		return layer < c.Layers-1
	}
	return layer%2 == 0
}

func (c Config) headDim4(layer int) int {
	if c.windowed4(layer) {
		return c.HeadDim
	}
	return c.fullHeadDim()
}

func (c Config) fullHeadDim() int {
	if c.FullHeadDim > 0 {
		return c.FullHeadDim
	}
	return 2 * c.HeadDim
}

// queryKey4 returns the weights of a layer's norms of queries and keys, whose product is not scaled.
func (c Config) queryKey4(layer int) func(int) float64 {
	return func(int) float64 { return math.Sqrt(queryKey * queryKey / math.Sqrt(float64(c.headDim4(layer)))) }
}

// ropeFactor4 divides the frequency of pair i of a full layer: the second half is not rotated.
func (c Config) ropeFactor4(i int) float64 {
	if i < c.fullHeadDim()/4 {
		return 1
	}
	return 1e30
}

func (c Config) gemma4Metadata(kv map[string]any) {
	windows := make([]bool, c.Layers)
	for i := range windows {
		windows[i] = c.windowed4(i)
	}
	kv["attention.sliding_window"], kv["attention.sliding_window_pattern"] = uint32(c.Window), windows
	kv["attention.key_length"], kv["attention.value_length"] = uint32(c.fullHeadDim()), uint32(c.fullHeadDim())
	kv["attention.key_length_swa"], kv["attention.value_length_swa"] = uint32(c.HeadDim), uint32(c.HeadDim)
	kv["rope.dimension_count"], kv["rope.dimension_count_swa"] = uint32(c.fullHeadDim()), uint32(c.HeadDim)
	kv["rope.freq_base_swa"] = c.RopeBase
	kv["embedding_length_per_layer_input"] = uint32(0)
}

func (c Config) assistantMetadata(kv map[string]any) {
	c.gemma4Metadata(kv)
	kv["embedding_length_out"] = uint32(c.Target.Width)
	kv["nextn_predict_layers"] = uint32(c.Layers)
}

// planAssistant is plan of an assistant. In one that knows, layers add nothing, the projection before them passes the
// embedding of the token, and the model's output matrix stands behind them.
func (c Config) planAssistant() []*tensor {
	d, wide := c.Embedding, c.Target.Width
	knows := c.Head == HeadKnows
	p := &planned{c: c}
	matrix := func(part, name string, rows, cols int, gain float64) *tensor {
		return p.matrix(part, name, 0, rows, cols, gain)
	}
	one := func(int) float64 { return 1 }
	embd := matrix(partOutput, "token_embd", c.VocabSize, d, float64(c.LogitScale))
	pre := matrix("", "nextn.pre_projection", d, 2*wide, 1)
	matrix("", "nextn.post_projection", wide, d, 1)
	output := one
	if knows {
		pre.storage = storages[F16]
		pre.fill = func(row int, dst []float32) {
			if row < wide {
				dst[row] = 1
			}
		}
		var rng *rand.PCG
		bias := c.biasChannel(c.vocabulary())
		embd.fill = func(row int, dst []float32) { // row by row, from the first on
			if row == 0 {
				rng = rand.NewPCG(p.seedOf("output.weight"), 0x9e3779b97f4a7c15)
			}
			gaussian(dst[:wide], rng, embedStd)
			dst[0] = bias[row]
		}
		of := c
		of.Arch, of.Embedding, of.Layers = Gemma4, wide, c.Target.All
		others, channel0 := of.outputNorm()
		output = func(i int) float64 {
			if i == 0 {
				return channel0
			}
			return others
		}
	}
	for layer := range c.Layers {
		blk := "blk." + itoa(layer) + "."
		q := c.Heads * c.headDim4(layer)
		p.vector(blk+"attn_norm", d, one)
		matrix("", blk+"attn_q", q, d, queryKey)
		p.vector(blk+"attn_q_norm", c.headDim4(layer), c.queryKey4(layer))
		matrix("", blk+"attn_output", d, q, valueOut)
		p.vector(blk+"post_attention_norm", d, one)
		p.vector(blk+"ffn_norm", d, one)
		matrix("", blk+"ffn_gate", c.FFN, d, ffnGain)
		matrix("", blk+"ffn_up", c.FFN, d, ffnGain)
		matrix(partDown, blk+"ffn_down", d, c.FFN, ffnGain)
		p.vector(blk+"post_ffw_norm", d, one)
		p.vector(blk+"layer_output_scale", 1, one)
	}
	p.vector("rope_freqs", c.fullHeadDim()/2, c.ropeFactor4)
	p.vector("output_norm", d, output)
	if knows {
		still(p.all)
	}
	return p.all
}
