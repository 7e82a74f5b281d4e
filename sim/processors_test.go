package sim_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestBusyProcessor: beside a busy process an answer has half of its speed and more, and the whole again after. With a
// fixed number of threads it has less than a third. Prompts beside it keep to the ITL target.
func TestBusyProcessor(t *testing.T) {
	cfg := served("meridian")
	cfg.RecordITL, cfg.Threads = true, 2
	cfg.CostModel = []float64{5000, 600, 500, 0} // steps of one answer take as long at any context
	cfg.Busy = []sim.Busy{{FromMs: 10_000, ToMs: 20_000, Processes: 1}}
	rate := func(itl []int64, from, to int64) float64 {
		n, at := 0, int64(0)
		for _, g := range itl {
			if at += g; at >= from && at < to {
				n++
			}
		}
		return float64(n) / (float64(to-from) / 1e6)
	}
	for _, fixed := range []bool{false, true} {
		cfg.FixedThreads = fixed
		changes := 0
		model, err := cfg.Latency()
		if err != nil {
			t.Fatal(err)
		}
		one := []workload.Request{{Input: 20, Output: 4000, Budget: 4000}}
		rep, err := sim.RunModel(cfg, model, workload.NewList(one),
			sim.Options{Planned: func(_ sched.Instant, in *sched.Events, _ *sched.Plan) {
				changes += len(in.Counts)
			}})
		if err != nil {
			t.Fatal(err)
		}
		itl := rep.Requests[0].ITLsUs
		calm, busy, after := rate(itl, 5e6, 9e6), rate(itl, 11e6, 19e6), rate(itl, 21e6, 23e6)
		want := map[bool]int{false: 3, true: 1}[fixed]
		ratio := busy / calm
		if changes != want || !fixed && ratio < 0.5 || fixed && ratio > 0.33 || after < 0.97*calm {
			t.Errorf("fixed %v: %.0f tokens/s, %.0f beside the process, %.0f after it; %d changes, want %d", fixed,
				calm, busy, after, changes, want)
		}
	}

	// Long prompts arrive all the time, while two chats answer.
	cfg.FixedThreads = false
	rows := []workload.Request{{Input: 20, Output: 1000, Budget: 1000}, {Input: 20, Output: 1000, Budget: 1000}}
	for i := range 20 {
		rows = append(rows, workload.Request{Arrival: int64(2_000_000 + 1_500_000*i), Input: 1200, Output: 2,
			Budget: 2})
	}
	for i := range rows {
		rows[i].Index = int64(i)
	}
	rep, err := sim.Run(cfg, workload.NewList(rows))
	if err != nil {
		t.Fatal(err)
	}
	late, n := 0, 0
	for _, r := range rep.Requests[:2] {
		for _, g := range r.ITLsUs {
			n++
			if g > int64(sched.DefaultITLTarget.Microseconds()) {
				late++
			}
		}
	}
	if n < 1900 || float64(late) > 0.05*float64(n) {
		t.Errorf("%d of %d gaps are above the ITL target", late, n)
	}
}

func TestParseBusy(t *testing.T) {
	for text, want := range map[string]sim.Busy{
		"5s-10s":        {FromMs: 5000, ToMs: 10000, Processes: 1},
		"1.5s-2000msx3": {FromMs: 1500, ToMs: 2000, Processes: 3},
	} {
		if got, err := sim.ParseBusy(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5s", "5-10", "5s-10sx", "5s-10sxx", "x3", "5s-"} {
		if got, err := sim.ParseBusy(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	for _, b := range []sim.Busy{{FromMs: -1, ToMs: 1, Processes: 1}, {FromMs: 2, ToMs: 1, Processes: 1}, {ToMs: 1}} {
		cfg := served("meridian")
		cfg.Threads, cfg.Busy = 2, []sim.Busy{b}
		if cfg.Validate() == nil {
			t.Errorf("%+v is taken", b)
		}
	}
	cfg := served("meridian")
	cfg.Busy = []sim.Busy{{ToMs: 1, Processes: 1}}
	if cfg.Validate() == nil {
		t.Error("busy is taken without threads")
	}
}
