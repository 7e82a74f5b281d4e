package sim

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHeapOrder: events come out by time, kind, insertion.
func TestHeapOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h heap
		var all []event
		for i := range rapid.IntRange(1, 200).Draw(t, "n") {
			h.push(rapid.Int64Range(0, 5).Draw(t, "at"), kind(rapid.IntRange(0, int(timeout)).Draw(t, "kind")),
				int32(i), 0)
		}
		all = slices.Clone(h.ev)
		slices.SortFunc(all, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind(), b.kind()), cmp.Compare(a.slot, b.slot))
		})
		for i, want := range all {
			if got := h.pop(); got != want {
				t.Fatalf("event %d is %+v, want %+v", i, got, want)
			}
		}
	})
}

// TestDist compares with sorting, and the folded part within its promise.
func TestDist(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 1<<40)), 1, 300).Draw(t,
			"values")
		var d, parts, a Dist
		for i, v := range values {
			d.Add(v, 1)
			if i%2 == 0 {
				a.Add(v, 1)
			} else {
				parts.addAll([]int64{v})
			}
		}
		parts.Merge(&a)
		slices.Sort(values)
		for _, p := range []float64{0, 50, 90, 95, 99, 100} {
			rank := p / 100 * float64(len(values)-1)
			lo := int(rank)
			want := float64(values[lo]) / 1000
			if float64(lo) != rank {
				want += float64(values[lo+1]-values[lo]) * (rank - float64(lo)) / 1000
			}
			if got := d.PercentileMs(p); got != want {
				t.Fatalf("p%v = %v, want %v", p, got, want)
			}
			if got := parts.PercentileMs(p); got != want {
				t.Fatalf("merged p%v = %v, want %v", p, got, want)
			}
		}
		sum := int64(0)
		for _, v := range values {
			sum += v
			if m := middle(bucket(v)); m-v > v>>foldBits || v-m > v>>foldBits {
				t.Fatalf("bucket of %d stands for %d", v, m)
			}
		}
		if d.Sum() != sum || parts.Sum() != sum || d.Count() != int64(len(values)) || !d.Exact() {
			t.Fatalf("sum %d and %d, want %d", d.Sum(), parts.Sum(), sum)
		}
	})
	var d Dist
	for i := range int64(exactLimit + 1000) {
		d.Add(exactDense+i%7, 1)
	}
	if d.Exact() || d.PercentileMs(50) < exactDense/1000.0*0.999 || d.PercentileMs(50) > exactDense/1000.0*1.002 {
		t.Errorf("folded median %v ms, exact %v", d.PercentileMs(50), d.Exact())
	}
}
