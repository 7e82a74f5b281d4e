package gguf

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// CheckAdapter refuses a file of size bytes that llama.cpp would take for a LoRA adapter of the model at path, and with
// which it would end the process or read beyond a tensor as it computes: it looks at two of the four numbers of a
// tensor's shape, and at no type. The error wraps ErrInvalid, or is r's.
func CheckAdapter(r io.ReaderAt, size int64, path string) error {
	h, err := readHeader(io.NewSectionReader(r, 0, size), size, true)
	if err != nil {
		return err
	}
	for _, key := range []string{"general.type", "general.architecture", "adapter.type"} {
		if _, ok := h.kv[key].(string); !ok {
			return fmt.Errorf("%w: it is no adapter: it has no text %s", ErrInvalid, key)
		}
	}
	if v, there := h.kv["adapter.lora.alpha"]; there {
		if alpha, ok := v.(float64); !ok || math.IsNaN(alpha) || math.IsInf(alpha, 0) {
			return fmt.Errorf("%w: adapter.lora.alpha is %v, want a finite number with a fraction", ErrInvalid, v)
		}
	}
	m, err := openHeader(path, true)
	if err != nil {
		return err
	}
	model := map[string]*tensorInfo{} // of a split model those of its first file
	for i := range m.tensors {
		model[m.tensors[i].name] = &m.tensors[i]
	}
	pairs := map[string][2]*tensorInfo{}
	for i := range h.tensors {
		t := &h.tensors[i]
		of, half, ok := strings.Cut(t.name, ".lora_")
		if !ok || half != "a" && half != "b" {
			continue // llama.cpp says which it takes
		}
		switch t.typ {
		case "I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K":
			return fmt.Errorf("%w: tensor %q has type %s, of which no products are computed", ErrInvalid, t.name, t.typ)
		}
		p := pairs[of]
		if half == "a" {
			p[0] = t
		} else {
			p[1] = t
		}
		pairs[of] = p
	}
	for name, p := range pairs {
		a, b := p[0], p[1]
		if a == nil || b == nil {
			continue // llama.cpp says so
		}
		rank := a.shape[1]
		if strings.HasSuffix(name, "token_embd.weight") {
			rank = a.shape[0] // it is stored the other way round
		}
		of := model[name]
		switch {
		case rank != b.shape[0]:
			return fmt.Errorf("%w: the adapter of %q has rank %d in one half and %d in the other", ErrInvalid, name,
				rank, b.shape[0])
		case a.shape[2] != b.shape[2] || a.shape[3] != 1 || b.shape[3] != 1,
			of != nil && of.shape[2] != a.shape[2]:
			return fmt.Errorf("%w: the adapter of %q is of another number of experts than the model's tensor: is it "+
				"of another model?", ErrInvalid, name)
		}
	}
	return nil
}
