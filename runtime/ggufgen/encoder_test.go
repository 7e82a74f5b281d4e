package ggufgen

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What an encoder's file holds that a decoder's does not, by the names that llama.cpp reads.
func TestEncoderFiles(t *testing.T) {
	for _, c := range []struct {
		cfg      Config
		pooling  uint32
		has, not []string
	}{
		{TinyBert(), 2, []string{"position_embd.weight", "blk.0.attn_q.bias", "blk.1.ffn_up.bias"},
			[]string{"blk.0.ffn_gate.weight", "blk.0.attn_qkv.weight"}},
		{TinyNomic(), 1, []string{"blk.0.attn_qkv.weight", "blk.1.ffn_gate.weight"},
			[]string{"position_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_output.bias"}},
		{TinyEmbed(), 3, []string{"blk.0.attn_q.weight"}, []string{"token_types.weight"}},
		{TinyRank(), 4, []string{"cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias"}, nil},
	} {
		t.Run(c.cfg.Name, func(t *testing.T) {
			kv, tensors := apart(t, write(t, c.cfg))
			arch := string(c.cfg.Arch)
			if got := kv[arch+".pooling_type"]; got != c.pooling {
				t.Errorf("%s.pooling_type is %v, want %d", arch, got, c.pooling)
			}
			if causal, set := kv[arch+".attention.causal"]; set != c.cfg.Arch.encoder() || set && causal != false {
				t.Errorf("%s.attention.causal is %v", arch, causal)
			}
			var names []string
			for _, ts := range tensors {
				names = append(names, ts.Name)
			}
			for _, name := range c.has {
				if !slices.Contains(names, name) {
					t.Errorf("no tensor %s", name)
				}
			}
			for _, name := range append([]string{"output_norm.bias"}, c.not...) {
				if slices.Contains(names, name) {
					t.Errorf("a tensor %s", name)
				}
			}
		})
	}
}

func TestEncoderValidate(t *testing.T) {
	for field, breakIt := range map[string]func(*Config){
		"Window":   func(c *Config) { c.Window = 8 },
		"Tied":     func(c *Config) { c.Tied = false },
		"KVHeads":  func(c *Config) { c.KVHeads = 1 },
		"Template": func(c *Config) { c.EndEvery = 10 },
		"Pooling":  func(c *Config) { c.Pooling = "" },
		"Pooling ": func(c *Config) { c.Pooling = "rank" },
	} {
		cfg := TinyNomic()
		breakIt(&cfg)
		err := Write(filepath.Join(t.TempDir(), "m.gguf"), cfg)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), strings.TrimSpace(field)+" is ") {
			t.Errorf("%s: error %v", field, err)
		}
	}
	cfg := Tiny()
	cfg.Pooling = "median"
	if err := cfg.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), `Pooling is "median"`) {
		t.Errorf("pooling: %v", err)
	}
}

func TestWordPieces(t *testing.T) {
	for _, size := range []int{MinVocab, 512, 4096} {
		v := newWordPieces(size)
		if len(v.tokens) != size || len(v.types) != size {
			t.Fatalf("%d tokens and %d types, want %d", len(v.tokens), len(v.types), size)
		}
		sorted := slices.Sorted(slices.Values(v.tokens))
		if n := len(slices.Compact(sorted)); n != size {
			t.Errorf("%d of %d tokens are different", n, size)
		}
		for _, want := range []string{"[CLS]", "[SEP]", "▁a", "a", "▁9", "9", "▁.", "."} {
			if !slices.Contains(v.tokens, want) {
				t.Errorf("no token %q among %d", want, size)
			}
		}
	}
}
