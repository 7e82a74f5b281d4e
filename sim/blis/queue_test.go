package blis

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// sortAnew is BLIS's rule: every priority anew at the step's time, then a stable sort.
func sortAnew(scheduler, policy string, now int64, queue []*request) {
	priority := func(r *request) float64 {
		age := 1e-6 * float64(now-r.Spec.Arrival)
		switch policy {
		case "slo-based":
			return 0 + age
		case "inverted-slo":
			return 0 - age
		}
		return 0
	}
	tie := func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.Spec.Arrival, b.Spec.Arrival), cmp.Compare(a.Spec.ID(), b.Spec.ID()))
	}
	switch scheduler {
	case "sjf":
		slices.SortStableFunc(queue, func(a,
			b *request) int {
			return cmp.Or(cmp.Compare(a.Spec.Input, b.Spec.Input), tie(a, b))
		})
	case "priority-fcfs":
		slices.SortStableFunc(queue, func(a,
			b *request) int {
			return cmp.Or(cmp.Compare(priority(b), priority(a)), tie(a, b))
		})
	case "reverse-priority":
		slices.SortStableFunc(queue, func(a,
			b *request) int {
			return cmp.Or(cmp.Compare(priority(a), priority(b)), tie(a, b))
		})
	}
}

// TestQueueOrder: a queue kept in order as requests join, leave and come back is the queue that BLIS sorts before each
// step.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scheduler := rapid.SampledFrom(Schedulers).Draw(t, "scheduler")
		policy := rapid.SampledFrom(PriorityPolicies).Draw(t, "policy")
		q := queue{order: order(scheduler, policy)}
		var plain []*request
		now := int64(0)
		for i := range rapid.IntRange(1, 60).Draw(t, "n") {
			now += rapid.Int64Range(0, 3).Draw(t, "dt")
			r := &request{}
			r.Spec.Index, r.Spec.Input = int64(i), rapid.IntRange(1, 4).Draw(t, "input")
			r.Spec.Arrival = max(0, now-rapid.Int64Range(0, 3).Draw(t, "delay"))
			if rapid.IntRange(0, 9).Draw(t, "named") == 0 {
				r.Spec.Name = rapid.SampledFrom([]string{"a", "request_1x", "z"}).Draw(t, "name") + r.Spec.ID()
			}
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0: // a preempted one comes back
				q.rejoin(r)
				plain = slices.Insert(plain, 0, r)
			case 1: // the head is admitted
				if len(plain) > 0 {
					sortAnew(scheduler, policy, now, plain)
					if q.at(0) != plain[0] {
						t.Fatalf("head is %s, want %s", q.at(0).Spec.ID(), plain[0].Spec.ID())
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
			sortAnew(scheduler, policy, now, plain)
			if q.n != len(plain) {
				t.Fatalf("%d wait, want %d", q.n, len(plain))
			}
			for k, want := range plain {
				if got := q.at(k); got != want {
					t.Fatalf("%s/%s: place %d is %s, want %s", scheduler, policy, k, got.Spec.ID(), want.Spec.ID())
				}
			}
			if err := q.check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
