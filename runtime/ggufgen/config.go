package ggufgen

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// ErrConfig is wrapped by every error about a Config; the text names the field and its limit.
var ErrConfig = errors.New("ggufgen: invalid config")

// Type is the storage type of the weight matrices. Norms are always F32.
type Type string

// The storage types, by llama.cpp's names.
const (
	F32    Type = "f32"
	F16    Type = "f16"
	BF16   Type = "bf16"
	Q8_0   Type = "q8_0"
	Q5_0   Type = "q5_0"
	Q4_0   Type = "q4_0"
	IQ4_NL Type = "iq4_nl"
	Q6_K   Type = "q6_k"
	Q5_K   Type = "q5_k"
	Q4_K   Type = "q4_k"
	Q4_K_M Type = "q4_k_m" // a mixture, mostly Q4_K; see storageOf
)

// Types returns the storage types, widest first.
func Types() []Type {
	return []Type{F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_0, Q4_K_M, Q4_K, Q4_0, IQ4_NL}
}

// TypeNames returns the Types as text: "f32, f16, … or iq4_nl".
func TypeNames() string {
	var names []string
	for _, t := range Types() {
		names = append(names, string(t))
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// Arch is the model's architecture in llama.cpp.
type Arch string

const (
	// Llama has rotary full attention, SwiGLU, RMS norms. KV ranges can be removed and copied.
	Llama Arch = "llama"
	// Gemma2 alternates sliding-window and full layers (even layers see Config.Window tokens) and ties its embeddings.
	// Its memory cannot remove ranges freely, which tests the SWA fallbacks.
	Gemma2 Arch = "gemma2"
	// Maincoder is Llama with queries and keys normalised by head after the rotation, an architecture of 2026.
	Maincoder Arch = "maincoder"
	// GLM4MoE is Llama with norms in other places; here its layers are dense. A layer more, with an expert, may be its
	// head (Config.Head).
	GLM4MoE Arch = "glm4moe"
	// Qwen2VL and Qwen3VL are Llama with positions of several dimensions (M-RoPE), see grids.go. Qwen3VL has norms of
	// queries and keys, and its images reach several layers.
	Qwen2VL Arch = "qwen2vl"
	Qwen3VL Arch = "qwen3vl"
	// Qwen35 is such a model too. Every other layer has a state in the place of cells, see delta.go.
	Qwen35 Arch = "qwen35"
	// LFM2 is Llama with norms of queries and keys, and short convolutions in every other layer, see delta.go.
	LFM2 Arch = "lfm2"
	// Eagle3 is a head in a separate file, for a model whose shape is Config.Target, see eagle.go.
	Eagle3 Arch = "eagle3"
	// DFlash is such a head that guesses a block of tokens at once, see dflash.go.
	DFlash Arch = "dflash"
	// Gemma4 has windowed layers with heads of HeadDim before full ones with heads of twice that, see gemma4.go.
	Gemma4 Arch = "gemma4"
	// Gemma4Assistant is a head in a separate file that reads the cells of a Gemma4.
	Gemma4Assistant Arch = "gemma4-assistant"
	// Bert and NomicBert only read: every row sees the whole text, and there is no KV memory. Bert has learned
	// positions and GELU, NomicBert rotary positions and SwiGLU.
	Bert      Arch = "bert"
	NomicBert Arch = "nomic-bert"
)

// quantBlock is the number of elements in a block of Q8_0, Q5_0, Q4_0 or IQ4_NL; rows are whole blocks.
const quantBlock = 32

// Config describes a model. Start from Tiny or Bench135M and change fields; the zero value is not valid.
type Config struct {
	Name string `json:"name"`
	Arch Arch   `json:"arch"`
	Type Type   `json:"type"`

	VocabSize int `json:"vocab_size"` // tokens, at least MinVocab
	Embedding int `json:"embedding"`  // d_model; a multiple of 32
	Layers    int `json:"layers"`
	Heads     int `json:"heads"`    // query heads
	KVHeads   int `json:"kv_heads"` // divides Heads
	HeadDim   int `json:"head_dim"` // 0 = Embedding / Heads; even
	// FullHeadDim is HeadDim in the full layers of a Gemma4 and its assistant; 0 = twice HeadDim.
	FullHeadDim int     `json:"full_head_dim,omitempty"`
	FFN         int     `json:"ffn"`       // feed-forward width; a multiple of 32
	Context     int     `json:"context"`   // training context in tokens, as declared in the file
	RopeBase    float32 `json:"rope_base"` // rotary frequency base; 0 = 10,000
	Window      int     `json:"window"`    // sliding window in tokens; Gemma2, Gemma4 and its assistant only
	Tied        bool    `json:"tied"`      // output matrix = token embedding; always so for Gemma2
	Seed        uint64  `json:"seed"`      // seed of the weights; the vocabulary does not depend on it
	Template    string  `json:"template"`  // Jinja chat template; "" = none in the file
	AddBOS      bool    `json:"add_bos"`   // tokenizer.ggml.add_bos_token
	NoThink     bool    `json:"no_think"`  // leave <think> and </think> out of the vocabulary
	// Copies makes the model continue a text as it went on before, see copies.go. It sets RopeBase.
	Copies bool `json:"copies,omitempty"`
	// Head adds a layer that guesses the token behind the next one (multi-token prediction, GLM4MoE only), see head.go.
	Head Head `json:"head,omitempty"`
	// Experts is the number of experts in each layer's feed-forward part, of which a row takes two; 0 = none. Llama
	// only.
	Experts int `json:"experts,omitempty"`
	// Still has the layers compute as always and add nothing, so that what the model says depends on the newest token
	// alone; Llama only.
	Still bool `json:"still,omitempty"`
	// Turns has a model that is Still say the next token of the vocabulary behind each token, see dflash.go.
	Turns  bool    `json:"turns,omitempty"`
	Target *Target `json:"target,omitempty"` // Eagle3, DFlash and Gemma4Assistant only
	// Images puts the markers of images into the vocabulary, see projector.go.
	Images bool `json:"images,omitempty"`
	// Pooling is the file's pooling kind: none, mean, cls, last or rank; "" = the file has none.
	Pooling string `json:"pooling,omitempty"`

	// LogitScale is the standard deviation of the logits; 0 = 3. The largest of V Gaussian logits lies about
	// LogitScale·√(2·ln V) above the mean.
	LogitScale float32 `json:"logit_scale"`
	// ThinkCloseEvery is the mean number of tokens after which </think> is the greedy choice. 0 = practically never, so
	// that a thinking phase ends only by budget.
	ThinkCloseEvery int `json:"think_close_every"`
	// EndEvery is the same for <|im_end|>. 0 = practically never, so that generations run to max_tokens.
	EndEvery int `json:"end_every"`
}

// Tiny returns a model of a few hundred kilobytes: it loads in milliseconds and runs thousands of tokens a second.
//
// It is quantised to make it exact: ggml multiplies Q8_0 and Q4_0 rows as integers, so on an x86 CPU a row's logits are
// the same to the bit whatever the batch's shape. With F16 and F32 the kernels depend on the batch's shape, and logits
// were measured to differ by up to 0.03 between one batch of 200 tokens and 200 batches of one.
func Tiny() Config {
	return Config{
		Name: "ggufgen-tiny", Arch: Llama, Type: Q8_0,
		VocabSize: 512, Embedding: 64, Layers: 2, Heads: 2, KVHeads: 1, FFN: 192,
		Context: 4096, RopeBase: 10_000, Seed: 1, Template: ChatMLDropThinking,
	}
}

// TinySWA is Tiny with sliding-window layers: even layers see the last 32 tokens.
func TinySWA() Config {
	c := Tiny()
	c.Name, c.Arch, c.Layers, c.Window, c.Tied = "ggufgen-tiny-swa", Gemma2, 4, 32, true
	return c
}

// TinyMaincoder is Tiny with normalised queries and keys.
func TinyMaincoder() Config {
	c := Tiny()
	c.Name, c.Arch = "ggufgen-tiny-maincoder", Maincoder
	return c
}

// TinyLong is one layer with a context of 131,072 tokens and words in its vocabulary: the prompts of coding agents are
// tens of kilobytes, and their tokens cost little.
func TinyLong() Config {
	c := Tiny()
	c.Name, c.Layers, c.VocabSize, c.Context = "ggufgen-tiny-long", 1, 8192, 131_072
	return c
}

// Bench135M has the shape of SmolLM-135M (134.5 M parameters) at Q8_0, about 143 MB: for benchmarks.
func Bench135M() Config {
	return Config{
		Name: "ggufgen-bench-135m", Arch: Llama, Type: Q8_0,
		VocabSize: 49_152, Embedding: 576, Layers: 30, Heads: 9, KVHeads: 3, FFN: 1536,
		Context: 8192, RopeBase: 10_000, Tied: true, Seed: 1, Template: ChatMLDropThinking,
	}
}

// TinyWide is Tiny with rows of 256 elements and more, whole super-blocks: the smallest model that Q4_K, Q5_K and Q6_K
// weights fit into, and with eight layers, so that Q4_K_M has both of its types in them.
func TinyWide() Config {
	c := Tiny()
	c.Name, c.Embedding, c.Layers, c.Heads, c.KVHeads, c.FFN = "ggufgen-tiny-wide", 256, 8, 4, 2, 512
	return c
}

// Bench135MWide is of Bench135M's class (138.5 M parameters), with rows of whole super-blocks: SmolLM's rows of 576
// cannot be Q4_K, and llama.cpp's quantiser makes them Q5_0. 16 layers, Q4_K_M.
func Bench135MWide() Config {
	c := Bench135M()
	c.Name, c.Type = "ggufgen-bench-135m-wide", Q4_K_M
	c.Embedding, c.Layers, c.Heads, c.KVHeads, c.FFN = 768, 16, 12, 4, 2048
	return c
}

// Bench1B has the shape of TinyLlama-1.1B (1,100 M parameters) at Q4_K_M, about 670 MB: a model with a noticeable time
// to first token.
func Bench1B() Config {
	return Config{
		Name: "ggufgen-bench-1b", Arch: Llama, Type: Q4_K_M,
		VocabSize: 32_000, Embedding: 2048, Layers: 22, Heads: 32, KVHeads: 4, FFN: 5632,
		Context: 2048, RopeBase: 10_000, Seed: 1, Template: ChatMLDropThinking,
	}
}

// Bench30M is one layer of Bench1B's width (30.4 M parameters, 17 to 25 MB of quantised weights): what a cache of 32 MB
// holds, so that the speed of memory does not limit a step.
func Bench30M() Config {
	c := Bench1B()
	c.Name, c.Layers, c.FFN, c.VocabSize = "ggufgen-bench-30m", 1, 2048, 2048
	return c
}

// Presets returns the command's named configurations.
func Presets() map[string]Config {
	return map[string]Config{
		"tiny": Tiny(), "tiny-swa": TinySWA(), "tiny-wide": TinyWide(), "tiny-long": TinyLong(),
		"tiny-maincoder": TinyMaincoder(), "tiny-experts": TinyExperts(),
		"bench135m": Bench135M(), "bench135m-wide": Bench135MWide(), "bench1b": Bench1B(),
		"bench30m":    Bench30M(),
		"tiny-copies": TinyCopies(), "bench-copies": BenchCopies(),
		"tiny-bert": TinyBert(), "tiny-nomic-bert": TinyNomic(), "tiny-embed": TinyEmbed(), "tiny-rank": TinyRank(),
		"tiny-learned": TinyLearned(), "tiny-vision": TinyVision(),
		"tiny-qwen2vl": TinyGrids(Qwen2VL), "tiny-qwen3vl": TinyGrids(Qwen3VL), "tiny-qwen35": TinyGrids(Qwen35),
		"tiny-lfm2": TinyLFM2(),
		"tiny-head": TinyHead(HeadRandom), "bench-head": BenchHead(HeadRandom),
		"bench-head-knows": BenchHead(HeadKnows),
		"tiny-target":      TinyTarget(false), "tiny-eagle3": EagleOf(TinyTarget(false), HeadRandom),
		"bench-target": BenchTarget(), "bench-eagle3": EagleOf(BenchTarget(), HeadRandom),
		"bench-eagle3-knows": EagleOf(BenchTarget(), HeadKnows),
		"tiny-dflash":        DFlashOf(TinyTarget(false), HeadRandom, 7),
		"bench-turns":        BenchTurns(), "bench-dflash": DFlashOf(BenchTurns(), HeadRandom, 7),
		"bench-dflash-knows": DFlashOf(BenchTurns(), HeadKnows, 7),
		"tiny-gemma4":        TinyGemma4(false), "tiny-assistant": AssistantOf(TinyGemma4(false), HeadRandom),
		"tiny-deepseek4": TinyDeepSeek4(),
	}
}

// withDefaults resolves the zero values.
func (c Config) withDefaults() Config {
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Embedding / c.Heads
	}
	if c.Copies {
		c.RopeBase = copyBase
	}
	if c.RopeBase == 0 {
		c.RopeBase = 10_000
	}
	if c.LogitScale == 0 {
		c.LogitScale = 3
	}
	return c
}

// Validate reports the first field that cannot be used. The error wraps ErrConfig.
func (c Config) Validate() error {
	c = c.withDefaults()
	bad := func(field string, got any, want string) error {
		return fmt.Errorf("%w: %s is %v, want %s", ErrConfig, field, got, want)
	}
	between := func(field string, v, lo, hi int) error {
		if v < lo || v > hi {
			return bad(field, v, fmt.Sprintf("%d…%d", lo, hi))
		}
		return nil
	}
	if err := errors.Join(c.validateCopies(), c.validateHead(), c.validateExperts()); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if !slices.Contains(Types(), c.Type) {
		return bad("Type", fmt.Sprintf("%q", c.Type), TypeNames())
	}
	switch c.Arch {
	case Llama, Maincoder, GLM4MoE, Qwen2VL, Qwen3VL, Qwen35, LFM2, Eagle3, DFlash:
		if c.Window != 0 && c.Arch != DFlash {
			return bad("Window", c.Window, "0: only gemma2 has sliding-window layers")
		}
	case Gemma2:
		if !c.Tied {
			return bad("Tied", c.Tied, "true: gemma2 ties its embeddings")
		}
		if err := between("Window", c.Window, 1, 1<<20); err != nil {
			return err
		}
		if c.Layers < 2 {
			return bad("Layers", c.Layers, "at least 2: one sliding-window and one full layer")
		}
	case GPT2:
		switch {
		case c.Window != 0:
			return bad("Window", c.Window, "0: only gemma2 has sliding-window layers")
		case !c.Tied:
			return bad("Tied", c.Tied, "true for gpt2")
		case c.KVHeads != c.Heads || c.Heads*c.HeadDim != c.Embedding:
			return bad("KVHeads", c.KVHeads, "as Heads, and Heads·HeadDim as Embedding, for gpt2")
		case c.Copies:
			return bad("Copies", c.Copies, "false for gpt2")
		}
	case Gemma4, Gemma4Assistant:
		if err := between("Window", c.Window, 1, 1<<20); err != nil {
			return err
		}
		if c.Layers < 2 || c.Copies {
			return bad("Layers", c.Layers, "at least 2, and Copies false: windowed layers, and a full one")
		}
	case DeepSeek4:
		if err := c.validateDeepSeek4(); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	case Bert, NomicBert:
		switch {
		case c.Window != 0:
			return bad("Window", c.Window, "0: only gemma2 has sliding-window layers")
		case !c.Tied:
			return bad("Tied", c.Tied, "true: an encoder has no output matrix")
		case c.KVHeads != c.Heads || c.Heads*c.HeadDim != c.Embedding:
			return bad("KVHeads", c.KVHeads, "as Heads, and Heads·HeadDim as Embedding, for an encoder")
		case c.Template != "" || c.ThinkCloseEvery != 0 || c.EndEvery != 0:
			return bad("Template", "set", `"", and ThinkCloseEvery and EndEvery 0: an encoder generates nothing`)
		case c.Arch == NomicBert && c.Pooling == "":
			return bad("Pooling", `""`, "set: llama.cpp wants it of a nomic-bert")
		case c.Arch == NomicBert && c.Pooling == "rank":
			return bad("Pooling", `"rank"`, "another: llama.cpp reads no classifier of a nomic-bert")
		}
	default:
		return bad("Arch", fmt.Sprintf("%q", c.Arch), "llama, gemma2, gemma4, gemma4-assistant, maincoder, glm4moe, "+
			"qwen2vl, qwen3vl, qwen35, lfm2, deepseek4, eagle3, dflash, gpt2, bert or nomic-bert")
	}
	if c.Pooling != "" && !slices.Contains(poolings, c.Pooling) {
		return bad("Pooling", fmt.Sprintf("%q", c.Pooling), `"" or one of `+strings.Join(poolings, ", "))
	}
	if err := errors.Join(
		between("VocabSize", c.VocabSize, MinVocab, 1<<19),
		between("Embedding", c.Embedding, quantBlock, 1<<15),
		between("Layers", c.Layers, 1, 256),
		between("Heads", c.Heads, 1, 256),
		between("KVHeads", c.KVHeads, 1, 256),
		between("HeadDim", c.HeadDim, 2, 512),
		between("FFN", c.FFN, quantBlock, 1<<17),
		between("Context", c.Context, 1, 1<<24),
		between("ThinkCloseEvery", c.ThinkCloseEvery, 0, 1<<20),
		between("EndEvery", c.EndEvery, 0, 1<<20),
	); err != nil {
		return err
	}
	// A row is whole blocks. The mixture falls back to types of 32 where 256 do not divide it.
	block := max(quantBlock, storages[c.Type].block)
	switch {
	case c.Embedding%block != 0:
		return bad("Embedding", c.Embedding, fmt.Sprintf("a multiple of %d", block))
	case c.FFN%block != 0:
		return bad("FFN", c.FFN, fmt.Sprintf("a multiple of %d", block))
	case c.Heads%c.KVHeads != 0:
		return bad("KVHeads", c.KVHeads, fmt.Sprintf("a divisor of Heads (%d)", c.Heads))
	case c.HeadDim%2 != 0:
		return bad("HeadDim", c.HeadDim, "even: rotary pairs")
	case c.Heads*c.HeadDim%block != 0 && (c.Type == Q4_K_M || storages[c.Type].block > 1):
		return bad("HeadDim", c.HeadDim, fmt.Sprintf("Heads·HeadDim a multiple of %d, for %s", block, c.Type))
	case c.NoThink && c.ThinkCloseEvery != 0:
		return bad("ThinkCloseEvery", c.ThinkCloseEvery, "0 with NoThink")
	case !(c.LogitScale > 0 && c.LogitScale <= 100):
		return bad("LogitScale", c.LogitScale, "above 0, at most 100")
	case !(c.RopeBase >= 1 && c.RopeBase <= math.MaxInt32):
		return bad("RopeBase", c.RopeBase, "at least 1")
	}
	return nil
}

// Parameters returns the number of weights as llama.cpp counts them (tied embeddings once).
func (c Config) Parameters() uint64 {
	var n uint64
	for _, t := range c.withDefaults().plan(nil) {
		n += t.elements()
	}
	return n
}
