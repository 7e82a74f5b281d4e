package sched

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// TestQueueShare: whatever users do, one that has no more requests waiting than its share of the queue is never refused
// because of another; a request is refused only when the queue is full; nothing that can start is left waiting while a
// sequence is free; and every request ends exactly once. The seed of a failure is in its message.
func TestQueueShare(t *testing.T) {
	for _, policy := range []string{"meridian", "uma", "stock"} {
		t.Run(policy, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				cfg := Config{Policy: policy, MaxRunning: rapid.IntRange(1, 6).Draw(t, "max_running"), Cells: 400,
					MaxBatch: 64,
					MaxQueue: rapid.IntRange(0, 20).Draw(t, "max_queue"), Guard: DefaultGuard,
					PauseGrace: 50 * time.Millisecond, ShareGrace: 100 * time.Millisecond}
				s, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				type info struct {
					owner   uint32
					left    int
					started bool
					paused  bool
				}
				live, ends := map[ReqID]*info{}, map[ReqID]int{}
				var events []Event
				next, now := ReqID(0), Instant(0)
				end := func(id ReqID) {
					ends[id]++
					delete(live, id)
				}
				calm := false
				turn := func() {
					before := map[uint32]int{} // waiting with what has just come
					for _, r := range live {
						if !r.started {
							before[r.owner]++
						}
					}
					plan := s.Step(now, List(events...))
					events = events[:0]
					if err := s.check(); err != nil {
						t.Fatal(err)
					}
					for _, r := range plan.Release {
						if r.Final {
							end(r.Req)
						}
					}
					full := 0
					for _, n := range before {
						full += n
					}
					for _, r := range plan.Reject {
						owner := live[r.Req].owner
						users := map[uint32]bool{}
						for _, o := range live {
							users[o.owner] = true
						}
						if before[owner] <= cfg.MaxQueue/len(users) {
							t.Fatalf("user %d has %d waiting, %d users share a queue of %d, and %+v", owner,
								before[owner], len(users), cfg.MaxQueue, r)
						}
						if full <= cfg.MaxQueue || r.RetryAfter <= 0 || r.Reason != reason.QueueFull &&
							r.Reason != reason.Displaced {
							t.Fatalf("%+v, %d wait, the queue holds %d", r, full, cfg.MaxQueue)
						}
						before[owner]-- // the newest goes first: the others of its user are judged without it
					}
					for _, r := range plan.Reject {
						if live[r.Req].started {
							t.Fatalf("%+v, which had started", r)
						}
						end(r.Req)
					}
					if st := s.Stats(); st.QueuedInteractive+st.QueuedBackground > 0 &&
						plan.Waiting == [NumClasses]Reason{} {
						t.Fatalf("%d wait for nothing\n%+v", st.QueuedInteractive+st.QueuedBackground, plan)
					} else if len(plan.Batch) == 0 && !calm && plan.WakeAt == 0 && st.QueuedInteractive+
						st.QueuedBackground > 0 {
						t.Fatalf("nothing runs, nothing wakes, and requests wait\n%+v", plan)
					}
					if len(plan.Batch) == 0 {
						now = now.Add(20 * time.Millisecond)
						return
					}
					took := time.Duration(rapid.IntRange(1, 40).Draw(t, "took")) * time.Millisecond
					now = now.Add(took)
					events = append(events, EvStep{Took: took})
					for _, sl := range plan.Batch {
						r := live[sl.Req]
						r.started = true
						if sl.Row < 0 {
							continue
						}
						if r.left--; r.left == 0 {
							events = append(events, EvFinish{Req: sl.Req, Reason: reason.Length})
						} else {
							events = append(events, EvToken{Req: sl.Req})
						}
					}
				}
				for range rapid.IntRange(1, 50).Draw(t, "steps") {
					for range rapid.SampledFrom([]int{0, 1, 1, 3, 30}).Draw(t, "arrivals") {
						next++
						r := &info{owner: rapid.SampledFrom([]uint32{7, 7, 7, 7, 1, 2, 3}).Draw(t, "owner"),
							left: rapid.IntRange(1, 30).Draw(t, "max")}
						live[next] = r
						events = append(events, EvArrive{Req: next,
							Spec: &Spec{Owner: r.owner, Class: Class(rapid.IntRange(0, 1).Draw(t, "class")),
								Prompt: rapid.IntRange(1, 200).Draw(t, "prompt"), MaxTokens: r.left}})
					}
					ids := make([]ReqID, 0, len(live))
					for id := range live {
						ids = append(ids, id)
					}
					slices.Sort(ids)
					for _, id := range ids {
						switch r := live[id]; {
						case rapid.IntRange(0, 40).Draw(t, "cancel") == 40:
							events = append(events, EvCancel{Req: id})
						case !r.paused && rapid.IntRange(0, 9).Draw(t, "pause") == 9:
							r.paused = true
							events = append(events, EvPause{Req: id})
						case r.paused && rapid.IntRange(0, 5).Draw(t, "resume") == 5:
							r.paused = false
							events = append(events, EvResume{Req: id})
						}
					}
					// What had its cancel told before the plan is not refused by it.
					turn()
				}
				calm = true
				for n := 0; len(live) > 0; n++ {
					for id, r := range live {
						if r.paused {
							r.paused = false
							events = append(events, EvResume{Req: id})
						}
					}
					slices.SortStableFunc(events, func(a, b Event) int { // the outcome goes first
						_, first := a.(EvStep)
						_, second := b.(EvStep)
						switch {
						case first == second:
							return 0
						case first:
							return -1
						}
						return 1
					})
					if turn(); n > 20000 {
						t.Fatalf("%d requests never end", len(live))
					}
				}
				for id := ReqID(1); id <= next; id++ {
					if ends[id] != 1 {
						t.Fatalf("request %d ended %d times", id, ends[id])
					}
				}
			})
		})
	}
}

// flood is one user that fills everything, and another one that asks for something now and then.
type flood struct {
	class  Class // the flood's
	prompt int   // its prompts
	max    int   // its answers
	stall  bool  // its clients read for a moment, then not
}

// TestShareOfSequences: in each way in which one user fills the server, another user's requests are neither refused nor
// kept waiting much longer than Config.ShareGrace.
func TestShareOfSequences(t *testing.T) {
	for name, f := range map[string]flood{
		"many requests":                {prompt: 20, max: 40},
		"long answers":                 {prompt: 20, max: 3000},
		"background":                   {class: Background, prompt: 20, max: 3000},
		"long prompts":                 {prompt: 900, max: 3000},
		"clients that read too little": {prompt: 20, max: 3000, stall: true},
	} {
		for _, policy := range []string{"meridian", "uma"} {
			t.Run(name+"/"+policy, func(t *testing.T) {
				s, err := New(Config{Policy: policy, MaxRunning: 4, Cells: 4000, MaxBatch: 512, MaxQueue: 16,
					Guard: DefaultGuard})
				if err != nil {
					t.Fatal(err)
				}
				m := priceMachine(5, 0.02)
				type info struct {
					owner  uint32
					at     Instant
					first  Instant
					max    int
					have   int
					paused Instant
				}
				live := map[ReqID]*info{}
				var events []Event
				var resumed []ReqID
				next, now, refill := ReqID(0), Instant(0), Instant(0)
				arrive := func(owner uint32, class Class, prompt, max int) {
					next++
					live[next] = &info{owner: owner, at: now, max: max}
					events = append(events, EvArrive{Req: next,
						Spec: &Spec{Owner: owner, Class: class, Prompt: prompt, MaxTokens: max}})
				}
				served, waiting, displaced := 0, false, 0
				var worst time.Duration
				for now < Instant(60*time.Second) {
					for ; now >= refill; refill = refill.Add(100 * time.Millisecond) {
						for k := len(live); k < 40; k++ {
							arrive(1, f.class, f.prompt, f.max)
						}
					}
					if !waiting && now > Instant(time.Duration(served+2)*2*time.Second) {
						waiting = true
						arrive(2, Interactive, 30, 5)
					}
					plan := s.Step(now, List(events...))
					events = events[:0]
					for _, r := range plan.Reject {
						if live[r.Req].owner == 2 {
							t.Fatalf("at %v the small user is refused: %v", time.Duration(now), r.Reason)
						}
						displaced++
						delete(live, r.Req)
					}
					for _, r := range plan.Release {
						if r.Final {
							delete(live, r.Req)
						}
					}
					if len(plan.Batch) == 0 {
						now = now.Add(10 * time.Millisecond)
					} else {
						var l cost.Load
						for _, sl := range plan.Batch {
							addSlice(&l, sl.Kind, sl.Start, sl.N)
						}
						took := m.Took(l)
						now = now.Add(took)
						events = append(events, EvStep{Took: took})
						for _, sl := range plan.Batch {
							r := live[sl.Req]
							if sl.Row < 0 {
								continue
							}
							if r.have++; r.have == 1 {
								r.first = now
								if r.owner == 2 {
									worst = max(worst, now.Sub(r.at))
								}
							}
							if r.have == r.max {
								events = append(events, EvFinish{Req: sl.Req, Reason: reason.Length})
								if r.owner == 2 {
									served, waiting = served+1, false
								}
								continue
							}
							events = append(events, EvToken{Req: sl.Req})
							if f.stall && r.owner == 1 {
								r.paused = now
								events = append(events, EvPause{Req: sl.Req})
							}
						}
					}
					for id, r := range live {
						if r.paused > 0 && now.Sub(r.paused) > time.Second {
							r.paused = 0
							resumed = append(resumed, id)
						}
					}
					slices.Sort(resumed)
					for _, id := range resumed {
						events = append(events, EvResume{Req: id})
					}
					resumed = resumed[:0]
				}
				t.Logf("%d served, first token after %v at most, %d of the other user's refused", served, worst,
					displaced)
				if served < 20 || worst > 3*time.Second {
					t.Errorf("%d served in a minute, first token after %v at most", served, worst)
				}
				if displaced == 0 {
					t.Error("the flood did not fill the queue")
				}
			})
		}
	}
}
