package sim

import (
	"math/bits"
	"slices"
)

// Dist is a distribution of non-negative ticks in bounded memory. It is exact until it holds more than exactLimit
// values of exactDense ticks or more; from then on those are kept to 1 part in 2,048 (the mean stays exact).
type Dist struct {
	n     int64
	sum   int64   // exact: fits while n·value < 2^63
	dense []int64 // count of each value below exactDense
	large []int64 // the others, while they are few
	fold  []int64 // log-linear counts of the others, once they are many
	clean bool    // large is sorted
}

const (
	exactDense = 1 << 14 // ticks
	exactLimit = 1 << 18 // values
	foldBits   = 11      // linear sub-buckets of a power of two, as a power of two
)

// Add counts a value n times.
func (d *Dist) Add(v int64, n int64) {
	d.n += n
	d.sum += v * n
	if uint64(v) < exactDense {
		if d.dense == nil {
			d.dense = make([]int64, exactDense)
		}
		d.dense[v] += n
		return
	}
	d.addLarge(max(0, v), n)
}

// addAll counts each value once.
func (d *Dist) addAll(values []int64) {
	if d.dense == nil {
		d.dense = make([]int64, exactDense)
	}
	dense := d.dense[:exactDense]
	for _, v := range values {
		d.sum += v
		if uint64(v) < exactDense {
			dense[v]++
		} else {
			d.addLarge(max(0, v), 1)
		}
	}
	d.n += int64(len(values))
}

func (d *Dist) addLarge(v, n int64) {
	if d.fold == nil && int64(len(d.large))+n <= exactLimit {
		for range n {
			d.large = append(d.large, v)
		}
		d.clean = false
		return
	}
	if d.fold == nil {
		d.fold = make([]int64, (64-foldBits)<<foldBits)
		for _, v := range d.large {
			d.fold[bucket(v)]++
		}
		d.large = nil
	}
	d.fold[bucket(v)] += n
}

// bucket returns the log-linear bucket of v: the power of two and the foldBits bits behind the leading one.
func bucket(v int64) int {
	e := max(0, bits.Len64(uint64(v))-foldBits-1)
	return e<<foldBits + int(v>>e)
}

// middle returns a value in the middle of a bucket.
func middle(b int) int64 {
	e := b>>foldBits - 1
	if e <= 0 {
		return int64(b)
	}
	low := int64(b-e<<foldBits) << e
	return low + int64(1)<<e/2
}

// Count returns the number of values.
func (d *Dist) Count() int64 { return d.n }

// Sum is their sum, ticks.
func (d *Dist) Sum() int64 { return d.sum }

// Exact reports whether no value was rounded.
func (d *Dist) Exact() bool { return d.fold == nil }

// MeanMs returns the mean in milliseconds, 0 without values.
func (d *Dist) MeanMs() float64 {
	if d.n == 0 {
		return 0
	}
	return float64(d.sum) / float64(d.n) / 1000
}

// PercentileMs returns the p-th percentile in milliseconds, linear between the two neighbouring ranks.
func (d *Dist) PercentileMs(p float64) float64 {
	if d.n == 0 {
		return 0
	}
	rank := p / 100 * float64(d.n-1)
	lo := int64(rank)
	a := d.nth(lo)
	if float64(lo) == rank {
		return float64(a) / 1000
	}
	b := d.nth(min(lo+1, d.n-1))
	return float64(a)/1000 + float64(b-a)*(rank-float64(lo))/1000
}

// nth returns the i-th smallest value.
func (d *Dist) nth(i int64) int64 {
	for v, n := range d.dense {
		if i < n {
			return int64(v)
		}
		i -= n
	}
	if d.fold == nil {
		if !d.clean {
			slices.Sort(d.large)
			d.clean = true
		}
		return d.large[i]
	}
	for b, n := range d.fold {
		if i < n {
			return middle(b)
		}
		i -= n
	}
	panic("sim: rank beyond the distribution")
}

// Merge adds the values of o.
func (d *Dist) Merge(o *Dist) {
	sum := d.sum + o.sum
	defer func() { d.sum = sum }()
	for v, n := range o.dense {
		if n > 0 {
			d.Add(int64(v), n)
		}
	}
	for _, v := range o.large {
		d.Add(v, 1)
	}
	for b, n := range o.fold {
		if n > 0 {
			d.Add(middle(b), n)
		}
	}
}
