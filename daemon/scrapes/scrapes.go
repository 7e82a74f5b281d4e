// Package scrapes makes one answer to /metrics of those of several processes.
package scrapes

import (
	"io"
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ModelLabel is the label that the metrics of an engine process get: the name of its model.
const ModelLabel = "model"

// Families is metrics by name.
type Families map[string]*dto.MetricFamily

// Add merges the answer of a process; name is its model, "" for the process that has none. A metric that is there with
// another type is left out. An error means that Prometheus would not read a text.
func (families Families) Add(text io.Reader, name string) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return err
	}
	for key, mf := range found {
		if name != "" {
			label := ModelLabel
			for _, m := range mf.Metric {
				m.Label = slices.DeleteFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == ModelLabel })
				m.Label = append(m.Label, &dto.LabelPair{Name: &label, Value: &name})
			}
		}
		if into := families[key]; into == nil {
			families[key] = mf
		} else if into.GetType() == mf.GetType() {
			into.Metric = append(into.Metric, mf.Metric...)
		}
	}
	return nil
}

// Family returns a metric without values, and the function that adds one, with its labels: a name, then its value.
func Family(name, help string, counter bool) (mf *dto.MetricFamily, add func(v float64, labels ...string)) {
	mf = &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()}
	if counter {
		mf.Type = dto.MetricType_COUNTER.Enum()
	}
	return mf, func(v float64, labels ...string) {
		m := &dto.Metric{}
		for i := 0; i+1 < len(labels); i += 2 {
			m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
		}
		if counter {
			m.Counter = &dto.Counter{Value: &v}
		} else {
			m.Gauge = &dto.Gauge{Value: &v}
		}
		mf.Metric = append(mf.Metric, m)
	}
}

// Write writes the metrics in the order of their names.
func (families Families) Write(w io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if _, err := expfmt.MetricFamilyToText(w, families[name]); err != nil {
			return err
		}
	}
	return nil
}
