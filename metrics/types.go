package metrics

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Counter is a number that only rises. It is safe for concurrent use; the zero value is ready.
type Counter struct{ v atomic.Uint64 }

// Inc adds one.
func (c *Counter) Inc() { c.v.Add(1) }

// Add adds n.
func (c *Counter) Add(n uint64) { c.v.Add(n) }

// Value returns the count.
func (c *Counter) Value() uint64 { return c.v.Load() }

// Gauge is the last value of a quantity. It is safe for concurrent use; the zero value is ready.
type Gauge struct{ v atomic.Int64 }

// Set stores v.
func (g *Gauge) Set(v int64) { g.v.Store(v) }

// Value returns the value set last.
func (g *Gauge) Value() int64 { return g.v.Load() }

// floatGauge is a Gauge with a fraction.
type floatGauge struct{ bits atomic.Uint64 }

func (g *floatGauge) set(v float64)  { g.bits.Store(math.Float64bits(v)) }
func (g *floatGauge) value() float64 { return math.Float64frombits(g.bits.Load()) }

// ewma is an exponentially weighted moving average. Each sample has weight ewmaWeight; the first one is the initial
// value. It has one writer; reading is safe from any goroutine.
type ewma struct{ bits atomic.Uint64 }

// ewmaWeight is the same as in the scheduler's decode_ms_ewma: a sample's weight halves after three more (0.8^3 ≈
// 0.51).
const ewmaWeight = 0.2

func (e *ewma) add(x float64) {
	old := e.bits.Load()
	v := x
	if old != 0 {
		v = e.value() + ewmaWeight*(x-e.value())
	}
	// -0 stands for an average of 0: all bits zero mean that there is no sample yet.
	if v == 0 {
		v = math.Copysign(0, -1)
	}
	e.bits.Store(math.Float64bits(v))
}

func (e *ewma) value() float64 { return math.Float64frombits(e.bits.Load()) + 0 }

// Histogram buckets are powers of two, so that the index of a bucket takes a shift and no search.
//
//	durations  125 µs · 2^i, i = 0…20: up to 131 s, then +Inf
//	sizes      2^i, i = 0…20: up to 1,048,576, then +Inf
//	micros     1 µs · 2^i, i = 0…20: up to 1.05 s, then +Inf
const (
	numBuckets = 21
	durUnit    = 125 * time.Microsecond
	msBucket   = 3 // the bucket whose upper bound is 1 ms: 125 µs · 2^3
)

// bucket returns the index of the first bound unit·2^i ≥ v; numBuckets is +Inf.
func bucket(v, unit uint64) int {
	if v <= unit {
		return 0
	}
	return min(bits.Len64((v-1)/unit), numBuckets)
}

// buckets are a histogram's counts, not cumulative, and the sum of its values. A reader may see a count without its sum
// or the reverse. The number of observations is the sum of the counts, so a histogram is always consistent.
type buckets struct {
	n   [numBuckets + 1]atomic.Uint64
	sum atomic.Uint64
}

func (b *buckets) observe(v, unit uint64) {
	b.n[bucket(v, unit)].Add(1)
	b.sum.Add(v)
}

// Durations is a histogram of durations. It is safe for concurrent use; the zero value is ready.
type Durations struct{ b buckets }

// Observe counts d; a negative one counts as 0.
func (h *Durations) Observe(d time.Duration) { h.b.observe(uint64(max(d, 0)), uint64(durUnit)) }

// Micros is a histogram of short durations: 1 µs · 2^i, i = 0…20, up to a second, then +Inf. Safe for concurrent use;
// the zero value is ready.
type Micros struct{ b buckets }

// Observe counts d; a negative one counts as 0.
func (h *Micros) Observe(d time.Duration) { h.b.observe(uint64(max(d, 0)), uint64(time.Microsecond)) }

// ObserveMean counts n events of total duration total, each as their mean, for events too short to be timed singly.
func (h *Micros) ObserveMean(n int, total time.Duration) {
	if n <= 0 {
		return
	}
	total = max(total, 0)
	h.b.n[bucket(uint64(total)/uint64(n), uint64(time.Microsecond))].Add(uint64(n))
	h.b.sum.Add(uint64(total))
}

// Sizes is a histogram of counts. Safe for concurrent use; the zero value is ready.
type Sizes struct{ b buckets }

// Observe counts n.
func (h *Sizes) Observe(n int) { h.b.observe(uint64(max(n, 0)), 1) }

// Labels is a counter per value of one label. The values are declared before use, so that their number is bounded and
// every series exists from the start. Undeclared values count as "other".
type Labels struct {
	values []string // the last is "other"
	n      []Counter
}

const other = "other"

// total returns the sum over all values.
func (l *Labels) total() (n uint64) {
	for i := range l.n {
		n += l.n[i].Value()
	}
	return n
}

// maxLabels bounds the declared values.
const maxLabels = 32

// Declare adds values. Call it before any other use of l. Values beyond the 32nd count as "other".
func (l *Labels) Declare(values ...string) {
	l.values = l.values[:max(len(l.values)-1, 0)]
	for _, v := range values {
		if l.index(v) == len(l.values) && len(l.values) < maxLabels && v != other {
			l.values = append(l.values, v)
		}
	}
	l.values = append(l.values, other)
	l.n = make([]Counter, len(l.values))
}

func (l *Labels) index(value string) int {
	for i, v := range l.values {
		if v == value {
			return i
		}
	}
	return len(l.values)
}

// Inc adds one to value's counter. It compares strings, so use it once per request, not per token.
func (l *Labels) Inc(value string) { l.n[l.at(value)].Inc() }

// at returns the index of value's counter.
func (l *Labels) at(value string) int { return min(l.index(value), len(l.n)-1) }

// Value returns value's count, or the count of "other".
func (l *Labels) Value(value string) uint64 { return l.n[l.at(value)].Value() }
