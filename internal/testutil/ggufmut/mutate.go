package ggufmut

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// mutator changes one thing at random.
type mutator struct {
	*File
	r    *rand.Rand
	what []string
}

// Mutate returns a damaged copy and a description of the damage. Equal seeds give equal files.
func (f *File) Mutate(seed uint64) (what string, damaged []byte) {
	m := &mutator{File: f.clone(), r: rand.New(rand.NewPCG(seed, 0x67677566))}
	for range 1 + m.r.IntN(5)/3 { // mostly one change: two hide each other
		m.once()
	}
	return strings.Join(m.what, "; "), m.Bytes()
}

func (m *mutator) say(format string, args ...any) {
	m.what = append(m.what, fmt.Sprintf(format, args...))
}

func pick[T any](m *mutator, of ...T) T { return of[m.r.IntN(len(of))] }

func (m *mutator) once() {
	switch n := m.r.IntN(100); {
	case n < 40:
		m.scalar()
	case n < 48:
		m.special()
	case n < 58:
		m.list()
	case n < 64:
		m.string()
	case n < 68:
		m.kind()
	case n < 72:
		i := m.r.IntN(len(m.pairs))
		m.say("without %s", m.pairs[i].key)
		m.pairs = slices.Delete(m.pairs, i, i+1)
	case n < 76:
		m.architecture()
	default:
		m.tensor()
	}
}

// number returns a limit of a type, or a neighbour of the previous value.
func (m *mutator) number(kind uint32, was []byte) []byte {
	le := binary.LittleEndian
	switch kind {
	case f32:
		old := math.Float32frombits(le.Uint32(was))
		v := pick(m, 0, -1, 1, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -old, math.MaxFloat32,
			-math.MaxFloat32, 1e-45, old*1e6, old/1e6)
		return le.AppendUint32(nil, math.Float32bits(v))
	case f64:
		return le.AppendUint64(nil, math.Float64bits(pick(m, 0, -1, math.NaN(), math.Inf(1), 1e300)))
	}
	var old uint64
	for i, x := range was {
		old |= uint64(x) << (8 * i)
	}
	v := pick(m, 0, 1, 2, 3, old+1, old-1, old*2, old/2, old*3, ^uint64(0), 1<<31, 1<<31-1, 1<<16, 512, 513, 256, 255,
		7, 1000, m.r.Uint64N(1<<20), 1<<63)
	return le.AppendUint64(nil, v)[:len(was)]
}

func (m *mutator) scalar() {
	var at []int
	for i := range m.pairs {
		if k := m.pairs[i].kind; k != text && k != array {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return
	}
	p := &m.pairs[pick(m, at...)]
	was := p.value
	p.value = m.number(p.kind, was)
	m.say("%s (type %d) % x instead of % x", p.key, p.kind, p.value, was)
}

// set adds a pair or replaces it.
func (m *mutator) set(p pair) {
	if i := slices.IndexFunc(m.pairs, func(q pair) bool { return q.key == p.key }); i >= 0 {
		m.pairs[i] = p
		return
	}
	m.pairs = append(m.pairs, p)
}

func (m *mutator) arch() string {
	for i := range m.pairs {
		if m.pairs[i].key == "general.architecture" {
			return m.pairs[i].text
		}
	}
	return "llama"
}

// special sets keys with large effects that these models lack.
func (m *mutator) special() {
	a := m.arch() + "."
	if m.r.IntN(4) == 0 {
		p := pair{kind: text, key: pick(m, a+"rope.scaling.type", a+"pooling_type", "tokenizer.ggml.model",
			"tokenizer.ggml.pre", "split.count"),
			text: pick(m, "none", "linear", "yarn", "longrope", "", "x", "bert", "t5", "rwkv", "llama", "plamo2",
				"default", "llama-bpe")}
		m.set(p)
		m.say("%s %q", p.key, p.text)
		return
	}
	p := pair{kind: u32, key: pick(m, a+"expert_count", a+"expert_used_count", a+"expert_group_count", a+
		"attention.sliding_window", a+"attention.key_length",
		a+"attention.value_length", a+"rope.dimension_count", a+"vocab_size", a+"rope.scaling.original_context_length",
		a+"attention.key_length_mla",
		a+"leading_dense_block_count", a+"attention.shared_kv_layers", a+"ssm.state_size", a+"nextn_predict_layers", a+
			"pooling_type",
		"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.unknown_token_id",
		"tokenizer.ggml.eot_token_id", "tokenizer.ggml.padding_token_id",
		"tokenizer.ggml.seperator_token_id", "tokenizer.ggml.mask_token_id", "tokenizer.ggml.fim_pre_token_id",
		"general.alignment", "split.count", "split.no")}
	switch m.r.IntN(5) {
	case 0:
		p = pair{kind: f32, key: pick(m, a+"rope.scaling.factor", a+"rope.freq_base", a+"rope.scaling.attn_factor", a+
			"attention.scale", a+"attention.clamp_kqv",
			a+"final_logit_softcapping", a+"attn_logit_softcapping", a+"logit_scale", a+"residual_scale", a+
				"embedding_scale", a+"attention.layer_norm_epsilon",
			a+"attention.layer_norm_rms_epsilon", a+"expert_weights_scale", a+"attention.max_alibi_bias"),
			value: make([]byte, 4)}
	case 1:
		p = pair{kind: boolean, key: pick(m, a+"attention.causal", a+"use_parallel_residual",
			"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
			"tokenizer.ggml.add_sep_token", "tokenizer.ggml.remove_extra_whitespaces", a+"rope.scaling.finetuned"),
			value: []byte{0}}
		p.value[0] = byte(m.r.IntN(2))
		m.set(p)
		m.say("%s %d", p.key, p.value[0])
		return
	default:
		p.value = []byte{32, 0, 0, 0}
	}
	p.value = m.number(p.kind, p.value)
	m.set(p)
	m.say("%s (type %d) % x", p.key, p.kind, p.value)
}

func (m *mutator) list() {
	var at []int
	for i := range m.pairs {
		if m.pairs[i].kind == array {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return
	}
	p := &m.pairs[pick(m, at...)]
	n := p.len()
	if n == 0 {
		return
	}
	i := m.r.IntN(n)
	if p.elem == text {
		switch m.r.IntN(8) {
		case 0:
			p.list = nil
			m.say("%s is empty", p.key)
		case 1:
			p.list = p.list[:i]
			m.say("%s ends after %d", p.key, i)
		case 2:
			p.list[i] = p.list[m.r.IntN(n)]
			m.say("%s has %q twice", p.key, p.list[i])
		case 3:
			p.list[i] = ""
			m.say("%s has an empty string at %d", p.key, i)
		case 4:
			p.list[i] = strings.Repeat("\xff\x00é ", m.r.IntN(100))
			m.say("%s has bytes that are no text at %d", p.key, i)
		case 5:
			p.list = append(p.list, p.list[:i]...)
			m.say("%s has %d more", p.key, i)
		case 6:
			for j := range p.list {
				p.list[j] = "x"
			}
			m.say("%s is one string, %d times", p.key, n)
		case 7:
			p.elem, p.value = u8, []byte(strings.Join(p.list, ""))
			p.list = nil
			m.say("%s is an array of bytes", p.key)
		}
		return
	}
	w := width[p.elem]
	switch m.r.IntN(5) {
	case 0:
		p.value = p.value[:i*w]
		m.say("%s ends after %d", p.key, i)
	case 1, 2:
		copy(p.value[i*w:], m.number(p.elem, p.value[i*w:i*w+w]))
		m.say("%s: element %d is % x", p.key, i, p.value[i*w:i*w+w])
	case 3:
		v := m.number(p.elem, p.value[i*w:i*w+w])
		for j := range n {
			copy(p.value[j*w:], v)
		}
		m.say("%s: all elements are % x", p.key, v)
	case 4:
		p.value = append(p.value, p.value...)
		m.say("%s twice", p.key)
	}
}

func (m *mutator) string() {
	var at []int
	for i := range m.pairs {
		if m.pairs[i].kind == text {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return
	}
	p := &m.pairs[pick(m, at...)]
	s := p.text
	p.text = pick(m, "", s+s, s[:len(s)/2], strings.Repeat("A", 100_000), "\xff\xfe\x00", "%s%n%d", "llama", "gpt2",
		"bert", "none", "t5", "rwkv", "{{ x", "{% for %}")
	m.say("%s is %.20q", p.key, p.text)
}

// kind reads a value as another type of the same size.
func (m *mutator) kind() {
	p := &m.pairs[m.r.IntN(len(m.pairs))]
	switch {
	case p.kind == array:
		if p.elem == text {
			return
		}
		old := p.elem
		p.elem = pick[uint32](m, u8, i8, u32, i32, f32, boolean)
		p.value = p.value[:len(p.value)/8*8]
		m.say("%s: elements of type %d instead of %d", p.key, p.elem, old)
	case p.kind == text:
		*p = pair{key: p.key, kind: u32, value: []byte{1, 0, 0, 0}}
		m.say("%s is a number", p.key)
	default:
		old := p.kind
		v := make([]byte, 8)
		copy(v, p.value)
		p.kind = pick[uint32](m, u8, i8, u16, i16, u32, i32, f32, boolean, u64, i64, f64, text, array)
		switch p.kind {
		case text:
			p.text = "text"
		case array: // of the one value, or of so many
			p.elem, p.value = u32, bytes.Repeat(v[:4], m.r.IntN(8))
		default:
			p.value = v[:width[p.kind]]
		}
		m.say("%s: type %d instead of %d", p.key, p.kind, old)
	}
}

// architecture gives the model another one, with or without its keys.
func (m *mutator) architecture() {
	was := m.arch()
	to := pick(m, "llama", "gemma", "gemma2", "gemma3", "gemma3n", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "phi2",
		"phi3", "falcon", "mamba", "mamba2", "jamba", "rwkv6", "bert",
		"nomic-bert", "t5", "t5encoder", "gpt2", "gptneox", "stablelm", "command-r", "deepseek2", "olmo2", "granite",
		"granitemoe", "llama4", "mistral3", "bloom", "mpt", "starcoder2",
		"minicpm", "minicpm3", "arctic", "dbrx", "chatglm", "glm4", "exaone", "exaone4", "nemotron", "jais", "bitnet",
		"clip", "smollm3", "gpt-oss", "lfm2", "llada", "dream", "openelm", "deci",
		"wavtokenizer-dec", "plamo2", "cohere2", "hunyuan-dense", "ernie4_5", "apertus", "qwen2vl", "refact",
		"internlm2", "xverse", "baichuan", "orion")
	rename := m.r.IntN(4) > 0
	for i := range m.pairs {
		p := &m.pairs[i]
		if p.key == "general.architecture" {
			p.text = to
		} else if rest, ok := strings.CutPrefix(p.key, was+"."); ok && rename {
			p.key = to + "." + rest
		}
	}
	m.say("architecture %s, keys renamed: %v", to, rename)
}

// blocks are elements and bytes of a block, by tensor type.
var blocks = map[uint32][2]uint64{0: {1, 4}, 1: {1, 2}, 2: {32, 18}, 3: {32, 20}, 6: {32, 22}, 7: {32, 24}, 8: {32, 34},
	9: {32, 36}, 10: {256, 84}, 11: {256, 110},
	12: {256, 144}, 13: {256, 176}, 14: {256, 210}, 15: {256, 292}, 16: {256, 66}, 17: {256, 74}, 18: {256, 98},
	19: {256, 50}, 20: {32, 18}, 21: {256, 110}, 22: {256, 82},
	23: {256, 136}, 24: {1, 1}, 25: {1, 2}, 26: {1, 4}, 27: {1, 8}, 28: {1, 8}, 29: {256, 56}, 30: {1, 2},
	34: {256, 54}, 35: {256, 66}, 39: {32, 17}}

// layOut puts the tensors one behind the other and makes the data as long as they are, up to some megabytes.
func (m *mutator) layOut() {
	at := uint64(0)
	for i := range m.tensors {
		t := &m.tensors[i]
		n := uint64(1)
		for _, d := range t.shape {
			if d > 1<<24 || n > 1<<24 {
				return
			}
			n *= d
		}
		b, ok := blocks[t.kind]
		if !ok || n > 1<<24 {
			return
		}
		t.offset = at
		at += (n/b[0]*b[1] + 31) / 32 * 32
	}
	if at > 64<<20 {
		return
	}
	if int(at) > len(m.data) {
		m.data = append(bytes.Clone(m.data), make([]byte, int(at)-len(m.data))...)
	}
	m.data = m.data[:at]
	m.say("laid out anew")
}

func (m *mutator) tensor() {
	if len(m.tensors) == 0 {
		return
	}
	i := m.r.IntN(len(m.tensors))
	t := &m.tensors[i]
	other := m.tensors[m.r.IntN(len(m.tensors))]
	if m.r.IntN(3) > 0 {
		// Place each tensor behind the one before it, as a writer would. Otherwise most files are refused for their
		// offsets alone.
		defer m.layOut()
	}
	switch m.r.IntN(12) {
	case 0:
		slices.Reverse(t.shape)
		m.say("%s has the shape %v", t.name, t.shape)
	case 1:
		d := m.r.IntN(len(t.shape))
		v := pick(m, 0, 1, t.shape[d]-1, t.shape[d]+32, t.shape[d]/2, t.shape[d]*2, 1<<31, 1<<40, ^uint64(0))
		t.shape[d] = v
		m.say("%s has the shape %v", t.name, t.shape)
	case 2:
		t.shape = append(t.shape, pick[uint64](m, 1, 2, 3))
		m.say("%s has the shape %v", t.name, t.shape)
	case 3:
		t.shape = t.shape[:len(t.shape)-1]
		m.say("%s has the shape %v", t.name, t.shape)
	case 4, 5:
		// Sound types, by how they are kept, and some that are none.
		old := t.kind
		t.kind = pick[uint32](m, 0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
			26, 27, 28, 29, 30, 34, 35, 39, 40, 41, 255)
		m.say("%s has type %d instead of %d", t.name, t.kind, old)
	case 6:
		t.offset = pick(m, 0, t.offset+1, t.offset+32, t.offset-32, other.offset, uint64(len(m.data)), 1<<62,
			^uint64(0))
		m.say("%s lies at %d", t.name, t.offset)
	case 7:
		was := t.name
		t.name = pick(m, other.name, "", "x", strings.ToUpper(was), was+".bias",
			strings.Replace(was, "weight", "bias", 1), strings.Replace(was, "blk.0", "blk.9", 1),
			"rope_freqs.weight", strings.Repeat("n", 63), strings.Repeat("n", 64), strings.Repeat("n", 200),
			"output.weight", "blk.0.attn_q.bias", "blk.0.attn_q_norm.weight")
		m.say("%s is named %.70q", was, t.name)
	case 8:
		m.say("without %s", t.name)
		m.tensors = slices.Delete(m.tensors, i, i+1)
	case 9:
		m.say("%s has record of %s", t.name, other.name)
		name := t.name
		*t = other
		t.shape, t.name = slices.Clone(other.shape), name
	case 10:
		extra := other
		extra.shape = slices.Clone(other.shape)
		extra.name = pick(m, "rope_freqs.weight", "output.weight", "output_norm.bias", "blk.0.attn_q.bias",
			"blk.0.attn_k.bias", "blk.0.ffn_gate_inp.weight", "blk.0.attn_q_norm.weight", "blk.0.rope_freqs.weight",
			"blk.0.ffn_gate.bias", "token_types.weight", "rope_factors_long.weight")
		m.say("%s is there too, with the record of %s", extra.name, other.name)
		m.tensors = append(m.tensors, extra)
	case 11:
		m.data = bytes.Clone(m.data)
		at := int(min(t.offset, uint64(max(len(m.data)-4096, 0))))
		for j := at; j < min(at+4096, len(m.data)); j++ {
			m.data[j] = byte(m.r.Uint32())
		}
		m.say("%s has random bytes", t.name)
	}
}
