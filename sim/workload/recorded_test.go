package workload

import (
	"slices"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/trace"
)

func TestFromRecording(t *testing.T) {
	text := trace.AppendConfig(nil, &sched.Config{Policy: "uma", MaxRunning: 2, Cells: 100, MaxBatch: 10, MaxQueue: 5})
	at := func(ms int) sched.Instant { return sched.Instant(time.Duration(ms) * time.Millisecond) }
	add := func(ms int, events ...sched.Event) { text = trace.AppendEvents(text, at(ms), sched.List(events...)) }
	add(100, sched.EvArrive{Req: 9, Spec: &sched.Spec{Prompt: 12, MaxTokens: 20, Owner: 1000}, Thinking: true})
	add(130, sched.EvStep{Took: 30 * time.Millisecond}, sched.EvToken{Req: 9, Thinking: true},
		sched.EvArrive{Req: 10, Spec: &sched.Spec{Prompt: 3, MaxTokens: 4, Class: sched.Background}})
	add(150, sched.EvStep{}, sched.EvToken{Req: 9}, sched.EvCancel{Req: 10})
	add(160, sched.EvStep{}, sched.EvFinish{Req: 9, Reason: reason.Stop})
	recorded, err := trace.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := FromRecording(recorded)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v, %v", rows, err)
	}
	if r := rows[0]; r.Arrival != 0 || r.Input != 12 || r.Output != 3 || r.Think != 2 || r.Budget != 20 ||
		r.Tenant != "uid1000" {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.Arrival != 30_000 || r.Input != 3 || r.Output != 0 || r.Class != "background" {
		t.Errorf("%+v", r)
	}
}

// Requests of which the scheduler heard at once, within a millisecond, come at once; those of which it heard one by
// one, or that came while it computed, come when they came.
func TestRecordedTogether(t *testing.T) {
	text := trace.AppendConfig(nil, &sched.Config{Policy: "uma", MaxRunning: 9, Cells: 100, MaxBatch: 10, MaxQueue: 5})
	id := sched.ReqID(0)
	heard := func(us int, came ...int) {
		var events []sched.Event
		for _, c := range came {
			id++
			events = append(events, sched.EvArrive{Req: id,
				Spec:      &sched.Spec{Prompt: 5, MaxTokens: 4},
				QueuedFor: time.Duration(us-c) * time.Microsecond})
		}
		text = trace.AppendEvents(text, sched.Instant(time.Duration(us)*time.Microsecond), sched.List(events...))
	}
	heard(300, 0, 100, 250)                       // it was woken by the first
	heard(50_000, 20_000, 20_900, 21_100, 49_900) // it computed meanwhile
	heard(60_000, 60_000)                         // by itself
	heard(60_500, 60_400)                         // and another one by itself
	recorded, err := trace.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := FromRecording(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, r := range rows {
		got = append(got, r.Arrival)
	}
	if want := []int64{0, 0, 0, 20_000, 20_000, 21_100, 49_900, 60_000, 60_400}; !slices.Equal(got, want) {
		t.Errorf("arrivals %v, want %v", got, want)
	}
}

// TestChained: a request that came right after an answer to its user follows that answer in the simulation, whenever
// that is. One of another user, one that came later, and one whose answer another request has followed keep their
// times.
func TestChained(t *testing.T) {
	text := trace.AppendConfig(nil, &sched.Config{Policy: "uma", MaxRunning: 2, Cells: 100, MaxBatch: 10, MaxQueue: 5})
	at := func(ms int) sched.Instant { return sched.Instant(time.Duration(ms) * time.Millisecond) }
	arrive := func(id sched.ReqID, owner uint32, ago int) sched.Event {
		return sched.EvArrive{Req: id,
			Spec:      &sched.Spec{Prompt: 5, MaxTokens: 4, Owner: owner},
			QueuedFor: time.Duration(ago) * time.Millisecond}
	}
	step := sched.EvStep{Took: 10 * time.Millisecond}
	end := func(id sched.ReqID) sched.Event {
		return sched.EvFinish{Req: id, Reason: reason.Length}
	}
	text = trace.AppendEvents(text, at(0), sched.List(arrive(1, 7, 0), arrive(2, 8, 0)))
	text = trace.AppendEvents(text, at(50), sched.List(step, end(1)))
	text = trace.AppendEvents(text, at(60), sched.List(step, arrive(3, 7, 7), arrive(4, 8, 7), arrive(5, 7, 6)))
	text = trace.AppendEvents(text, at(100), sched.List(step, end(2), end(3)))
	text = trace.AppendEvents(text, at(130), sched.List(step, arrive(6, 8, 0)))
	recorded, err := trace.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := FromRecording(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ follows, delay int64 }{{}, {}, {1, 3000}, {}, {}, {}} {
		if r := rows[i]; r.Follows != want.follows || r.Delay != want.delay {
			t.Errorf("request %d follows %d after %d us, want %d after %d", i+1, r.Follows, r.Delay, want.follows,
				want.delay)
		}
	}
	c := NewChained(rows)
	if c.Len() != 6 {
		t.Errorf("%d requests", c.Len())
	}
	var first, next Request
	c.Next(&first)
	if !c.Ended(&first, Completed, 80_000, &next) || next.Index != 2 || next.Arrival != 83_000 {
		t.Errorf("after the first came %+v", next)
	}
	if c.Ended(&first, Completed, 90_000, &next) || c.Ended(&next, Completed, 90_000, &next) {
		t.Error("a request came twice, or after an end that none followed")
	}
	if rest, _ := Collect(c, 0); len(rest) != 4 {
		t.Errorf("%d came by themselves", len(rest)+1)
	}
}

// TestTurnsFollowTheirAnswers: a request that continues the conversation of an earlier one arrives as long after that
// one's answer as it did, however long that was, and although another user's or another agent's answer ended just
// before it. One that shares only a beginning keeps its time.
func TestTurnsFollowTheirAnswers(t *testing.T) {
	text := trace.AppendConfig(nil, &sched.Config{Policy: "uma", MaxRunning: 8, Cells: 9000, MaxBatch: 100,
		MaxQueue: 9})
	at := func(ms int) sched.Instant { return sched.Instant(time.Duration(ms) * time.Millisecond) }
	arrive := func(id sched.ReqID, prompt int, owner uint32) sched.Event {
		return sched.EvArrive{Req: id, Spec: &sched.Spec{Prompt: prompt, MaxTokens: 20, Owner: owner}}
	}
	start := func(id sched.ReqID, cached int) sched.Event {
		return sched.EvStarted{Req: id, Cached: cached}
	}
	token := func(id sched.ReqID) sched.Event { return sched.EvToken{Req: id} }
	end := func(id sched.ReqID) sched.Event {
		return sched.EvFinish{Req: id, Reason: reason.Length}
	}
	add := func(ms int, events ...sched.Event) { text = trace.AppendEvents(text, at(ms), sched.List(events...)) }
	step := sched.EvStep{Took: 10 * time.Millisecond}
	// Two agents (1 and 2) that began alike, and another user's request (3) of the same length as the first.
	add(0, arrive(1, 500, 7), arrive(2, 505, 7), arrive(3, 500, 8), start(1, 0), start(2, 400), start(3, 0))
	add(50, step, token(1), token(2), token(3))
	add(60, step, end(1), end(3)) // two tokens each
	add(90, step, end(2))
	// Agent 2 again, which carries only its prompt on; agent 1 comes 5 ms after agent 2's answer, and carries its own.
	add(95, arrive(4, 600, 7), start(4, 501))
	add(390, arrive(5, 610, 7), start(5, 505))
	// It shares the beginning of both, and nothing more.
	add(400, step, arrive(6, 450, 7), start(6, 400))
	recorded, err := trace.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := FromRecording(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ follows, delay int64 }{{}, {}, {}, {1, 35_000}, {2, 300_000}, {}} {
		if r := rows[i]; r.Follows != want.follows || r.Delay != want.delay {
			t.Errorf("request %d follows %d after %d us, want %d after %d", i+1, r.Follows, r.Delay, want.follows,
				want.delay)
		}
	}
}

// TestTurnsOfEqualLength: of several requests that a turn may continue it is the one that it followed at once, or the
// latest. The same prompt again is no turn.
func TestTurnsOfEqualLength(t *testing.T) {
	text := trace.AppendConfig(nil, &sched.Config{Policy: "uma", MaxRunning: 8, Cells: 9000, MaxBatch: 100,
		MaxQueue: 9})
	add := func(ms int, events ...sched.Event) {
		text = trace.AppendEvents(text, sched.Instant(time.Duration(ms)*time.Millisecond), sched.List(events...))
	}
	whole := func(id sched.ReqID, prompt, cached, ms int) { // two tokens, in 60 ms
		add(ms, sched.EvArrive{Req: id, Spec: &sched.Spec{Prompt: prompt, MaxTokens: 20}},
			sched.EvStarted{Req: id, Cached: cached})
		add(ms+50, sched.EvStep{Took: 10 * time.Millisecond},
			sched.EvToken{Req: id})
		add(ms+60, sched.EvStep{Took: 10 * time.Millisecond},
			sched.EvFinish{Req: id, Reason: reason.Length})
	}
	whole(1, 500, 0, 0)
	whole(2, 500, 400, 60_000)
	whole(3, 600, 502, 60_061) // at once after 2; 1 has the same length
	whole(4, 500, 400, 70_000)
	whole(5, 500, 400, 80_000)
	whole(6, 600, 502, 90_000) // of 1, 4 and 5 the latest
	whole(7, 500, 499, 95_000) // the same as 5 again
	recorded, err := trace.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := FromRecording(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ follows, delay int64 }{{}, {}, {2, 1000}, {}, {}, {5, 9_940_000}, {}} {
		if r := rows[i]; r.Follows != want.follows || r.Delay != want.delay {
			t.Errorf("request %d follows %d after %d us, want %d after %d", i+1, r.Follows, r.Delay, want.follows,
				want.delay)
		}
	}
}
