//go:build otlp

package telemetry

import (
	"context"
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

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
	for _, p := range r.spans {
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
