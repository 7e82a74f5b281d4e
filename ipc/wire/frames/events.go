package frames

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// Parser reads the events of any number of connections, one after the other. It keeps its memory between calls, except
// that of an unusually large event.
type Parser struct{ json jsontext.Parser }

// ParseEvent reads one frame of the server into ev, whose memory it reuses: a caller that keeps text beyond the
// next call copies it. Fields it does not know are ignored.
func (p *Parser) ParseEvent(payload []byte, ev *wire.Event) error {
	root, bad := p.json.Parse(payload)
	defer p.json.Release()
	if bad != "" {
		return fmt.Errorf("read event: %w", &wire.RequestError{Code: wire.InvalidJSON, Message: bad})
	}
	obj, err := root.Object()
	if err != nil {
		return fmt.Errorf("read event: it is %s, not an object", jsontext.TypeName(root))
	}
	e := eventDecoder{p: p, payload: payload}
	reuse(&ev.ID, root.GetStringBytes("id"))
	ev.Kind = wire.EventUnknown
	switch name := root.GetStringBytes("event"); string(name) {
	case "token":
		ev.Kind = wire.EventToken
		e.token(obj, &ev.Token)
		ev.Token.ID = ev.ID
	case "eos":
		ev.Kind = wire.EventEOS
		e.eos(obj, &ev.EOS)
		ev.EOS.ID = ev.ID
	case "embedding":
		ev.Kind = wire.EventEmbedding
		e.embedding(obj, &ev.Embedding)
		ev.Embedding.ID = ev.ID
	case "tool_call":
		ev.Kind = wire.EventToolCall
		e.toolCall(obj, &ev.ToolCall)
		ev.ToolCall.ID = ev.ID
	case "error":
		ev.Kind = wire.EventError
		ev.Error = wire.Error{ID: ev.ID, Code: wire.Code(e.text(obj, "code")), Message: string(e.text(obj, "message")),
			NPrompt: e.optional(obj, "n_prompt"), NCtx: e.optional(obj, "n_ctx")}
		if obj.Get("retry_after_ms") != nil {
			ev.Error.RetryAfter = e.ms(obj, "retry_after_ms")
		}
		if obj.Get("predicted_ms") != nil {
			ev.Error.Predicted = e.ms(obj, "predicted_ms")
		}
	case "progress":
		ev.Kind = wire.EventProgress
		ev.Progress = wire.Progress{ID: ev.ID, Processed: e.integer(obj, "processed"), Total: e.integer(obj, "total"),
			Cached:  e.optional(obj, "cached"),
			Elapsed: e.ms(obj, "elapsed_ms"), Position: e.optional(obj, "queue_position")}
		if obj.Get("waiting") != nil {
			ev.Progress.Waiting = string(e.text(obj, "waiting"))
			ev.Progress.Loaded = e.float(obj, "load_progress", 64)
		}
	default:
		for k := wire.KindMetrics; k <= wire.KindKV; k++ {
			if string(name) == k.String() {
				ev.Kind, ev.ReportKind = wire.EventReport, k
				raw := p.json.Scan.Report
				if obj.Get(k.String()) == nil || raw.End == 0 {
					return fmt.Errorf("read %s event: field %q is missing", name, name)
				}
				ev.Report = append(ev.Report[:0], payload[raw.Start:raw.End]...)
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
	e.err = fmt.Errorf("field %q is %s; it must be %s", name, jsontext.TypeName(v), must)
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
	f, err := strconv.ParseFloat(e.p.json.Number(v), bits)
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
	return jsontext.FromMs(f)
}

func (e *eventDecoder) token(o *fastjson.Object, t *wire.Token) {
	t.Text = append(t.Text[:0], e.text(o, "text")...)
	t.TokenID = int32(e.integer(o, "token_id"))
	switch phase := e.text(o, "phase"); string(phase) {
	case string(wire.Thinking):
		t.Phase = wire.Thinking
	case string(wire.Output):
		t.Phase = wire.Output
	case string(wire.InPrompt):
		t.Phase = wire.InPrompt
	default:
		t.Phase = wire.Phase(phase)
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
		l := wire.TokenLogprob{Token: int32(e.integer(top, "token_id")), Logprob: float32(e.float(top, "logprob", 32))}
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

func (e *eventDecoder) eos(o *fastjson.Object, out *wire.EOS) {
	*out = wire.EOS{Reason: wire.Reason(e.text(o, "reason")), Streamed: o.Get("text") == nil}
	if o.Get("stop") != nil {
		out.StopText = string(e.text(o, "stop"))
	}
	if !out.Streamed {
		out.Text = bytes.Clone(e.text(o, "text"))
	}
	if o.Get("think") != nil {
		if t := e.object(o, "think"); t != nil {
			out.Thought = wire.ThinkSummary{Tokens: e.integer(t, "tokens"), Time: e.ms(t, "ms"),
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
		out.Usage = wire.Usage{PromptTokens: e.integer(u, "prompt_tokens"), CachedTokens: e.integer(u, "cached_tokens"),
			CompletionTokens: e.integer(u, "completion_tokens"), ThinkTokens: e.integer(u, "think_tokens"),
			CacheTier: wire.CacheTierOf(e.text(u, "cache_tier"))}
		if u.Get("drafted_tokens") != nil {
			out.Usage.DraftedTokens = e.integer(u, "drafted_tokens")
			out.Usage.AcceptedTokens = e.integer(u, "accepted_tokens")
		}
		if u.Get("cache_miss") != nil {
			out.Usage.CacheMiss = string(e.text(u, "cache_miss"))
		}
	}
	if t := e.object(o, "timings"); t != nil {
		out.Timings = wire.Timings{Queue: e.ms(t, "queue_ms"), TTFT: e.ms(t, "ttft_ms"), Prefill: e.ms(t, "prefill_ms"),
			Decode: e.ms(t, "decode_ms")}
	}
	out.Metadata = bytes.Clone(e.payload[e.p.json.Scan.Metadata.Start:e.p.json.Scan.Metadata.End])
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

func (e *eventDecoder) toolCall(o *fastjson.Object, c *wire.ToolCallDelta) {
	c.Index = e.integer(o, "index")
	c.Arguments = append(c.Arguments[:0], e.text(o, "arguments")...)
	if c.CallID, c.Name = "", ""; o.Get("name") != nil {
		c.CallID, c.Name = string(e.text(o, "call_id")), string(e.text(o, "name"))
	}
}

func (e *eventDecoder) toolCalls(v *fastjson.Value) (calls []wire.ToolCall) {
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
		c := wire.ToolCall{Name: string(e.text(function, "name")), Arguments: string(e.text(function, "arguments"))}
		if call.Get("id") != nil {
			c.ID = string(e.text(call, "id"))
		}
		calls = append(calls, c)
	}
	return calls
}

// embedding reads an embedding event.
func (e *eventDecoder) embedding(o *fastjson.Object, out *wire.Embedding) {
	*out = wire.Embedding{Index: e.integer(o, "index"), Row: -1, Tokens: e.integer(o, "tokens"), Values: out.Values[:0]}
	if o.Get("row") != nil {
		out.Row = e.integer(o, "row")
	}
	if v := o.Get("truncated"); v != nil {
		out.Truncated = v.Type() == fastjson.TypeTrue
	}
	const must = "an array of numbers, or base64 of little-endian float32"
	v := o.Get("embedding")
	if v == nil {
		e.fail("embedding", v, must)
		return
	}
	switch v.Type() {
	case fastjson.TypeArray:
		list, _ := v.Array()
		var number []byte
		for _, x := range list {
			number = x.MarshalTo(number[:0])
			f, err := strconv.ParseFloat(string(number), 32) // fastjson's conversion is off by a bit now and then
			if err != nil {
				e.fail("embedding", v, must)
				return
			}
			out.Values = append(out.Values, float32(f))
		}
	case fastjson.TypeString:
		text, _ := v.StringBytes()
		raw, err := base64.StdEncoding.AppendDecode(nil, text)
		if err != nil || len(raw)%4 != 0 {
			e.fail("embedding", v, must)
			return
		}
		for ; len(raw) > 0; raw = raw[4:] {
			x := math.Float32frombits(binary.LittleEndian.Uint32(raw))
			if x != x || math.IsInf(float64(x), 0) {
				e.fail("embedding", v, must)
				return
			}
			out.Values = append(out.Values, x)
		}
	default:
		e.fail("embedding", v, must)
	}
}
