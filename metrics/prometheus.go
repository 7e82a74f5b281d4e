package metrics

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Registry contains these metrics and client_golang's of the process and of Go (process_…, go_…). Register a collector
// here for other names of the same values.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// PrometheusHandler serves a scrape: Prometheus's text format, or OpenMetrics to a client that asks for it.
func (m *Metrics) PrometheusHandler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// collector adapts Metrics to client_golang: it reads the values at a scrape.
type collector Metrics

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.decls {
		if d.prom != "" {
			desc, _ := d.promDesc()
			ch <- desc
		}
	}
	for _, d := range c.aliases {
		desc, _ := d.promDesc()
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	seen := map[string]bool{} // two JSON keys may be one series
	for _, d := range c.decls {
		if key := d.prom + d.label; d.prom != "" && !seen[key] {
			seen[key] = true
			d.collect(ch)
		}
	}
	for _, d := range c.aliases {
		d.collect(ch)
	}
}

// promDesc returns the family's description and, for a label with a fixed value, that value.
func (d *decl) promDesc() (*prometheus.Desc, []string) {
	var names, values []string
	switch name, value, fixed := strings.Cut(d.label, "="); {
	case fixed:
		names, values = []string{name}, []string{strings.Trim(value, `"`)}
	case d.label != "":
		names = strings.Split(d.label, ",")
	}
	return prometheus.NewDesc(d.prom, d.help+".", names, nil), values
}

func (d *decl) collect(ch chan<- prometheus.Metric) {
	desc, values := d.promDesc()
	switch {
	case d.labels != nil:
		for i, v := range d.labels.values {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(d.labels.n[i].Value()), v)
		}
		return
	case d.vec != nil:
		t := prometheus.GaugeValue
		if d.kind == counter {
			t = prometheus.CounterValue
		}
		for i, name := range d.vec.names() {
			ch <- prometheus.MustNewConstMetric(desc, t, d.vec.get(i), strings.Split(name, "/")...)
		}
		return
	case d.dur != nil:
		ch <- d.dur.b.collect(desc, durUnit.Seconds(), 1e-9, values)
		return
	case d.micros != nil:
		ch <- d.micros.b.collect(desc, 1e-6, 1e-9, values)
		return
	case d.size != nil:
		ch <- d.size.b.collect(desc, cmp.Or(d.scale, 1), cmp.Or(d.scale, 1), values)
		return
	case d.info != nil:
		if values := d.info(); values != nil {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1, values...)
		}
		return
	}
	v := d.value()
	if d.null {
		v = max(v, 0)
	}
	if d.scale != 0 {
		v *= d.scale
	}
	t := prometheus.GaugeValue
	if d.kind == counter {
		t = prometheus.CounterValue
	}
	ch <- prometheus.MustNewConstMetric(desc, t, v, values...)
}

// collect makes the cumulative form that Prometheus needs.
func (b *buckets) collect(desc *prometheus.Desc, unit, scale float64, labels []string) prometheus.Metric {
	cumulative := make(map[float64]uint64, numBuckets)
	count := uint64(0)
	for i := range numBuckets {
		count += b.n[i].Load()
		cumulative[unit*float64(uint64(1)<<i)] = count
	}
	count += b.n[numBuckets].Load()
	return prometheus.MustNewConstHistogram(desc, count, float64(b.sum.Load())*scale, cumulative, labels...)
}
