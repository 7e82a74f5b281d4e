package api

import (
	"math"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Timings has llama-server's fields: counts in tokens, times in milliseconds, rates in tokens per second.
type Timings struct {
	CacheN          int     `json:"cache_n"`
	PromptN         int     `json:"prompt_n"`
	PromptMs        float64 `json:"prompt_ms"`
	PromptPerSecond float64 `json:"prompt_per_second"`
	AnswerN         int     `json:"predicted_n"`
	AnswerMs        float64 `json:"predicted_ms"`
	AnswerPerSecond float64 `json:"predicted_per_second"`
	QueueMs         float64 `json:"queue_ms"`
	TTFTMs          float64 `json:"ttft_ms"`
}

// TimingsOf returns the timings of a finished request.
func TimingsOf(e *wire.EOS) Timings {
	rate := func(n int, d time.Duration) float64 { // rounded down to three decimals
		if n <= 0 || d <= 0 {
			return 0
		}
		return math.Floor(min(float64(n)/d.Seconds(), 1e12)*1000) / 1000
	}
	n := e.Usage.PromptTokens - e.Usage.CachedTokens
	ms := func(d time.Duration) float64 { return wire.Ms(max(d, 0)) }
	return Timings{
		CacheN: e.Usage.CachedTokens, PromptN: n, PromptMs: ms(e.Timings.Prefill),
		PromptPerSecond: rate(n, e.Timings.Prefill),
		AnswerN:         e.Usage.CompletionTokens, AnswerMs: ms(e.Timings.Decode),
		AnswerPerSecond: rate(e.Usage.CompletionTokens-1, e.Timings.Decode),
		QueueMs:         ms(e.Timings.Queue), TTFTMs: ms(e.Timings.TTFT),
	}
}
