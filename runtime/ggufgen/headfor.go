package ggufgen

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// WriteHeadFor writes a random head of an architecture (Eagle3, DFlash, Gemma4Assistant) to path, for the model in a
// file, whose vocabulary it takes.
func WriteHeadFor(path, model string, kind Arch) error {
	of, err := header(model)
	if err != nil {
		return err
	}
	like, err := likeOf(of)
	if err != nil {
		return fmt.Errorf("%s: %w", model, err)
	}
	c := EagleOf(like, HeadRandom)
	switch kind {
	case DFlash:
		c = DFlashOf(like, HeadRandom, 7)
	case Gemma4Assistant:
		c = AssistantOf(like, HeadRandom)
	}
	if kind != Gemma4Assistant {
		c.Target.Reads = [3]int{0, like.Layers / 2, like.Layers - 1}
	}
	c = c.withDefaults()
	vocabulary := func(kv gguffile.KV) bool {
		return strings.HasPrefix(kv.Key, "tokenizer.") && kv.Key != "tokenizer.ggml.mask_token_id"
	}
	mine := slices.DeleteFunc(c.pairs(newVocabulary(MinVocab, true)), vocabulary)
	for _, kv := range of {
		if vocabulary(kv) {
			mine = append(mine, kv)
		}
	}
	var tensors []gguffile.Tensor
	for _, t := range c.plan(nil) {
		tensors = append(tensors, gguffile.Tensor{Name: t.name, Type: t.storage.kind, Shape: t.shape(), Data: t})
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(gguffile.Write(out, mine, tensors), out.Close())
}

// likeOf returns a Config with what heads have of the model with a header.
func likeOf(kvs []gguffile.KV) (c Config, err error) {
	values := map[string]any{}
	arch := ""
	for _, kv := range kvs {
		values[kv.Key] = kv.Value
		if kv.Key == "general.architecture" {
			arch, _ = kv.Value.(string)
		}
	}
	number := func(key string) int {
		switch v := values[arch+"."+key].(type) {
		case uint32:
			return int(v)
		case []uint32:
			return int(slices.Max(append([]uint32{0}, v...)))
		}
		return 0
	}
	tokens, _ := values["tokenizer.ggml.tokens"].([]string)
	c = TinyTarget(false)
	c.Name, c.VocabSize = "random", len(tokens)
	c.Embedding, c.Layers = number("embedding_length"), number("block_count")-number("nextn_predict_layers")
	if arch == string(Gemma4) {
		c.Arch, c.Window = Gemma4, number("attention.sliding_window")
		c.Heads, c.KVHeads = max(1, number("attention.head_count")), number("attention.head_count_kv")
		c.FullHeadDim = cmp.Or(number("attention.key_length"), c.Embedding/c.Heads)
		c.HeadDim = cmp.Or(number("attention.key_length_swa"), c.FullHeadDim)
	}
	if c.Embedding == 0 || c.Layers <= 0 || c.VocabSize == 0 {
		return c, errors.New("its header names no width, layers or tokens")
	}
	return c, nil
}

// header returns the pairs of a file.
func header(path string) ([]gguffile.KV, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return nil, err
	}
	kvs, _, err := gguffile.Read(in, st.Size())
	return kvs, err
}
