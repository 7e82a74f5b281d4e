package ggufgen

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// formatVersion is part of a cached file's name. Raise it when the bytes for a Config change.
const formatVersion = 1

func itoa(i int) string { return strconv.Itoa(i) }

// Write writes the model of cfg to path. It writes to a temporary name in the same directory and renames, so that path
// is never incomplete. Errors wrap ErrConfig or are the file system's.
func Write(path string, cfg Config) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("create model file: %w", err)
	}
	defer os.Remove(f.Name()) // removes the file after an error
	err = WriteTo(f, cfg)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write model %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

// WriteTo writes the model to f, which must be empty. Tensors are written in parallel at their offsets, each
// streamed: memory stays at a few megabytes whatever the model's size.
func WriteTo(f *os.File, cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	v := cfg.vocabulary()
	plan := cfg.plan(v)
	// By layer, what belongs to none last, as in the files of earlier releases.
	slices.SortStableFunc(plan, func(a, b *tensor) int {
		return cmp.Or(cmp.Compare(a.layer(), b.layer()), cmp.Compare(a.name, b.name))
	})
	tensors := make([]gguffile.Tensor, len(plan))
	for i, t := range plan {
		tensors[i] = gguffile.Tensor{Name: t.name, Type: t.storage.kind, Shape: t.shape(), Data: t}
	}
	if err := gguffile.Write(f, cfg.pairs(v), tensors); err != nil {
		return err
	}
	return f.Sync()
}

// layer returns the layer that the tensor belongs to, math.MaxInt for none.
func (t *tensor) layer() int {
	if rest, ok := strings.CutPrefix(t.name, "blk."); ok {
		number, _, _ := strings.Cut(rest, ".")
		if n, err := strconv.Atoi(number); err == nil {
			return n
		}
	}
	return math.MaxInt
}

// vocabulary makes the tokens of the model.
func (c Config) vocabulary() *vocabulary {
	if c.Arch.encoder() {
		return newWordPieces(c.VocabSize)
	}
	switch {
	case c.Images && c.Arch.grids():
		return newVocabulary(c.VocabSize, !c.NoThink, gridMarkers...)
	case c.Images && c.Arch == LFM2:
		return newVocabulary(c.VocabSize, !c.NoThink, lfm2Markers...)
	case c.Images:
		return newVocabulary(c.VocabSize, !c.NoThink, imageMarkers...)
	}
	return newVocabulary(c.VocabSize, !c.NoThink)
}

// pairs returns the key-value pairs of the header, in the order of metadata's keys.
func (c Config) pairs(v *vocabulary) []gguffile.KV {
	kv := c.metadata(v)
	var pairs []gguffile.KV
	for _, key := range slices.Sorted(maps.Keys(kv)) {
		full := key
		if !strings.HasPrefix(key, "general.") && !strings.HasPrefix(key, "tokenizer.") {
			full = string(c.Arch) + "." + key
		}
		pairs = append(pairs, gguffile.KV{Key: full, Value: kv[key]})
	}
	return pairs
}

// metadata returns the values of the header by key. Keys that begin with neither "general." nor "tokenizer." belong to
// the architecture, whose name is not yet before them.
func (c Config) metadata(v *vocabulary) map[string]any {
	describe := c.decoderMetadata
	if c.Arch.encoder() {
		describe = c.encoderMetadata
	}
	kv := describe(v)
	if i := slices.Index(poolings, c.Pooling); i >= 0 {
		kv["pooling_type"] = uint32(i)
	}
	return kv
}

// decoderMetadata returns the key-value pairs of a model that generates.
func (c Config) decoderMetadata(v *vocabulary) map[string]any {
	kv := map[string]any{
		"general.architecture":         string(c.Arch),
		"general.name":                 c.Name,
		"general.type":                 "model",
		"general.file_type":            c.Type.fileType(),
		"general.quantization_version": uint32(2),

		"block_count":                      uint32(c.Layers),
		"context_length":                   uint32(c.Context),
		"embedding_length":                 uint32(c.Embedding),
		"feed_forward_length":              uint32(c.FFN),
		"vocab_size":                       uint32(c.VocabSize),
		"attention.head_count":             uint32(c.Heads),
		"attention.head_count_kv":          uint32(c.KVHeads),
		"attention.key_length":             uint32(c.HeadDim),
		"attention.value_length":           uint32(c.HeadDim),
		"attention.layer_norm_rms_epsilon": float32(rmsEpsilon),
		"rope.dimension_count":             uint32(c.HeadDim),
		"rope.freq_base":                   c.RopeBase,

		"tokenizer.ggml.model":            "gpt2",
		"tokenizer.ggml.pre":              "gpt-2",
		"tokenizer.ggml.tokens":           v.tokens,
		"tokenizer.ggml.token_type":       v.types,
		"tokenizer.ggml.merges":           v.merges,
		"tokenizer.ggml.bos_token_id":     v.id(tokenEndOfText),
		"tokenizer.ggml.eos_token_id":     v.id(tokenIMEnd),
		"tokenizer.ggml.padding_token_id": v.id(tokenEndOfText),
		"tokenizer.ggml.add_bos_token":    c.AddBOS,
		"tokenizer.ggml.add_space_prefix": false,
	}
	if c.Template != "" {
		kv["tokenizer.chat_template"] = c.Template
	}
	switch {
	case c.Arch == Eagle3:
		c.eagleMetadata(kv)
	case c.Arch == DFlash:
		c.dflashMetadata(kv)
	case c.Arch == Gemma4Assistant:
		c.assistantMetadata(kv)
	case c.Arch == Gemma4:
		c.gemma4Metadata(kv)
	case c.Arch == DeepSeek4:
		c.deepMetadata(kv)
	case c.Head != NoHead:
		c.headMetadata(kv)
	case c.Arch.grids():
		c.gridMetadata(kv)
	case c.Arch == LFM2:
		c.convMetadata(kv)
	}
	if c.Experts > 0 {
		kv["expert_count"], kv["expert_used_count"] = uint32(c.Experts), uint32(expertsUsed)
	}
	if c.Arch == GPT2 {
		kv["attention.layer_norm_epsilon"] = float32(rmsEpsilon)
	}
	if c.Arch == Gemma2 {
		kv["attention.sliding_window"] = uint32(c.Window)
		kv["attn_logit_softcapping"] = float32(50)
		// Far above any logit: Gemma's own 30 would press the bias channel and the best candidates together.
		kv["final_logit_softcapping"] = float32(1000)
	}
	return kv
}

// TB is the part of testing.TB that Cached uses, so that this package does not link the testing package into
// commands.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Cached returns the path of the model of cfg in the user's cache directory, and writes the model if it is not there.
// Several processes may call it at once: each writes a temporary file, and the renames replace equal bytes, which does
// not disturb readers (a mapped file outlives its name).
func Cached(t TB, cfg Config) string {
	t.Helper()
	path, err := cached(cfg)
	if err != nil {
		t.Fatalf("ggufgen: %v", err)
	}
	return path
}

func cached(cfg Config) (string, error) {
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	dir, err := os.UserCacheDir()
	if err != nil { // no home directory: a private folder among the temporary files
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("cache-%d", os.Getuid()))
	}
	dir = filepath.Join(dir, "uma-serve", "ggufgen")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	desc, err := json.Marshal(cfg.withDefaults())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", formatVersion, desc))
	path := filepath.Join(dir, hex.EncodeToString(sum[:8])+".gguf")
	// A full disk or a crash after the rename leaves a file of the wrong size.
	if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && fi.Size() >= int64(cfg.weightBytes()) {
		return path, nil
	}
	return path, Write(path, cfg)
}

// weightBytes returns the size of the tensor data without padding and header.
func (c Config) weightBytes() uint64 {
	var n uint64
	for _, t := range c.withDefaults().plan(nil) {
		n += t.bytes()
	}
	return n
}
