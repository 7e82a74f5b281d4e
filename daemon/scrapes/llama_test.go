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
			"\n# TYPE uma_response_size_tokens histogram\numa_response_size_tokens_sum " + tokens +
			"\numa_response_size_tokens_count 1\numa_response_size_tokens_bucket{le=\"+Inf\"} 1" +
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
	rates := NewRates(fromZero)
	families.FoldLlama(rates)
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

// TestPast: the counts of ended processes stay, and go on counting in the next one; what was the case does not.
func TestPast(t *testing.T) {
	text := func(n, most string) string {
		return "# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total " + n +
			"\n# TYPE llamacpp:n_tokens_max counter\nllamacpp:n_tokens_max " + most +
			"\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 7" +
			"\n# TYPE uma_steps gauge\numa_steps 3" +
			"\n# TYPE uma_idle_total counter\numa_idle_total 0" +
			"\n# TYPE uma_wait histogram\numa_wait_bucket{le=\"+Inf\"} " + n + "\numa_wait_sum 1\numa_wait_count " + n +
			"\n# TYPE uma_ends_total counter\numa_ends_total{why=\"stop\"} " + n +
			"\n# TYPE uma_response_size_tokens histogram\numa_response_size_tokens_bucket{le=\"1\"} 1" +
			"\numa_response_size_tokens_bucket{le=\"+Inf\"} " + n +
			"\numa_response_size_tokens_sum 4\numa_response_size_tokens_count " + n + "\n"
	}
	past, err := Keep(nil, []byte(text("5", "9")))
	if err == nil {
		past, err = Keep(past, []byte(text("7", "8")))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ live, want string }{
		{"", `llamacpp:n_tokens_max 9|llamacpp:tokens_predicted_total 12|uma_ends_total{why="stop",model="a"} 12|` +
			`uma_response_size_tokens_bucket{model="a",le="1"} 2|` +
			`uma_response_size_tokens_bucket{model="a",le="+Inf"} 12|` +
			`uma_response_size_tokens_sum{model="a"} 8|` +
			`uma_response_size_tokens_count{model="a"} 12`},
		{text("1", "20"), `llamacpp:n_tokens_max 20|llamacpp:tokens_predicted_total 13|` +
			`process_cpu_seconds_total{model="a"} 7|uma_ends_total{why="stop",model="a"} 13|` +
			`uma_idle_total{model="a"} 0|` +
			`uma_response_size_tokens_bucket{model="a",le="1"} 3|` +
			`uma_response_size_tokens_bucket{model="a",le="+Inf"} 13|` +
			`uma_response_size_tokens_sum{model="a"} 12|` +
			`uma_response_size_tokens_count{model="a"} 13|uma_steps{model="a"} 3|` +
			`uma_wait_bucket{model="a",le="+Inf"} 1|uma_wait_sum{model="a"} 1|uma_wait_count{model="a"} 1`},
	} {
		families := Families{}
		if err := families.Add(strings.NewReader(c.live), "a"); err != nil {
			t.Fatal(err)
		}
		if err := families.AddPast(strings.NewReader(string(past)), "a"); err != nil {
			t.Fatal(err)
		}
		families.FoldLlama(NewRates(fromZero))
		var out strings.Builder
		if err := families.Write(&out); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			if line[0] != '#' {
				got = append(got, strings.TrimSpace(line))
			}
		}
		if g := strings.Join(got, "|"); g != c.want {
			t.Errorf("got  %s\nwant %s", g, c.want)
		}
	}
	if kept, err := Keep(past, []byte("x y z\n")); err == nil || string(kept) != string(past) {
		t.Errorf("a text that is none: %v, %q", err, kept)
	}
}

// totals is a Window that begins at 0 each time.
type totals struct{}

func (totals) Rate(count, seconds float64) float64 { return count / max(seconds, 1) }

func fromZero() Window { return totals{} }
