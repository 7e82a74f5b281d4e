package sampler

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Bias is added to one token's logit before anything else. -Inf forbids the token.
type Bias struct {
	Token int32
	Bias  float32
}

// Params are a request's sampling parameters, validated once and then constant. Names, meaning, order of application
// and defaults are llama-server's.
type Params struct {
	Temperature      float32 // ≤ 0: greedy
	TopK             int     // ≤ 0: off
	TopP             float32 // 1: off
	MinP             float32 // 0: off
	RepeatPenalty    float32 // 1: off
	FrequencyPenalty float32 // 0: off
	PresencePenalty  float32 // 0: off
	PenaltyLastN     int     // window of the penalties in tokens; 0: off, -1: the whole context
	Seed             uint64  // used if SeedSet; otherwise the caller sets one before New
	SeedSet          bool
	IgnoreEOS        bool // never sample an end of generation
	Logprobs         int  // 0: none; N: the chosen token's log-probability and the N most probable ones
	PostSampling     bool // Logprobs are those of the draw, see Choice
	LogitBias        []Bias

	TopNSigma      float32 // keep logits within this many standard deviations of the largest; ≤ 0: off
	TypicalP       float32 // locally typical sampling; ≤ 0 or ≥ 1: off
	XTCProbability float32 // probability with which XTC removes the most probable tokens; 0: off
	// XTC removes all tokens with at least this probability except the least probable of them; above 0.5: off
	XTCThreshold      float32
	DynatempRange     float32 // the temperature follows the row's entropy, in Temperature ± this; 0: off
	DynatempExponent  float32
	Mirostat          int     // 1 or 2: Mirostat of that version in place of every stage but the temperature; 0: off
	MirostatTau       float32 // its target surprise, in bits
	MirostatEta       float32 // its learning rate
	DryMultiplier     float32 // DRY, against repeated sequences; 0: off
	DryBase           float32 // below 1: DefaultDryBase
	DryAllowedLength  int     // tokens a sequence may repeat without a penalty
	DryPenaltyLastN   int     // window of DRY in tokens; 0: off, -1: the whole context
	DrySequenceBreaks Breakers

	// Order are the stages that are applied, in this order; nil: the usual ones in the usual order. Mirostat ignores it
	Order []Stage

	MinTokens     int       // number of tokens to sample before an end of generation or one of StopTokens
	StopTokens    []int32   // for MinTokens; the caller ends the answer at them
	AllowedTokens []int32   // nil: all
	BadWords      [][]int32 // token sequences that are never completed
}

// Breakers are the token sequences that end a repetition for DRY, by their first token: the value lists the tokens that
// follow it. A single-token breaker has an empty sequence.
type Breakers map[int32][][]int32

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

	MaxTopNSigma        = 100
	MaxDynatempExponent = 100
	MaxMirostatTau      = 100
	MaxMirostatEta      = 10
	MaxDryMultiplier    = 100
	MaxDryBase          = 100
	MaxMinTokens        = 1 << 27
	MaxStopTokens       = 1024
	MaxAllowedTokens    = 4096
	MaxBadWords         = 1024 // each in up to two spellings
	MaxBadWordTokens    = 256
)

// DefaultDryBase is the factor by which DRY's penalty grows with each repeated token.
const DefaultDryBase = 1.75

// DefaultParams are llama-server's defaults (common_params_sampling in llama.cpp's common/common.h), without a seed.
func DefaultParams() Params {
	return Params{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, PenaltyLastN: 64,
		TopNSigma: -1, TypicalP: 1, XTCThreshold: 0.1, DynatempExponent: 1, MirostatTau: 5, MirostatEta: 0.1,
		DryBase: DefaultDryBase, DryAllowedLength: 2, DryPenaltyLastN: -1}
}

// Validate checks all fields. The error names the field, its value and the limit.
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
		{"top_n_sigma", p.TopNSigma, -1, MaxTopNSigma},
		{"typical_p", p.TypicalP, 0, 1},
		{"xtc_probability", p.XTCProbability, 0, 1},
		{"xtc_threshold", p.XTCThreshold, 0, 1},
		{"dynatemp_range", p.DynatempRange, 0, MaxTemperature},
		{"dynatemp_exponent", p.DynatempExponent, 0, MaxDynatempExponent},
		{"mirostat_tau", p.MirostatTau, 0, MaxMirostatTau},
		{"mirostat_eta", p.MirostatEta, 0, MaxMirostatEta},
		{"dry_multiplier", p.DryMultiplier, 0, MaxDryMultiplier},
		{"dry_base", p.DryBase, 0, MaxDryBase},
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
		{"mirostat", p.Mirostat, 0, 2},
		{"dry_allowed_length", p.DryAllowedLength, 0, MaxPenaltyLastN},
		{"dry_penalty_last_n", p.DryPenaltyLastN, -1, MaxPenaltyLastN},
		{"min_tokens", p.MinTokens, 0, MaxMinTokens},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("%s is %d; it must be %d…%d", f.name, f.v, f.lo, f.hi)
		}
	}
	for _, f := range []struct {
		name   string
		n, max int
	}{
		{"logit_bias", len(p.LogitBias), MaxLogitBias},
		{"stop_token_ids", len(p.StopTokens), MaxStopTokens},
		{"allowed_token_ids", len(p.AllowedTokens), MaxAllowedTokens},
		{"bad_words", len(p.BadWords), 2 * MaxBadWords},
		{"samplers", len(p.Order), MaxStages},
	} {
		if f.n > f.max {
			return fmt.Errorf("%s has %d entries; it may have up to %d", f.name, f.n, f.max)
		}
	}
	for _, b := range p.LogitBias {
		if b.Token < 0 {
			return fmt.Errorf("logit_bias names token %d; it must be a token id of 0 or more", b.Token)
		}
		if !(-MaxBias <= b.Bias && b.Bias <= MaxBias) && !math.IsInf(float64(b.Bias), -1) {
			return fmt.Errorf("logit_bias of token %d is %v; it must be a number of %d…%d, or -Inf to forbid the token",
				b.Token, b.Bias, -MaxBias, MaxBias)
		}
	}
	return nil
}

// Fits checks that the vocabulary has all named tokens and that at least one token can be sampled. The error names the
// fields.
func (p *Params) Fits(vocab VocabFacts) error {
	known := func(name string, tokens []int32) error {
		for i, t := range tokens {
			if t < 0 || int(t) >= vocab.Size {
				return fmt.Errorf("%s[%d]: token %d is not in the vocabulary (0…%d)", name, i, t, vocab.Size-1)
			}
		}
		return nil
	}
	if err := known("stop_token_ids", p.StopTokens); err != nil {
		return err
	}
	if err := known("allowed_token_ids", p.AllowedTokens); err != nil {
		return err
	}
	forbidden := map[int32]bool{}
	var fields []string
	forbid := func(name string, tokens ...int32) {
		for _, t := range tokens {
			if t >= 0 && int(t) < vocab.Size {
				forbidden[t] = true
				if !slices.Contains(fields, name) {
					fields = append(fields, name)
				}
			}
		}
	}
	for _, b := range p.LogitBias {
		if b.Token < 0 || int(b.Token) >= vocab.Size {
			return fmt.Errorf("logit_bias: token %d is not in the vocabulary (0…%d)", b.Token, vocab.Size-1)
		}
		if math.IsInf(float64(b.Bias), -1) {
			forbid("logit_bias", b.Token)
		}
	}
	for _, w := range p.BadWords {
		if len(w) == 1 {
			forbid("bad_words", w[0])
		}
	}
	if p.IgnoreEOS {
		forbid("ignore_eos", vocab.EOG...)
	}
	if p.MinTokens > 0 {
		forbid("min_tokens", vocab.EOG...)
		forbid("min_tokens", p.StopTokens...)
	}
	left := vocab.Size - len(forbidden)
	if p.AllowedTokens != nil {
		fields = append(fields, "allowed_token_ids")
		left = 0
		for _, t := range p.AllowedTokens {
			if !forbidden[t] {
				left++
			}
		}
	}
	if left > 0 {
		return nil
	}
	if len(fields) == 1 {
		return fmt.Errorf("%s forbids every token of the vocabulary; at least one must be left", fields[0])
	}
	return fmt.Errorf("%s together forbid every token of the vocabulary; at least one must be left",
		strings.Join(fields, ", "))
}
