package sim_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/trace"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestUmaEmbeds: texts to embed share no cells with prompts that begin like them, keep to the rows that a step has for
// them, and end at their last row. A recording of them simulates as the same.
func TestUmaEmbeds(t *testing.T) {
	cfg := served("meridian")
	cfg.Base = &sched.Config{EveryRows: 96}
	rows := together(12, 400, 40, 12, 15_000)
	for i := range rows {
		if rows[i].Embed = i%3 != 0; rows[i].Embed {
			rows[i].Output, rows[i].Budget, rows[i].EveryRow = 1, 1, i%3 == 1
		}
	}
	rep, recorded := record(t, cfg, nil, workload.NewList(rows))
	if n := rep.Metrics.Completed; int(n) != len(rows) {
		t.Fatalf("%d of %d completed", n, len(rows))
	}
	cached := map[sched.ReqID]int{}
	every := map[sched.ReqID]bool{}
	ends := map[sched.Reason]int{}
	for _, step := range recorded.Steps {
		for _, ev := range step.Events.Arrivals {
			every[ev.Req] = ev.EveryRow
		}
		for _, ev := range step.Events.Starts {
			cached[ev.Req] = ev.Cached
		}
		for _, ev := range step.Events.Finishes {
			ends[ev.Reason]++
		}
	}
	err := recorded.Replay(func(_ *trace.Step, plan *sched.Plan) {
		n := 0
		for i := range plan.Batch {
			if every[plan.Batch[i].Req] {
				n += plan.Batch[i].N
			}
		}
		if n > 96 {
			t.Errorf("%d rows of texts with an output each in a step", n)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if got, shares := cached[core.ID(i)+1], i > 0 && !rows[i].Embed; (got > 0) != shares {
			t.Errorf("request %d (text: %v) began with %d cached tokens", i, rows[i].Embed, got)
		}
	}
	if ends[reason.Embedded] != 8 {
		t.Errorf("ends: %v", ends)
	}

	again, err := workload.FromRecording(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for i := range again {
		if again[i].Embed != rows[i].Embed || again[i].EveryRow != rows[i].EveryRow {
			t.Errorf("request %d is recorded as %+v", i, again[i])
		}
	}
	cfg.SetRecorded(&recorded.Config)
	rep2, err := sim.Run(cfg, workload.NewList(again))
	if err != nil {
		t.Fatal(err)
	}
	a, b := rep.Metrics, rep2.Metrics
	if a.TTFT.Sum() != b.TTFT.Sum() || a.ITL.Sum() != b.ITL.Sum() || a.Engines[0].Steps != b.Engines[0].Steps {
		t.Errorf("again: TTFT %d and %d, ITL %d and %d, %d and %d steps", a.TTFT.Sum(), b.TTFT.Sum(), a.ITL.Sum(),
			b.ITL.Sum(), a.Engines[0].Steps, b.Engines[0].Steps)
	}
}

// TestUmaEncoder: a model that reads in both directions computes each text in one step.
func TestUmaEncoder(t *testing.T) {
	cfg := served("meridian")
	rows := together(20, 0, 200, 1, 1000)
	for i := range rows {
		rows[i].Embed, rows[i].Whole, rows[i].Input = true, true, 20+i*25
	}
	rep, recorded := record(t, cfg, nil, workload.NewList(rows))
	if n := rep.Metrics.Completed; int(n) != len(rows) {
		t.Fatalf("%d of %d completed", n, len(rows))
	}
	if err := recorded.Replay(func(_ *trace.Step, plan *sched.Plan) {
		for i := range plan.Batch {
			if s := &plan.Batch[i]; s.Start != 0 || s.Row < 0 {
				t.Errorf("a part of a text: %+v", *s)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
}
