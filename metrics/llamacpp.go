package metrics

import (
	"cmp"
	"strconv"
)

// llamaServer declares the metrics of llama-server under its names, for dashboards that have them: each is one of ours,
// or is computed of ours, and only in the Prometheus format.
func (m *Metrics) llamaServer() []*decl {
	seconds := func(h *Durations) float64 { return float64(h.b.sum.Load()) / 1e9 }
	sum := func(list []Counter) (n float64) {
		for i := range list {
			n += float64(list[i].Value())
		}
		return n
	}
	of := func(c *Counter) func() float64 { return func() float64 { return float64(c.Value()) } }
	rate := func(n, s float64) float64 {
		if s == 0 {
			return 0
		}
		return n / s
	}
	prompts := func() float64 { return float64(m.prefillTokens.Value()) }
	predicted := func() float64 { return float64(m.TokensGenerated.Value()) }
	var prompted, answered Window
	list := []*decl{
		{prom: "prompt_tokens_total", kind: counter, help: "Prompt tokens that were computed, without cached ones",
			value: prompts},
		{prom: "prompt_tokens_cached_total", kind: counter, help: "Prompt tokens that were cached",
			value: func() float64 { return sum(m.hitTokens[:]) }},
		{prom: "prompt_seconds_total", kind: counter, help: "Sum over requests of the time from their first step to " +
			"their first token", value: func() float64 { return seconds(&m.PrefillTime) }},
		{prom: "tokens_predicted_total", kind: counter, help: "Tokens sampled", value: predicted},
		{prom: "tokens_predicted_seconds_total", kind: counter, help: "Sum over requests of the time from their " +
			"first token to their last", value: func() float64 { return seconds(&m.DecodeTime) }},
		{prom: "n_decode_total", kind: counter, help: "Decodes of a batch", value: of(&m.steps)},
		{prom: "n_tokens_max", kind: counter, help: "Tokens of the longest finished request, with its answer",
			value: func() float64 { return float64(m.longest.Value()) }},
		{prom: "spec_decode_num_drafts_total", kind: counter, help: "Guesses, each of one request in a step",
			value: of(&m.drafts)},
		{prom: "spec_decode_num_draft_tokens_total", kind: counter, help: "Guessed tokens that were computed",
			value: func() float64 { return sum(m.drafted[:]) }},
		{prom: "spec_decode_num_accepted_tokens_total", kind: counter, help: "Guessed tokens that came true",
			value: func() float64 { return sum(m.accepted[:]) }},
		{prom: "prompt_tokens_seconds", kind: gauge, help: "Computed prompt tokens a second of prompt_seconds_total, " +
			"since the scrape before",
			value: func() float64 { return prompted.Rate(prompts(), seconds(&m.PrefillTime)) }},
		{prom: "predicted_tokens_seconds", kind: gauge, help: "Tokens of finished requests a second of " +
			"tokens_predicted_seconds_total, since the scrape before",
			value: func() float64 {
				return answered.Rate(float64(m.ResponseSize.b.sum.Load()), seconds(&m.DecodeTime))
			}},
		{prom: "requests_processing", kind: gauge, help: "Requests that run",
			value: func() float64 { return float64(m.prefilling.Value() + m.decoding.Value()) }},
		{prom: "requests_deferred", kind: gauge, help: "Requests that wait",
			value: func() float64 { return float64(m.queuedInteractive.Value() + m.queuedBackground.Value()) }},
		{prom: "n_busy_slots_per_decode", kind: gauge, help: "Rows of answers in a decode, on average",
			value: func() float64 { return rate(float64(m.decodeTokens.Value()), float64(m.steps.Value())) }},
	}
	for _, d := range list {
		d.prom, d.where = "llamacpp:"+d.prom, cmp.Or(d.where, "read at the scrape")
	}
	return list
}

// Began returns the time from which on the metrics count, in seconds since 1970.
func (m *Metrics) Began() string { return strconv.FormatInt(m.start.Unix(), 10) }
