package sim_test

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/trace"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestStalls: while a client does not read, other requests use its turns. A request that waits for the paused one's
// prompt is not paused with it, the paused answer continues afterwards, and a recording has the times of the pause.
func TestStalls(t *testing.T) {
	rows := []workload.Request{
		{Index: 0, Input: 100, Output: 60, Budget: 60,
			Stalls: []workload.Stall{{After: 10, Us: 1_000_000}, {After: 40, Us: 8_000_000}}},
		{Index: 1, Input: 100, Output: 200, Budget: 200},
	}
	cfg := served("meridian")
	cfg.RecordITL = true
	rep, recorded := record(t, cfg, nil, workload.NewList(rows))
	if rep.Metrics.Completed != 2 {
		t.Fatalf("%+v", rep.Metrics)
	}
	for i, g := range rep.Requests[0].ITLsUs {
		least := int64(0)
		for _, s := range rows[0].Stalls {
			if i+1 == s.After {
				least = s.Us
			}
		}
		if g < least || g > least+150_000 {
			t.Errorf("token %d of the paused client came after %d us; it read nothing for %d", i+1, g, least)
		}
	}
	for i, g := range rep.Requests[1].ITLsUs {
		if g > 150_000 {
			t.Errorf("token %d of the other one came after %d us", i+1, g)
		}
	}
	again, err := workload.FromRecording(recorded)
	if err != nil {
		t.Fatal(err)
	}
	if got := again[0].Stalls; len(got) != 2 || got[0].After != 10 || got[1].After != 40 || got[1].Us < 7_900_000 ||
		got[1].Us > 8_100_000 || len(again[1].Stalls) != 0 {
		t.Errorf("the recording says %+v and %+v", again[0].Stalls, again[1].Stalls)
	}
}

// TestProbes: a thought's forks are rows of the step that follows, cost what rows cost, and leave nothing behind; a
// recording tells when there were some.
func TestProbes(t *testing.T) {
	rows := []workload.Request{{Input: 50, Output: 40, Budget: 40, Think: 30,
		Probes: []workload.Probe{{After: 8, Rows: 3}, {After: 20, Rows: 5}}}}
	cfg := served("meridian")
	cfg.RecordITL = true
	rep, recorded := record(t, cfg, nil, workload.NewList(rows))
	forked := 0
	if err := recorded.Replay(func(_ *trace.Step, plan *sched.Plan) {
		for _, sl := range plan.Batch {
			if sl.Kind == sched.SliceProbe {
				forked += sl.N
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if rep.Metrics.Completed != 1 || forked != 8 {
		t.Fatalf("%d rows were forked, want 8; %+v", forked, rep.Metrics)
	}
	gaps := rep.Requests[0].ITLsUs
	if d := gaps[7] - gaps[6]; d < 1500 || d > 2200 { // 3 rows of 500 us, and what they attend to
		t.Errorf("a fork of 3 rows took %d us", d)
	}
	again, err := workload.FromRecording(recorded)
	if err != nil || !slices.Equal(again[0].Probes, rows[0].Probes) {
		t.Errorf("the recording says %+v, %v", again[0].Probes, err)
	}
}
