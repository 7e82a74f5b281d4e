package measure

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

type serverInfo struct {
	Model, Engine string
	Context       int
}

func (s *server) info() (out serverInfo, err error) {
	if !s.uma {
		return out, nil
	}
	text, err := s.proc.Ask("info")
	if err != nil {
		return out, fmt.Errorf("ask uma-serve on %s what it is: %w", s.address, err)
	}
	var info struct {
		Engine       string
		Model        *struct{ Name string }
		Capabilities struct {
			Context int `json:"n_ctx"`
		}
	}
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return out, fmt.Errorf("read uma-serve's info: %w", err)
	}
	out.Engine, out.Context = info.Engine, info.Capabilities.Context
	if info.Model != nil {
		out.Model = info.Model.Name
	}
	return out, nil
}

// watchPrompts asks once a second how many prompt tokens the server has computed, from the mark on: a scrape takes a
// core from a decode for a moment. What it returns ends that and gives the rate, from the end of the first step that
// advanced them to the end of the last one seen; NaN = not known. tick is called with the time since the start.
func watchPrompts(computed func() float64, mark time.Duration, tick func(time.Duration)) func() float64 {
	if mark == 0 {
		return func() float64 { return math.NaN() }
	}
	start, quit, rate := time.Now(), make(chan struct{}), make(chan float64)
	go func() {
		var first, last struct {
			at     time.Time
			tokens float64
		}
		changes, before := 0, math.NaN()
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-quit:
				if changes < 2 {
					rate <- math.NaN()
				} else {
					rate <- (last.tokens - first.tokens) / last.at.Sub(first.at).Seconds()
				}
				return
			case now := <-t.C:
				tick(now.Sub(start))
				if now.Sub(start) < mark {
					continue
				}
				n := computed()
				if math.IsNaN(n) {
					continue
				}
				if !math.IsNaN(before) && n != before {
					last.at, last.tokens = time.Now(), n
					if changes++; changes == 1 {
						first = last
					}
				}
				before = n
			}
		}
	}()
	return func() float64 {
		close(quit)
		return <-rate
	}
}

// metrics returns the server's snapshot, nil where it does not tell.
func (s *server) metrics() (m map[string]any) {
	if !s.uma {
		return nil
	}
	text, err := s.proc.Ask("metrics")
	if err != nil || json.Unmarshal([]byte(text), &m) != nil {
		return nil
	}
	return m
}

// counter is one of the server's metrics, NaN where it does not tell.
func (s *server) counter(name string) float64 {
	if n, ok := s.metrics()[name].(float64); ok {
		return n
	}
	return math.NaN()
}

// prefilled returns the number of prompt tokens that a model has computed, NaN where the server does not tell. "" is
// its default model; a front has the counters of the others under their names.
func (s *server) prefilled(model string) float64 {
	const name = "prefill_tokens_merged_total"
	if model == "" {
		return s.counter(name)
	}
	models, _ := s.metrics()["models"].(map[string]any)
	of, _ := models[model].(map[string]any)
	if n, ok := of[name].(float64); ok {
		return n
	}
	return math.NaN()
}

// evictedBlocks counts the KV blocks that were evicted because another request needed them, by tier; nil where the
// server does not tell.
func (s *server) evictedBlocks() map[string]int {
	byReason, _ := s.metrics()["kv_block_evictions_total"].(map[string]any)
	var out map[string]int
	for label, v := range byReason {
		tier, reason, _ := strings.Cut(label, "/")
		if n, ok := v.(float64); ok && reason == "pressure" {
			if out == nil {
				out = map[string]int{}
			}
			out[tier] = int(n)
		}
	}
	return out
}

// evictions counts the KV blocks that answers lost.
func (s *server) evictions() float64 { return s.counter("output_critical_eviction") }

// cpu returns the processor time of a server that was started here, else 0.
func (s *server) cpu() time.Duration {
	if s.proc == nil || s.proc.Cmd == nil {
		return 0
	}
	d, err := s.proc.CPU()
	if err != nil {
		return 0
	}
	return d
}
