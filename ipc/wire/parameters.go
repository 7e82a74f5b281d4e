package wire

import (
	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/sampler"
)

// Parameter is a sampling parameter that is one value. A number is of least…most.
type Parameter struct {
	Name        string
	aliases     []string
	least, most float64
	// Of returns where p has it: a *float32, *int or *bool; of the seed, which SeedSet goes with, a *uint64.
	Of   func(p *sampler.Params) any
	read func(d *decoder, name string, v *fastjson.Value) error // nil: by the type of Of
}

// Parameters are all of them, for both sides, in the order in which clients write them.
var Parameters = []Parameter{
	{Name: "temperature", least: -sampler.MaxTemperature, most: sampler.MaxTemperature,
		Of: func(p *sampler.Params) any { return &p.Temperature }},
	{Name: "top_p", most: 1, Of: func(p *sampler.Params) any { return &p.TopP }},
	{Name: "min_p", most: 1, Of: func(p *sampler.Params) any { return &p.MinP }},
	{Name: "repeat_penalty", aliases: []string{"repetition_penalty"}, least: sampler.MinRepeatPenalty,
		most: sampler.MaxRepeatPenalty, Of: func(p *sampler.Params) any { return &p.RepeatPenalty }},
	{Name: "frequency_penalty", least: -sampler.MaxPenalty, most: sampler.MaxPenalty,
		Of: func(p *sampler.Params) any { return &p.FrequencyPenalty }},
	{Name: "presence_penalty", least: -sampler.MaxPenalty, most: sampler.MaxPenalty,
		Of: func(p *sampler.Params) any { return &p.PresencePenalty }},
	{Name: "top_k", Of: func(p *sampler.Params) any { return &p.TopK }, read: readTopK},
	{Name: "repeat_last_n", least: -1, most: sampler.MaxPenaltyLastN,
		Of: func(p *sampler.Params) any { return &p.PenaltyLastN }},
	{Name: "seed", Of: func(p *sampler.Params) any { return &p.Seed }, read: readSeed},
	{Name: "ignore_eos", Of: func(p *sampler.Params) any { return &p.IgnoreEOS }},
	{Name: "post_sampling_probs", Of: func(p *sampler.Params) any { return &p.PostSampling }},
	{Name: "logprobs", aliases: []string{"n_probs"}, Of: func(p *sampler.Params) any { return &p.Logprobs },
		read: readLogprobs},
	{Name: "dynatemp_range", most: sampler.MaxTemperature,
		Of: func(p *sampler.Params) any { return &p.DynatempRange }},
	{Name: "dynatemp_exponent", most: sampler.MaxDynatempExponent,
		Of: func(p *sampler.Params) any { return &p.DynatempExponent }},
	{Name: "typical_p", aliases: []string{"typ_p"}, most: 1, Of: func(p *sampler.Params) any { return &p.TypicalP }},
	{Name: "top_n_sigma", least: -1, most: sampler.MaxTopNSigma,
		Of: func(p *sampler.Params) any { return &p.TopNSigma }},
	{Name: "xtc_probability", most: 1, Of: func(p *sampler.Params) any { return &p.XTCProbability }},
	{Name: "xtc_threshold", most: 1, Of: func(p *sampler.Params) any { return &p.XTCThreshold }},
	{Name: "mirostat_tau", most: sampler.MaxMirostatTau, Of: func(p *sampler.Params) any { return &p.MirostatTau }},
	{Name: "mirostat_eta", most: sampler.MaxMirostatEta, Of: func(p *sampler.Params) any { return &p.MirostatEta }},
	{Name: "dry_multiplier", most: sampler.MaxDryMultiplier,
		Of: func(p *sampler.Params) any { return &p.DryMultiplier }},
	{Name: "dry_base", most: sampler.MaxDryBase, Of: func(p *sampler.Params) any { return &p.DryBase }},
	{Name: "mirostat", most: 2, Of: func(p *sampler.Params) any { return &p.Mirostat }},
	{Name: "dry_allowed_length", most: sampler.MaxPenaltyLastN,
		Of: func(p *sampler.Params) any { return &p.DryAllowedLength }},
	{Name: "dry_penalty_last_n", least: -1, most: sampler.MaxPenaltyLastN,
		Of: func(p *sampler.Params) any { return &p.DryPenaltyLastN }},
	{Name: "min_tokens", most: sampler.MaxMinTokens, Of: func(p *sampler.Params) any { return &p.MinTokens }},
}

// Same reports whether p and q agree about the parameter.
func (f *Parameter) Same(p, q *sampler.Params) bool {
	switch v := f.Of(p).(type) {
	case *float32:
		return *v == *f.Of(q).(*float32)
	case *int:
		return *v == *f.Of(q).(*int)
	case *bool:
		return *v == *f.Of(q).(*bool)
	}
	return p.Seed == q.Seed && p.SeedSet == q.SeedSet
}

// field returns the parameter as a field of a request.
func (f *Parameter) field() field {
	if f.read != nil {
		return field{name: f.Name, aliases: f.aliases, read: f.read}
	}
	return field{name: f.Name, aliases: f.aliases, read: func(d *decoder, name string, v *fastjson.Value) (err error) {
		switch dst := f.Of(&d.req.Sampling).(type) {
		case *float32:
			err = d.float(name, v, f.least, f.most, dst)
		case *int:
			*dst, err = d.count(name, v, int(f.least), int(f.most))
		case *bool:
			err = d.boolean(name, v, dst)
		}
		return err
	}}
}

func parameterFields() (list []field) {
	for i := range Parameters {
		list = append(list, Parameters[i].field())
	}
	return list
}
