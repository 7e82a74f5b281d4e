package llamaform

import (
	"math"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Settings are the generation settings of a request, with llama-server's names.
type Settings struct {
	Seed             uint64   `json:"seed"`
	Temperature      float32  `json:"temperature"`
	DynatempRange    float32  `json:"dynatemp_range"`
	DynatempExponent float32  `json:"dynatemp_exponent"`
	TopK             int      `json:"top_k"`
	TopP             float32  `json:"top_p"`
	MinP             float32  `json:"min_p"`
	TopNSigma        float32  `json:"top_n_sigma"`
	XTCProbability   float32  `json:"xtc_probability"`
	XTCThreshold     float32  `json:"xtc_threshold"`
	TypicalP         float32  `json:"typical_p"`
	RepeatLastN      int      `json:"repeat_last_n"`
	RepeatPenalty    float32  `json:"repeat_penalty"`
	PresencePenalty  float32  `json:"presence_penalty"`
	FrequencyPenalty float32  `json:"frequency_penalty"`
	DryMultiplier    float32  `json:"dry_multiplier"`
	DryBase          float32  `json:"dry_base"`
	DryAllowedLength int      `json:"dry_allowed_length"`
	DryPenaltyLastN  int      `json:"dry_penalty_last_n"`
	DryBreakers      []string `json:"dry_sequence_breakers"`
	Mirostat         int      `json:"mirostat"`
	MirostatTau      float32  `json:"mirostat_tau"`
	MirostatEta      float32  `json:"mirostat_eta"`
	AdaptiveTarget   float32  `json:"adaptive_target"`
	AdaptiveDecay    float32  `json:"adaptive_decay"`
	Stop             []string `json:"stop"`
	MaxTokens        int      `json:"max_tokens"`
	NPredict         int      `json:"n_predict"`
	NKeep            int      `json:"n_keep"`
	NDiscard         int      `json:"n_discard"`
	IgnoreEOS        bool     `json:"ignore_eos"`
	Stream           bool     `json:"stream"`
	LogitBias        []bias   `json:"logit_bias"`
	NProbs           int      `json:"n_probs"`
	MinKeep          int      `json:"min_keep"`
	Grammar          string   `json:"grammar"`
	Samplers         []string `json:"samplers"`
	PostSampling     bool     `json:"post_sampling_probs"`
	LoRA             []lora   `json:"lora"` // of the request
}

type lora struct {
	ID    int     `json:"id"`
	Scale float32 `json:"scale"`
}

type bias struct {
	Token int32    `json:"token"`
	Bias  *float32 `json:"bias"` // null: forbidden
}

const (
	// randomSeed is llama-server's value for a new seed per request.
	randomSeed = math.MaxUint32
	// llama-server's values when adaptive sampling is off; this server has none.
	adaptiveTarget, adaptiveDecay = -1, 0.9
)

// SettingsOf returns the settings of a request.
func SettingsOf(r *wire.Request, facts *api.Facts, stream bool) *Settings {
	p := &r.Sampling
	s := &Settings{
		Seed: randomSeed, Temperature: p.Temperature, DynatempRange: p.DynatempRange,
		DynatempExponent: p.DynatempExponent, TopK: p.TopK, TopP: p.TopP,
		MinP: p.MinP, TopNSigma: p.TopNSigma, XTCProbability: p.XTCProbability, XTCThreshold: p.XTCThreshold,
		TypicalP:    p.TypicalP,
		RepeatLastN: p.PenaltyLastN, RepeatPenalty: p.RepeatPenalty, PresencePenalty: p.PresencePenalty,
		FrequencyPenalty: p.FrequencyPenalty,
		DryMultiplier:    p.DryMultiplier, DryBase: p.DryBase, DryAllowedLength: p.DryAllowedLength,
		DryPenaltyLastN: p.DryPenaltyLastN, DryBreakers: r.DryBreaks,
		Mirostat: p.Mirostat, MirostatTau: p.MirostatTau, MirostatEta: p.MirostatEta, AdaptiveTarget: adaptiveTarget,
		AdaptiveDecay: adaptiveDecay,
		Stop:          append([]string{}, r.Stop...), MaxTokens: r.MaxTokens, IgnoreEOS: p.IgnoreEOS, Stream: stream,
		LogitBias: []bias{}, NProbs: p.Logprobs, PostSampling: p.PostSampling,
		Samplers: wire.Stages(p), LoRA: []lora{},
	}
	for _, l := range r.LoRA {
		if l.Name == "" {
			s.LoRA = append(s.LoRA, lora{l.ID, l.Scale})
		}
	}
	switch {
	case p.SeedSet:
		s.Seed = p.Seed
	case facts.Seed >= 0:
		s.Seed = uint64(facts.Seed)
	}
	if s.DryBreakers == nil {
		s.DryBreakers = wire.DefaultDryBreaks
	}
	if limit := facts.MaxTokens; limit > 0 && (s.MaxTokens == 0 || limit < s.MaxTokens) && !r.FillOnly {
		s.MaxTokens = limit
	} else if s.MaxTokens == 0 && !r.FillOnly {
		s.MaxTokens = -1
	}
	s.NPredict = s.MaxTokens
	for _, b := range p.LogitBias {
		given := bias{Token: b.Token}
		if !math.IsInf(float64(b.Bias), 0) { // JSON has no infinity
			given.Bias = &b.Bias
		}
		s.LogitBias = append(s.LogitBias, given)
	}
	if p.IgnoreEOS {
		for _, t := range facts.EOG {
			s.LogitBias = append(s.LogitBias, bias{Token: t})
		}
	}
	if r.Format.Kind == wire.FormatGrammar {
		s.Grammar = r.Format.Payload
	}
	return s
}
