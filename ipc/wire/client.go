package wire

import (
	"math"
	"slices"
	"strconv"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// AppendRequest appends r as a frame. Fields equal to those of def are left out, so that the server's defaults
// apply; with a nil def every field is written. The caller keeps r within the limits of docs/protocol.md.
func AppendRequest(dst []byte, r, def *Request) []byte {
	dst, start := BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"id":`, r.ID)
	if r.Model != "" {
		dst = jsontext.AppendHead(dst, `,"model":`, r.Model)
	}
	switch {
	case r.PromptTokens != nil:
		dst = appendTokens(dst, `,"prompt":`, r.PromptTokens)
	case r.Messages == nil:
		dst = jsontext.AppendHead(dst, `,"prompt":`, r.Prompt)
	default:
		dst = append(dst, `,"messages":[`...)
		for i := range r.Messages {
			m := &r.Messages[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = jsontext.AppendHead(dst, `{"role":`, m.Role)
			if len(m.Images) > 0 {
				dst = m.appendParts(append(dst, `,"content":`...))
			} else {
				dst = jsontext.AppendHead(dst, `,"content":`, m.Content)
			}
			if m.ReasoningContent != "" {
				dst = jsontext.AppendHead(dst, `,"reasoning_content":`, m.ReasoningContent)
			}
			if m.Name != "" {
				dst = jsontext.AppendHead(dst, `,"name":`, m.Name)
			}
			if len(m.ToolCalls) > 0 {
				dst = appendCalls(append(dst, `,"tool_calls":`...), m.ToolCalls)
			}
			if m.ToolCallID != "" {
				dst = jsontext.AppendHead(dst, `,"tool_call_id":`, m.ToolCallID)
			}
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	if def == nil || r.MaxTokens != def.MaxTokens || r.FillOnly != def.FillOnly {
		n := r.MaxTokens
		if n == 0 && !r.FillOnly {
			n = -1
		}
		dst = jsontext.AppendInt(dst, `,"max_tokens":`, n)
	}
	var defSampling *sampler.Params
	if def != nil {
		defSampling = &def.Sampling
	}
	dst = appendSampling(dst, &r.Sampling, defSampling)
	if def == nil || r.PromptLogprobs != def.PromptLogprobs {
		dst = jsontext.AppendInt(dst, `,"prompt_logprobs":`, r.PromptLogprobs)
	}
	if def == nil || !slices.Equal(r.Sampling.LogitBias, def.Sampling.LogitBias) ||
		!slices.Equal(r.TextBias, def.TextBias) {
		dst = appendBias(dst, r)
	}
	if def == nil || !slices.Equal(r.Stop, def.Stop) {
		dst = appendTexts(dst, `,"stop":`, r.Stop)
	}
	if len(r.BadWords) > 0 && (def == nil || !slices.Equal(r.BadWords, def.BadWords)) {
		dst = appendTexts(dst, `,"bad_words":`, r.BadWords)
	}
	if r.DryBreaks != nil && (def == nil || def.DryBreaks == nil || !slices.Equal(r.DryBreaks, def.DryBreaks)) {
		dst = appendTexts(dst, `,"dry_sequence_breakers":`, r.DryBreaks)
	}
	if r.Indent > 0 {
		dst = jsontext.AppendInt(dst, `,"n_indent":`, r.Indent)
	}
	if r.MaxTime > 0 {
		dst = jsontext.AppendInt(dst, `,"t_max_predict_ms":`, int(r.MaxTime.Milliseconds()))
	}
	if r.Ping != 0 && (def == nil || r.Ping != def.Ping) {
		dst = jsontext.AppendInt(dst, `,"sse_ping_interval":`, r.Ping)
	}
	if r.Verbose && (def == nil || !def.Verbose) {
		dst = append(dst, `,"verbose":true`...)
	}
	if r.ParseSpecial {
		dst = append(dst, `,"parse_special":true`...)
	}
	if r.Suffix != "" {
		dst = jsontext.AppendHead(dst, `,"suffix":`, r.Suffix)
	}
	dst = appendFormat(appendTools(dst, r, def), &r.Format)
	if r.Continue != ContinueLast && (def == nil || r.Continue != def.Continue) {
		dst = append(append(dst, `,"continue_final_message":`...), continueTexts[r.Continue]...)
	}
	if r.NoOpening && (def == nil || !def.NoOpening) {
		dst = append(dst, `,"add_generation_prompt":false`...)
	}
	if len(r.TemplateArgs) > 0 {
		dst = append(append(dst, `,"chat_template_kwargs":`...), r.TemplateArgs...)
	}
	if r.TruncatePrompt != 0 {
		dst = jsontext.AppendInt(dst, `,"truncate_prompt_tokens":`, r.TruncatePrompt)
	}
	if r.EveryToken {
		dst = append(dst, `,"return_token_ids":true`...)
	}
	if r.CacheSalt != "" {
		dst = jsontext.AppendHead(dst, `,"cache_salt":`, r.CacheSalt)
	}
	dst = appendLoRA(dst, r)
	if r.Verbosity != "" {
		dst = jsontext.AppendHead(dst, `,"verbosity":`, r.Verbosity)
	}
	if def == nil || r.Stream != def.Stream {
		dst = strconv.AppendBool(append(dst, `,"stream":`...), r.Stream)
	}
	if r.SpeculateSet {
		dst = jsontext.AppendInt(dst, `,"speculate":`, r.Speculate)
	}
	if r.Progress || r.NoProgress {
		dst = strconv.AppendBool(append(dst, `,"return_progress":`...), r.Progress)
	}
	if def == nil || r.Priority != def.Priority {
		dst = append(dst, `,"priority":`...)
		if r.Priority == PriorityBackground {
			dst = append(dst, `"background"`...)
		} else {
			dst = append(dst, `"interactive"`...)
		}
	}
	if def == nil || r.Targets != def.Targets {
		dst = append(dst, `,"slo":`...)
		before := byte('{')
		for i := range slo.Times {
			if t := &slo.Times[i]; t.Plain || *t.Of(&r.Targets) > 0 {
				dst = append(append(append(dst, before, '"'), t.Name...), '"')
				dst = jsontext.AppendMs(dst, ":", *t.Of(&r.Targets))
				before = ','
			}
		}
		if r.Strict {
			dst = append(dst, `,"strict":true`...)
		}
		dst = append(dst, '}')
	}
	if r.Think != (Think{}) && (def == nil || r.Think != def.Think) {
		dst = appendThink(dst, &r.Think)
	}
	if r.Traceparent != "" {
		dst = jsontext.AppendHead(dst, `,"traceparent":`, r.Traceparent)
	}
	if len(r.Metadata) > 0 {
		dst = append(append(dst, `,"metadata":`...), r.Metadata...)
	}
	return EndFrame(append(dst, '}'), start)
}

func appendSampling(dst []byte, p, def *sampler.Params) []byte {
	number := func(key string, v float32, d func(*sampler.Params) float32) {
		if def == nil || v != d(def) {
			dst = jsontext.AppendFloat32(append(dst, key...), v)
		}
	}
	number(`,"temperature":`, p.Temperature, func(d *sampler.Params) float32 { return d.Temperature })
	number(`,"top_p":`, p.TopP, func(d *sampler.Params) float32 { return d.TopP })
	number(`,"min_p":`, p.MinP, func(d *sampler.Params) float32 { return d.MinP })
	number(`,"repeat_penalty":`, p.RepeatPenalty, func(d *sampler.Params) float32 { return d.RepeatPenalty })
	number(`,"frequency_penalty":`, p.FrequencyPenalty, func(d *sampler.Params) float32 { return d.FrequencyPenalty })
	number(`,"presence_penalty":`, p.PresencePenalty, func(d *sampler.Params) float32 { return d.PresencePenalty })
	if def == nil || p.TopK != def.TopK {
		dst = jsontext.AppendInt(dst, `,"top_k":`, p.TopK)
	}
	if def == nil || p.PenaltyLastN != def.PenaltyLastN {
		dst = jsontext.AppendInt(dst, `,"repeat_last_n":`, p.PenaltyLastN)
	}
	if def == nil || p.SeedSet != def.SeedSet || p.Seed != def.Seed {
		if dst = append(dst, `,"seed":`...); p.SeedSet {
			dst = strconv.AppendUint(dst, p.Seed, 10)
		} else {
			dst = append(dst, "-1"...)
		}
	}
	if def == nil || p.IgnoreEOS != def.IgnoreEOS {
		dst = strconv.AppendBool(append(dst, `,"ignore_eos":`...), p.IgnoreEOS)
	}
	if def == nil || p.PostSampling != def.PostSampling {
		dst = strconv.AppendBool(append(dst, `,"post_sampling_probs":`...), p.PostSampling)
	}
	if def == nil || p.Logprobs != def.Logprobs {
		dst = jsontext.AppendInt(dst, `,"logprobs":`, p.Logprobs)
	}
	number(`,"dynatemp_range":`, p.DynatempRange, func(d *sampler.Params) float32 { return d.DynatempRange })
	number(`,"dynatemp_exponent":`, p.DynatempExponent, func(d *sampler.Params) float32 { return d.DynatempExponent })
	number(`,"typical_p":`, p.TypicalP, func(d *sampler.Params) float32 { return d.TypicalP })
	number(`,"top_n_sigma":`, p.TopNSigma, func(d *sampler.Params) float32 { return d.TopNSigma })
	number(`,"xtc_probability":`, p.XTCProbability, func(d *sampler.Params) float32 { return d.XTCProbability })
	number(`,"xtc_threshold":`, p.XTCThreshold, func(d *sampler.Params) float32 { return d.XTCThreshold })
	number(`,"mirostat_tau":`, p.MirostatTau, func(d *sampler.Params) float32 { return d.MirostatTau })
	number(`,"mirostat_eta":`, p.MirostatEta, func(d *sampler.Params) float32 { return d.MirostatEta })
	number(`,"dry_multiplier":`, p.DryMultiplier, func(d *sampler.Params) float32 { return d.DryMultiplier })
	number(`,"dry_base":`, p.DryBase, func(d *sampler.Params) float32 { return d.DryBase })
	integer := func(key string, v int, d func(*sampler.Params) int) {
		if def == nil || v != d(def) {
			dst = jsontext.AppendInt(dst, key, v)
		}
	}
	integer(`,"mirostat":`, p.Mirostat, func(d *sampler.Params) int { return d.Mirostat })
	integer(`,"dry_allowed_length":`, p.DryAllowedLength, func(d *sampler.Params) int { return d.DryAllowedLength })
	integer(`,"dry_penalty_last_n":`, p.DryPenaltyLastN, func(d *sampler.Params) int { return d.DryPenaltyLastN })
	integer(`,"min_tokens":`, p.MinTokens, func(d *sampler.Params) int { return d.MinTokens })
	if len(p.StopTokens) > 0 && (def == nil || !slices.Equal(p.StopTokens, def.StopTokens)) {
		dst = appendTokens(dst, `,"stop_token_ids":`, p.StopTokens)
	}
	if len(p.AllowedTokens) > 0 && (def == nil || !slices.Equal(p.AllowedTokens, def.AllowedTokens)) {
		dst = appendTokens(dst, `,"allowed_token_ids":`, p.AllowedTokens)
	}
	return appendOrder(dst, p)
}

// appendBias appends logit_bias as a list.
func appendBias(dst []byte, r *Request) []byte {
	dst = append(dst, `,"logit_bias":[`...)
	value := func(b float32) {
		if math.IsInf(float64(b), -1) {
			dst = append(dst, ",false]"...)
		} else {
			dst = append(jsontext.AppendFloat32(append(dst, ','), b), ']')
		}
	}
	for i, b := range r.Sampling.LogitBias {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, '['), int64(b.Token), 10)
		value(b.Bias)
	}
	for i, b := range r.TextBias {
		if i > 0 || len(r.Sampling.LogitBias) > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendString(append(dst, '['), b.Text)
		value(b.Bias)
	}
	return append(dst, ']')
}

func appendTexts(dst []byte, key string, texts []string) []byte {
	dst = append(append(dst, key...), '[')
	for i, s := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendString(dst, s)
	}
	return append(dst, ']')
}

func appendTokens(dst []byte, key string, tokens []int32) []byte {
	dst = append(append(dst, key...), '[')
	for i, t := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(t), 10)
	}
	return append(dst, ']')
}

// AppendCancel appends a frame that cancels the request id of the same connection.
func AppendCancel(dst []byte, id string) []byte {
	dst, start := BeginFrame(dst)
	return EndFrame(append(jsontext.AppendHead(dst, `{"event":"cancel","id":`, id), '}'), start)
}

// AppendAdmin appends an admin question of kind k (KindMetrics, KindHealth, KindInfo); id may be "".
func AppendAdmin(dst []byte, k Kind, id string) []byte {
	dst, start := BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"type":`, k.String())
	if id != "" {
		dst = jsontext.AppendHead(dst, `,"id":`, id)
	}
	return EndFrame(append(dst, '}'), start)
}
