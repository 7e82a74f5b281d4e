// Package ggufgen writes GGUF model files with seeded random weights, for tests and benchmarks that need a model that
// llama.cpp loads, without a download.
//
// A generated model is ordinary except for its weights: a real architecture ("llama", "gemma2" where sliding-window
// layers are wanted, or "maincoder", which has norms of queries and keys), a byte-level BPE vocabulary
// trained on English-like words, ChatML and thinking markers as control tokens, a chat template, and weights in any of
// Types. The encoders ("bert", "nomic-bert") have a WordPiece vocabulary and no template. The same Config gives the
// same bytes.
//
// # Why the weights are not plain noise
//
// A transformer with independent N(0, 1/fan-in) weights is a poor test model. Four properties are arranged within the
// architecture:
//
//   - The token embedding is small compared to what the layers add to the residual stream. With tied embeddings the
//     current token would otherwise have the largest logit of all, and greedy decoding would repeat it for ever.
//   - Query and key weights are scaled so that attention is sharp (scores of several units): the next token then
//     depends on the whole context, so a wrong KV cell changes the output, and greedy loops are broken up.
//   - The final norm fixes the standard deviation of the logits (Config.LogitScale), so that sampling at
//     temperature 1 is neither uniform nor greedy.
//   - Channel 0 of the residual stream is a bias channel. Every ordinary token's embedding holds the same constant
//     there, no layer reads or writes it (norm weight 0 on the way in, zero rows on the way out), and the final
//     norm amplifies it: each token gets the logit bias its own entry asks for. llama has no output bias; this
//     gives one. End-of-generation tokens get none of it, so a benchmark always runs to its token limit.
//
// Package gguffile writes the container; this package makes the contents.
package ggufgen
