package scrapes

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// MaxCounted bounds the text of what the processes of a model have counted: each of them may say anything.
const MaxCounted = 1 << 20

// Counted is the sum of what the processes of a model have counted, in Prometheus's text format.
type Counted struct {
	Past   []byte // together, of those that have ended
	newest []byte // of the one that runs, when it was asked last, or at its end
}

// Hear takes the figures of the process that runs. It copies them.
func (c *Counted) Hear(text []byte) {
	if len(text) <= MaxCounted {
		c.newest = bytes.Clone(text)
	}
}

// End adds the counts of the process, which has ended.
func (c *Counted) End() error {
	if len(c.newest) == 0 {
		return nil
	}
	past, err := Keep(c.Past, c.newest)
	if len(past) > MaxCounted {
		past, err = c.Past, fmt.Errorf("they have %d bytes with those before", len(past))
	}
	c.Past, c.newest = past, nil
	return err
}

// Keep returns what past and a process that has ended have counted together, in Prometheus's text format: counters that
// are about requests and not zero, and the histograms that llama-server's rates need. A front may know many models, and
// with all histograms of 50 it took 10 MB more. What is the case at the moment ends with the process, and so do the
// figures of the process itself. A text that cannot be read is an error, and past stays.
func Keep(past, ended []byte) ([]byte, error) {
	families := Families{}
	if err := families.Add(bytes.NewReader(ended), ""); err != nil {
		return past, err
	}
	for name, mf := range families {
		ofRate := false
		for _, parts := range llamaRates {
			ofRate = ofRate || slices.Contains(parts[:], name)
		}
		mf.Metric = slices.DeleteFunc(mf.Metric, nothing)
		if mf.GetType() != dto.MetricType_COUNTER && !ofRate || len(mf.Metric) == 0 ||
			strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			delete(families, name)
		}
	}
	if err := families.AddPast(bytes.NewReader(past), ""); err != nil {
		return past, err
	}
	var out bytes.Buffer
	err := families.Write(&out)
	return out.Bytes(), err
}

// nothing reports whether a series has counted nothing.
func nothing(m *dto.Metric) bool {
	return m.GetCounter().GetValue() == 0 && m.GetHistogram().GetSampleCount() == 0
}

// AddPast adds what ended processes of a model have counted (Keep) to its series.
func (families Families) AddPast(text io.Reader, name string) error {
	past := Families{}
	if err := past.Add(text, name); err != nil {
		return err
	}
	for key, mf := range past {
		into := families[key]
		if into == nil {
			families[key] = mf
			continue
		}
		for _, m := range mf.Metric {
			at := slices.IndexFunc(into.Metric, func(o *dto.Metric) bool { return sameLabels(o, m) })
			switch {
			case into.GetType() != mf.GetType():
			case at < 0:
				into.Metric = append(into.Metric, m)
			case key == llamaMost:
				most := max(into.Metric[at].GetCounter().GetValue(), m.GetCounter().GetValue())
				into.Metric[at].Counter = &dto.Counter{Value: &most}
			default:
				addTo(into.Metric[at], m)
			}
		}
	}
	return nil
}

// sameLabels reports whether two series of a metric have the same labels.
func sameLabels(a, b *dto.Metric) bool {
	if len(a.Label) != len(b.Label) {
		return false
	}
	for _, l := range a.Label {
		if !slices.ContainsFunc(b.Label, func(o *dto.LabelPair) bool {
			return o.GetName() == l.GetName() && o.GetValue() == l.GetValue()
		}) {
			return false
		}
	}
	return true
}

// addTo adds the counts of a series to those of another one. Histograms have the same bounds: both are of one program.
func addTo(into, m *dto.Metric) {
	if c := m.Counter; c != nil && into.Counter != nil {
		sum := into.Counter.GetValue() + c.GetValue()
		into.Counter.Value = &sum
	}
	h, ih := m.Histogram, into.Histogram
	if h == nil || ih == nil {
		return
	}
	count, sum := ih.GetSampleCount()+h.GetSampleCount(), ih.GetSampleSum()+h.GetSampleSum()
	ih.SampleCount, ih.SampleSum = &count, &sum
	for i, b := range ih.Bucket {
		if i < len(h.Bucket) && h.Bucket[i].GetUpperBound() == b.GetUpperBound() {
			n := b.GetCumulativeCount() + h.Bucket[i].GetCumulativeCount()
			b.CumulativeCount = &n
		}
	}
}
