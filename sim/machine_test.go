package sim

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/uma-serve/uma-serve/sim/workload"
)

var machineSeed = flag.Uint64("machine-seed", 0, "seed of TestMachineOfRandomServers; 0 = a fixed one")

// sharedConfig is a server whose steps take fixed + perPrompt·tokens + perAnswer·rows microseconds.
func sharedConfig(fixed, perPrompt, perAnswer, targetMs float64) Config {
	c := DefaultConfig()
	c.BatchFormation, c.Policy, c.LatencyModel = "uma", "meridian", "calibrated"
	c.CostModel, c.ITLTargetMs = []float64{fixed, perPrompt, perAnswer, 0}, targetMs
	c.MaxRunning, c.MaxScheduledTokens, c.KVBlocks, c.NoPrefixCache, c.NoOverlap = 8, 512, 4096, true, true
	return c
}

// requests are n requests, every so many microseconds.
func requests(n int, every int64, prompt, output int) workload.Source {
	rows := make([]workload.Request, n)
	for i := range rows {
		rows[i] = workload.Request{Index: int64(i), Arrival: int64(i) * every, Input: prompt, Output: output,
			Budget: output}
	}
	return workload.NewList(rows)
}

// TestMachineKeepsTheTargetOverAllModels: an answer of one model beside a storm of prompts for another meets its ITL
// target, and the prompts keep most of their speed.
func TestMachineKeepsTheTargetOverAllModels(t *testing.T) {
	const target = 100
	storm := func() Shared {
		return Shared{Config: sharedConfig(4000, 1300, 1500, target), Source: requests(40, 1, 1500, 1)}
	}
	alone, err := RunMachine([]Shared{storm()})
	if err != nil {
		t.Fatal(err)
	}
	both, err := RunMachine([]Shared{
		{Config: sharedConfig(4000, 1300, 1500, target), Source: requests(1, 1, 20, 3000)}, storm(),
	})
	if err != nil {
		t.Fatal(err)
	}
	chat, prompts := both[0], both[1]
	if p95 := chat.Metrics.ITL.PercentileMs(95); p95 > target {
		t.Errorf("ITL p95 %.1f ms, target %d ms", p95, target)
	}
	ratio := float64(alone[0].Metrics.Engines[0].Clock) / float64(prompts.Metrics.Engines[0].Clock)
	if ratio < 0.55 || ratio > 1 {
		t.Errorf("the prompts take %.2f of their speed alone", ratio)
	}
	if a, b := chat.Turns, prompts.Turns; a.Contended == 0 || b.Limited == 0 || a.WaitedUs == 0 ||
		alone[0].Turns.Contended != 0 || alone[0].Turns.Limited != 0 {
		t.Errorf("turns %+v, %+v; alone %+v", a, b, alone[0].Turns)
	}
	t.Logf("ITL p95 %.1f ms, prompt speed %.2f of alone", chat.Metrics.ITL.PercentileMs(95), ratio)
}

// TestMachineOfOneServer: a server that shares its device with none is simulated as before.
func TestMachineOfOneServer(t *testing.T) {
	for _, policy := range []string{"meridian", "uma", "stock"} {
		cfg := sharedConfig(4000, 1300, 1500, 50)
		cfg.Policy = policy
		want, err := Run(cfg, requests(30, 50_000, 200, 40))
		if err != nil {
			t.Fatal(err)
		}
		got, err := RunMachine([]Shared{{Config: cfg, Source: requests(30, 50_000, 200, 40)}})
		if err != nil {
			t.Fatal(err)
		}
		if a, b := got[0].Metrics.Numbers(&cfg), want.Metrics.Numbers(&cfg); !reflect.DeepEqual(a, b) ||
			!reflect.DeepEqual(got[0].Requests, want.Requests) {
			t.Errorf("%s:\n%v\n%v", policy, a, b)
		}
	}
}

// TestMachineOfRandomServers: all requests of all servers come to their end, one engine computes at a time, and the
// same input gives the same result.
func TestMachineOfRandomServers(t *testing.T) {
	seed := *machineSeed
	if seed == 0 {
		seed = 15
	}
	t.Logf("go test ./sim -run %s -machine-seed %d", t.Name(), seed)
	for round := range uint64(30) {
		servers := func() (out []Shared, want []int64) {
			r := rand.New(rand.NewPCG(seed, round))
			for range 2 + r.IntN(3) {
				cfg := sharedConfig(float64(500+r.IntN(8000)), float64(100+r.IntN(3000)), float64(100+r.IntN(3000)),
					float64(20+r.IntN(200)))
				cfg.Policy = []string{"meridian", "uma", "stock"}[r.IntN(3)]
				cfg.NoPrefixCache = r.IntN(2) == 0
				n := 1 + r.IntN(20)
				out = append(out, Shared{Config: cfg, Source: requests(n, int64(1+r.IntN(200_000)), 1+r.IntN(600),
					1+r.IntN(60))})
				want = append(want, int64(n))
			}
			return out, want
		}
		list, want := servers()
		reports, err := RunMachine(list)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		again, _ := servers()
		same, err := RunMachine(again)
		if err != nil {
			t.Fatal(err)
		}
		clock, held := int64(0), int64(0)
		for i, rep := range reports {
			if rep.Metrics.Completed != want[i] {
				t.Errorf("round %d, server %d: %d of %d requests completed", round, i, rep.Metrics.Completed, want[i])
			}
			if !reflect.DeepEqual(rep.Requests, same[i].Requests) || *rep.Turns != *same[i].Turns {
				t.Errorf("round %d, server %d: another run gives another result", round, i)
			}
			clock = max(clock, rep.Metrics.Engines[0].Clock)
			held += rep.Turns.HeldUs
		}
		// Turns do not overlap; the last of each server may reach past its clock.
		if held > clock+int64(len(reports))*2_000_000 {
			t.Errorf("round %d: the device was held for %d us of %d", round, held, clock)
		}
	}
}

func TestMachineRefusesOtherFormations(t *testing.T) {
	cfg := sharedConfig(1, 1, 1, 1)
	cfg.BatchFormation = "vllm"
	if _, err := RunMachine([]Shared{{Config: cfg, Source: requests(1, 1, 1, 1)}}); err == nil {
		t.Error("vllm was simulated")
	}
	if _, err := RunMachine(nil); err == nil {
		t.Error("no server was simulated")
	}
}
