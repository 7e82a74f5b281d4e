package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// TestSkeletons: a model is completed with a vocabulary of bytes, and its skeleton has the same metadata and shapes and
// the same weights each time.
func TestSkeletons(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		tensor  string
		context int64
	}{{"output_norm.weight", longContext}, {"position_embd.weight", 256}} {
		src, full := filepath.Join(dir, "src"), filepath.Join(dir, "full.gguf")
		skeleton := filepath.Join(dir, "skeleton")
		shape := []uint64{32, 256}
		err := write(src, []gguffile.KV{{Key: "general.architecture", Value: "gpt2"},
			{Key: "gpt2.context_length", Value: uint32(256)}, {Key: "tokenizer.ggml.model", Value: "test"},
			{Key: "tokenizer.ggml.tokens", Value: make([]string, 200)}},
			[]gguffile.Tensor{{Name: c.tensor, Shape: shape, Data: zeros(32 * 256 * 4)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := complete(src, full); err != nil {
			t.Fatal(err)
		}
		if err := saveSkeleton(full, skeleton); err != nil {
			t.Fatal(err)
		}
		var both [2][]byte
		for i := range both {
			path := filepath.Join(dir, "revived.gguf")
			if err := revive(skeleton, path); err != nil {
				t.Fatal(err)
			}
			if both[i], err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
			info, err := gguf.Inspect(path)
			if err != nil || info.VocabSize != 200 || info.TrainContext != c.context ||
				info.Tokenizer != "gpt2 (gpt-2)" {
				t.Errorf("%s: %+v, %v", c.tensor, info, err)
			}
		}
		if !slices.Equal(both[0], both[1]) || len(both[0]) < 32*256*4 {
			t.Errorf("%s: revived twice, the bytes differ, or there are only %d", c.tensor, len(both[0]))
		}
	}
}

// TestCells: what differs is told apart from a near tie.
func TestCells(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	one := func(id int32, logprob float64, other int32, otherLogprob float64) *answer {
		var a answer
		a.Probs = append(a.Probs, struct {
			ID      int32    `json:"id"`
			Logprob *float64 `json:"logprob"`
			Top     []struct {
				ID      int32    `json:"id"`
				Logprob *float64 `json:"logprob"`
			} `json:"top_logprobs"`
		}{ID: id, Logprob: number(logprob)})
		a.Probs[0].Top = append(a.Probs[0].Top, struct {
			ID      int32    `json:"id"`
			Logprob *float64 `json:"logprob"`
		}{other, number(otherLogprob)})
		return &a
	}
	for _, c := range []struct {
		what      string
		want, got *answer
		text      string
	}{
		{"equal", one(1, -1, 2, -2), one(1, -1.0001, 2, -2), "="},
		{"a near tie", one(1, -1, 2, -1.004), one(2, -1, 1, -1.004), "tie 0.004"},
		{"another token", one(1, -1, 2, -3), one(2, -1, 1, -3), "**parts, 2**"},
		{"a token that is not among the best", one(1, -1, 2, -3), one(3, -1, 1, -3), "**parts**"},
		{"no token", one(1, -1, 2, -3), &answer{}, "**parts**"},
	} {
		var got cell
		got.compare(c.want, c.got)
		if got.text() != c.text {
			t.Errorf("%s: %q, want %q", c.what, got.text(), c.text)
		}
	}
}
