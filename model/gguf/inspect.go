// Package gguf reads the metadata of GGUF model files without loading the weights.
//
// A GGUF file is a header (key-value metadata, then one record per tensor) followed by the tensor data. It reads only
// the header, so a 40 GB file costs as much as a small one. The format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// # Why not an existing reader
//
// Files come from the internet, and a header is full of 64-bit lengths and nested types. This reader checks every
// length against the remaining bytes and against limits from real files before it reads or allocates.
// github.com/gpustack/gguf-parser-go (v0.26.3) bounds lengths by the file's size, but reads nested arrays by recursion:
// 50 MB of them overflow the stack, which ends the process. An array of 64 MB in one array took it 145 s and a
// gigabyte, an honest 138 MiB model 0.28 s (0.05 s here).
//
// Package gguffile writes GGUF files.
//
// checks.go has the files that are refused before llama.cpp sees them, memory.go how much memory a model needs, with
// the weights that ggml repacks (repack.go).
package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/model/template"
)

// ErrInvalid: this package cannot read the file; the text gives the reason and the byte.
var ErrInvalid = errors.New("not a usable GGUF file")

// Quantisation is the part of a model that is stored as one tensor type.
type Quantisation struct {
	Type       string `json:"type"` // "Q8_0"
	Tensors    int    `json:"tensors"`
	Parameters uint64 `json:"parameters"`
	Bytes      uint64 `json:"bytes"`
}

// SpecialToken is a token with a role in the tokenizer metadata.
type SpecialToken struct {
	Role string `json:"role"` // "bos", "eos", "eot", …
	ID   int64  `json:"id"`
	Text string `json:"text"`
}

// ThinkTags is a pair of markers around a model's thinking.
type ThinkTags struct {
	Open  string `json:"open"`
	Close string `json:"close"`
	// SingleToken: each marker is one token of the vocabulary.
	SingleToken bool `json:"single_token"`
	InTemplate  bool `json:"in_template"` // the chat template mentions the closing marker
}

// Info is the metadata of a GGUF file. A zero value means that the file does not contain it.
type Info struct {
	Path         string         `json:"path"`
	Files        []string       `json:"files"` // all, Path first
	Version      uint32         `json:"gguf_version"`
	Name         string         `json:"name"`
	Type         string         `json:"type,omitempty"` // "model", "adapter", "mmproj", …
	Architecture string         `json:"architecture"`
	Parameters   uint64         `json:"parameters"`
	FileBytes    int64          `json:"file_bytes"`
	TensorBytes  uint64         `json:"tensor_bytes"`
	Tensors      int            `json:"tensors"`
	Quantisation []Quantisation `json:"quantisation"` // largest first
	FileType     string         `json:"file_type"`    // of the whole: "Q4_K_M"
	License      string         `json:"license"`
	Split        int64          `json:"split"` // number of files the model is split over, 0 or 1 = one

	TrainContext int64   `json:"n_ctx_train"`         // tokens
	Positions    int64   `json:"positions,omitempty"` // rows of the table of learned positions, 0 = it has none
	Embedding    int64   `json:"embedding"`
	Layers       int64   `json:"layers"`
	Heads        []int64 `json:"heads"`    // one entry, or one per layer
	KVHeads      []int64 `json:"kv_heads"` // one entry, or one per layer; 0 = a layer without attention
	KeyLength    int64   `json:"key_length"`
	ValueLength  int64   `json:"value_length"`
	FeedForward  []int64 `json:"feed_forward"`
	Experts      int64   `json:"experts"`
	ExpertsUsed  int64   `json:"experts_used"`
	ExpertBytes  uint64  `json:"expert_bytes,omitempty"` // of TensorBytes, the experts' of all layers
	// HeadLayers are the layers that guess tokens (multi-token prediction), of Layers. HeadBytes are their tensors and
	// the output matrix, which they share with the model.
	HeadLayers    int64     `json:"head_layers,omitempty"`
	HeadBytes     uint64    `json:"head_bytes,omitempty"`
	HeadFile      *HeadFile `json:"head_file,omitempty"` // the file is the head of a model
	SlidingWindow int64     `json:"sliding_window"`      // tokens, 0 = none
	Recurrent     bool      `json:"recurrent"`           // some layers keep a state instead of KV cells
	// StateBytes is the size of what those layers keep of a sequence, whatever its length is.
	StateBytes int64   `json:"state_bytes,omitempty"`
	Encoder    bool    `json:"encoder"` // it reads texts whole, has no KV cells and generates nothing
	Pooling    string  `json:"pooling"` // how embeddings are made: none, mean, cls, last, rank; "" = not said
	RopeBase   float64 `json:"rope_base"`

	Tokenizer string         `json:"tokenizer"` // "gpt2 (llama-bpe)"
	VocabSize int            `json:"n_vocab"`
	Special   []SpecialToken `json:"special_tokens"`

	ChatTemplate  string           `json:"chat_template"`
	Template      *template.Report `json:"template,omitempty"`       // result of rendering it; nil when there is none
	TemplateError string           `json:"template_error,omitempty"` // why it cannot be used
	// DefaultTemplate is the built-in template for a model without one; "" when the model has a template.
	DefaultTemplate string      `json:"default_template,omitempty"`
	Think           []ThinkTags `json:"think_tags"`

	tokens          []string     // of the vocabulary; nil after Brief
	templateTexts   string       // the template and what it renders
	attentionLayers int64        // layers that keep KV cells, when KVHeads has one entry
	matrices        []tensorInfo // that Repacked looks at
	placed          Placed       // result of Placed
	shapes          []cellShape  // see cellShapes
	output          uint64       // result of OutputBytes
}

// header is a decoded header.
type header struct {
	brief   bool // the vocabulary and the chat template are not looked at
	version uint32
	size    int64
	kv      map[string]any
	arrays  map[string]arrayType // of the arrays among kv, the skipped ones too
	tensors []tensorInfo
	// dataBytes is the size of the tensor data by the records, from the end of the header.
	dataBytes int64
}

type arrayType struct {
	elem valueType
	n    uint64
}

type tensorInfo struct {
	name     string
	dims     uint32          // that are not 1 at the end
	shape    [maxDims]uint64 // row length first; 1 where there is no such dimension
	elements uint64
	bytes    uint64
	typ      string
}

// bulky are arrays of the vocabulary's size, which are skipped.
func (h *header) bulky(key string) bool {
	switch key {
	case "tokenizer.ggml.tokens":
		return h.brief
	case "tokenizer.ggml.merges", "tokenizer.ggml.scores", "tokenizer.ggml.token_type",
		"tokenizer.ggml.precompiled_charsmap":
		return true
	}
	return false
}

func readHeader(in io.Reader, size int64, brief bool) (*header, error) {
	r := newReader(in, size)
	magic := string(r.fixed(4, "magic number"))
	h := &header{brief: brief, size: size, kv: map[string]any{}, arrays: map[string]arrayType{}}
	switch {
	case r.err != nil:
		return nil, r.err
	case magic == "ggml" || magic == "lmgg" || magic == "ggjt" || magic == "tjgg":
		return nil, fmt.Errorf("%w: it is in the GGML format from before GGUF (2023): get a newer conversion",
			ErrInvalid)
	case magic != "GGUF":
		return nil, fmt.Errorf("%w: it begins with %q instead of \"GGUF\"", ErrInvalid, magic)
	}
	h.version = r.u32("version")
	switch swapped := binary.BigEndian.Uint32(r.buf[:4]); {
	case r.err != nil:
		return nil, r.err
	case h.version > 3 && swapped >= 1 && swapped <= 3:
		return nil, fmt.Errorf("%w: it was made for big-endian machines (version %d): get the little-endian file",
			ErrInvalid, swapped)
	case h.version == 1:
		return nil, fmt.Errorf("%w: version 1 is too old (llama.cpp dropped it too): convert the model again",
			ErrInvalid)
	case h.version < 1 || h.version > 3:
		return nil, fmt.Errorf("%w: version %d is unknown, this build reads 2 and 3: a newer release may read it",
			ErrInvalid, h.version)
	}
	tensors, pairs := r.u64("tensor count"), r.u64("metadata count")
	// A pair takes at least 13 bytes (empty key, type, one byte), a tensor record 24.
	switch {
	case r.err != nil:
		return nil, r.err
	case pairs > maxPairs:
		r.fail("metadata count %d is above the limit of %d", pairs, maxPairs)
	case tensors > maxTensors:
		r.fail("tensor count %d is above the limit of %d", tensors, maxTensors)
	default:
		r.has(pairs*13+tensors*24, "header")
	}
	for i := uint64(0); i < pairs && r.err == nil; i++ {
		key := r.str(fmt.Sprintf("key of metadata pair %d", i), maxKeyBytes)
		t := valueType(r.u32("type of " + key))
		v := r.value(t, key, !h.bulky(key))
		if _, twice := h.kv[key]; twice && r.err == nil {
			r.fail("key %q is there twice", key)
		}
		h.kv[key] = v
		if t == typeArray {
			h.arrays[key] = r.lastArray
		}
	}
	for i := uint64(0); i < tensors && r.err == nil; i++ {
		h.tensor(r, i)
	}
	if r.err != nil {
		return nil, r.err
	}
	align := int64(32)
	if v, ok := h.kv["general.alignment"].(int64); ok {
		align = v
	}
	if align < 8 || align > 1<<20 || align&(align-1) != 0 {
		return nil, fmt.Errorf("%w: general.alignment is %d, want a power of two of at least 8", ErrInvalid, align)
	}
	if start := (r.at + align - 1) / align * align; h.dataBytes > 0 && h.dataBytes > size-start {
		return nil, fmt.Errorf("%w: the last %d bytes of tensor data are missing: download the file again", ErrInvalid,
			h.dataBytes-(size-start))
	}
	return h, nil
}

// tensor reads one tensor record and checks that its data is inside the file.
func (h *header) tensor(r *reader, i uint64) {
	what := fmt.Sprintf("tensor %d", i)
	t := tensorInfo{name: r.str("name of "+what, maxKeyBytes), elements: 1, shape: [maxDims]uint64{1, 1, 1, 1}}
	dims := r.u32("dimensions of " + what)
	if dims > maxDims {
		r.fail("tensor %q has %d dimensions, the limit is %d", t.name, dims, maxDims)
	}
	for d := uint32(0); d < dims && r.err == nil; d++ {
		n := r.u64("shape of " + what)
		if n == 0 || n > 1<<48/t.elements {
			r.fail("tensor %q has an impossible shape", t.name)
			return
		}
		t.elements *= n
		if n > 1 {
			t.dims = d + 1
		}
		t.shape[d] = n
	}
	kind, offset := r.u32("type of "+what), r.u64("offset of "+what)
	if r.err != nil {
		return
	}
	typ, ok := gguffile.TypeOf(kind)
	if !ok {
		r.fail("tensor %q has type %d, which is not a type of the ggml this was built with", t.name, kind)
		return
	}
	if t.shape[0]%typ.Block != 0 {
		r.fail("tensor %q has rows of %d elements, %s wants multiples of %d", t.name, t.shape[0], typ.Name, typ.Block)
		return
	}
	t.typ, t.bytes = typ.Name, t.elements/typ.Block*typ.Bytes
	if offset > uint64(h.size) || t.bytes > uint64(h.size)-offset {
		r.fail("the data of tensor %q goes beyond the end of the file: it is truncated or damaged; download it again",
			t.name)
		return
	}
	h.tensors = append(h.tensors, t)
	h.dataBytes = max(h.dataBytes, int64(offset+t.bytes))
}

func (h *header) info() (Info, error) {
	info := Info{Version: h.version, FileBytes: h.size, Tensors: len(h.tensors)}
	info.Architecture = h.text("general.architecture")
	if info.Architecture == "" {
		return Info{}, fmt.Errorf("%w: general.architecture is missing", ErrInvalid)
	}
	mix := map[string]*Quantisation{}
	for _, t := range h.tensors {
		q := mix[t.typ]
		if q == nil {
			q = &Quantisation{Type: t.typ}
			mix[t.typ] = q
		}
		q.Tensors++
		q.Parameters += t.elements
		q.Bytes += t.bytes
		info.Parameters += t.elements
		info.TensorBytes += t.bytes
		if expert(t.name) {
			info.ExpertBytes += t.bytes
		}
		if t.name == "position_embd.weight" {
			info.Positions = int64(t.shape[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mix)) {
		info.Quantisation = append(info.Quantisation, *mix[name])
	}
	slices.SortStableFunc(info.Quantisation, func(a, b Quantisation) int {
		return int(min(max(int64(b.Bytes)-int64(a.Bytes), -1), 1))
	})

	arch := info.Architecture + "."
	info.Name = h.text("general.name")
	info.Type = h.text("general.type")
	info.License = h.text("general.license")
	info.FileType = h.fileType(info.Quantisation)
	info.Split = h.int("split.count")
	info.TrainContext = h.int(arch + "context_length")
	info.Embedding = h.int(arch + "embedding_length")
	info.Layers = h.int(arch + "block_count")
	info.Heads = h.ints(arch + "attention.head_count")
	info.KVHeads = h.ints(arch + "attention.head_count_kv")
	if info.KVHeads == nil {
		info.KVHeads = info.Heads // llama.cpp's default: no grouping
	}
	info.KeyLength, info.ValueLength = h.int(arch+"attention.key_length"), h.int(arch+"attention.value_length")
	if heads := first(info.Heads); heads > 0 {
		if info.KeyLength == 0 {
			info.KeyLength = info.Embedding / heads
		}
		if info.ValueLength == 0 {
			info.ValueLength = info.Embedding / heads
		}
	}
	info.FeedForward = h.ints(arch + "feed_forward_length")
	info.Experts, info.ExpertsUsed = h.int(arch+"expert_count"), h.int(arch+"expert_used_count")
	info.SlidingWindow = h.int(arch + "attention.sliding_window")
	info.output = h.outputBytes()
	info.HeadLayers, info.HeadBytes = h.head(h.int(arch+"nextn_predict_layers"), info.Layers, info.output)
	info.HeadFile = h.headFile(info.Architecture)
	info.RopeBase, _ = h.kv[arch+"rope.freq_base"].(float64)
	for key := range h.kv {
		if strings.HasPrefix(key, arch+"ssm.") || strings.HasPrefix(key, arch+"wkv.") {
			info.Recurrent = true
		}
	}
	info.Encoder = IsEncoder(info.Architecture)
	// Other numbers say nothing: llama.cpp saves 4294967295 for a model without pooling.
	if n, ok := h.kv[arch+"pooling_type"].(int64); ok && n >= 0 && n < int64(len(poolings)) {
		info.Pooling = poolings[n]
	}
	info.attentionLayers = info.Layers - h.int(arch+"attention.shared_kv_layers")
	if n := h.int(arch + "nextn_predict_layers"); n > 0 && n < info.attentionLayers {
		info.attentionLayers -= n // they have cells of another memory, if any
	}
	info.shapes = h.cellShapes(&info)
	if slices.ContainsFunc(h.ints(arch+"attention.compress_ratios"), func(n int64) bool { return n > 0 }) {
		info.Recurrent = true // rows that are not compressed yet are a state (DeepSeek V4)
	}
	if every := h.int(arch + "full_attention_interval"); every > 1 {
		info.attentionLayers = info.Layers / every
		info.Recurrent = true
	}
	if info.Recurrent {
		info.StateBytes = h.stateBytes(&info)
	}
	for _, n := range []int64{info.TrainContext, info.Positions, info.Embedding, info.Layers, info.KeyLength,
		info.ValueLength, info.SlidingWindow, info.attentionLayers} {
		if n < 0 || n > 1<<31 {
			return Info{}, fmt.Errorf("%w: a dimension is %d, out of range", ErrInvalid, n)
		}
	}
	for _, n := range slices.Concat(info.Heads, info.KVHeads) {
		if n < 0 || n > 1<<20 {
			return Info{}, fmt.Errorf("%w: %d attention heads, out of range", ErrInvalid, n)
		}
	}
	info.matrices = h.multiplied()
	info.placed = h.placed(&info)
	h.tokenizer(&info)
	if err := h.check(&info); err != nil {
		return Info{}, err
	}
	return info, nil
}

// stateBytes returns the size of a sequence's state in F32, by llama.cpp's llama_hparams::n_embd_r and n_embd_s. Where
// the header does not say which layers have one, all are counted.
func (h *header) stateBytes(info *Info) int64 {
	key := func(name string) int64 { // the engine refuses a value out of range
		return min(max(h.int(info.Architecture+"."+name), 0), 1<<20)
	}
	heads := min(first(info.Heads), 1<<20)
	conv := max(key("ssm.conv_kernel")-1, 0)
	var row int64
	switch wkv, kda := key("wkv.head_size"), key("kda.head_dim"); {
	case wkv > 0:
		row = info.Embedding * (max(key("token_shift_count"), 2) + wkv)
	case kda > 0:
		row = (3*conv + kda) * heads * kda
	default:
		row = conv*(key("ssm.inner_size")+2*key("ssm.group_count")*key("ssm.state_size")) +
			key("ssm.state_size")*key("ssm.inner_size")
	}
	layers := info.Layers
	switch {
	case len(info.KVHeads) > 1:
		layers = 0
		for _, n := range info.KVHeads {
			if n == 0 {
				layers++
			}
		}
	case h.int(info.Architecture+".full_attention_interval") > 1:
		layers -= info.attentionLayers
	}
	if over, n := bits.Mul64(uint64(max(row, 0)), uint64(max(layers, 0))*4); over == 0 && n < maxStateBytes {
		return int64(n)
	}
	return maxStateBytes
}

// maxStateBytes bounds what a header can claim of a state, in bytes.
const maxStateBytes = 1 << 40

// maxPerToken bounds what a header can claim of a token's cells, in bytes, so that sums stay within 64 bits.
const maxPerToken = 1 << 40

// KVBytesPerToken returns the size of one token's cells in all layers, with K and V stored as the given types ("f16",
// "q8_0", …). Sliding-window layers keep at most SlidingWindow tokens; recurrent layers keep none.
func (i Info) KVBytesPerToken(typeK, typeV string) (int64, error) {
	if i.Encoder || i.Architecture == ArchAssistant { // which reads the cells of its model
		return 0, nil
	}
	var total int64
	layer := func(kvHeads, times int64) error {
		k, err := cacheBytes(typeK, kvHeads*i.KeyLength)
		if err != nil {
			return err
		}
		v, err := cacheBytes(typeV, kvHeads*i.ValueLength)
		if over, n := bits.Mul64(uint64(k+v), uint64(times)); over != 0 || n > maxPerToken {
			total = maxPerToken
		} else {
			total = min(total+int64(n), maxPerToken)
		}
		return err
	}
	times := int64(1)
	if len(i.KVHeads) == 1 {
		times = i.attentionLayers
	}
	for _, heads := range i.KVHeads {
		if err := layer(heads, times); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// poolings are the names of pooling_type's numbers (llama.cpp's enum llama_pooling_type).
var poolings = []string{"none", "mean", "cls", "last", "rank"}

// IsEncoder reports whether llama.cpp computes the models of an architecture without a memory that it uses: each row
// sees the whole text.
func IsEncoder(architecture string) bool {
	switch architecture {
	case "bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert", "modern-bert", "eurobert",
		"gemma-embedding", "llama-embed":
		return true
	}
	return false
}

func first(list []int64) int64 {
	return slices.Max(append([]int64{0}, list...))
}

func (h *header) text(key string) string { s, _ := h.kv[key].(string); return s }

func (h *header) int(key string) int64 { return first(h.ints(key)) }

// ints reads a key whose value is one number or one per layer.
func (h *header) ints(key string) []int64 {
	switch v := h.kv[key].(type) {
	case int64:
		return []int64{v}
	case []int64:
		return v
	}
	return nil
}
