package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/x448/float16"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// longContext is the training context that models without learned positions are given, in tokens: llama-server serves
// no context longer than that, and the generator writes 256.
const longContext = 4096

// byteText returns the token of a byte in a vocabulary of the kind "gpt2", which writes control characters as printable
// ones.
func byteText(b int) string {
	switch {
	case b <= ' ':
		return string(rune(256 + b))
	case b == 0x7f:
		return string(rune(256 + 33))
	}
	return string(rune(b))
}

// vocabulary returns the metadata of n tokens: the end of a text, then the bytes 1 … 127, then words that no text has.
func vocabulary(n int) []gguffile.KV {
	tokens, types := make([]string, n), make([]int32, n)
	for i := range n {
		tokens[i], types[i] = fmt.Sprintf("[%d]", i), 1
		if i > 0 && i < 128 {
			tokens[i] = byteText(i)
		}
	}
	tokens[0], types[0] = "<end>", 3 // a control token
	const p = "tokenizer.ggml."
	return []gguffile.KV{
		{Key: p + "model", Value: "gpt2"}, {Key: p + "pre", Value: "gpt-2"}, {Key: p + "tokens", Value: tokens},
		{Key: p + "token_type", Value: types}, {Key: p + "merges", Value: []string{}},
		{Key: p + "bos_token_id", Value: uint32(0)}, {Key: p + "eos_token_id", Value: uint32(0)},
		{Key: p + "unknown_token_id", Value: uint32(0)}, {Key: p + "padding_token_id", Value: uint32(0)},
		{Key: p + "add_bos_token", Value: false}, {Key: p + "add_eos_token", Value: false},
	}
}

// complete rewrites the model at src, which has a vocabulary that encodes no text, as dst with one of bytes.
func complete(src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	kvs, tensors, err := gguffile.Read(in, st.Size())
	if err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	arch, tokens, learned := "", 128, false
	for _, kv := range kvs {
		switch kv.Key {
		case "general.architecture":
			arch, _ = kv.Value.(string)
		case "tokenizer.ggml.tokens":
			list, _ := kv.Value.([]string)
			tokens = len(list)
		}
	}
	for i := range tensors {
		learned = learned || tensors[i].Name == "position_embd.weight"
	}
	var list []gguffile.KV
	for _, kv := range kvs {
		switch {
		case kv.Key == arch+".context_length" && !learned:
			kv.Value = uint32(longContext)
		case strings.HasPrefix(kv.Key, "tokenizer.") && kv.Key != "tokenizer.ggml.token_type_count":
			continue
		}
		list = append(list, kv)
	}
	return write(dst, append(list, vocabulary(tokens)...), tensors)
}

func write(path string, kvs []gguffile.KV, tensors []gguffile.Tensor) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	return gguffile.Write(out, kvs, tensors)
}

// A skeleton is a model whose weights are all 0, compressed: a few kilobytes of metadata and shapes. revive gives it
// weights that are the same on every machine.

// saveSkeleton writes the model at path as a skeleton to name.
func saveSkeleton(path, name string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	kvs, tensors, err := gguffile.Read(in, st.Size())
	if err != nil {
		return err
	}
	for i := range tensors {
		n, err := tensors[i].Size()
		if err != nil {
			return err
		}
		tensors[i].Data = zeros(n)
	}
	tmp, err := os.CreateTemp("", "skeleton")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := gguffile.Write(tmp, kvs, tensors); err != nil {
		return err
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	if _, err := io.Copy(z, io.NewSectionReader(tmp, 0, 1<<40)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

type zeros uint64

func (z zeros) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(make([]byte, z))
	return int64(n), err
}

// revive writes the model of a skeleton with random weights to path.
func revive(skeleton, path string) error {
	b, err := os.ReadFile(skeleton)
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	all, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	kvs, tensors, err := gguffile.Read(bytes.NewReader(all), int64(len(all)))
	if err != nil {
		return err
	}
	for i := range tensors {
		w, err := weightsOf(&tensors[i])
		if err != nil {
			return err
		}
		tensors[i].Data = w
	}
	return write(path, kvs, tensors)
}

// Types of enum ggml_type.
const (
	typeF32 = 0
	typeF16 = 1
)

// weights are random numbers with a standard deviation of 0.1, as llama.cpp's generator has them.
type weights struct {
	name string
	n    uint64
	half bool
}

func weightsOf(t *gguffile.Tensor) (weights, error) {
	n := uint64(1)
	for _, d := range t.Shape {
		n *= d
	}
	if t.Type != typeF32 && t.Type != typeF16 {
		return weights{}, fmt.Errorf("tensor %s has type %d, want F32 or F16", t.Name, t.Type)
	}
	return weights{t.Name, n, t.Type == typeF16}, nil
}

func (w weights) WriteTo(out io.Writer) (int64, error) {
	h := fnv.New64a()
	io.WriteString(h, w.name)
	rng := rand.NewPCG(h.Sum64(), 1)
	// A state decays: its factor's logarithm is negative.
	decays := strings.Contains(w.name, "ssm_a")
	var b []byte
	for range w.n {
		u := rng.Uint64()
		sum := int32(u&0xffff) + int32(u>>16&0xffff) + int32(u>>32&0xffff) + int32(u>>48)
		v := float32(sum-2*0xffff) * float32(0.1/(65536*0.57735026918962576))
		if decays {
			v = -float32(math.Abs(float64(v)))
		}
		if w.half {
			b = binary.LittleEndian.AppendUint16(b, float16.Fromfloat32(v).Bits())
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	n, err := out.Write(b)
	return int64(n), err
}

// modelFiles returns the models in a folder, by name.
func modelFiles(dir string) ([]string, error) {
	list, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	slices.Sort(list)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("there is no model in %s", dir)
	}
	return list, err
}
