package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

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
				raw := p.scan.Report
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
	return jsontext.FromMs(f)
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
	out.Metadata = bytes.Clone(e.payload[e.p.scan.Metadata.Start:e.p.scan.Metadata.End])
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
