//go:build cgo && (llama_engine || llama_system)

package daemon

import (
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestFormsOnTheEngine: every form on the real engine, whose tokens are longer than a byte; greedy and drawn answers,
// with and without log-probabilities (which take no tokens without a row): the greedy ones are the same.
func TestFormsOnTheEngine(t *testing.T) {
	r := serveModel(t, ggufgen.Cached(t, ggufgen.Tiny()))
	c := r.dial()
	for _, k := range formCases {
		greedy := map[int]string{}
		for seed := range uint64(4) {
			logprobs := int(seed % 2)
			a := r.ask(c, func(q *wire.Request) {
				q.Messages, q.Prompt = nil, "once upon a time"
				q.Format, q.MaxTokens, q.Sampling.Logprobs = k.format, 300, logprobs
				if q.Sampling.Temperature = 0; seed > 1 {
					q.Sampling.Temperature, q.Sampling.Seed, q.Sampling.SeedSet = 1.5, seed, true
				}
			})
			if a.err != nil || a.eos.Reason == wire.Stop && !k.ok(a.text) || a.eos.Reason != wire.Stop &&
				(k.name == "choice" || k.name == "regex") {
				t.Errorf("%s, seed %d: %q, %v, %v", k.name, seed, a.text, a.eos.Reason, a.err)
			}
			if seed < 2 {
				greedy[logprobs] = a.text
			}
		}
		if k.name != "json" && k.name != "schema" && greedy[0] != greedy[1] {
			t.Errorf("%s: with forced tokens %q, without %q", k.name, greedy[0], greedy[1])
		}
	}
	r.nothingLeft()
}
