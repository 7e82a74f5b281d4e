package frames

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// AppendRequest appends r as a frame. Fields equal to those of def are left out, so that the server's defaults
// apply; with a nil def every field is written. The caller keeps r within the limits of docs/protocol.md.
func AppendRequest(dst []byte, r, def *wire.Request) []byte {
	dst, start := wire.BeginFrame(dst)
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
				dst = appendParts(append(dst, `,"content":`...), m)
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
				dst = wire.AppendCalls(append(dst, `,"tool_calls":`...), m.ToolCalls)
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
	if r.Continue != wire.ContinueLast && (def == nil || r.Continue != def.Continue) {
		dst = append(append(dst, `,"continue_final_message":`...), r.Continue.String()...)
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
		if r.Priority == wire.PriorityBackground {
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
	if r.Think != (wire.Think{}) && (def == nil || r.Think != def.Think) {
		dst = appendThink(dst, &r.Think)
	}
	if r.Traceparent != "" {
		dst = jsontext.AppendHead(dst, `,"traceparent":`, r.Traceparent)
	}
	if len(r.Metadata) > 0 {
		dst = append(append(dst, `,"metadata":`...), r.Metadata...)
	}
	return wire.EndFrame(append(dst, '}'), start)
}

// appendSampling appends the parameters of wire.Parameters, and the lists.
func appendSampling(dst []byte, p, def *sampler.Params) []byte {
	for i := range wire.Parameters {
		if f := &wire.Parameters[i]; def == nil || !f.Same(p, def) {
			dst = appendParameter(dst, f, p)
		}
	}
	if len(p.StopTokens) > 0 && (def == nil || !slices.Equal(p.StopTokens, def.StopTokens)) {
		dst = appendTokens(dst, `,"stop_token_ids":`, p.StopTokens)
	}
	if len(p.AllowedTokens) > 0 && (def == nil || !slices.Equal(p.AllowedTokens, def.AllowedTokens)) {
		dst = appendTokens(dst, `,"allowed_token_ids":`, p.AllowedTokens)
	}
	if p.Order != nil {
		dst = appendTexts(dst, `,"samplers":`, wire.Stages(p))
	}
	return dst
}

func appendParameter(dst []byte, f *wire.Parameter, p *sampler.Params) []byte {
	dst = append(append(append(dst, `,"`...), f.Name...), `":`...)
	switch v := f.Of(p).(type) {
	case *float32:
		return jsontext.AppendFloat32(dst, *v)
	case *int:
		return strconv.AppendInt(dst, int64(*v), 10)
	case *bool:
		return strconv.AppendBool(dst, *v)
	}
	if !p.SeedSet {
		return append(dst, "-1"...)
	}
	return strconv.AppendUint(dst, p.Seed, 10)
}

// appendBias appends logit_bias as a list.
func appendBias(dst []byte, r *wire.Request) []byte {
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

// appendFormat appends a request's Format in one of its spellings.
func appendFormat(dst []byte, f *wire.Format) []byte {
	switch f.Kind {
	case wire.FormatJSON:
		return append(dst, `,"response_format":{"type":"json_object"}`...)
	case wire.FormatSchema:
		dst = append(dst, `,"response_format":{"type":"json_schema","json_schema":{`...)
		if f.Name != "" {
			dst = append(jsontext.AppendHead(dst, `"name":`, f.Name), ',')
		}
		if f.Strict {
			dst = append(dst, `"strict":true,`...)
		}
		return append(append(append(dst, `"schema":`...), f.Payload...), "}}"...)
	case wire.FormatRegex:
		return append(jsontext.AppendHead(dst, `,"structured_outputs":{"regex":`, f.Payload), '}')
	case wire.FormatChoice:
		return append(appendTexts(append(dst, `,"structured_outputs":{`...), `"choice":`, f.Choices), '}')
	case wire.FormatGrammar:
		return jsontext.AppendHead(dst, `,"grammar":`, f.Payload)
	}
	return dst
}

// appendParts appends m's content as an array of parts, texts, images and sounds.
func appendParts(dst []byte, m *wire.Message) []byte {
	text := func(t string) {
		if t != "" {
			dst = append(jsontext.AppendHead(dst, `{"type":"text","text":`, t), `},`...)
		}
	}
	dst = append(dst, '[')
	rest := m.Content
	for _, im := range m.Images {
		before, after, _ := strings.Cut(rest, wire.ImageMark)
		text(before)
		head := `{"type":"image_url","image_url":{"url":`
		if im.Sound() {
			head = `{"type":"input_audio","input_audio":{"data":`
		}
		dst = append(jsontext.AppendHead(dst, head, im.Data), `}},`...)
		rest = after
	}
	text(rest)
	dst[len(dst)-1] = ']' // in the place of the last comma: there is an image or a sound at least
	return dst
}

// appendLoRA appends what a request says about adapters.
func appendLoRA(dst []byte, r *wire.Request) []byte {
	if r.LoRA == nil {
		return dst
	}
	if len(r.LoRA) == 1 && r.LoRA[0].Name != "" {
		return jsontext.AppendHead(dst, `,"lora_path":`, r.LoRA[0].Name)
	}
	dst = append(dst, `,"lora":[`...)
	for i, l := range r.LoRA {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendInt(dst, `{"id":`, l.ID)
		dst = strconv.AppendFloat(append(dst, `,"scale":`...), float64(l.Scale), 'g', -1, 32)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// appendThink appends the fields that ask for t.
func appendThink(dst []byte, t *wire.Think) []byte {
	if t.Effort != wire.EffortDefault {
		dst = jsontext.AppendHead(dst, `,"reasoning_effort":`, t.Effort.String())
	}
	sep := `,"think":{`
	key := func(name string) {
		dst = append(append(append(append(dst, sep...), '"'), name...), `":`...)
		sep = ","
	}
	if t.Mode != wire.ThinkDefault {
		key("mode")
		dst = jsontext.AppendString(dst, t.Mode.String())
	}
	if t.BudgetTokens > 0 {
		key("budget_tokens")
		dst = jsontext.AppendInt(dst, "", t.BudgetTokens)
	}
	if t.SoftBudgetTokens != 0 {
		key("soft_budget_tokens")
		dst = jsontext.AppendInt(dst, "", max(t.SoftBudgetTokens, 0))
	}
	if t.EarlyExit != wire.ExitDefault {
		key("early_exit")
		dst = jsontext.AppendString(dst, t.EarlyExit.String())
	}
	if t.AnswerCue != "" {
		key("answer_cue")
		dst = jsontext.AppendString(dst, t.AnswerCue)
	}
	if t.Preserve != wire.PreserveDefault {
		key("preserve")
		dst = strconv.AppendBool(dst, t.Preserve == wire.PreserveOn)
	}
	if sep == "," {
		dst = append(dst, '}')
	}
	return dst
}

// appendTools appends a request's fields about tools.
func appendTools(dst []byte, r, def *wire.Request) []byte {
	for i := range r.Tools {
		t := &r.Tools[i]
		if i == 0 {
			dst = append(dst, `,"tools":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = t.AppendDefinition(dst)
		if t.Deferred {
			dst = append(dst[:len(dst)-1], `,"defer_loading":true}`...)
		}
		if t.Referenced {
			dst = append(dst[:len(dst)-1], `,"referenced":true}`...)
		}
		if i == len(r.Tools)-1 {
			dst = append(dst, ']')
		}
	}
	switch r.ToolChoice.Mode {
	case wire.ToolNone:
		dst = append(dst, `,"tool_choice":"none"`...)
	case wire.ToolRequired:
		dst = append(dst, `,"tool_choice":"required"`...)
	case wire.ToolNamed:
		dst = jsontext.AppendHead(dst, `,"tool_choice":{"type":"function","function":{"name":`, r.ToolChoice.Name)
		dst = append(dst, "}}"...)
	}
	if def == nil || r.ParallelToolCalls != def.ParallelToolCalls {
		if dst = append(dst, `,"parallel_tool_calls":`...); r.ParallelToolCalls {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	}
	return dst
}
