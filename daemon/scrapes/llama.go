package scrapes

import (
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// llamaPrefix begins the names of llama-server's metrics.
const llamaPrefix = "llamacpp:"

// llamaRates are llama-server's metrics that are rates between two scrapes, with the names of their parts.
var llamaRates = map[string][2]string{
	llamaPrefix + "prompt_tokens_seconds": {llamaPrefix + "prompt_tokens_total",
		llamaPrefix + "prompt_seconds_total"},
	llamaPrefix + "predicted_tokens_seconds": {"uma_response_size_tokens",
		llamaPrefix + "tokens_predicted_seconds_total"},
}

// Window makes a rate of totals: of their growth since the call before.
type Window interface {
	Rate(count, seconds float64) float64
}

// Rates has the windows of llama-server's rates over all models, by their names.
type Rates map[string]Window

// NewRates returns windows of the kind that window makes.
func NewRates(window func() Window) Rates {
	rates := Rates{}
	for name := range llamaRates {
		rates[name] = window()
	}
	return rates
}

// The one of llama-server's metrics that is a mean over all models, and the name of its weights.
const (
	llamaMean    = llamaPrefix + "n_busy_slots_per_decode"
	llamaDecodes = llamaPrefix + "n_decode_total"
)

// llamaMost is the one of llama-server's metrics that is a maximum.
const llamaMost = llamaPrefix + "n_tokens_max"

// FoldLlama gives llama-server's metrics one series, over all models: a server of one model has no label for it there,
// and dashboards that were made for it ask for none. windows has the rates' totals of the scrape before.
func (families Families) FoldLlama(windows Rates) {
	folded := map[*dto.Metric]bool{}
	set := func(name string, value float64) {
		if mf := families[name]; mf != nil {
			mf.Metric = []*dto.Metric{{Gauge: &dto.Gauge{Value: &value}}}
			folded[mf.Metric[0]] = true
		}
	}
	for name, parts := range llamaRates {
		set(name, windows[name].Rate(total(families[parts[0]]), total(families[parts[1]])))
	}
	var over, under float64
	for _, m := range families[llamaMean].GetMetric() {
		by := llamaValue(families[llamaDecodes], m)
		over, under = over+m.GetGauge().GetValue()*by, under+by
	}
	set(llamaMean, over/max(under, 1))
	for name, mf := range families {
		if !strings.HasPrefix(name, llamaPrefix) || len(mf.Metric) == 0 || folded[mf.Metric[0]] {
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

// total returns the sum of all series of a counter, or of all values of a histogram.
func total(mf *dto.MetricFamily) (sum float64) {
	for _, m := range mf.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
	}
	return sum
}

// llamaValue returns the value of the series of mf that has the labels of m.
func llamaValue(mf *dto.MetricFamily, m *dto.Metric) float64 {
	for _, o := range mf.GetMetric() {
		if sameLabels(o, m) {
			return o.GetCounter().GetValue()
		}
	}
	return 0
}
