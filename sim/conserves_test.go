package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestWorkConserving is INV-8 for every batcher: after each event, a step is planned wherever a request waits or runs,
// under cache pressure, timeouts, tiers, thoughts, background requests and clients that do not read; and all come to
// their end.
func TestWorkConserving(t *testing.T) {
	type batcher struct {
		name string
		cfg  sim.Config
	}
	var batchers []batcher
	for _, order := range blis.Schedulers {
		cfg := blis.DefaultConfig()
		cfg.Scheduler, cfg.Beta, cfg.KVBlocks, cfg.MaxRunning = order, []float64{1000, 10, 5}, 60, 8
		batchers = append(batchers, batcher{"vllm " + order, cfg.Server()})
	}
	for _, policy := range sched.Policies() {
		cfg := sim.SharedConfig(1000, 250, 500, 30)
		cfg.Policy, cfg.KVBlocks, cfg.NoPrefixCache = policy, 60, false
		batchers = append(batchers, batcher{"uma " + policy, cfg})
		cfg.KVCPUBlocks, cfg.KVFabric, cfg.ThinkEvict, cfg.EarlyExit, cfg.MaxBackground = 40, true, "offload", "both", 1
		cfg.KVPartTokens, cfg.ThinkBudget = 32, 60
		batchers = append(batchers, batcher{"uma " + policy + " with tiers", cfg})
	}
	for _, b := range batchers {
		for seed := range uint64(4) {
			if err := conserving(b.cfg, seed); err != nil {
				t.Errorf("%s, seed %d: %v", b.name, seed, err)
			}
		}
	}
}

// conserving runs 60 requests and checks the engine after each event.
func conserving(cfg sim.Config, seed uint64) error {
	rng := rand.New(rand.NewPCG(8, seed))
	model, err := cfg.Latency()
	if err != nil {
		return err
	}
	e, err := sim.NewEngine(cfg, model, &sim.Metrics{}, sim.Sink{})
	if err != nil {
		return err
	}
	at := int64(0)
	for i := range int64(60) {
		at += rng.Int64N(30_000)
		r := workload.Request{Index: i, Arrival: at, Input: 1 + rng.IntN(300), Output: 1 + rng.IntN(120),
			Prefix: string(rune('a' + i%3))}
		r.PrefixLen, r.Budget = r.Input/2, r.Output
		if rng.IntN(3) == 0 {
			r.Think = r.Output / 2
		}
		if rng.IntN(4) == 0 {
			r.Class = "background"
		}
		if rng.IntN(6) == 0 {
			r.Deadline = at + rng.Int64N(2_000_000)
		}
		if rng.IntN(6) == 0 {
			r.Stalls = []workload.Stall{{After: 1 + rng.IntN(r.Output), Us: 1 + rng.Int64N(3_000_000)}}
		}
		e.Arrive(&r)
	}
	for {
		now, ok := e.Next()
		if !ok {
			break
		}
		e.Advance()
		if err := sim.Conserves(e); err != nil {
			return fmt.Errorf("at %d us: %w", now, err)
		}
	}
	if waiting, running, active, ended := sim.Live(e); active != 0 || ended != 60 || waiting+running != 0 {
		return fmt.Errorf("%d of 60 requests have ended, %d wait, %d run", ended, waiting, running)
	}
	return nil
}

// TestIdleServerIsNoticed: the check of INV-8 sees a server that has forgotten its step.
func TestIdleServerIsNoticed(t *testing.T) {
	for _, formation := range blis.BatchFormations {
		cfg := blis.DefaultConfig()
		cfg.Config = sim.SharedConfig(1000, 250, 500, 30)
		cfg.BatchFormation = formation
		model, err := cfg.Latency()
		if err != nil {
			t.Fatal(err)
		}
		e, err := sim.NewEngine(cfg.Server(), model, &sim.Metrics{}, sim.Sink{})
		if err != nil {
			t.Fatal(err)
		}
		e.Arrive(&workload.Request{Input: 10, Output: 5, Budget: 5})
		e.Advance() // it arrives
		e.Advance() // it is queued
		waiting, _, _, _ := sim.Live(e)
		if err := sim.Conserves(e); err != nil || waiting != 1 {
			t.Fatalf("%s: %v, %d wait", formation, err, waiting)
		}
		sim.Forget(e, true)
		if sim.Conserves(e) == nil {
			t.Errorf("%s: the step is gone from the heap and nothing is noticed", formation)
		}
		sim.Forget(e, false)
		if sim.Conserves(e) == nil {
			t.Errorf("%s: a request waits, no step is due and nothing is noticed", formation)
		}
	}
}
