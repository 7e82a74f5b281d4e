package metrics

import (
	"math"
	"strconv"
	"strings"
)

// MaxJSON is an upper bound of the bytes that AppendJSON appends.
const MaxJSON = 64 << 10

// AppendJSON appends the snapshot: one JSON object on one line, without a newline. Its size and time depend only on the
// number of metrics. It is safe from any goroutine.
//
// A histogram is {"count":…,"sum":…,"buckets":{"1":…,"2":…,…,"+Inf":…}}: each bucket counts the values above the
// previous bound and at most its own.
func (m *Metrics) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for i, d := range m.decls {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendKey(dst, d.json)
		dst = d.appendJSON(dst)
	}
	return append(dst, '}')
}

func (d *decl) appendJSON(dst []byte) []byte {
	switch {
	case d.labels != nil:
		dst = append(dst, '{')
		for i, v := range d.labels.values {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendKey(dst, v)
			dst = strconv.AppendUint(dst, d.labels.n[i].Value(), 10)
		}
		return append(dst, '}')
	case d.vec != nil:
		dst = append(dst, '{')
		for i, name := range d.vec.names() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendKey(dst, name)
			dst = appendFloat(dst, d.vec.get(i))
		}
		return append(dst, '}')
	case d.dur != nil:
		return appendHistogram(dst, msBucket, d.top, 1e-6, &d.dur.b)
	case d.both != nil:
		return appendHistogram(dst, msBucket, d.top, 1e-6, &d.both.Think.b, &d.both.Output.b)
	case d.micros != nil:
		return appendHistogram(dst, 0, d.top, 1e-3, &d.micros.b)
	case d.size != nil:
		return appendHistogram(dst, 0, d.top, 1, &d.size.b)
	case d.info != nil:
		values := d.info()
		if values == nil {
			return append(dst, "null"...)
		}
		dst = append(dst, '{')
		i := 0
		for key := range strings.SplitSeq(d.label, ",") {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendKey(dst, key)
			dst = appendString(dst, values[i])
			i++
		}
		return append(dst, '}')
	}
	v := d.value()
	switch {
	case d.null && v < 0:
		return append(dst, "null"...)
	case d.whole && math.Abs(v) < 1<<63:
		return strconv.AppendInt(dst, int64(v), 10)
	case d.exact && !math.IsNaN(v) && !math.IsInf(v, 0):
		return strconv.AppendFloat(dst, v, 'g', 6, 64)
	}
	return appendFloat(dst, v)
}

// appendHistogram appends the sum of the histograms bs up to the bound top. Its first bucket ends at 1 and includes all
// finer ones.
func appendHistogram(dst []byte, first, top int, scale float64, bs ...*buckets) []byte {
	var n [numBuckets + 1]uint64
	count, sum := uint64(0), uint64(0)
	for _, b := range bs {
		for i := range n {
			c := b.n[i].Load()
			n[i] += c
			count += c
		}
		sum += b.sum.Load()
	}
	dst = append(dst, `{"count":`...)
	dst = strconv.AppendUint(dst, count, 10)
	dst = append(dst, `,"sum":`...)
	dst = appendFloat(dst, float64(sum)*scale)
	dst = append(dst, `,"buckets":{`...)
	acc, rest := uint64(0), count
	for i := range numBuckets {
		acc += n[i]
		if i < first {
			continue
		}
		bound := 1 << (i - first)
		if bound > top {
			break
		}
		dst = append(dst, '"')
		dst = strconv.AppendInt(dst, int64(bound), 10)
		dst = append(dst, '"', ':')
		dst = strconv.AppendUint(dst, acc, 10)
		dst = append(dst, ',')
		rest -= acc
		acc = 0
	}
	dst = append(dst, `"+Inf":`...)
	dst = strconv.AppendUint(dst, rest, 10)
	return append(dst, '}', '}')
}

// appendFloat appends a value with three decimals; JSON has no NaN or Inf.
func appendFloat(dst []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	if math.Abs(v) >= 1e15 {
		return strconv.AppendFloat(dst, v, 'e', -1, 64)
	}
	return strconv.AppendFloat(dst, math.Round(v*1000)/1000, 'f', -1, 64)
}

func appendKey(dst []byte, key string) []byte { return append(appendString(dst, key), ':') }

// appendString quotes valid UTF-8.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// Series is one number of a snapshot.
type Series struct {
	Key   string // of the JSON
	Label string // the value of its label, "a/b" of two; "" without one

	d *decl
	i int // of the label's values
}

// Visit calls f with every series, except facts that are texts. It is safe from any goroutine.
func (m *Metrics) Visit(f func(Series)) {
	for _, d := range m.decls {
		switch {
		case d.labels != nil:
			for i, v := range d.labels.values {
				f(Series{d.json, v, d, i})
			}
		case d.vec != nil:
			for i, v := range d.vec.names() {
				f(Series{d.json, v, d, i})
			}
		case d.info == nil:
			f(Series{Key: d.json, d: d})
		}
	}
}

// Value reads the series, in the JSON's unit: of a histogram the number of its values.
func (s Series) Value() float64 {
	switch d := s.d; {
	case d.labels != nil:
		return float64(d.labels.n[s.i].Value())
	case d.vec != nil:
		return d.vec.get(s.i)
	case d.both != nil:
		return float64(d.both.Think.b.count() + d.both.Output.b.count())
	case d.value != nil:
		return d.value()
	default:
		return float64(d.histogram().count())
	}
}

// histogram returns the counts of a declaration that has one histogram.
func (d *decl) histogram() *buckets {
	switch {
	case d.dur != nil:
		return &d.dur.b
	case d.micros != nil:
		return &d.micros.b
	}
	return &d.size.b
}

// count returns the number of observations.
func (b *buckets) count() (n uint64) {
	for i := range b.n {
		n += b.n[i].Load()
	}
	return n
}
