package queue

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// add queues an entry without a target, of interactive class, with a prompt of 10 tokens.
func add(q *Queue, rank uint64, owner uint32) *Entry {
	e := &Entry{Rank: rank, Lane: Lane{slo.Interactive, owner}, Deadline: slo.Never, Due: q.now.Add(UndatedTarget),
		Promise: slo.Never}
	q.Add(e, owner, 10)
	return e
}

// TestLeastServedFirst: owners take turns by the tokens computed for them, and one who returns has saved none up.
func TestLeastServedFirst(t *testing.T) {
	q := New(Config{MaxRunning: 4, MaxQueue: 9, ByOwner: true})
	q.Begin(0)
	first, second := add(q, 1, 1), add(q, 2, 2)
	if got := q.First(slo.Interactive); got != first {
		t.Fatalf("rank %d goes first among equals", got.Rank)
	}
	q.Start(first)
	q.Charge(first, 10)
	third := add(q, 3, 1)
	if got := q.First(slo.Interactive); got != second {
		t.Errorf("rank %d is first, although the other owner has had no tokens yet", got.Rank)
	}
	q.Remove(second)
	if late := add(q, 4, 3); late.Served() != third.Served() {
		t.Errorf("a new owner starts at %d tokens, the least of the others is %d", late.Served(), third.Served())
	}
}

// TestPaidOnce: tokens that are computed again, or were cached, are not charged.
func TestPaidOnce(t *testing.T) {
	q := New(Config{MaxRunning: 1, MaxQueue: 9})
	q.Begin(0)
	e := add(q, 1, 1)
	q.Start(e)
	if got := e.flow.key(); got != 10 {
		t.Errorf("a prompt of 10 tokens that runs counts as %d", got)
	}
	q.Spare(e, 4)
	q.Charge(e, 6)
	if got := e.Served(); got != 2 || e.paid != 6 || e.flow.key() != 6 {
		t.Errorf("%d tokens are charged, %d are paid, key %d", got, e.paid, e.flow.key())
	}
	q.Stop(e)
	q.Requeue(e)
	q.Start(e)
	q.Charge(e, 6)
	if got := e.Served(); got != 2 {
		t.Errorf("computing 6 tokens again was charged: %d", got)
	}
	if q.Charge(e, 12); e.Served() != 8 || e.flow.pending != 0 {
		t.Errorf("%d tokens are charged, %d pending", e.Served(), e.flow.pending)
	}
}

// TestDeadlines: in a flow the earlier deadline goes first, and a promise goes before another owner's turn.
func TestDeadlines(t *testing.T) {
	q := New(Config{MaxRunning: 2, MaxQueue: 9, ByOwner: true, ByDeadline: true, ShareGrace: time.Second})
	q.Begin(0)
	none := add(q, 1, 1)
	soon := &Entry{Rank: 2, Lane: Lane{slo.Interactive, 1}, Deadline: 50, Due: 50, Promise: slo.Never}
	if q.Add(soon, 1, 10); q.First(slo.Interactive) != soon || soon.next != none {
		t.Error("a request with a target waits behind one without")
	}
	busy := add(q, 3, 2)
	q.Start(busy)
	q.Charge(busy, 100_000)
	promised := &Entry{Rank: 4, Lane: Lane{slo.Interactive, 2}, Deadline: 40, Due: 40, Promise: 40}
	if q.Add(promised, 2, 10); q.First(slo.Interactive) != promised {
		t.Error("a promise waits behind a later target of an owner who had less")
	}
	q.Begin(45)
	if q.StillDue(promised) != 40 || q.StillDue(soon) != 50 {
		t.Error("a deadline changes before its time")
	}
	if q.Begin(60); q.StillDue(soon) != slo.Instant(UndatedTarget) {
		t.Errorf("a missed target still counts as %d", q.StillDue(soon))
	}
}

// TestForgotten: owners who come once leave nothing behind, however many they are.
func TestForgotten(t *testing.T) {
	q := New(Config{MaxRunning: 4, MaxQueue: 9, ByOwner: true})
	q.Begin(0)
	stays := add(q, 1, 0)
	q.Unqueue(stays) // a client that does not read: its class never becomes idle
	for owner := uint32(1); owner < 5000; owner++ {
		e := add(q, uint64(owner), owner)
		q.Start(e)
		q.Charge(e, 11)
		q.Stop(e)
		q.Remove(e)
	}
	if n := len(q.flowOf); n > 100 {
		t.Errorf("%d flows are remembered", n)
	}
	if n := len(q.users); n != 1 || len(q.freeUsers) != 1 {
		t.Errorf("%d users are live, %d records are free", n, len(q.freeUsers))
	}
}

// TestExcess: the user with the most waiting requests loses the newest, which is told whether it was accepted before.
func TestExcess(t *testing.T) {
	q := New(Config{MaxRunning: 1, MaxQueue: 3})
	q.Begin(0)
	for rank := range uint64(3) {
		add(q, rank, 1)
	}
	q.Begin(1)
	small := add(q, 3, 2)
	x := q.Excess()
	if len(x) != 1 || x[0].Rank != 2 || x[0].Why != reason.Displaced || x[0].RetryAfter <= 0 {
		t.Fatalf("%+v", x)
	}
	q.Remove(x[0].Entry)
	if x := q.Excess(); len(x) > 0 || !small.Queued {
		t.Errorf("%+v are rejected from a queue that is not too long", x)
	}
	newest := add(q, 4, 1)
	if x := q.Excess(); len(x) != 1 || x[0].Entry != newest || x[0].Why != reason.QueueFull {
		t.Errorf("%+v", x)
	}
}

// TestAnyOrder: whatever requests do, the counts, the heaps and the lists agree with the requests, the heap's first
// flow is the one that a search finds, and no flow's virtual time is behind its class's.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New(Config{MaxRunning: 4, MaxQueue: 12, MaxClass: [slo.NumClasses]int{0, 5}, ShareGrace: 5, ByOwner: true,
			ByDeadline: rapid.Bool().Draw(t, "by_deadline")})
		live := map[uint64]*Entry{}
		computed := map[uint64]int{}
		rank, now := uint64(0), slo.Instant(0)
		some := func(ok func(*Entry) bool) *Entry {
			var fit []*Entry
			for r := uint64(1); r <= rank; r++ {
				if e := live[r]; e != nil && ok(e) {
					fit = append(fit, e)
				}
			}
			if len(fit) == 0 {
				return nil
			}
			return rapid.SampledFrom(fit).Draw(t, "entry")
		}
		queued := func(e *Entry) bool { return e.Queued }
		running := func(e *Entry) bool { return e.Running }
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += slo.Instant(rapid.IntRange(0, 3).Draw(t, "wait"))
			q.Begin(now)
			for range rapid.IntRange(0, 4).Draw(t, "arrivals") {
				rank++
				e := &Entry{Rank: rank, Deadline: slo.Never, Due: now + 20, Promise: slo.Never,
					Lane: Lane{slo.Class(rapid.IntRange(0, 1).Draw(t, "class")),
						rapid.Uint32Range(1, 4).Draw(t, "owner")}}
				if rapid.IntRange(0, 3).Draw(t, "dated") == 0 {
					e.Deadline = now + 9
					e.Due = e.Deadline
					if rapid.Bool().Draw(t, "promised") {
						e.Promise = e.Deadline
					}
				}
				live[rank] = e
				q.Add(e, e.Owner, rapid.IntRange(1, 50).Draw(t, "prompt"))
			}
			switch e := some(running); rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				if e = some(queued); e != nil {
					q.Start(q.First(e.Class))
				}
			case 1:
				if e != nil {
					computed[e.Rank] += rapid.IntRange(1, 20).Draw(t, "computed")
					q.Charge(e, computed[e.Rank])
				}
			case 2:
				if e != nil {
					computed[e.Rank] = 0
					q.Stop(e)
					q.Requeue(e)
				}
			case 3:
				if e != nil {
					q.Stop(e)
					q.Ended()
				} else if e = some(queued); e == nil {
					continue
				}
				q.Remove(e)
				delete(live, e.Rank)
			}
			for _, x := range q.Excess() {
				if x.Started {
					t.Fatalf("rank %d is rejected and had started", x.Rank)
				}
				q.Remove(x.Entry)
				delete(live, x.Rank)
			}
			if err := q.Check(maps.Values(live)); err != nil {
				t.Fatal(err)
			}
			for class := range slo.NumClasses {
				if h := q.heaps[class]; len(h) > 0 {
					for _, f := range h {
						if h.less(f, h[0]) {
							t.Fatalf("flow %+v goes before the heap's first, %+v", f.Lane, h[0].Lane)
						}
					}
				}
				for _, f := range q.flowOf {
					if f.Class == class && f.members > 0 && (f.running > 0 || f.head != nil) &&
						f.vt < q.virtualNow(class) {
						t.Fatalf("flow %+v is at %d, its class at %d", f.Lane, f.vt, q.virtualNow(class))
					}
				}
			}
		}
	})
}
