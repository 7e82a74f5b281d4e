package sim

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// literalOrder is the original's rule: every priority anew at the step's time, then a stable sort.
func literalOrder(scheduler, policy string, now int64, queue []*request) {
	priority := func(r *request) float64 {
		age := 1e-6 * float64(now-r.spec.Arrival)
		switch policy {
		case "slo-based":
			return 0 + age
		case "inverted-slo":
			return 0 - age
		}
		return 0
	}
	tie := func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.spec.Arrival, b.spec.Arrival), cmp.Compare(a.spec.ID(), b.spec.ID()))
	}
	switch scheduler {
	case "sjf":
		slices.SortStableFunc(queue, func(a, b *request) int { return cmp.Or(cmp.Compare(a.spec.Input, b.spec.Input), tie(a, b)) })
	case "priority-fcfs":
		slices.SortStableFunc(queue, func(a, b *request) int { return cmp.Or(cmp.Compare(priority(b), priority(a)), tie(a, b)) })
	case "reverse-priority":
		slices.SortStableFunc(queue, func(a, b *request) int { return cmp.Or(cmp.Compare(priority(a), priority(b)), tie(a, b)) })
	}
}

// TestOrderIsTheOriginals: a queue kept in order as requests join, leave and come back is the queue that the original
// sorts before each step.
func TestOrderIsTheOriginals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scheduler := rapid.SampledFrom(Schedulers).Draw(t, "scheduler")
		policy := rapid.SampledFrom(PriorityPolicies).Draw(t, "policy")
		q := waitQueue{order: queueOrder(scheduler, policy)}
		var plain []*request
		now := int64(0)
		for i := range rapid.IntRange(1, 60).Draw(t, "n") {
			now += rapid.Int64Range(0, 3).Draw(t, "dt")
			r := &request{}
			r.spec.Index, r.spec.Input = int64(i), rapid.IntRange(1, 4).Draw(t, "input")
			r.spec.Arrival = max(0, now-rapid.Int64Range(0, 3).Draw(t, "delay"))
			if rapid.IntRange(0, 9).Draw(t, "named") == 0 {
				r.spec.Name = rapid.SampledFrom([]string{"a", "request_1x", "z"}).Draw(t, "name") + r.spec.ID()
			}
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0: // a preempted one comes back
				q.rejoin(r)
				plain = slices.Insert(plain, 0, r)
			case 1: // the head is admitted
				if len(plain) > 0 {
					literalOrder(scheduler, policy, now, plain)
					if q.first() != plain[0] {
						t.Fatalf("head is %s, want %s", q.first().spec.ID(), plain[0].spec.ID())
					}
					q.popFirst()
					plain = plain[1:]
				}
			case 2: // one times out
				if len(plain) > 0 {
					k := rapid.IntRange(0, len(plain)-1).Draw(t, "k")
					q.remove(plain[k])
					plain = slices.Delete(slices.Clone(plain), k, k+1)
				}
			default:
				q.join(r)
				plain = append(plain, r)
			}
			literalOrder(scheduler, policy, now, plain)
			if q.n != len(plain) {
				t.Fatalf("%d wait, want %d", q.n, len(plain))
			}
			for k, want := range plain {
				if got := q.at(k); got != want {
					t.Fatalf("%s/%s: place %d is %s, want %s", scheduler, policy, k, got.spec.ID(), want.spec.ID())
				}
			}
		}
	})
}

// TestHeapOrder: events come out by time, kind, insertion.
func TestHeapOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h heap
		var all []event
		for i := range rapid.IntRange(1, 200).Draw(t, "n") {
			h.push(rapid.Int64Range(0, 5).Draw(t, "at"), kind(rapid.IntRange(0, int(timeout)).Draw(t, "kind")), int32(i), 0)
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
		values := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 1<<40)), 1, 300).Draw(t, "values")
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
