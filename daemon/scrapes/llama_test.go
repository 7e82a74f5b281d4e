package scrapes

import (
	"strings"
	"testing"
)

// TestLlamaMetrics: llama-server's metrics of two models and the front are one series each, without a label.
func TestLlamaMetrics(t *testing.T) {
	families := Families{}
	scrape := func(model, tokens, seconds, steps, busy, rate string) {
		text := "# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total " + tokens +
			"\n# TYPE llamacpp:tokens_predicted_seconds_total counter\n" +
			"llamacpp:tokens_predicted_seconds_total " + seconds +
			"\n# TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total " + steps +
			"\n# TYPE llamacpp:n_busy_slots_per_decode gauge\nllamacpp:n_busy_slots_per_decode " + busy +
			"\n# TYPE llamacpp:predicted_tokens_seconds gauge\nllamacpp:predicted_tokens_seconds " + rate +
			"\n# TYPE llamacpp:n_tokens_max counter\nllamacpp:n_tokens_max " + steps +
			"\n# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 2" +
			"\n# TYPE uma_steps_total counter\numa_steps_total 1\n"
		if err := families.Add(strings.NewReader(text), model); err != nil {
			t.Fatal(err)
		}
	}
	scrape("", "0", "0", "0", "0", "0")
	scrape("a", "30", "2", "10", "3", "15")
	scrape("b", "10", "3", "30", "1", "3.3")
	families.FoldLlama()
	for name, want := range map[string]float64{
		"tokens_predicted_total": 40, "n_decode_total": 40, "n_busy_slots_per_decode": 1.5, "requests_processing": 6,
		"n_tokens_max":             30,
		"predicted_tokens_seconds": 8,
	} {
		mf := families[llamaPrefix+name]
		if len(mf.GetMetric()) != 1 || len(mf.Metric[0].Label) != 0 ||
			mf.Metric[0].GetCounter().GetValue()+mf.Metric[0].GetGauge().GetValue() != want {
			t.Errorf("%s: %v, want %v", name, mf, want)
		}
	}
	if n := len(families["uma_steps_total"].Metric); n != 3 {
		t.Errorf("another metric has %d series", n)
	}
}
