// Package prepare turns a parsed request into a Prepared: what the core and the decode loop are asked to compute. It
// renders messages with the model's chat template, tokenizes, and makes the sampling chain and the control of thinking.
// It knows no loop, no connection and no queue: the daemon's intake goroutine calls it, one request after the other.
//
// # Where things are
//
//	answer.go         Model.Answer: context overflow, the seed; Prepared
//	targets.go        where targets (TTFT, ITL, TTOT), class, maximum length and thinking budget come from: field,
//	                  defaults, option, and what obeys them
//	prompt.go         how messages become a prompt: rendering, a continued message, tokenizing; the history of a chat
//	model.go          Model: the loaded model, and what its chat template can do; describe.go tells of it
//	markers.go        a user's text never contains control tokens
//	thinking.go       what the chat template hears of thinking
//	tools.go          tools in terms of the model's template
//	sampling.go       how bad words, text biases and DRY's breakers become tokens
//	infill.go         fill-in-the-middle prompts (suffix, /infill)
//	embed.go, rank.go Model.Texts: texts to embed; pairs of query and document
//	tokencache.go     tokens of texts that were sent before
//	recipe.go         defaults of requests and the system message of a model that was made of another one
//	volatile.go       the line of a system prompt that no two requests share
package prepare
