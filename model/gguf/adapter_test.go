package gguf_test

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

type zeros int64

func (n zeros) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, io.LimitReader(zeroReader{}, int64(n)))
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func ggufFile(t *testing.T, name string, kv []gguffile.KV, tensors ...gguffile.Tensor) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range tensors {
		n, err := tensors[i].Size()
		if err != nil {
			t.Fatal(err)
		}
		tensors[i].Data = zeros(n)
	}
	if err := gguffile.Write(f, kv, tensors); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCheckAdapter: files that llama.cpp loads as adapters, and cannot compute.
func TestCheckAdapter(t *testing.T) {
	const plain, experts, embd = "blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight", "token_embd.weight"
	model := ggufFile(t, "model.gguf", []gguffile.KV{{Key: "general.architecture", Value: "llama"}},
		gguffile.Tensor{Name: plain, Shape: []uint64{64, 32}}, gguffile.Tensor{Name: embd, Shape: []uint64{64, 100}},
		gguffile.Tensor{Name: experts, Shape: []uint64{64, 32, 4}})
	const f32, f16, q81, i8, i32, f64 = 0, 1, 9, 24, 26, 28
	pair := func(name string, kind uint32, a, b []uint64) []gguffile.Tensor {
		return []gguffile.Tensor{{Name: name + ".lora_a", Type: kind, Shape: a},
			{Name: name + ".lora_b", Type: f32, Shape: b}}
	}
	alpha := func(v any) []gguffile.KV {
		return []gguffile.KV{{Key: "general.type", Value: "adapter"}, {Key: "general.architecture", Value: "llama"},
			{Key: "adapter.type", Value: "lora"}, {Key: "adapter.lora.alpha", Value: v}}
	}
	good := alpha(float32(16))
	for i, c := range []struct {
		kv      []gguffile.KV
		tensors []gguffile.Tensor
		want    string
	}{
		{good, pair(plain, f32, []uint64{64, 8}, []uint64{8, 32}), ""},
		{good[:3], pair(plain, f16, []uint64{64, 8}, []uint64{8, 32}), ""},
		{good, pair(embd, f32, []uint64{8, 100}, []uint64{8, 64}), ""},
		{good, pair(experts, f32, []uint64{64, 8, 4}, []uint64{8, 32, 4}), ""},
		{good, pair("blk.9.of_another_file.weight", f32, []uint64{64, 8}, []uint64{8, 32}), ""},
		{good, pair(plain, i8, []uint64{64, 8}, []uint64{8, 32}), "type I8"},
		{good, pair(plain, i32, []uint64{64, 8}, []uint64{8, 32}), "type I32"},
		{good, pair(plain, f64, []uint64{64, 8}, []uint64{8, 32}), "type F64"},
		{good, pair(plain, q81, []uint64{64, 8}, []uint64{8, 32}), "type Q8_1"},
		{good, pair(plain, f32, []uint64{64, 8}, []uint64{4, 32}), "rank 8 in one half and 4"},
		{good, pair(embd, f32, []uint64{8, 100}, []uint64{4, 64}), "rank 8 in one half and 4"},
		{good, pair(plain, f32, []uint64{64, 8, 2}, []uint64{8, 32, 2}), "experts"},
		{good, pair(experts, f32, []uint64{64, 8}, []uint64{8, 32}), "experts"},
		{good, pair(experts, f32, []uint64{64, 8, 3}, []uint64{8, 32, 3}), "experts"},
		{good, pair(experts, f32, []uint64{64, 8, 4}, []uint64{8, 32, 2}), "experts"},
		{good, pair(plain, f32, []uint64{64, 8, 1, 2}, []uint64{8, 32, 1, 2}), "experts"},
		{alpha(float32(math.NaN())), pair(plain, f32, []uint64{64, 8}, []uint64{8, 32}), "alpha is NaN"},
		{alpha(float32(math.Inf(1))), pair(plain, f32, []uint64{64, 8}, []uint64{8, 32}), "alpha is +Inf"},
		{alpha("16"), pair(plain, f32, []uint64{64, 8}, []uint64{8, 32}), "alpha is 16"},
		{alpha(uint32(16)), pair(plain, f32, []uint64{64, 8}, []uint64{8, 32}), "alpha is 16"},
		{good[1:], pair(plain, f32, []uint64{64, 8}, []uint64{8, 32}), "no text general.type"},
	} {
		file, err := os.ReadFile(ggufFile(t, "adapter.gguf", c.kv, c.tensors...))
		if err != nil {
			t.Fatal(err)
		}
		err = gguf.CheckAdapter(bytes.NewReader(file), int64(len(file)), model)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: %v, want %q", i, err, c.want)
		}
		for n := 0; n < len(file); n += 61 {
			if gguf.CheckAdapter(bytes.NewReader(file[:n]), int64(n), model) == nil {
				t.Fatalf("%d: %d of %d bytes are taken", i, n, len(file))
			}
		}
	}
}
