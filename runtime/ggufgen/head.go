package ggufgen

import (
	"errors"
	"fmt"
)

// Head is the kind of a model's head: a layer behind the others that guesses, from the state of a row and the token
// that follows it, the token behind that one (multi-token prediction, llama.cpp's NextN layers).
type Head string

const (
	NoHead Head = ""
	// HeadRandom has random weights: its guesses are the model's tokens by chance alone.
	HeadRandom Head = "random"
	// HeadKnows guesses the most probable token of the model. Layers of such a model compute as always and add nothing,
	// so that what it says depends on the newest token alone, which the head sees.
	HeadKnows Head = "knows"
)

// headScale is the standard deviation of the logits of a model with HeadKnows: one token of 512 or more has most of the
// probability, so that guesses come true in sampled texts too.
const headScale = 20

// TinyHead returns a small model with a head of a kind.
func TinyHead(kind Head) Config {
	c := Tiny()
	c.Name, c.Arch, c.Head = "ggufgen-tiny-head-"+string(kind), GLM4MoE, kind
	if kind == HeadKnows {
		c.LogitScale = headScale
	}
	return c
}

// BenchHead is Bench135M's shape with a head of a kind.
func BenchHead(kind Head) Config {
	c := Bench135M()
	c.Name, c.Arch, c.Head, c.Tied = "ggufgen-bench-head-"+string(kind), GLM4MoE, kind, false
	if kind == HeadKnows {
		c.LogitScale = headScale
	}
	return c
}

func (c Config) validateHead() error {
	switch {
	case c.Arch == Eagle3:
		return c.validateEagle()
	case c.Arch == DFlash:
		return c.validateDFlash()
	case c.Arch == Gemma4Assistant:
		return c.validateAssistant()
	case c.Target != nil:
		return errors.New("a Target is for the architectures eagle3, dflash and gemma4-assistant")
	case c.Turns && (!c.Still || c.Tied):
		return errors.New("a model that Turns is Still and has an output matrix")
	case c.Still && c.Arch != Llama && c.Arch != Gemma4:
		return errors.New("a model that is Still needs the architecture llama or gemma4")
	}
	switch c.Head {
	case NoHead:
		if c.Arch == GLM4MoE {
			return errors.New("a glm4moe needs a Head: only that layer has experts, and llama.cpp wants some")
		}
		return nil
	case HeadRandom, HeadKnows:
		if c.Arch != GLM4MoE || c.Tied {
			return errors.New("a model with a Head needs the architecture glm4moe and untied embeddings")
		}
		return nil
	}
	return fmt.Errorf("the Head %q is neither %q nor %q", c.Head, HeadRandom, HeadKnows)
}

// headMetadata adds the keys of a glm4moe of dense layers whose head has one expert and one shared one.
func (c Config) headMetadata(kv map[string]any) {
	kv["block_count"] = uint32(c.Layers + 1)
	kv["nextn_predict_layers"] = uint32(1)
	kv["leading_dense_block_count"] = uint32(c.Layers)
	kv["expert_count"], kv["expert_used_count"], kv["expert_shared_count"] = uint32(1), uint32(1), uint32(1)
	kv["expert_feed_forward_length"] = uint32(c.FFN)
}

// planHead adds the head's tensors to all; matrix and norm are plan's.
func (c Config) planHead(all *[]*tensor, matrix func(part, name string, rows, cols int, gain float64) *tensor,
	norm func(name string, others, channel0 float64)) {
	d, q, kv := c.Embedding, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	blk := "blk." + itoa(c.Layers) + "."
	norm(blk+"attn_norm", 1, 0)
	matrix("", blk+"attn_q", q, d, queryKey)
	matrix("", blk+"attn_k", kv, d, queryKey)
	matrix(partValue, blk+"attn_v", kv, d, valueOut)
	matrix("", blk+"attn_output", d, q, valueOut).zeroRow0 = true
	norm(blk+"post_attention_norm", 1, 0)
	matrix("", blk+"ffn_gate_inp", 1, d, 1).storage = storages[F32]
	*all = append(*all, &tensor{name: blk + "exp_probs_b.bias", cols: 1, storage: storages[F32],
		norm: func() []float32 { return []float32{0} }})
	for _, kind := range []string{"_exps", "_shexp"} {
		matrix("", blk+"ffn_gate"+kind, c.FFN, d, ffnGain)
		matrix("", blk+"ffn_up"+kind, c.FFN, d, ffnGain)
		matrix(partDown, blk+"ffn_down"+kind, d, c.FFN, ffnGain).zeroRow0 = true
	}
	norm(blk+"nextn.enorm", 1, 1)
	norm(blk+"nextn.hnorm", 1, 1)
	matrix("", blk+"nextn.eh_proj", d, 2*d, 1)
	if c.Head != HeadKnows {
		return
	}
	still(*all)
	for _, t := range *all {
		if t.name[len(t.blockName()):] == "nextn.eh_proj.weight" { // the token's embedding, and nothing of the state
			t.fill = func(row int, dst []float32) { dst[row] = 1 }
		}
	}
}

// still has layers add nothing.
func still(all []*tensor) {
	for _, t := range all {
		switch t.name[len(t.blockName()):] {
		case "attn_output.weight", "ffn_down.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight":
			t.fill = func(int, []float32) {}
		}
	}
}

// blockName returns the beginning of the tensor's name that names its layer, "" for none.
func (t *tensor) blockName() string {
	if n := t.layer(); n < 1<<30 {
		return "blk." + itoa(n) + "."
	}
	return ""
}
