// Package llama has the API of github.com/go-skynet/go-llama.cpp, as of March 2024, on top of the daemon: a program
// that was written for the binding shares the daemon's model when one line changes,
//
//	llama "github.com/uma-serve/uma-serve/client/gollama"
//
// It has no cgo, loads no model and needs no libbinding.a. New connects to the socket that uma-cli uses (UMA_SOCKET, or
// the default one). Several programs, and several LLama values of one, share the model, its memory and its prefix
// cache.
//
// # Options of New
//
//	model                              the file, or the name, that the daemon serves; "" takes whatever it serves.
//	                                   Another one is an error that names both
//	SetContext                         refused above the daemon's --ctx-size; a smaller one is met by the larger
//	EnableEmbeddings                   needed for Embeddings and TokenEmbeddings
//	EnableF16Memory                    refused where the daemon's KV cache is not f16 (--cache-type-k, --cache-type-v)
//	WithRopeFreqBase, WithRopeFreqScale   refused unless they are the defaults (10000 and 1) or 0, the model's
//	SetLoraBase, SetLoraAdapter        refused: the daemon has no adapters
//	SetNBatch, SetGPULayers, SetMMap,  no effect on an answer; the daemon's options --batch-size, --gpu-layers,
//	EnableMLock, EnabelLowVRAM,        --no-mmap, --mlock and its devices
//	EnableNUMA, SetMainGPU,
//	SetTensorSplit, SetMulMatQ
//	SetModelSeed, SetPerplexity        no effect, as in go-llama.cpp: Predict's seed is SetSeed
//
// # Options of Predict
//
//	SetTokens                          max_tokens, at most the daemon's --max-tokens; 0: that
//	SetStopWords                       stop; the text ends before the word, and the callback does not see it
//	SetTokenCallback                   pieces of valid UTF-8, one or more tokens each; false cancels the request
//	SetSeed                            seed; below 1: random
//	SetTopK, SetTopP, SetTemperature   top_k, top_p, temperature
//	SetPenalty, SetRepeat              repeat_penalty, repeat_last_n
//	SetFrequencyPenalty, SetPresencePenalty   frequency_penalty, presence_penalty
//	SetTypicalP                        typical_p
//	SetMirostat, SetMirostatTAU, SetMirostatETA   mirostat, mirostat_tau, mirostat_eta
//	IgnoreEOS, SetLogitBias, WithGrammar   ignore_eos, logit_bias ("ID+BIAS", "ID-BIAS"; else refused), grammar
//	Debug                              times and counts on standard error after each answer
//	SetTailFreeSamplingZ               refused unless 1 (off): llama.cpp has none since October 2024
//	SetNegativePrompt, SetNegativePromptScale   refused: the daemon computes one context for each answer
//	SetRopeFreqBase, SetRopeFreqScale, EnableF16KV   as for New
//	SetPenalizeNL                      no effect: line breaks are penalised, as in llama.cpp since December 2024
//	SetNKeep                           no effect: an answer ends where the context is full
//	SetPathPromptCache, EnablePromptCacheAll,   no effect on an answer: the daemon's prefix cache finds equal
//	EnablePromptCacheRO                prompts in memory, on disk and on a fabric
//	SetThreads, SetBatch, SetMlock,    no effect on an answer; the daemon's options --threads, --batch-size, …
//	SetMemoryMap, SetPredictionMainGPU,
//	SetPredictionTensorSplit
//	SetNDraft                          no effect outside SpeculativeSampling
//
// # Differences
//
// The prompt is text without a chat template, as in go-llama.cpp; markers in it ("[INST]", "<|im_start|>") are the
// tokens that the model has for them. The thinking of a model that marks its thoughts is left out of the answer.
// Embeddings have the model's dimension; go-llama.cpp's have SetTokens entries. SaveState writes a small file that
// names the text, and makes the daemon keep its KV cells; LoadState has the daemon take them back, or compute them.
// SpeculativeSampling is an error. A call fails with the daemon's reason (*client.ServerError) in place of "inference
// failed".
package llama
