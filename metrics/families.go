package metrics

import (
	"strings"
	"time"
)

// Family is one metric with its values now, for exporters with other names and units than Prometheus.
type Family struct {
	Key    string // in the JSON
	Prom   string // in Prometheus; "" = only in the JSON
	Unit   string // of the values, which are the JSON's
	Help   string
	Kind   string // counter, gauge or histogram
	Points []Point
}

// Point is one value of a family.
type Point struct {
	Labels [][2]string // names and values
	Value  float64     // of a counter or a gauge

	// Of a histogram: counts up to each bound and above the last one, not cumulative, and the sum of all values.
	Bounds []float64
	Counts []uint64
	Sum    float64
}

// Families reads all metrics, except facts that are texts. It is safe from any goroutine.
func (m *Metrics) Families() []Family {
	out := make([]Family, 0, len(m.decls))
	for _, d := range m.decls {
		if d.info != nil {
			continue
		}
		f := Family{Key: d.json, Prom: d.prom, Unit: d.unit, Help: d.help, Kind: string(d.kind)}
		names, fixed := d.labelNames()
		switch {
		case d.labels != nil:
			for i, v := range d.labels.values {
				f.Points = append(f.Points, Point{Labels: pairs(names, v), Value: float64(d.labels.n[i].Value())})
			}
		case d.vec != nil:
			for i, v := range d.vec.names() {
				f.Points = append(f.Points, Point{Labels: pairs(names, v), Value: d.vec.get(i)})
			}
		case d.value != nil:
			f.Points = []Point{{Labels: fixed, Value: max(d.value(), 0)}}
		default:
			p := d.points()
			p.Labels = fixed
			f.Points = []Point{p}
		}
		out = append(out, f)
	}
	return out
}

// Start returns the time since which the counters count.
func (m *Metrics) Start() time.Time { return m.start }

// labelNames returns the names of the labels, or the label whose value is fixed.
func (d *decl) labelNames() (names []string, fixed [][2]string) {
	switch name, value, ok := strings.Cut(d.label, "="); {
	case ok:
		return nil, [][2]string{{name, strings.Trim(value, `"`)}}
	case d.label != "":
		return strings.Split(d.label, ","), nil
	}
	return nil, nil
}

func pairs(names []string, values string) (out [][2]string) {
	for i, v := range strings.SplitN(values, "/", len(names)) {
		out = append(out, [2]string{names[i], v})
	}
	return out
}

// points reads a histogram.
func (d *decl) points() Point {
	unit, scale := 1.0, 1.0 // of the first bound and of the sum, in the JSON's unit
	bs := []*buckets{}
	switch {
	case d.both != nil:
		unit, scale, bs = ms(durUnit), 1e-6, append(bs, &d.both.Think.b, &d.both.Output.b)
	case d.dur != nil:
		unit, scale, bs = ms(durUnit), 1e-6, append(bs, &d.dur.b)
	case d.micros != nil:
		scale, bs = 1e-3, append(bs, &d.micros.b)
	default:
		bs = append(bs, &d.size.b)
	}
	p := Point{Bounds: make([]float64, numBuckets), Counts: make([]uint64, numBuckets+1)}
	for i := range p.Bounds {
		p.Bounds[i] = unit * float64(uint64(1)<<i)
	}
	for _, b := range bs {
		for i := range p.Counts {
			p.Counts[i] += b.n[i].Load()
		}
		p.Sum += float64(b.sum.Load()) * scale
	}
	return p
}
