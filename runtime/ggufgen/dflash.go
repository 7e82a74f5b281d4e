package ggufgen

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// turnCycles are the lengths of the cycles in which a turn moves the channels of an embedding, but for channel 0, which
// it leaves. An embedding comes back after more turns than a vocabulary has tokens.
var turnCycles = []int{17, 19, 21, 23}

// turnSource returns the channel whose number channel i has after so many turns.
func (c Config) turnSource(i, turns int) int {
	for k, begin := 0, 1; i > 0; k++ {
		n := min(turnCycles[k%len(turnCycles)], c.Embedding-begin)
		if i < begin+n {
			return begin + ((i-begin-turns)%n+n)%n
		}
		begin += n
	}
	return 0
}

// turned returns fill of a matrix whose row t is one embedding of random numbers, turned t and more times. A model and
// its head have the same one.
func (c Config) turned(more int) func(t int, dst []float32) {
	row := make([]float32, c.Embedding)
	gaussian(row[1:], rand.NewPCG(uint64(c.Embedding), 1), embedStd)
	return func(t int, dst []float32) {
		for i := range dst {
			dst[i] = row[c.turnSource(i, t+more)]
		}
	}
}

// turns makes a model that is Still say, behind each token, the next one of the vocabulary: the embedding of a token is
// that of the one before, turned, and the output matrix turns back.
func (c Config) turns(all []*tensor) {
	for _, t := range all {
		switch t.name {
		case "token_embd.weight":
			t.fill = c.turned(0)
		case "output.weight":
			t.fill = c.turned(-1)
		}
	}
}

// TurnTarget returns a TinyTarget that says, behind each token, the next one of the vocabulary.
func TurnTarget() Config {
	c := TinyTarget(true)
	c.Name, c.Turns = "ggufgen-tiny-turns", true
	return c
}

// BenchTurns is BenchTarget, and says the next token of the vocabulary.
func BenchTurns() Config {
	c := BenchTarget()
	c.Name, c.Turns, c.Tied = "ggufgen-bench-turns", true, false
	return c
}

// DFlashOf returns the DFlash head of a model, which guesses block tokens at once. A HeadRandom has its own embeddings
// and an output matrix for half of the vocabulary. A HeadKnows has a layer for each token of its block and its own
// embeddings; its model must be one that Turns.
func DFlashOf(c Config, kind Head, block int) Config {
	c = c.withDefaults()
	c.Name += fmt.Sprintf("-dflash%d-%s", block, kind)
	c.Target = &Target{Width: c.Embedding, All: c.Layers, Reads: [3]int{0, c.Layers / 2, c.Layers - 1}, Block: block}
	c.Arch, c.Head, c.Layers, c.Window, c.Tied, c.Template = DFlash, kind, 2, 0, false, ""
	c.Still, c.Turns = false, false
	c.Seed++ // weights of the same name are not the model's
	if kind == HeadKnows {
		c.Layers, c.Heads = block, c.Embedding/c.HeadDim
		c.KVHeads = c.Heads
	}
	return c
}

func (c Config) validateDFlash() error {
	switch t := c.Target; {
	case t == nil || c.Tied || c.Copies || c.Still || c.Turns:
		return errors.New("a dflash needs a Target, and is neither Tied, Still, Copies nor Turns")
	case t.Width != c.Embedding || slices.Min(t.Reads[:]) < 0 || slices.Max(t.Reads[:]) >= t.All:
		return fmt.Errorf("the Target reads the layers %d of %d, of a width of %d", t.Reads, t.All, t.Width)
	case t.Block < 2 || t.Block > 64 || t.Markov > 0 && c.Head == HeadKnows:
		return fmt.Errorf("a block has %d guesses, and a Markov head of rank %d", t.Block, t.Markov)
	case c.Head == HeadKnows && (c.Layers != t.Block || c.Heads*c.HeadDim != t.Width || c.KVHeads != c.Heads):
		return errors.New("a dflash that knows needs a layer for each guess, and its width in Heads and in KVHeads")
	case c.Head != HeadKnows && c.Head != HeadRandom:
		return errors.New("a dflash needs a Head")
	}
	return nil
}

func (c Config) dflashMetadata(kv map[string]any) {
	t := c.Target
	kv["target_layers"] = t.layers()
	kv["block_size"] = uint32(t.Block + 1)
	if t.Markov > 0 { // the first guess is made in the newest token's row
		kv["block_size"] = uint32(t.Block)
	}
	if t.Candidates > 0 {
		kv["selector_top_k"], kv["selector_rank"] = uint32(t.Candidates), uint32(selectorRank)
		kv["conv_kernel_size"], kv["conv_group_size"] = uint32(convKernel), uint32(quantBlock)
	}
	if t.Sides {
		kv["rope.dimension_sections"] = []int32{int32(c.HeadDim / 2), 0, 0, 0}
	}
	if c.Window > 0 {
		windows := make([]bool, c.Layers)
		for i := range windows {
			windows[i] = i%2 == 0
		}
		kv["attention.sliding_window"], kv["attention.sliding_window_pattern"] = uint32(c.Window), windows
	}
	kv["tokenizer.ggml.mask_token_id"] = uint32(maskToken)
}

// dflashNear is the length of queries and keys of a head that knows: attention is e^-30 and less but at the row before.
const dflashNear = 8.0

// The shapes of a DFlash2 head: the rank of its selector, and the rows that its convolutions add up.
const (
	selectorRank = 32
	convKernel   = 3
)

// markovGain is the standard deviation of what a Markov head adds to a logit, times the root of its rank.
const markovGain = 20.0

// maskToken stands for what a DFlash head guesses: a token that no text has.
const maskToken = 0

// planDFlash is plan of a DFlash head. In one that knows, each layer adds to a row the embedding in the row before it,
// turned: after as many layers as a block has guesses, each of them is the newest token's embedding, turned as often as
// it is behind it, and the model's output matrix says the token. Embeddings are turned back once before that. A mask's
// is nothing but channel 0, by which rows find the one before: queries and keys are the phases of two neighbours. The
// cells of the model's rows have that channel alone, and add nothing.
func (c Config) planDFlash() []*tensor {
	d, q, kv := c.Embedding, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	knows := c.Head == HeadKnows
	p := &planned{c: c}
	nothing := func(int, []float32) {}
	// Row i of a rotated pair has its cosine, row i+HeadDim/2 its sine. Slow pairs say nothing of the distance.
	half := c.HeadDim / 2
	phase := func(ahead float64) func(row int, dst []float32) {
		return func(row int, dst []float32) {
			angle := math.Pow(float64(c.RopeBase), -float64(row%half)/float64(half))
			switch {
			case angle < eagleTurn:
			case row%c.HeadDim < half:
				dst[0] = float32(math.Cos(ahead * angle))
			default:
				dst[0] = float32(math.Sin(ahead * angle))
			}
		}
	}
	near := queryKey
	if knows {
		near = dflashNear
	}
	before := c.turned(-1)
	p.filled("", "token_embd", c.VocabSize, d, embedStd*math.Sqrt(float64(d)), func(row int, dst []float32) {
		if row != maskToken {
			before(row, dst)
		}
		dst[0] = biasEntry
	})
	if !knows {
		tokens := c.VocabSize / 2
		p.filled(partOutput, "output", tokens, d, float64(c.LogitScale), nil)
		ids := make([]int64, tokens)
		for i := range ids {
			ids[i] = int64(2 * i)
		}
		p.add(&tensor{name: "d2t", cols: tokens, storage: storage{kind: 27, block: 1, blockBytes: 8}, ids: ids})
		if c.Target.Candidates > 0 {
			p.filled("", "selector_predecessor", c.VocabSize, selectorRank, 1, nil)
			p.filled("", "selector_successor", c.VocabSize, selectorRank, markovGain, nil)
			p.filled("", "selector_hidden", selectorRank, d, 1, nil)
			for layer := range c.Layers {
				for _, part := range []string{"attn", "ffn"} {
					name := "blk." + itoa(layer) + "." + part + "_conv_"
					p.filled("", name+"proj", 2*convKernel*d/quantBlock, d, 0.3, nil)
					p.filled("", name+"base", 2*convKernel, d, math.Sqrt(float64(d)), nil)
					base := p.all[len(p.all)-1]
					base.name, base.storage, base.experts = name+"base", storages[F32], 2
				}
			}
		}
		if rank := c.Target.Markov; rank > 0 {
			p.filled("", "markov_w1", c.VocabSize, rank, 1, nil)
			p.filled("", "markov_w2", tokens, rank, markovGain, nil)
		}
	}
	p.filled("", "fc", d, len(c.Target.Reads)*c.Target.Width, 1, func(row int, dst []float32) {
		if row == 0 {
			dst[0] = 1
		}
	})
	p.channelNorm("enc.output_norm", d, 1, 1)
	for layer := range c.Layers {
		blk := "blk." + itoa(layer) + "."
		p.channelNorm(blk+"attn_norm", d, 1, 1)
		p.filled("", blk+"attn_q", q, d, queryKey, phase(-1))
		p.filled("", blk+"attn_k", kv, d, queryKey, phase(0))
		p.channelNorm(blk+"attn_q_norm", c.HeadDim, near, near)
		p.channelNorm(blk+"attn_k_norm", c.HeadDim, near, near)
		p.filled(partValue, blk+"attn_v", kv, d, valueOut, func(row int, dst []float32) {
			if row > 0 {
				dst[row] = 1
			}
		})
		p.filled("", blk+"attn_output", d, q, valueOut, func(row int, dst []float32) { dst[c.turnSource(row, 1)] = 1 })
		p.channelNorm(blk+"ffn_norm", d, 1, 1)
		p.filled("", blk+"ffn_gate", c.FFN, d, ffnGain, nothing)
		p.filled("", blk+"ffn_up", c.FFN, d, ffnGain, nothing)
		p.filled(partDown, blk+"ffn_down", d, c.FFN, ffnGain, nothing)
	}
	if knows {
		of := c
		of.Layers = c.Target.All
		others, channel0 := of.outputNorm()
		p.channelNorm("output_norm", d, others, channel0)
	} else {
		p.channelNorm("output_norm", d, 1, 1)
	}
	return p.all
}
