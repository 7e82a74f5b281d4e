package ggufgen

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Target is the model that a head with a file drafts for.
type Target struct {
	Width int    `json:"width"`           // its Embedding
	All   int    `json:"all"`             // its Layers
	Reads [3]int `json:"reads"`           // of them, those whose inputs the head reads
	Block int    `json:"block,omitempty"` // tokens that a DFlash head guesses at once
	// Of a DFlash head: the rank of the Markov head that makes it a DSpark, 0 = none; and whether positions have
	// several dimensions, of which it rotates by the first.
	Markov int  `json:"markov,omitempty"`
	Sides  bool `json:"sides,omitempty"`
	// Candidates is the number of tokens among which its selector chooses a guess (DFlash2); 0 = it has none.
	Candidates int `json:"candidates,omitempty"`
}

// layers returns Reads as a file has them.
func (t *Target) layers() []int32 {
	return []int32{int32(t.Reads[0]), int32(t.Reads[1]), int32(t.Reads[2])}
}

// TinyTarget is Tiny with as many layers as an EAGLE-3 head reads, and one more.
func TinyTarget(still bool) Config {
	c := Tiny()
	c.Name, c.Layers, c.Still = "ggufgen-tiny-target", 4, still
	if still {
		c.Name, c.LogitScale = c.Name+"-still", headScale
	}
	return c
}

// BenchTarget is Bench135M's shape as the model of an EAGLE-3 head. What it says depends on the newest token alone.
func BenchTarget() Config {
	c := Bench135M()
	c.Name, c.Still, c.LogitScale = "ggufgen-bench-target", true, headScale
	return c
}

// EagleOf returns the EAGLE-3 head of a model. A HeadRandom has its own embeddings, wider than the model's, and an
// output matrix for half of the vocabulary. A HeadKnows has neither, and its model must be Still.
func EagleOf(c Config, kind Head) Config {
	c = c.withDefaults()
	c.Name += "-eagle3-" + string(kind)
	c.Target = &Target{Width: c.Embedding, All: c.Layers, Reads: [3]int{1, c.Layers / 2, c.Layers - 1}}
	c.Arch, c.Head, c.Layers, c.Window, c.Tied, c.Template, c.Still = Eagle3, kind, 1, 0, false, "", false
	c.Seed++ // weights of the same name are not the model's
	if kind == HeadKnows {
		c.Heads = c.Embedding / c.HeadDim
		c.KVHeads = c.Heads
	} else {
		c.Embedding += quantBlock
	}
	return c
}

func (c Config) validateEagle() error {
	switch t := c.Target; {
	case t == nil || c.Layers != 1 || c.Tied || c.Copies || c.Still:
		return errors.New("an eagle3 needs a Target and one layer, and is neither Tied, Still nor Copies")
	case t.Width < 1 || slices.Min(t.Reads[:]) < 0 || slices.Max(t.Reads[:]) >= t.All:
		return fmt.Errorf("the Target reads the layers %d of %d", t.Reads, t.All)
	case c.Head == HeadKnows && (c.Embedding != t.Width || c.Heads*c.HeadDim != t.Width || c.KVHeads != c.Heads):
		return errors.New("an eagle3 that knows needs its Target's width, in Heads and in KVHeads")
	case c.Head != HeadKnows && c.Head != HeadRandom:
		return errors.New("an eagle3 needs a Head")
	}
	return nil
}

func (c Config) eagleMetadata(kv map[string]any) {
	t := c.Target
	kv["target_layers"] = t.layers()
	kv["target_hidden_size"] = uint32(t.Width)
	kv["norm_before_residual"] = c.Head == HeadKnows
}

// eagleNear is the length of a pair of a query and of a key of a head that knows: attention then is e^-30 one position
// away, by rotary phases alone. The pairs are those that rotate by eagleTurn or more from one position to the next:
// with slower ones a key that is a tenth longer, for its token has a shorter embedding, would outweigh the row's key.
const (
	eagleNear = 16.0
	eagleTurn = 0.09
)

// planEagle is plan of a head with a file. One that knows attends to its own position and hands on the embedding that
// stands there, which is all that its model looks at. The norm of the state is 0, so that nothing of it is seen.
func (c Config) planEagle() []*tensor {
	d, q, kv := c.Embedding, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	knows := c.Head == HeadKnows
	p := &planned{c: c}
	norm := func(name string, others, channel0 float64) { p.channelNorm(name, d, others, channel0) }
	nothing := func(int, []float32) {}
	same := func(row int, dst []float32) { dst[row] = 1 }
	// Channel 0 of an embedding behind its norm.
	constant := biasEntry / math.Sqrt(embedStd*embedStd+biasEntry*biasEntry/float64(d))
	phase := func(row int, dst []float32) {
		if row%2 == 0 && math.Pow(float64(c.RopeBase), -float64(row%c.HeadDim)/float64(c.HeadDim)) >= eagleTurn {
			dst[0] = float32(eagleNear / constant)
		}
	}
	state := 1.0
	if knows {
		state = 0
	} else {
		p.filled("", "token_embd", c.VocabSize, d, 1, nil)
		tokens := c.VocabSize / 2
		p.filled(partOutput, "output", tokens, d, float64(c.LogitScale), nil)
		ids := make([]int64, tokens)
		for i := range ids {
			ids[i] = int64(2 * i)
		}
		p.add(&tensor{name: "d2t", cols: tokens, storage: storage{kind: 27, block: 1, blockBytes: 8}, ids: ids})
	}
	p.filled("", "fc", d, len(c.Target.Reads)*c.Target.Width, 1, nothing)
	norm("blk.0.attn_norm", 1, 1)
	norm("blk.0.attn_norm_2", state, state)
	p.filled("", "blk.0.attn_q", q, 2*d, queryKey, phase)
	p.filled("", "blk.0.attn_k", kv, 2*d, queryKey, phase)
	p.filled(partValue, "blk.0.attn_v", kv, 2*d, valueOut, same)
	p.filled("", "blk.0.attn_output", d, q, valueOut, same)
	norm("blk.0.ffn_norm", 1, 1)
	p.filled("", "blk.0.ffn_gate", c.FFN, d, ffnGain, nothing)
	p.filled("", "blk.0.ffn_up", c.FFN, d, ffnGain, nothing)
	p.filled(partDown, "blk.0.ffn_down", d, c.FFN, ffnGain, nothing)
	if knows {
		of := c
		of.Layers = c.Target.All
		others, channel0 := of.outputNorm()
		norm("output_norm", others, channel0)
	} else {
		norm("output_norm", 1, 1)
	}
	return p.all
}
