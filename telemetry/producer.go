//go:build otlp

package telemetry

import (
	"context"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/uma-serve/uma-serve/metrics"
)

// producer gives the SDK's reader the daemon's metrics: it reads their atomics at each export.
type producer struct{ m *metrics.Metrics }

// meridianNames are the names that Meridian's telemetry has for its metrics, by those of Prometheus. The other metrics
// have the names of UMA Serve's metrics plan, which are the keys of the JSON snapshot.
var meridianNames = map[string]string{
	"meridian_queue_depth":                     "meridian.queue_depth",
	"meridian_schedule_batch_duration_seconds": "meridian.schedule_batch.duration_ns",
	"meridian_scheduler_batch_size":            "meridian.scheduler.batch_size",
	"meridian_think_tokens_per_request":        "meridian.think_tokens_per_request",
	"meridian_budget_force_triggered_total":    "meridian.budget_force_triggered",
	"meridian_budget_force_reason_total":       "meridian.budget_force_reason",
	"meridian_vocab_fallback_total":            "meridian_vocab_fallback_total",
	"meridian_phase_router_tracked_requests":   "meridian.phase_router.tracked_requests",
	"meridian_block_manager_used_bytes":        "meridian.block_manager.used_bytes",
	"meridian_block_manager_evictions_total":   "meridian.block_manager.evictions",
	"meridian_output_critical_eviction_total":  "meridian.output_critical_eviction",
	"meridian_disagg_blocks_offloaded_total":   "meridian_disagg_blocks_offloaded_total",
	"meridian_disagg_blocks_ingested_total":    "meridian_disagg_blocks_ingested_total",
	"meridian_disagg_errors_total":             "meridian_disagg_errors_total",
}

// name returns a metric's name in OTLP, its unit, and the factor from the JSON's unit to it.
func name(f *metrics.Family) (_, unit string, factor float64) {
	if n, ok := meridianNames[f.Prom]; ok {
		if strings.HasSuffix(n, "_ns") {
			return n, "ns", 1e3 // the JSON has microseconds
		}
		return n, ucum(f.Unit), 1
	}
	return f.Key, ucum(f.Unit), 1
}

// ucum writes a unit as UCUM does.
func ucum(unit string) string {
	switch unit {
	case "ms", "ns":
		return unit
	case "µs":
		return "us"
	case "bytes":
		return "By"
	case "0…1", "0…", "1…", "0, 1":
		return "1"
	}
	return "{" + strings.ReplaceAll(unit, " ", "_") + "}"
}

// Produce implements sdkmetric.Producer.
func (p producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	start, now := p.m.Start(), time.Now()
	var out []metricdata.Metrics
	at := map[string]int{}
	for _, f := range p.m.Families() {
		n, unit, factor := name(&f)
		i, again := at[n]
		if !again {
			i = len(out)
			at[n] = i
			out = append(out, metricdata.Metrics{Name: n, Unit: unit, Description: f.Help})
		}
		add(&out[i], &f, factor, start, now)
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: "github.com/uma-serve/uma-serve"},
		Metrics: out}}, nil
}

// add adds a family's points to a metric: families that differ in a fixed label are one metric.
func add(m *metricdata.Metrics, f *metrics.Family, factor float64, start, now time.Time) {
	switch f.Kind {
	case "histogram":
		h, _ := m.Data.(metricdata.Histogram[float64])
		h.Temporality = metricdata.CumulativeTemporality
		for _, p := range f.Points {
			d := metricdata.HistogramDataPoint[float64]{Attributes: labels(&p), StartTime: start, Time: now,
				Sum: p.Sum * factor, BucketCounts: p.Counts, Bounds: p.Bounds}
			for i := range d.Bounds {
				d.Bounds[i] *= factor
			}
			for _, n := range p.Counts {
				d.Count += n
			}
			h.DataPoints = append(h.DataPoints, d)
		}
		m.Data = h
	case "counter":
		s, _ := m.Data.(metricdata.Sum[float64])
		s.Temporality, s.IsMonotonic = metricdata.CumulativeTemporality, true
		s.DataPoints = points(s.DataPoints, f, factor, start, now)
		m.Data = s
	default:
		g, _ := m.Data.(metricdata.Gauge[float64])
		g.DataPoints = points(g.DataPoints, f, factor, start, now)
		m.Data = g
	}
}

func points(dst []metricdata.DataPoint[float64], f *metrics.Family, factor float64, start, now time.Time,
) []metricdata.DataPoint[float64] {
	for _, p := range f.Points {
		v := p.Value * factor
		if math.IsNaN(v) || math.IsInf(v, 0) {
			v = 0
		}
		dst = append(dst, metricdata.DataPoint[float64]{Attributes: labels(&p), StartTime: start, Time: now, Value: v})
	}
	return dst
}

func labels(p *metrics.Point) attribute.Set {
	kv := make([]attribute.KeyValue, len(p.Labels))
	for i, l := range p.Labels {
		kv[i] = attribute.String(l[0], l[1])
	}
	return attribute.NewSet(kv...)
}
