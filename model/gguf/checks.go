package gguf

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Checks that llama.cpp lacks. A file that parses can contain numbers with which llama.cpp fails an assertion, which
// ends the process, or reads out of bounds. Each check names its reason. llama.cpp reports the other errors.

// check refuses metadata with which llama.cpp would abort, read beyond an array or compute only NaN.
func (h *header) check(info *Info) error {
	arch := info.Architecture + "."
	for _, check := range []func(string, *Info) error{h.checkNumbers, h.checkHeads, h.checkRope, h.checkExperts,
		h.checkVocabulary, h.checkTensors} {
		if err := check(arch, info); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

// boundless are the keys that llama.cpp compares with, or clamps to, and whose infinite value means that there is no
// bound. llama.cpp's own writer saves -Inf for the gates of models without one.
var boundless = []string{"kda.gate_lower_bound", "attention.clamp_kqv", "swiglu_clamp_exp", "swiglu_clamp_shexp"}

// checkNumbers requires that no number is NaN or, where it is no bound, infinite, and that no epsilon is negative (ggml
// asserts eps >= 0 in each norm).
func (h *header) checkNumbers(arch string, _ *Info) error {
	for key, value := range h.kv {
		if !strings.HasPrefix(key, arch) {
			continue
		}
		// A list may contain infinite bounds.
		list, _ := value.([]float64)
		v, scalar := value.(float64)
		bound := slices.Contains(boundless, strings.TrimPrefix(key, arch))
		if scalar && math.IsInf(v, 0) && !bound || slices.ContainsFunc(append(list, v), math.IsNaN) {
			return fmt.Errorf("%s is %v, want a finite number", key, value)
		}
		for _, v := range append(list, v) {
			if strings.HasSuffix(key, "_epsilon") && !(v >= 0 && v < 1) {
				return fmt.Errorf("%s is %v, want 0 or more and below 1", key, v)
			}
		}
	}
	return nil
}

// checkHeads requires that the number of query heads is a multiple of the K and V heads (ggml asserts it of the
// matrices' shapes).
func (h *header) checkHeads(arch string, info *Info) error {
	if info.Layers > 0 && len(info.Heads) > 1 && int64(len(info.Heads)) < info.Layers {
		return fmt.Errorf("%sattention.head_count has %d entries for %d layers", arch, len(info.Heads), info.Layers)
	}
	if n := int64(len(info.KVHeads)); info.Layers > 0 && n > 1 && n < info.Layers {
		return fmt.Errorf("%sattention.head_count_kv has %d entries for %d layers", arch, n, info.Layers)
	}
	for i, kv := range info.KVHeads {
		heads := first(info.Heads)
		if len(info.Heads) > i {
			heads = info.Heads[i]
		}
		if kv > 0 && heads > 0 && heads%kv != 0 {
			return fmt.Errorf("%sattention.head_count is %d, which is no multiple of head_count_kv, %d", arch, heads,
				kv)
		}
	}
	return nil
}

// ropeScalings are the scaling types that llama.cpp knows; it asserts on others.
var ropeScalings = []string{"none", "linear", "yarn", "longrope"}

// checkRope requires that the rotated elements are pairs and at most the head's size (ggml asserts both).
func (h *header) checkRope(arch string, info *Info) error {
	key := arch + "rope.dimension_count"
	if n, ok := h.kv[key].(int64); ok {
		// ggml would read values beyond int32 as negative. Without heads there is no rotation.
		most := max(info.KeyLength, h.int(arch+"attention.key_length_swa"))
		if n < 0 || n%2 != 0 || n > math.MaxInt32 || first(info.Heads) > 0 && most > 0 && n > most {
			return fmt.Errorf("%s is %d, want an even number up to the length of a head, %d", key, n, most)
		}
	}
	key = arch + "rope.dimension_sections" // of several positions at a time (M-RoPE); ggml asserts that they fit
	sum := int64(0)
	for _, n := range h.ints(key) {
		if n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("%s has %d, want 0 or more", key, n)
		}
		sum += n
	}
	// The kinds of RWKV rotate nothing, and llama.cpp writes sections into their files nevertheless.
	rotates := !strings.Contains(arch, "rwkv")
	if most := info.KeyLength; rotates && most > 0 && first(info.Heads) > 0 && sum > most {
		return fmt.Errorf("%s are %d together, want at most the length of a head, %d", key, sum, most)
	}
	key = arch + "rope.freq_base"
	if v, ok := h.kv[key].(float64); ok && v <= 0 {
		return fmt.Errorf("%s is %v, want more than 0", key, v)
	}
	key = arch + "rope.scaling.type"
	if s, ok := h.kv[key].(string); ok && !slices.Contains(ropeScalings, s) {
		return fmt.Errorf("%s is %.40q, want one of %s: a newer release may know it", key, s,
			strings.Join(ropeScalings, ", "))
	}
	return nil
}

// checkExperts repeats the assertions with which llama.cpp loads the hyperparameters.
func (h *header) checkExperts(arch string, info *Info) error {
	groups, groupsUsed := h.int(arch+"expert_group_count"), h.int(arch+"expert_group_used_count")
	n, used := info.Experts, info.ExpertsUsed
	switch {
	case n < 0 || used < 0 || groups < 0 || groupsUsed < 0:
		return fmt.Errorf("%sexpert_count, expert_used_count, expert_group_count or expert_group_used_count is "+
			"negative", arch)
	case used > n:
		return fmt.Errorf("%sexpert_used_count is %d of %d experts", arch, used, n)
	case n > 0 && used == 0:
		return fmt.Errorf("%sexpert_used_count is 0 of %d experts", arch, n)
	case groups > 0 && groups >= n:
		return fmt.Errorf("%sexpert_group_count is %d for %d experts", arch, groups, n)
	case groups > 1 && (n%groups != 0 || groupsUsed <= 0 || groupsUsed >= groups):
		return fmt.Errorf("%sexpert_group_count is %d for %d experts, of which %d groups are used", arch, groups, n,
			groupsUsed)
	}
	return nil
}

// noWeights are ggml's tensor types for intermediate results and indices. ggml has no product for them and would call a
// null pointer.
var noWeights = []string{"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"}

// checkTensors requires that matrices have a type that can be multiplied, and that tensors of elementwise operations
// are F32, as every converter writes them (ggml's binary operations abort on other types).
func (h *header) checkTensors(string, *Info) error {
	for _, t := range h.tensors {
		weight := strings.HasSuffix(t.name, ".weight")
		if !weight && !strings.HasSuffix(t.name, ".bias") && !strings.HasSuffix(t.name, ".scale") {
			continue
		}
		if slices.Contains(noWeights, t.typ) {
			return fmt.Errorf("tensor %q has type %s, which no weights have", t.name, t.typ)
		}
		// The gate of a shared expert and the classifier of a model that ranks are matrices of one row.
		vector := t.dims <= 1 && !strings.Contains(t.name, "_inp") && !strings.HasPrefix(t.name, "cls.")
		if t.typ != "F32" && (vector || strings.HasSuffix(t.name, "_norm.weight") || !weight) {
			return fmt.Errorf("tensor %q has type %s, want F32: it is a norm, a bias or a scale", t.name, t.typ)
		}
	}
	return nil
}

// checkVocabulary checks the lengths of lists: llama.cpp reads the lists beside the tokens by the number of tokens,
// whatever their length, and reads the first token of an empty vocabulary.
func (h *header) checkVocabulary(_ string, info *Info) error {
	const prefix = "tokenizer.ggml."
	model, present := h.kv[prefix+"model"].(string)
	if _, listed := h.kv[prefix+"tokens"]; !listed && (!present || model == "none" || model == "no_vocab") {
		return nil // llama.cpp reports what is missing
	}
	for _, list := range []struct {
		key  string
		want []valueType
	}{
		{"tokens", []valueType{typeString}},
		{"merges", []valueType{typeString}},
		{"scores", []valueType{typeFloat32}},
		{"token_type", []valueType{typeInt32, typeUint32}},
		{"precompiled_charsmap", []valueType{typeUint8, typeInt8}},
	} {
		a, ok := h.arrays[prefix+list.key]
		if _, there := h.kv[prefix+list.key]; !there {
			continue
		}
		if !ok || !slices.Contains(list.want, a.elem) {
			return fmt.Errorf("%s%s is no list of the type that it must be", prefix, list.key)
		}
		switch list.key {
		case "scores", "token_type":
			if a.n < uint64(info.VocabSize) {
				return fmt.Errorf("%s%s has %d entries for %d tokens", prefix, list.key, a.n, info.VocabSize)
			}
		case "precompiled_charsmap":
			if a.n > 0 && a.n < 8 {
				return fmt.Errorf("%s%s has %d bytes", prefix, list.key, a.n)
			}
		}
	}
	if info.VocabSize == 0 {
		return fmt.Errorf("%stokens is empty", prefix)
	}
	return nil
}
