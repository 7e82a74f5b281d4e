package telemetry

import (
	"context"
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Request collects the facts about one request for its trace. The decode loop owns it until Exporter.Ended. A nil
// *Request records nothing.
type Request struct {
	parent trace.SpanContext

	ID    string // the client's
	Class string // interactive, background
	Ended string // an eos event's reason, or an error code
	Error string // message of an error; "" = the request ended with an eos

	// Times; zero = it did not come to that. Think is the opening of the first thought, Thought the end of the newest
	// one.
	Arrived, Started, First, Think, Thought, Answer, Last, End time.Time

	PromptTokens, CachedTokens, ThinkTokens, CompletionTokens int
	CacheTier                                                 string

	parts   []Part
	dropped int
}

// Part is a phase of a request that comes several times.
type Part struct {
	Name     string // prefill.chunk, restore, preempted
	From, To time.Time
	Tokens   int
	Tier     string // of a restore
}

// maxParts bounds the parts of a trace: a long prompt beside answers has hundreds of chunks.
const maxParts = 128

// Add adds a part. It does not allocate once the slice has grown; parts beyond the 128th are counted.
func (r *Request) Add(p Part) {
	switch {
	case r == nil:
	case len(r.parts) == maxParts:
		r.dropped++
	default:
		r.parts = append(r.parts, p)
	}
}

// Resumed ends the newest preemption at t.
func (r *Request) Resumed(t time.Time) {
	if r == nil {
		return
	}
	for i := len(r.parts) - 1; i >= 0; i-- {
		if p := &r.parts[i]; p.Name == preempted && p.To.IsZero() {
			p.To = t
			return
		}
	}
}

// Preempted begins a preemption at t.
func (r *Request) Preempted(t time.Time) { r.Add(Part{Name: preempted, From: t}) }

const preempted = "preempted"

// emit makes the spans of a request.
func (e *Exporter) emit(r *Request) {
	ctx := context.Background()
	opts := []trace.SpanStartOption{trace.WithTimestamp(r.Arrived), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("uma.request.id", r.ID), attribute.String("uma.class", r.Class),
			attribute.String("uma.ended", r.Ended), attribute.String("uma.cache.tier", r.CacheTier),
			attribute.Int("gen_ai.usage.input_tokens", r.PromptTokens),
			attribute.Int("gen_ai.usage.output_tokens", r.CompletionTokens),
			attribute.Int("uma.usage.cached_tokens", r.CachedTokens),
			attribute.Int("uma.usage.think_tokens", r.ThinkTokens),
			attribute.Int("uma.trace.dropped_parts", r.dropped))}
	if r.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, r.parent)
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: r.parent}))
	}
	ctx, root := e.tracer.Start(ctx, "request", opts...)
	if r.Error != "" {
		root.SetStatus(codes.Error, r.Error)
	}
	child := func(ctx context.Context, name string, from, to time.Time, attrs ...attribute.KeyValue) context.Context {
		if from.IsZero() {
			return ctx
		}
		if to.IsZero() || to.Before(from) {
			to = r.End
		}
		ctx, s := e.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(attrs...))
		s.End(trace.WithTimestamp(to))
		e.spans.made.Add(1)
		return ctx
	}
	child(ctx, "queued", r.Arrived, r.Started)
	prefill := child(ctx, "prefill", r.Started, r.First)
	child(ctx, "think", r.Think, r.Thought, attribute.Int("tokens", r.ThinkTokens))
	child(ctx, "answer", r.Answer, r.Last, attribute.Int("tokens", r.CompletionTokens-r.ThinkTokens))
	for _, p := range r.parts {
		under := ctx
		if p.Name == "prefill.chunk" {
			under = prefill
		}
		attrs := []attribute.KeyValue{attribute.Int("tokens", p.Tokens)}
		if p.Tier != "" {
			attrs = append(attrs, attribute.String("tier", p.Tier))
		}
		child(under, p.Name, p.From, p.To, attrs...)
	}
	root.End(trace.WithTimestamp(r.End))
	e.spans.made.Add(1)
}

// TraceparentLength is the length of a traceparent of version 00.
const TraceparentLength = 55

// ValidTraceparent reports whether text is a traceparent as the W3C's Trace Context writes it, version 00.
func ValidTraceparent(text string) bool {
	_, ok := parseParent(text)
	return ok
}

// parseParent reads a traceparent: 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, lower case, neither id zero.
func parseParent(text string) (trace.SpanContext, bool) {
	if len(text) != TraceparentLength || text[:3] != "00-" || text[35] != '-' || text[52] != '-' {
		return trace.SpanContext{}, false
	}
	id, err := trace.TraceIDFromHex(text[3:35])
	if err != nil {
		return trace.SpanContext{}, false
	}
	span, err := trace.SpanIDFromHex(text[36:52])
	if err != nil {
		return trace.SpanContext{}, false
	}
	var flags [1]byte
	if _, err := hex.Decode(flags[:], []byte(text[53:])); err != nil {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span,
		TraceFlags: trace.TraceFlags(flags[0]), Remote: true}), true
}
