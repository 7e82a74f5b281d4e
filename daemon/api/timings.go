package api

import (
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Timings has llama-server's fields: counts in tokens, times in milliseconds, rates in tokens per second. Each rate is
// that of the count and the time beside it; the first token of an answer costs no step and counts for no rate.
type Timings struct {
	CacheN          int     `json:"cache_n"`
	PromptN         int     `json:"prompt_n"`
	PromptMs        float64 `json:"prompt_ms"`
	PromptPerToken  float64 `json:"prompt_per_token_ms"`
	PromptPerSecond float64 `json:"prompt_per_second"`
	AnswerN         int     `json:"predicted_n"`
	AnswerMs        float64 `json:"predicted_ms"`
	AnswerPerToken  float64 `json:"predicted_per_token_ms"`
	AnswerPerSecond float64 `json:"predicted_per_second"`
	QueueMs         float64 `json:"queue_ms"`
	TTFTMs          float64 `json:"ttft_ms"`
	// Guessed tokens that were computed, and those of them that were taken; neither where there are none.
	DraftN        int  `json:"draft_n,omitempty"`
	DraftAccepted *int `json:"draft_n_accepted,omitempty"`
}

// TimingsOf returns the timings of a finished request.
func TimingsOf(e *wire.EOS) Timings {
	t := timingsOf(e.Usage.PromptTokens, e.Usage.CachedTokens, e.Usage.CompletionTokens, e.Timings.Prefill,
		e.Timings.Decode)
	t.QueueMs, t.TTFTMs = milliseconds(e.Timings.Queue), milliseconds(e.Timings.TTFT)
	if t.DraftN = e.Usage.DraftedTokens; t.DraftN > 0 {
		t.DraftAccepted = &e.Usage.AcceptedTokens
	}
	return t
}

func milliseconds(d time.Duration) float64 { return wire.Ms(max(d, 0)) }

func timingsOf(prompt, cached, answer int, prefill, decode time.Duration) Timings {
	t := Timings{CacheN: cached, PromptN: prompt - cached, PromptMs: milliseconds(prefill), AnswerN: answer,
		AnswerMs: milliseconds(decode)}
	pace := func(n int, ms float64) (perToken, perSecond float64) {
		if n <= 0 || ms <= 0 {
			return 0, 0
		}
		return ms / float64(n), 1e3 / ms * float64(n)
	}
	t.PromptPerToken, t.PromptPerSecond = pace(t.PromptN, t.PromptMs)
	t.AnswerPerToken, t.AnswerPerSecond = pace(answer-1, t.AnswerMs)
	return t
}

// Meter measures an answer while it comes ("timings_per_token"), by the events as they arrive here. A last chunk has
// the daemon's own times.
type Meter struct {
	progress    wire.Progress // the newest
	begun       time.Duration // Elapsed of the first one
	seen        bool
	first, last time.Time // of the answer's tokens
	tokens      int
}

// Progress notes a progress event.
func (m *Meter) Progress(p *wire.Progress) {
	if !m.seen {
		m.seen, m.begun = true, p.Elapsed
	}
	m.progress = *p
}

// Token notes a token of the answer, or its thinking.
func (m *Meter) Token(t *wire.Token, now time.Time) {
	if t.TokenID < 0 || t.Phase == wire.InPrompt {
		return
	}
	if m.tokens == 0 {
		m.first = now
	}
	m.tokens, m.last = m.tokens+1, now
}

// Timings returns the timings up to the newest event, without the time in the queue and to the first token.
func (m *Meter) Timings() *Timings {
	t := timingsOf(m.progress.Processed, m.progress.Cached, m.tokens, m.progress.Elapsed-m.begun, m.last.Sub(m.first))
	return &t
}

// Progress is llama-server's "prompt_progress": tokens of the prompt, and milliseconds since the request came.
type Progress struct {
	Total     int     `json:"total"`
	Cache     int     `json:"cache"`
	Processed int     `json:"processed"`
	TimeMs    float64 `json:"time_ms"`
}

// ProgressOf returns the progress of an event.
func ProgressOf(p *wire.Progress) *Progress {
	return &Progress{p.Total, p.Cached, p.Processed, milliseconds(p.Elapsed)}
}

// Telemetry has the options of a body for progress and timings within a streamed answer.
type Telemetry struct {
	PerToken bool `json:"timings_per_token"` // a Meter's timings in each chunk after the first
	Progress bool `json:"-"`                 // "return_progress": chunks with the prompt's progress
}

// Of completes the telemetry from a body's request, and makes the request send the events that a Meter needs.
func (t *Telemetry) Of(r *wire.Request) {
	t.Progress = r.Progress
	if t.PerToken {
		r.Progress, r.NoProgress = true, false
	}
}
