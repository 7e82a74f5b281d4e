package gguf

import (
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNumbersThatEndLlamaCpp: metadata that llama.cpp would abort on, or read beyond an array for, is refused with the
// key and what it must be; its sound neighbour is not.
func TestNumbersThatEndLlamaCpp(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	const eps = "llama.attention.layer_norm_rms_epsilon"
	heads := func(n uint64) *file {
		return llama(n+3).put("llama.embedding_length", 4, 128).put("llama.attention.head_count", 4,
			4).put("llama.block_count", 4, 2)
	}
	const tokens = "tokenizer.ggml.tokens"
	vocab := func(n uint64) *file {
		return llama(n+2).put("tokenizer.ggml.model", 8, "llama").put(tokens, 9, 8, uint64(2), "a", "b")
	}
	weight := func(name string, dims int, shape []uint64, kind int) *file {
		f := start(3, 1, 1).put("general.architecture", 8, "llama").put(name, dims, shape, kind, uint64(0))
		f.Write(make([]byte, 1<<13))
		return f
	}
	for _, c := range []struct {
		what string
		f    *file
		want string // in the error; "" = it is read
	}{
		{"a sound epsilon", llama(1).put(eps, 6, float32(1e-5)), ""},
		{"an epsilon of 0", llama(1).put(eps, 6, float32(0)), ""},
		{"a negative epsilon", llama(1).put(eps, 6, float32(-1e-5)), eps + " is -"},
		{"an epsilon of NaN", llama(1).put(eps, 6, nan), eps + " is NaN, want a finite number"},
		{"an endless epsilon", llama(1).put(eps, 6, inf), eps + " is +Inf"},
		{"a huge epsilon", llama(1).put("llama.attention.layer_norm_epsilon", 6, float32(2)),
			"epsilon is 2, want 0 or more and below 1"},
		{"another architecture's", llama(1).put("gemma.attention.layer_norm_rms_epsilon", 6, nan), ""},
		{"a scale of NaN", llama(1).put("llama.attention.scale", 6, nan), "attention.scale is NaN"},
		{"a list with NaN", llama(1).put("llama.x", 9, 6, uint64(2), float32(1), nan), "llama.x is [1 NaN]"},
		{"a list with a bound that does not bind", llama(1).put("llama.x", 9, 6, uint64(2), float32(1), inf), ""},
		{"a gate without a lower bound", llama(1).put("llama.kda.gate_lower_bound", 6, -inf), ""},
		{"a gate bounded by NaN", llama(1).put("llama.kda.gate_lower_bound", 6, nan), "gate_lower_bound is NaN"},
		{"pooling that is not said", llama(1).put("llama.pooling_type", 4, -1), ""},
		{"half of the head is rotated", heads(1).put("llama.rope.dimension_count", 4, 16), ""},
		{"more than the head is rotated", heads(1).put("llama.rope.dimension_count", 4, 34),
			"rope.dimension_count is 34, want an even number up to the length of a head, 32"},
		{"an odd part is rotated", heads(1).put("llama.rope.dimension_count", 4, 3), "dimension_count is 3"},
		{"a part beyond int32 is rotated", heads(1).put("llama.rope.dimension_count", 4, -1<<31),
			"dimension_count is 2147483648"},
		{"a sliding window's longer heads",
			heads(2).put("llama.rope.dimension_count", 4, 64).put("llama.attention.key_length_swa", 4, 64), ""},
		{"a base of 0", llama(1).put("llama.rope.freq_base", 6, float32(0)), "rope.freq_base is 0"},
		{"a known scaling", llama(1).put("llama.rope.scaling.type", 8, "yarn"), ""},
		{"an unknown scaling", llama(1).put("llama.rope.scaling.type", 8, "x"),
			`rope.scaling.type is "x", want one of none, linear, yarn, longrope`},
		{"groups of heads", heads(1).put("llama.attention.head_count_kv", 4, 2), ""},
		{"uneven groups of heads", heads(1).put("llama.attention.head_count_kv", 4, 3),
			"head_count is 4, which is no multiple of head_count_kv, 3"},
		{"heads of some layers only", heads(1).put("llama.attention.head_count_kv", 9, 4, uint64(1), 2), ""},
		{"experts", llama(2).put("llama.expert_count", 4, 8).put("llama.expert_used_count", 4, 2), ""},
		{"more experts used than there are",
			llama(2).put("llama.expert_count", 4, 8).put("llama.expert_used_count", 4, 9),
			"expert_used_count is 9 of 8"},
		{"no expert used", llama(1).put("llama.expert_count", 4, 8), "expert_used_count is 0 of 8"},
		{"used experts of none", llama(1).put("llama.expert_used_count", 4, 1), "expert_used_count is 1 of 0"},
		{"expert groups that do not divide",
			llama(4).put("llama.expert_count", 4, 8).put("llama.expert_used_count", 4, 2).
				put("llama.expert_group_count", 4, 3).put("llama.expert_group_used_count", 4, 1),
			"expert_group_count is 3"},
		{"a vocabulary", vocab(2).put("tokenizer.ggml.scores", 9, 6, uint64(2), 0, 0).put("tokenizer.ggml.token_type",
			9, 5, uint64(2), 1, 1), ""},
		{"no vocabulary", llama(1).put("tokenizer.ggml.model", 8, "none"), ""},
		{"no token", llama(2).put("tokenizer.ggml.model", 8, "llama").put(tokens, 9, 8, uint64(0)), "tokens is empty"},
		{"tokens that are numbers", llama(2).put("tokenizer.ggml.model", 8, "llama").put(tokens, 9, 4, uint64(1), 7),
			"tokens is no list"},
		{"fewer scores than tokens", vocab(1).put("tokenizer.ggml.scores", 9, 6, uint64(1), 0),
			"scores has 1 entries for 2 tokens"},
		{"fewer types than tokens", vocab(1).put("tokenizer.ggml.token_type", 9, 5, uint64(0)),
			"token_type has 0 entries"},
		{"scores that are bytes", vocab(1).put("tokenizer.ggml.scores", 9, 0, uint64(2), uint8(1), uint8(1)),
			"scores is no list"},
		{"merges that are numbers", vocab(1).put("tokenizer.ggml.merges", 9, 4, uint64(1), 1), "merges is no list"},
		{"merges that are one string", vocab(1).put("tokenizer.ggml.merges", 8, "x"), "merges is no list"},
		{"a charsmap of 3 bytes", vocab(1).put("tokenizer.ggml.precompiled_charsmap", 9, 0, uint64(3), uint8(1),
			uint8(1), uint8(1)), "precompiled_charsmap has 3 bytes"},
		{"a norm in F32", weight("blk.0.attn_norm.weight", 1, []uint64{32}, 0), ""},
		{"a norm in F16", weight("blk.0.attn_norm.weight", 1, []uint64{32}, 1),
			`"blk.0.attn_norm.weight" has type F16, want F32`},
		{"a norm of two dimensions in F16", weight("blk.0.attn_q_norm.weight", 2, []uint64{32, 2}, 1), "want F32"},
		{"a bias in Q8_0", weight("blk.0.attn_q.bias", 1, []uint64{32}, 8), "want F32"},
		{"a shared expert's gate in F16", weight("blk.0.ffn_gate_inp_shexp.weight", 1, []uint64{32}, 1), ""},
		{"a matrix in F16", weight("blk.0.attn_q.weight", 2, []uint64{32, 2}, 1), ""},
		{"a matrix in I32", weight("blk.0.attn_q.weight", 2, []uint64{32, 2}, 26),
			"has type I32, which no weights have"},
		{"a matrix in Q8_1", weight("blk.0.attn_q.weight", 2, []uint64{32, 2}, 9), "has type Q8_1"},
		{"indices in I32", weight("blk.0.map", 1, []uint64{32}, 26), ""},
	} {
		_, err := read(c.f)
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

// TestNoRegularFile: what is no file is refused at once and by name. Opening a FIFO would wait for a writer.
func TestNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	fifo, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{fifo: "a named pipe", socket: "a socket", "/dev/null": "a device",
		"/dev/zero": "a device", dir: "a directory", link: "a named pipe"} {
		done := make(chan error, 1)
		go func() { _, err := Inspect(path); done <- err }()
		select {
		case err := <-done:
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "it is "+want) {
				t.Errorf("%s: %v, want %q", path, err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it waits", path)
		}
	}
}
