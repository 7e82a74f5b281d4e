// Package sampler turns a row of logits into a token, and tokens into text a client may see.
package sampler

// Bias is added to one token's logit before anything else. -Inf forbids the token.
type Bias struct {
	Token int32
	Bias  float32
}

// Params are a request's sampling parameters: a value, checked once by Validate at the edge, never changed after.
// Names, meaning, order of application and defaults are llama-server's.
type Params struct {
	Temperature      float32 // ≤ 0: greedy
	TopK             int     // 0: off
	TopP             float32 // 1: off
	MinP             float32 // 0: off
	RepeatPenalty    float32 // 1: off
	FrequencyPenalty float32 // 0: off
	PresencePenalty  float32 // 0: off
	PenaltyLastN     int     // tokens looked back at by the penalties; 0: off, -1: the whole context
	Seed             uint64  // ignored unless SeedSet
	SeedSet          bool
	IgnoreEOS        bool // never sample an end of generation
	Logprobs         int  // 0: none; N: the chosen token's log-probability and the N most probable ones
	LogitBias        []Bias
}
