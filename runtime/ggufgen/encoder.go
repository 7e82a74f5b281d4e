package ggufgen

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// Models that only read: BERT and its descendants. A text's rows are its embedding's material; there is no output
// matrix.

// poolings are the names that Config.Pooling may have, by llama.cpp's numbers (enum llama_pooling_type).
var poolings = []string{"none", "mean", "cls", "last", "rank"}

// Markers of a WordPiece vocabulary.
const (
	tokenPad  = "[PAD]"
	tokenUnk  = "[UNK]"
	tokenCLS  = "[CLS]"
	tokenSep  = "[SEP]"
	tokenMask = "[MASK]"
)

// encoder reports whether the architecture only reads.
func (a Arch) encoder() bool { return a == Bert || a == NomicBert }

// TinyBert returns a BERT of a few hundred kilobytes: learned positions, GELU, pooling "cls".
func TinyBert() Config {
	return Config{
		Name: "ggufgen-tiny-bert", Arch: Bert, Type: Q8_0,
		VocabSize: 512, Embedding: 64, Layers: 2, Heads: 2, KVHeads: 2, FFN: 192,
		Context: 256, Tied: true, Seed: 1, Pooling: "cls",
	}
}

// TinyRank is TinyBert with a classification head: it scores pairs of a query and a document.
func TinyRank() Config {
	c := TinyBert()
	c.Name, c.Pooling = "ggufgen-tiny-rank", "rank"
	return c
}

// TinyNomic returns the same in the form of nomic-embed-text: rotary positions, SwiGLU, pooling "mean".
func TinyNomic() Config {
	c := TinyBert()
	c.Name, c.Arch, c.Context, c.RopeBase, c.Pooling = "ggufgen-tiny-nomic-bert", NomicBert, 512, 1000, "mean"
	return c
}

// TinyEmbed is Tiny with a file that says how its hidden states are pooled: a decoder for embeddings that also answers.
func TinyEmbed() Config {
	c := Tiny()
	c.Name, c.Pooling = "ggufgen-tiny-embed", "last"
	return c
}

// newWordPieces returns a WordPiece vocabulary as GGUF files hold it: a token that begins a word has "▁" before it.
// Every printable ASCII character is a token in both forms, then come whole words.
func newWordPieces(size int) *vocabulary {
	v := &vocabulary{special: []string{tokenPad, tokenUnk, tokenCLS, tokenSep, tokenMask}}
	known := map[string]bool{}
	add := func(s string) {
		if !known[s] && len(v.tokens) < size {
			known[s] = true
			v.tokens, v.types = append(v.tokens, s), append(v.types, typeNormal)
		}
	}
	for _, s := range v.special {
		add(s)
		v.types[len(v.types)-1] = typeControl
	}
	v.types[slices.Index(v.tokens, tokenUnk)] = typeUnknown
	for c := '!'; c <= '~'; c++ {
		if c < 'A' || c > 'Z' { // texts are read in lower case
			add("▁" + string(c))
			add(string(c))
		}
	}
	for _, w := range corpus(2 * size) {
		if word, ok := strings.CutPrefix(strings.ToLower(w.text), " "); ok {
			add("▁" + word)
			if len(word) > 3 {
				add(word[len(word)-2:])
			}
		}
	}
	return v
}

// planEncoder lists the tensors of an encoder. Norms follow the sublayers, so that every hidden state has unit
// variance.
func (c Config) planEncoder() []*tensor {
	d, q := c.Embedding, c.Heads*c.HeadDim
	p := &planned{c: c}
	layer := 0
	table := func(name string, rows int, std float32, s storage) {
		p.add(&tensor{name: name + ".weight", rows: rows, cols: d, storage: s, std: std})
	}
	vector := func(name string, n int, mean, std float32) {
		t := p.add(&tensor{name: name, cols: n, storage: storages[F32]})
		t.norm = func() []float32 {
			row := make([]float32, n)
			gaussian(row, rand.NewPCG(t.seed, 0x9e3779b97f4a7c15), std)
			for i := range row {
				row[i] += mean
			}
			return row
		}
	}
	// Biases are small beside the products of a unit-variance row; nomic-bert has none.
	linear := func(part, name string, rows, cols int, gain float64, bias bool) {
		p.matrix(part, name, layer, rows, cols, gain)
		if bias {
			vector(name+".bias", rows, 0, 0.1)
		}
	}
	norm := func(name string) {
		vector(name+".weight", d, 1, 0.1)
		vector(name+".bias", d, 0, 0.1)
	}
	bert := c.Arch == Bert
	table("token_embd", c.VocabSize, 1, c.storageOf("", 0, d))
	table("token_types", 2, 0.2, storages[F32])
	if bert {
		table("position_embd", c.Context, 0.5, storages[F32])
	}
	norm("token_embd_norm")
	for layer = range c.Layers {
		blk := "blk." + itoa(layer) + "."
		if bert {
			linear("", blk+"attn_q", q, d, queryKey, true)
			linear("", blk+"attn_k", q, d, queryKey, true)
			linear(partValue, blk+"attn_v", q, d, valueOut, true)
		} else {
			linear("", blk+"attn_qkv", 3*q, d, queryKey, false)
		}
		linear("", blk+"attn_output", d, q, valueOut, bert)
		norm(blk + "attn_output_norm")
		linear("", blk+"ffn_up", c.FFN, d, ffnGain, bert)
		if !bert {
			linear("", blk+"ffn_gate", c.FFN, d, ffnGain, false)
		}
		linear(partDown, blk+"ffn_down", d, c.FFN, ffnGain, bert)
		norm(blk + "layer_output_norm")
	}
	if c.Pooling == "rank" {
		linear("", "cls", d, d, 1, true)
		linear("", "cls.output", 1, d, 2, true)
	}
	return p.all
}

// encoderMetadata returns the key-value pairs of an encoder's header.
func (c Config) encoderMetadata(v *vocabulary) map[string]any {
	kv := map[string]any{
		"general.architecture":         string(c.Arch),
		"general.name":                 c.Name,
		"general.type":                 "model",
		"general.file_type":            c.Type.fileType(),
		"general.quantization_version": uint32(2),

		"block_count":                  uint32(c.Layers),
		"context_length":               uint32(c.Context),
		"embedding_length":             uint32(c.Embedding),
		"feed_forward_length":          uint32(c.FFN),
		"attention.head_count":         uint32(c.Heads),
		"attention.layer_norm_epsilon": float32(normEpsilon),
		"attention.causal":             false,

		"tokenizer.ggml.model":              "bert",
		"tokenizer.ggml.pre":                "default",
		"tokenizer.ggml.tokens":             v.tokens,
		"tokenizer.ggml.token_type":         v.types,
		"tokenizer.ggml.token_type_count":   uint32(2),
		"tokenizer.ggml.bos_token_id":       v.id(tokenCLS),
		"tokenizer.ggml.eos_token_id":       v.id(tokenSep),
		"tokenizer.ggml.seperator_token_id": v.id(tokenSep), // llama.cpp's spelling
		"tokenizer.ggml.unknown_token_id":   v.id(tokenUnk),
		"tokenizer.ggml.padding_token_id":   v.id(tokenPad),
		"tokenizer.ggml.mask_token_id":      v.id(tokenMask),
	}
	if c.Arch == NomicBert {
		kv["rope.freq_base"] = c.RopeBase
	}
	return kv
}
