package wire

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// AppendRequest appends r as a frame. Fields equal to those of def are left out, so that the server's defaults
// apply; with a nil def every field is written. The caller keeps r within the limits of docs/protocol.md.
func AppendRequest(dst []byte, r, def *Request) []byte {
	dst, start := BeginFrame(dst)
	dst = appendHead(dst, `{"id":`, r.ID)
	if r.Model != "" {
		dst = appendHead(dst, `,"model":`, r.Model)
	}
	switch {
	case r.PromptTokens != nil:
		dst = appendTokens(dst, `,"prompt":`, r.PromptTokens)
	case r.Messages == nil:
		dst = appendHead(dst, `,"prompt":`, r.Prompt)
	default:
		dst = append(dst, `,"messages":[`...)
		for i := range r.Messages {
			m := &r.Messages[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendHead(dst, `{"role":`, m.Role)
			if len(m.Images) > 0 {
				dst = m.appendParts(append(dst, `,"content":`...))
			} else {
				dst = appendHead(dst, `,"content":`, m.Content)
			}
			if m.ReasoningContent != "" {
				dst = appendHead(dst, `,"reasoning_content":`, m.ReasoningContent)
			}
			if m.Name != "" {
				dst = appendHead(dst, `,"name":`, m.Name)
			}
			if len(m.ToolCalls) > 0 {
				dst = appendCalls(append(dst, `,"tool_calls":`...), m.ToolCalls)
			}
			if m.ToolCallID != "" {
				dst = appendHead(dst, `,"tool_call_id":`, m.ToolCallID)
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
		dst = appendInt(dst, `,"max_tokens":`, n)
	}
	var defSampling *sampler.Params
	if def != nil {
		defSampling = &def.Sampling
	}
	dst = appendSampling(dst, &r.Sampling, defSampling)
	if def == nil || r.PromptLogprobs != def.PromptLogprobs {
		dst = appendInt(dst, `,"prompt_logprobs":`, r.PromptLogprobs)
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
		dst = appendInt(dst, `,"n_indent":`, r.Indent)
	}
	if r.MaxTime > 0 {
		dst = appendInt(dst, `,"t_max_predict_ms":`, int(r.MaxTime.Milliseconds()))
	}
	if r.ParseSpecial {
		dst = append(dst, `,"parse_special":true`...)
	}
	if r.Suffix != "" {
		dst = appendHead(dst, `,"suffix":`, r.Suffix)
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
	if r.CacheSalt != "" {
		dst = appendHead(dst, `,"cache_salt":`, r.CacheSalt)
	}
	dst = appendLoRA(dst, r)
	if r.Verbosity != "" {
		dst = appendHead(dst, `,"verbosity":`, r.Verbosity)
	}
	if def == nil || r.Stream != def.Stream {
		dst = strconv.AppendBool(append(dst, `,"stream":`...), r.Stream)
	}
	if r.SpeculateSet {
		dst = appendInt(dst, `,"speculate":`, r.Speculate)
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
				dst = appendMs(dst, ":", *t.Of(&r.Targets))
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
		dst = appendHead(dst, `,"traceparent":`, r.Traceparent)
	}
	if len(r.Metadata) > 0 {
		dst = append(append(dst, `,"metadata":`...), r.Metadata...)
	}
	return EndFrame(append(dst, '}'), start)
}

func appendSampling(dst []byte, p, def *sampler.Params) []byte {
	number := func(key string, v float32, d func(*sampler.Params) float32) {
		if def == nil || v != d(def) {
			dst = appendFloat32(append(dst, key...), v)
		}
	}
	number(`,"temperature":`, p.Temperature, func(d *sampler.Params) float32 { return d.Temperature })
	number(`,"top_p":`, p.TopP, func(d *sampler.Params) float32 { return d.TopP })
	number(`,"min_p":`, p.MinP, func(d *sampler.Params) float32 { return d.MinP })
	number(`,"repeat_penalty":`, p.RepeatPenalty, func(d *sampler.Params) float32 { return d.RepeatPenalty })
	number(`,"frequency_penalty":`, p.FrequencyPenalty, func(d *sampler.Params) float32 { return d.FrequencyPenalty })
	number(`,"presence_penalty":`, p.PresencePenalty, func(d *sampler.Params) float32 { return d.PresencePenalty })
	if def == nil || p.TopK != def.TopK {
		dst = appendInt(dst, `,"top_k":`, p.TopK)
	}
	if def == nil || p.PenaltyLastN != def.PenaltyLastN {
		dst = appendInt(dst, `,"repeat_last_n":`, p.PenaltyLastN)
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
		dst = appendInt(dst, `,"logprobs":`, p.Logprobs)
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
			dst = appendInt(dst, key, v)
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
			dst = append(appendFloat32(append(dst, ','), b), ']')
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
		dst = appendString(append(dst, '['), b.Text)
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
		dst = appendString(dst, s)
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
	return EndFrame(append(appendHead(dst, `{"event":"cancel","id":`, id), '}'), start)
}

// AppendAdmin appends an admin question of kind k (KindMetrics, KindHealth, KindInfo); id may be "".
func AppendAdmin(dst []byte, k Kind, id string) []byte {
	dst, start := BeginFrame(dst)
	dst = appendHead(dst, `{"type":`, k.String())
	if id != "" {
		dst = appendHead(dst, `,"id":`, id)
	}
	return EndFrame(append(dst, '}'), start)
}

// EventKind is the type of a server's event.
type EventKind uint8

const (
	EventUnknown EventKind = iota // of a newer server: skip it
	EventToken
	EventEOS
	EventError
	EventProgress
	EventReport   // the answer to an admin question
	EventToolCall // a part of a call that the model makes
	EventEmbedding
)

// Event is one message of the server, read by ParseEvent.
type Event struct {
	Kind EventKind
	ID   string // "" in an error about the connection and in a report on a question without id

	Token    Token        // with EventToken
	ToolCall ToolCallPart // with EventToolCall
	EOS      EOS          // with EventEOS
	Error    Error        // with EventError
	Progress Progress     // with EventProgress

	Embedding Embedding // with EventEmbedding

	ReportKind Kind   // with EventReport
	Report     []byte // with EventReport: the JSON value the server sent
}

// ParseEvent reads one frame of the server into ev, whose memory it reuses: a caller that keeps text beyond the
// next call copies it. Fields it does not know are ignored.
func (p *Parser) ParseEvent(payload []byte, ev *Event) error {
	root, bad := p.tree(payload)
	defer p.release(payload)
	if bad != nil {
		return fmt.Errorf("read event: %w", bad)
	}
	obj, err := root.Object()
	if err != nil {
		return fmt.Errorf("read event: it is %s, not an object", typeName(root))
	}
	e := eventDecoder{p: p, payload: payload}
	reuse(&ev.ID, root.GetStringBytes("id"))
	ev.Kind = EventUnknown
	switch name := root.GetStringBytes("event"); string(name) {
	case "token":
		ev.Kind = EventToken
		e.token(obj, &ev.Token)
		ev.Token.ID = ev.ID
	case "eos":
		ev.Kind = EventEOS
		e.eos(obj, &ev.EOS)
		ev.EOS.ID = ev.ID
	case "embedding":
		ev.Kind = EventEmbedding
		e.embedding(obj, &ev.Embedding)
		ev.Embedding.ID = ev.ID
	case "tool_call":
		ev.Kind = EventToolCall
		e.toolCall(obj, &ev.ToolCall)
		ev.ToolCall.ID = ev.ID
	case "error":
		ev.Kind = EventError
		ev.Error = Error{ID: ev.ID, Code: Code(e.text(obj, "code")), Message: string(e.text(obj, "message")),
			NPrompt: e.optional(obj, "n_prompt"), NCtx: e.optional(obj, "n_ctx")}
		if obj.Get("retry_after_ms") != nil {
			ev.Error.RetryAfter = e.ms(obj, "retry_after_ms")
		}
		if obj.Get("predicted_ms") != nil {
			ev.Error.Predicted = e.ms(obj, "predicted_ms")
		}
	case "progress":
		ev.Kind = EventProgress
		ev.Progress = Progress{ID: ev.ID, Processed: e.integer(obj, "processed"), Total: e.integer(obj, "total"),
			Cached:  e.optional(obj, "cached"),
			Elapsed: e.ms(obj, "elapsed_ms"), Position: e.optional(obj, "queue_position")}
		if obj.Get("waiting") != nil {
			ev.Progress.Waiting = string(e.text(obj, "waiting"))
			ev.Progress.Loaded = e.float(obj, "load_progress", 64)
		}
	default:
		for k := KindMetrics; k <= KindKV; k++ {
			if string(name) == k.String() {
				ev.Kind, ev.ReportKind = EventReport, k
				raw := p.scan.report
				if obj.Get(k.String()) == nil || raw.end == 0 {
					return fmt.Errorf("read %s event: field %q is missing", name, name)
				}
				ev.Report = append(ev.Report[:0], payload[raw.start:raw.end]...)
			}
		}
		if len(name) == 0 {
			e.fail("event", root.Get("event"), "a string")
		}
	}
	if e.err != nil {
		return fmt.Errorf("read %s event: %w", root.GetStringBytes("event"), e.err)
	}
	return nil
}

// reuse sets *s to b without allocating when it already is.
func reuse(s *string, b []byte) {
	if *s != string(b) {
		*s = string(b)
	}
}

// eventDecoder reads fields that must be there; the first defect is kept.
type eventDecoder struct {
	p       *Parser
	payload []byte
	err     error
}

func (e *eventDecoder) fail(name string, v *fastjson.Value, must string) {
	if e.err != nil {
		return
	}
	if v == nil {
		e.err = fmt.Errorf("field %q is missing; it must be %s", name, must)
		return
	}
	e.err = wrongType(name, v, must)
}

func (e *eventDecoder) text(o *fastjson.Object, name string) []byte {
	v := o.Get(name)
	if v == nil || v.Type() != fastjson.TypeString {
		e.fail(name, v, "a string")
		return nil
	}
	b, _ := v.StringBytes()
	return b
}

func (e *eventDecoder) integer(o *fastjson.Object, name string) int {
	v := o.Get(name)
	if v == nil || v.Type() != fastjson.TypeNumber {
		e.fail(name, v, "an integer")
		return 0
	}
	n, err := v.Int64()
	if err != nil {
		e.fail(name, v, "an integer")
	}
	return int(n)
}

func (e *eventDecoder) optional(o *fastjson.Object, name string) int {
	if o.Get(name) == nil {
		return 0
	}
	return e.integer(o, name)
}

func (e *eventDecoder) float(o *fastjson.Object, name string, bits int) float64 {
	v := o.Get(name)
	if v == nil || v.Type() != fastjson.TypeNumber {
		e.fail(name, v, "a number")
		return 0
	}
	d := decoder{p: e.p}
	f, err := strconv.ParseFloat(d.number(v), bits)
	if err != nil {
		e.fail(name, v, "a finite number")
		return 0
	}
	return f
}

func (e *eventDecoder) ms(o *fastjson.Object, name string) time.Duration {
	f := e.float(o, name, 64)
	if !(f >= 0 && f < 1e15) {
		e.fail(name, o.Get(name), "a time in milliseconds")
		return 0
	}
	return fromMs(f)
}

func (e *eventDecoder) token(o *fastjson.Object, t *Token) {
	t.Text = append(t.Text[:0], e.text(o, "text")...)
	t.TokenID = int32(e.integer(o, "token_id"))
	switch phase := e.text(o, "phase"); string(phase) {
	case string(Thinking):
		t.Phase = Thinking
	case string(Output):
		t.Phase = Output
	case string(InPrompt):
		t.Phase = InPrompt
	default:
		t.Phase = Phase(phase)
	}
	t.Top, t.Logprob = t.Top[:0], 0
	if t.HasLogprob = o.Get("logprob") != nil; !t.HasLogprob {
		return
	}
	t.Logprob = float32(e.float(o, "logprob", 32))
	var list []*fastjson.Value
	if v := o.Get("top_logprobs"); v != nil {
		list, _ = v.Array()
	}
	for _, v := range list {
		top, err := v.Object()
		if err != nil {
			e.fail("top_logprobs entry", v, "an object")
			return
		}
		l := TokenLogprob{Token: int32(e.integer(top, "token_id")), Logprob: float32(e.float(top, "logprob", 32))}
		if raw := top.Get("bytes"); raw != nil {
			parts, _ := raw.Array()
			for _, c := range parts {
				l.Text = append(l.Text, byte(c.GetInt()))
			}
		} else {
			l.Text = bytes.Clone(e.text(top, "text"))
		}
		t.Top = append(t.Top, l)
	}
}

func (e *eventDecoder) eos(o *fastjson.Object, out *EOS) {
	*out = EOS{Reason: Reason(e.text(o, "reason")), Streamed: o.Get("text") == nil}
	if o.Get("stop") != nil {
		out.StopText = string(e.text(o, "stop"))
	}
	if !out.Streamed {
		out.Text = bytes.Clone(e.text(o, "text"))
	}
	if o.Get("think") != nil {
		if t := e.object(o, "think"); t != nil {
			out.Thought = ThinkSummary{Tokens: e.integer(t, "tokens"), Time: e.ms(t, "ms"),
				Ended: string(e.text(t, "ended")), Probes: e.integer(t, "probes")}
			if !out.Streamed {
				out.Think = bytes.Clone(e.text(t, "text"))
			}
		}
	}
	if !out.Streamed && o.Get("tool_calls") != nil {
		out.ToolCalls = e.toolCalls(o.Get("tool_calls"))
	}
	if u := e.object(o, "usage"); u != nil {
		out.Usage = Usage{PromptTokens: e.integer(u, "prompt_tokens"), CachedTokens: e.integer(u, "cached_tokens"),
			CompletionTokens: e.integer(u, "completion_tokens"), ThinkTokens: e.integer(u, "think_tokens"),
			CacheTier: tierOf(e.text(u, "cache_tier"))}
		if u.Get("drafted_tokens") != nil {
			out.Usage.DraftedTokens = e.integer(u, "drafted_tokens")
			out.Usage.AcceptedTokens = e.integer(u, "accepted_tokens")
		}
		if u.Get("cache_miss") != nil {
			out.Usage.CacheMiss = string(e.text(u, "cache_miss"))
		}
	}
	if t := e.object(o, "timings"); t != nil {
		out.Timings = Timings{Queue: e.ms(t, "queue_ms"), TTFT: e.ms(t, "ttft_ms"), Prefill: e.ms(t, "prefill_ms"),
			Decode: e.ms(t, "decode_ms")}
	}
	out.Metadata = bytes.Clone(e.payload[e.p.scan.metadata.start:e.p.scan.metadata.end])
	if len(out.Metadata) == 0 {
		out.Metadata = nil
	}
}

func (e *eventDecoder) object(o *fastjson.Object, name string) *fastjson.Object {
	v := o.Get(name)
	if v == nil || v.Type() != fastjson.TypeObject {
		e.fail(name, v, "an object")
		return nil
	}
	obj, _ := v.Object()
	return obj
}

func (e *eventDecoder) toolCall(o *fastjson.Object, c *ToolCallPart) {
	c.Index = e.integer(o, "index")
	c.Arguments = append(c.Arguments[:0], e.text(o, "arguments")...)
	if c.CallID, c.Name = "", ""; o.Get("name") != nil {
		c.CallID, c.Name = string(e.text(o, "call_id")), string(e.text(o, "name"))
	}
}

func (e *eventDecoder) toolCalls(v *fastjson.Value) (calls []ToolCall) {
	list, err := v.Array()
	if err != nil {
		e.fail("tool_calls", v, "an array")
	}
	for _, v := range list {
		call, err := v.Object()
		if err != nil {
			e.fail("tool_calls entry", v, "an object")
			return nil
		}
		function := e.object(call, "function")
		if function == nil {
			return nil
		}
		c := ToolCall{Name: string(e.text(function, "name")), Arguments: string(e.text(function, "arguments"))}
		if call.Get("id") != nil {
			c.ID = string(e.text(call, "id"))
		}
		calls = append(calls, c)
	}
	return calls
}
