package sampler

import (
	"fmt"
	"math"
)

// Bias is added to one token's logit before anything else. -Inf forbids the token.
type Bias struct {
	Token int32
	Bias  float32
}

// Params are a request's sampling parameters: a value, checked once by Validate at the edge, never changed after.
// Names, meaning, order of application and defaults are llama-server's.
type Params struct {
	Temperature      float32 // ≤ 0: greedy
	TopK             int     // ≤ 0: off
	TopP             float32 // 1: off
	MinP             float32 // 0: off
	RepeatPenalty    float32 // 1: off
	FrequencyPenalty float32 // 0: off
	PresencePenalty  float32 // 0: off
	PenaltyLastN     int     // tokens looked back at by the penalties; 0: off, -1: the whole context
	Seed             uint64  // ignored unless SeedSet: the caller then chooses one before New
	SeedSet          bool
	IgnoreEOS        bool // never sample an end of generation
	Logprobs         int  // 0: none; N: the chosen token's log-probability and the N most probable ones
	LogitBias        []Bias
}

// Limits of Params, inclusive. A penalty of 0 or less would flip or erase logits, so RepeatPenalty stays above it.
const (
	MaxTemperature   = 100
	MinRepeatPenalty = 0.01
	MaxRepeatPenalty = 10
	MaxPenalty       = 10 // of FrequencyPenalty and PresencePenalty, both signs
	MaxPenaltyLastN  = 1 << 27
	MaxLogprobs      = 20
	MaxLogitBias     = 1024 // entries
	MaxBias          = 1000 // of one entry, both signs; or -Inf
)

// DefaultParams are llama-server's defaults (common_params_sampling in llama.cpp's common/common.h), without a seed.
func DefaultParams() Params {
	return Params{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, PenaltyLastN: 64}
}

// Validate refuses what no chain can be built from. The error names the field, its value and the limit.
func (p *Params) Validate() error {
	for _, f := range []struct {
		name   string
		v      float32
		lo, hi float32
	}{
		{"temperature", p.Temperature, -MaxTemperature, MaxTemperature},
		{"top_p", p.TopP, 0, 1},
		{"min_p", p.MinP, 0, 1},
		{"repeat_penalty", p.RepeatPenalty, MinRepeatPenalty, MaxRepeatPenalty},
		{"frequency_penalty", p.FrequencyPenalty, -MaxPenalty, MaxPenalty},
		{"presence_penalty", p.PresencePenalty, -MaxPenalty, MaxPenalty},
	} {
		if !(f.lo <= f.v && f.v <= f.hi) { // NaN too
			return fmt.Errorf("%s is %v; it must be a number of %v…%v", f.name, f.v, f.lo, f.hi)
		}
	}
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{
		{"top_k", p.TopK, math.MinInt32, math.MaxInt32},
		{"repeat_last_n", p.PenaltyLastN, -1, MaxPenaltyLastN},
		{"logprobs", p.Logprobs, 0, MaxLogprobs},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("%s is %d; it must be %d…%d", f.name, f.v, f.lo, f.hi)
		}
	}
	if n := len(p.LogitBias); n > MaxLogitBias {
		return fmt.Errorf("logit_bias has %d entries; it may have up to %d", n, MaxLogitBias)
	}
	for _, b := range p.LogitBias {
		if b.Token < 0 {
			return fmt.Errorf("logit_bias names token %d; it must be a token id of 0 or more", b.Token)
		}
		if !(-MaxBias <= b.Bias && b.Bias <= MaxBias) && !math.IsInf(float64(b.Bias), -1) {
			return fmt.Errorf("logit_bias of token %d is %v; it must be a number of %d…%d, or -Inf to forbid the token", b.Token, b.Bias, -MaxBias, MaxBias)
		}
	}
	return nil
}
