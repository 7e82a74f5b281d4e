package sim_test

import (
	"bytes"
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// visits are two users' conversations of 600 tokens, a flood of one-shot prompts that needs their cells, and their next
// turns, seconds later.
func visits() []workload.Request {
	rows := []workload.Request{
		{Input: 560, Output: 40, Budget: 40, Stream: 1},
		{Arrival: 2_000_000, Input: 560, Output: 40, Budget: 40, Stream: 2},
	}
	for i := range int64(8) {
		rows = append(rows, workload.Request{Arrival: 4_000_000 + i*1_000_000, Input: 500, Output: 10, Budget: 10,
			Stream: 100 + uint64(i)})
	}
	for i := range uint64(2) {
		rows = append(rows, workload.Request{Arrival: 20_000_000 + int64(i)*2_000_000, Input: 640, Output: 40,
			Budget: 40, Stream: 1 + i})
	}
	for i := range rows {
		rows[i].Index = int64(i)
	}
	return rows
}

// TestTiers: a prefix that was evicted from the pool is restored from the nearest tier that has it, in that tier's
// time, and is computed again where no tier has it.
func TestTiers(t *testing.T) {
	rows := visits()
	last := len(rows) - 1
	fresh := 0
	for _, r := range rows[:last-1] {
		fresh += r.Input
	}
	const again = 640 - 599 // an answer's last token is not fed back
	base := served("uma")
	base.KVBlocks = 100 // 1,600 cells: three histories
	base.KVTierUs = []float64{10, 10, 100}
	var first int64 // the time to the first token when all is computed
	for _, c := range []struct {
		name                   string
		host, disk, part       int
		fabric                 bool
		fromHost, fromD, fromF int64 // tokens restored
		ttftMs                 float64
	}{
		{name: "none"},
		{name: "host, where two parts are all that is evicted between two steps", host: 1000, part: 512,
			fromHost: 2 * 599},
		{name: "a host tier too small for the flood", host: 30},
		{name: "disk", host: 30, disk: 1000, fromD: 2 * 599},
		// Fabrics take whole parts only, here of 128 tokens.
		{name: "fabric", host: 30, fabric: true, fromF: 2 * 512},
	} {
		cfg := base
		cfg.KVCPUBlocks, cfg.KVDiskBlocks, cfg.KVFabric = c.host, c.disk, c.fabric
		if c.part > 0 {
			cfg.KVPartTokens = c.part
		}
		rep, prompt, _ := computed(t, cfg, rows)
		got := rep.Metrics.Engines[0].Restored
		if got != [3]int64{c.fromHost, c.fromD, c.fromF} {
			t.Errorf("%s: restored %v, want %d, %d, %d", c.name, got, c.fromHost, c.fromD, c.fromF)
		}
		restored := c.fromHost + c.fromD + c.fromF
		want := fresh + 2*640 - int(restored)
		if prompt != want {
			t.Errorf("%s: %d prompt tokens were computed, want %d (%d of a turn are new)", c.name, prompt, want, again)
		}
		ttft := *rep.Requests[last].TTFTUs
		if c.name == "none" {
			first = ttft
			continue
		}
		// A restore takes time: into the pool, and before that from disk or fabric.
		least := int64(float64(c.fromHost)*10+float64(c.fromD)*20+float64(c.fromF)*110) / 2
		switch {
		case restored == 0 && ttft < first*9/10:
			t.Errorf("%s: first token after %d us, computed it took %d", c.name, ttft, first)
		case restored > 0 && (ttft < least || ttft > first/2):
			t.Errorf("%s: first token after %d us; copying takes %d, computing %d", c.name, ttft, least, first)
		}
	}
}

// TestTiersCopyInTurns: copies are cut into parts. A running answer waits for two parts at most, and for one more when
// room had to be made for it, not for all.
func TestTiersCopyInTurns(t *testing.T) {
	rows := visits()
	rows = append(rows, workload.Request{Index: int64(len(rows)), Arrival: 19_500_000, Input: 20, Output: 300,
		Budget: 300, Stream: 50})
	worst := func(us float64) (gap int64) {
		cfg := served("uma")
		cfg.KVBlocks, cfg.KVCPUBlocks, cfg.RecordITL = 100, 1000, true
		cfg.KVTierUs = []float64{us, 0, 0}
		rep, _, _ := computed(t, cfg, rows)
		if rep.Metrics.Engines[0].Restored[0] < 599 {
			t.Fatalf("restored %v", rep.Metrics.Engines[0].Restored)
		}
		for _, g := range rep.Requests[len(rows)-1].ITLsUs {
			gap = max(gap, g)
		}
		return gap
	}
	const us = 500 // a part takes 64 ms, all of them 300
	if free, dear := worst(0), worst(us); dear > free+3*128*us || dear < 128*us {
		t.Errorf("a gap of %d us in an answer beside a restore, %d when copying takes no time", dear, free)
	}
}

// TestTiersLeave: a request that leaves while its prefix comes back is forgotten, and the same seed gives the same
// bytes.
func TestTiersLeave(t *testing.T) {
	rows := visits()
	rows[len(rows)-1].Deadline = rows[len(rows)-1].Arrival + 5_000 // the fabric takes 60 ms
	cfg := served("meridian")
	cfg.KVBlocks, cfg.KVCPUBlocks, cfg.KVFabric, cfg.KVTierUs = 100, 30, true, []float64{10, 10, 100}
	var before []byte
	for range 2 {
		rep, err := sim.Run(cfg, workload.NewList(rows))
		if err != nil {
			t.Fatal(err)
		}
		if m := rep.Metrics; m.TimedOut != 1 || int(m.Completed) != len(rows)-1 || m.StillQueued+m.StillRunning != 0 {
			t.Errorf("%d left, %d of %d completed", m.TimedOut, m.Completed, len(rows))
		}
		var b bytes.Buffer
		if err := rep.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		if before != nil && !bytes.Equal(before, b.Bytes()) {
			t.Error("the same seed gives other bytes")
		}
		before = b.Bytes()
	}
}
