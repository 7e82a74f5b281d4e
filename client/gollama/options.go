package llama

// ModelOptions are the options of New. The table in the package's documentation says what each one means here.
type ModelOptions struct {
	ContextSize   int // tokens
	Seed          int
	NBatch        int
	F16Memory     bool
	MLock         bool
	MMap          bool
	LowVRAM       bool
	Embeddings    bool
	NUMA          bool
	NGPULayers    int
	MainGPU       string
	TensorSplit   string
	FreqRopeBase  float32
	FreqRopeScale float32
	MulMatQ       *bool
	LoraBase      string
	LoraAdapter   string
	Perplexity    bool
}

// PredictOptions are the options of Predict and the other calls that compute.
type PredictOptions struct {
	Seed, Threads, Tokens, TopK, Repeat, Batch, NKeep int
	TopP, Temperature, Penalty                        float32
	NDraft                                            int
	F16KV                                             bool
	DebugMode                                         bool
	StopPrompts                                       []string
	IgnoreEOS                                         bool

	TailFreeSamplingZ float32
	TypicalP          float32
	FrequencyPenalty  float32
	PresencePenalty   float32
	Mirostat          int
	MirostatETA       float32
	MirostatTAU       float32
	PenalizeNL        bool
	LogitBias         string
	TokenCallback     func(string) bool

	PathPromptCache             string
	MLock, MMap, PromptCacheAll bool
	PromptCacheRO               bool
	Grammar                     string
	MainGPU                     string
	TensorSplit                 string

	RopeFreqBase  float32
	RopeFreqScale float32

	NegativePromptScale float32
	NegativePrompt      string
}

// ModelOption sets a field of ModelOptions.
type ModelOption func(p *ModelOptions)

// PredictOption sets a field of PredictOptions.
type PredictOption func(p *PredictOptions)

// DefaultModelOptions are the values of options that New is not given, those of go-llama.cpp.
var DefaultModelOptions = ModelOptions{ContextSize: 512, MMap: true, NBatch: 512, FreqRopeBase: 10000, FreqRopeScale: 1}

// DefaultOptions are the values of options that Predict is not given, those of go-llama.cpp.
var DefaultOptions = PredictOptions{
	Seed: -1, Threads: 4, Tokens: 128, Penalty: 1.1, Repeat: 64, Batch: 512, NKeep: 64,
	TopK: 40, TopP: 0.95, TailFreeSamplingZ: 1, TypicalP: 1, Temperature: 0.8,
	MirostatTAU: 5, MirostatETA: 0.1, MMap: true, RopeFreqBase: 10000, RopeFreqScale: 1,
}

// NewModelOptions are DefaultModelOptions with the given changes.
func NewModelOptions(opts ...ModelOption) ModelOptions { return with(DefaultModelOptions, opts) }

// NewPredictOptions are DefaultOptions with the given changes.
func NewPredictOptions(opts ...PredictOption) PredictOptions { return with(DefaultOptions, opts) }

func with[O any, F ~func(*O)](o O, opts []F) O {
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Options of New without a value.
var (
	EnabelLowVRAM    ModelOption = func(p *ModelOptions) { p.LowVRAM = true } // the published name
	EnableNUMA       ModelOption = func(p *ModelOptions) { p.NUMA = true }
	EnableEmbeddings ModelOption = func(p *ModelOptions) { p.Embeddings = true }
	EnableF16Memory  ModelOption = func(p *ModelOptions) { p.F16Memory = true }
	EnableMLock      ModelOption = func(p *ModelOptions) { p.MLock = true }
)

// Options of Predict without a value.
var (
	EnableF16KV          PredictOption = func(p *PredictOptions) { p.F16KV = true }
	Debug                PredictOption = func(p *PredictOptions) { p.DebugMode = true }
	EnablePromptCacheAll PredictOption = func(p *PredictOptions) { p.PromptCacheAll = true }
	EnablePromptCacheRO  PredictOption = func(p *PredictOptions) { p.PromptCacheRO = true }
	IgnoreEOS            PredictOption = func(p *PredictOptions) { p.IgnoreEOS = true }
)

// SetContext sets the tokens of context that the program needs.
func SetContext(c int) ModelOption { return func(p *ModelOptions) { p.ContextSize = c } }

// SetModelSeed has no effect; Predict's seed is SetSeed.
func SetModelSeed(c int) ModelOption { return func(p *ModelOptions) { p.Seed = c } }

// SetNBatch is the daemon's --batch-size.
func SetNBatch(n int) ModelOption { return func(p *ModelOptions) { p.NBatch = n } }

// SetMMap is the daemon's --no-mmap.
func SetMMap(b bool) ModelOption { return func(p *ModelOptions) { p.MMap = b } }

// SetGPULayers is the daemon's --gpu-layers.
func SetGPULayers(n int) ModelOption { return func(p *ModelOptions) { p.NGPULayers = n } }

// SetMainGPU is the daemon's choice.
func SetMainGPU(gpu string) ModelOption { return func(p *ModelOptions) { p.MainGPU = gpu } }

// SetTensorSplit is the daemon's choice.
func SetTensorSplit(split string) ModelOption { return func(p *ModelOptions) { p.TensorSplit = split } }

// SetMulMatQ is the daemon's choice of kernels.
func SetMulMatQ(b bool) ModelOption { return func(p *ModelOptions) { p.MulMatQ = &b } }

// SetPerplexity has no effect.
func SetPerplexity(b bool) ModelOption { return func(p *ModelOptions) { p.Perplexity = b } }

// SetLoraBase is refused by New.
func SetLoraBase(s string) ModelOption { return func(p *ModelOptions) { p.LoraBase = s } }

// SetLoraAdapter is refused by New.
func SetLoraAdapter(s string) ModelOption { return func(p *ModelOptions) { p.LoraAdapter = s } }

// WithRopeFreqBase is refused by New unless it is 10000, which go-llama.cpp has by default, or 0, the model's.
func WithRopeFreqBase(f float32) ModelOption { return func(p *ModelOptions) { p.FreqRopeBase = f } }

// WithRopeFreqScale is refused by New unless it is 1 or 0.
func WithRopeFreqScale(f float32) ModelOption { return func(p *ModelOptions) { p.FreqRopeScale = f } }

// SetTokenCallback gets each piece of the answer as it comes; false ends the answer.
func SetTokenCallback(f func(string) bool) PredictOption {
	return func(p *PredictOptions) { p.TokenCallback = f }
}

// SetStopWords sets texts that end the answer.
func SetStopWords(stop ...string) PredictOption {
	return func(p *PredictOptions) { p.StopPrompts = stop }
}

// SetSeed sets the seed of sampling; below 1: a random one.
func SetSeed(seed int) PredictOption { return func(p *PredictOptions) { p.Seed = seed } }

// SetThreads is the daemon's --threads.
func SetThreads(n int) PredictOption { return func(p *PredictOptions) { p.Threads = n } }

// SetTokens sets the most tokens of an answer; 0: as many as the daemon allows.
func SetTokens(n int) PredictOption { return func(p *PredictOptions) { p.Tokens = n } }

// SetTopK keeps the k most probable tokens; 0 or less: all.
func SetTopK(k int) PredictOption { return func(p *PredictOptions) { p.TopK = k } }

// SetTopP keeps the most probable tokens of this total probability.
func SetTopP(topP float32) PredictOption { return func(p *PredictOptions) { p.TopP = topP } }

// SetTemperature sets the temperature; 0: the most probable token.
func SetTemperature(t float32) PredictOption { return func(p *PredictOptions) { p.Temperature = t } }

// SetPenalty sets the factor of the repetition penalty; 1: none.
func SetPenalty(f float32) PredictOption { return func(p *PredictOptions) { p.Penalty = f } }

// SetRepeat sets the tokens that the penalties look back; -1: all.
func SetRepeat(n int) PredictOption { return func(p *PredictOptions) { p.Repeat = n } }

// SetBatch is the daemon's --batch-size.
func SetBatch(n int) PredictOption { return func(p *PredictOptions) { p.Batch = n } }

// SetNKeep has no effect: an answer ends at the daemon's context.
func SetNKeep(n int) PredictOption { return func(p *PredictOptions) { p.NKeep = n } }

// SetNDraft has no effect: SpeculativeSampling alone reads it.
func SetNDraft(n int) PredictOption { return func(p *PredictOptions) { p.NDraft = n } }

// SetTailFreeSamplingZ is refused by Predict unless it is 1, off: llama.cpp has no tail-free sampling since October
// 2024.
func SetTailFreeSamplingZ(z float32) PredictOption {
	return func(p *PredictOptions) { p.TailFreeSamplingZ = z }
}

// SetTypicalP sets locally typical sampling; 1: off.
func SetTypicalP(t float32) PredictOption { return func(p *PredictOptions) { p.TypicalP = t } }

// SetFrequencyPenalty sets the penalty for each time that a token occurs.
func SetFrequencyPenalty(f float32) PredictOption {
	return func(p *PredictOptions) { p.FrequencyPenalty = f }
}

// SetPresencePenalty sets the penalty for a token that occurs.
func SetPresencePenalty(f float32) PredictOption {
	return func(p *PredictOptions) { p.PresencePenalty = f }
}

// SetMirostat sets the version of Mirostat, 1 or 2; 0: off.
func SetMirostat(m int) PredictOption { return func(p *PredictOptions) { p.Mirostat = m } }

// SetMirostatETA sets Mirostat's learning rate.
func SetMirostatETA(eta float32) PredictOption {
	return func(p *PredictOptions) { p.MirostatETA = eta }
}

// SetMirostatTAU sets Mirostat's target surprise.
func SetMirostatTAU(tau float32) PredictOption {
	return func(p *PredictOptions) { p.MirostatTAU = tau }
}

// SetPenalizeNL has no effect: the penalties treat a line break as any token, as llama.cpp does since December 2024.
func SetPenalizeNL(b bool) PredictOption { return func(p *PredictOptions) { p.PenalizeNL = b } }

// SetLogitBias adds to the logit of a token: "ID+BIAS" or "ID-BIAS".
func SetLogitBias(s string) PredictOption { return func(p *PredictOptions) { p.LogitBias = s } }

// SetPathPromptCache has no effect: the daemon's prefix cache finds equal prompts by itself.
func SetPathPromptCache(file string) PredictOption {
	return func(p *PredictOptions) { p.PathPromptCache = file }
}

// WithGrammar holds the answer to a grammar in llama.cpp's GBNF.
func WithGrammar(s string) PredictOption { return func(p *PredictOptions) { p.Grammar = s } }

// SetMlock is the daemon's --mlock.
func SetMlock(b bool) PredictOption { return func(p *PredictOptions) { p.MLock = b } }

// SetMemoryMap is the daemon's --no-mmap.
func SetMemoryMap(b bool) PredictOption { return func(p *PredictOptions) { p.MMap = b } }

// SetPredictionMainGPU is the daemon's choice.
func SetPredictionMainGPU(gpu string) PredictOption {
	return func(p *PredictOptions) { p.MainGPU = gpu }
}

// SetPredictionTensorSplit is the daemon's choice.
func SetPredictionTensorSplit(split string) PredictOption {
	return func(p *PredictOptions) { p.TensorSplit = split }
}

// SetRopeFreqBase is refused by Predict unless it is 10000 or 0.
func SetRopeFreqBase(f float32) PredictOption {
	return func(p *PredictOptions) { p.RopeFreqBase = f }
}

// SetRopeFreqScale is refused by Predict unless it is 1 or 0.
func SetRopeFreqScale(f float32) PredictOption {
	return func(p *PredictOptions) { p.RopeFreqScale = f }
}

// SetNegativePrompt is refused by Predict unless it is "".
func SetNegativePrompt(s string) PredictOption {
	return func(p *PredictOptions) { p.NegativePrompt = s }
}

// SetNegativePromptScale is refused by Predict unless it is 0 or 1, off.
func SetNegativePromptScale(f float32) PredictOption {
	return func(p *PredictOptions) { p.NegativePromptScale = f }
}
