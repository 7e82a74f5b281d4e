package scrapes

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// llamaPrefix begins the names of llama-server's metrics.
const llamaPrefix = "llamacpp:"

// llamaRates are those of llama-server's metrics that are quotients, with the names of their parts; without a dividend
// it is the mean over the divisor.
var llamaRates = map[string][2]string{
	"prompt_tokens_seconds":    {"prompt_tokens_total", "prompt_seconds_total"},
	"predicted_tokens_seconds": {"tokens_predicted_total", "tokens_predicted_seconds_total"},
	"n_busy_slots_per_decode":  {"", "n_decode_total"},
}

// llamaMost is the one of llama-server's metrics that is a maximum.
const llamaMost = llamaPrefix + "n_tokens_max"

// FoldLlama gives llama-server's metrics one series, over all models: a server of one model has no label for it there,
// and dashboards that were made for it ask for none.
func (families Families) FoldLlama() {
	rates := map[*dto.Metric]bool{}
	for name, mf := range families {
		parts, isRate := llamaRates[strings.TrimPrefix(name, llamaPrefix)]
		if !isRate || !strings.HasPrefix(name, llamaPrefix) {
			continue
		}
		var over, under float64
		for _, m := range mf.Metric {
			by := llamaValue(families[llamaPrefix+parts[1]], m)
			if under += by; parts[0] == "" {
				over += m.GetGauge().GetValue() * by
			} else {
				over += llamaValue(families[llamaPrefix+parts[0]], m)
			}
		}
		rate := 0.0
		if under > 0 {
			rate = over / under
		}
		mf.Metric = []*dto.Metric{{Gauge: &dto.Gauge{Value: &rate}}}
		rates[mf.Metric[0]] = true
	}
	for name, mf := range families {
		if !strings.HasPrefix(name, llamaPrefix) || len(mf.Metric) == 0 || rates[mf.Metric[0]] {
			continue
		}
		sum := 0.0
		for _, m := range mf.Metric {
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); name == llamaMost {
				sum = max(sum, v)
			} else {
				sum += v
			}
		}
		folded := &dto.Metric{Counter: &dto.Counter{Value: &sum}}
		if mf.GetType() == dto.MetricType_GAUGE {
			folded = &dto.Metric{Gauge: &dto.Gauge{Value: &sum}}
		}
		mf.Metric = []*dto.Metric{folded}
	}
}

// llamaValue returns the value of the series of mf that has the labels of m.
func llamaValue(mf *dto.MetricFamily, m *dto.Metric) float64 {
	for _, o := range mf.GetMetric() {
		if slices.EqualFunc(o.Label, m.Label, func(a, b *dto.LabelPair) bool {
			return a.GetName() == b.GetName() && a.GetValue() == b.GetValue()
		}) {
			return o.GetCounter().GetValue()
		}
	}
	return 0
}
