package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	engine "github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// VirtualConfig has the length and the density of a mixture that is played on the core in virtual time.
type VirtualConfig struct {
	Length    time.Duration
	Sample    time.Duration // between two samples, a multiple of a second
	PerMinute float64       // events, on average
	Seed      uint64
	Log       io.Writer // nil = nothing is told
}

const (
	// stuckAfter is the time without progress after which a request is stuck.
	stuckAfter = 10 * time.Minute
	// faultLasts is the mean length of a fault.
	faultLasts = 2 * time.Minute
	// idleFor is the time without a request after which the other model is unloaded, loadTakes that of loading it.
	idleFor, loadTakes = 5 * time.Minute, 3 * time.Second
	// heapEvery is the time between two looks at the heap: each collects garbage.
	heapEvery = time.Hour
	// oneRowIn rows is compared with the row of its history alone.
	oneRowIn = 100
)

// errEnded ends the simulation early.
var errEnded = errors.New("ended")

// virtual is a run on two servers that share a machine.
type virtual struct {
	VirtualConfig
	ctx     context.Context
	rep     *Report
	faults  *Mixture
	fault   Event     // the next one
	heal    [3]int64  // when a tier is healthy again, µs; 0 = it is
	servers [2]server // the one that stays loaded, and the other
	begun   time.Time
	told    time.Duration
	also    func(*server, *sim.Engine, int64) // is called with each sample too, by tests; nil = not
}

// server is one of the two.
type server struct {
	*virtual
	name  string
	cfg   sim.Config
	e     *sim.Engine
	day   *day
	alone *fake.Engine // computes single histories
	rows  uint64
	busy  int64     // when it last had a request, µs
	used  bool      // since it was loaded
	ttft  []float64 // of chats since the last sample, ms
	itl   []float64
}

// Virtual plays the mixture in virtual time. When ctx ends it ends early, with the report until then.
func Virtual(ctx context.Context, cfg VirtualConfig) (*Result, error) {
	return newVirtual(ctx, cfg).run()
}

func newVirtual(ctx context.Context, cfg VirtualConfig) *virtual {
	v := &virtual{VirtualConfig: cfg, ctx: ctx, rep: NewReport("virtual", int(cfg.Length/cfg.Sample)+2),
		faults: NewMixture(cfg.Seed, cfg.PerMinute), begun: time.Now()}
	v.nextFault()
	for i := range v.servers {
		s := &v.servers[i]
		*s = server{virtual: v, name: [2]string{"steady", "other"}[i], cfg: v.config(i)}
		s.day = newDay(v, i == 1)
		s.alone = fake.New(s.engineConfig())
	}
	return v
}

func (v *virtual) run() (*Result, error) {
	var shared []sim.Shared
	for i := range v.servers {
		s := &v.servers[i]
		shared = append(shared, sim.Shared{Config: s.cfg, Source: s.day, Options: sim.Options{
			Row: s.row, Done: s.done, Watch: s.watch, WatchUs: v.Sample.Microseconds()}})
	}
	reports, err := machine(shared)
	if err != nil && !errors.Is(err, errEnded) {
		return nil, err
	}
	length := v.told
	if err == nil {
		length = v.drained(reports)
	}
	return v.rep.Finish(length), nil
}

// machine is sim.RunMachine; a watch may end it by panicking with errEnded.
func machine(shared []sim.Shared) (reports []*sim.Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			if p != error(errEnded) {
				panic(p)
			}
			err = errEnded
		}
	}()
	return sim.RunMachine(shared)
}

// config returns a daemon with a model of 135 M parameters on two cores, and room for 4,096 cells.
func (v *virtual) config(i int) sim.Config {
	c := sim.DefaultConfig()
	c.BatchFormation, c.Policy, c.Engine, c.LatencyModel = "uma", "meridian", "fake", "calibrated"
	c.CostModel = []float64{4300, 1300, 2400, 0.5}
	c.Seed, c.Collect, c.RecordITL = int64(v.Seed)+int64(i), sim.Aggregate, true
	c.MaxRunning, c.MaxQueue, c.MaxScheduledTokens = 8, 512, 512
	c.BlockTokens, c.KVBlocks = 16, 256
	c.KVCPUBlocks, c.KVDiskBlocks, c.KVFabric, c.KVPartTokens = 512, 2048, true, 32
	c.ThinkEvict = "offload"
	c.CostNoise = 0.02
	return c
}

func (s *server) engineConfig() fake.Config {
	f := fake.Config{Seed: uint64(s.cfg.Seed)}
	f.ContextTokens, f.Batch, f.Sequences = s.cfg.KVBlocks*s.cfg.BlockTokens, s.cfg.MaxScheduledTokens, 1
	return f
}

// row compares a row's logits with those that its history alone gives.
func (s *server) row(r *workload.Request, history []engine.Token, logits []float32) {
	if s.rows++; s.rows%oneRowIn != 0 {
		return
	}
	s.rep.Count("rows compared", 1)
	if !slices.Equal(logits, s.compute(history)) {
		s.rep.Wrong("%s of %s: the logits behind %d tokens are not those of its history alone", r.ID(), s.name,
			len(history))
	}
}

// compute returns the logits behind tokens.
func (s *server) compute(tokens []engine.Token) []float32 {
	s.alone.SeqRemove(0, 0, -1)
	for from := 0; ; {
		b := s.alone.Batch()
		b.Reset()
		to := min(len(tokens), from+s.cfg.MaxScheduledTokens)
		for i := from; i < to; i++ {
			b.Add(tokens[i], engine.Pos(i), 0, i == len(tokens)-1)
		}
		if err := s.alone.Decode(); err != nil {
			panic("soak: " + err.Error())
		}
		if from = to; from == len(tokens) {
			return s.alone.Logits(b.Len() - 1)
		}
	}
}

// done counts a request that has ended, and its latencies.
func (s *server) done(r sim.Result) {
	s.rep.Count("requests "+r.State, 1)
	if r.State == sim.Dropped.String() {
		s.rep.Broken("%s of %s was dropped, with %d tokens of prompt and %d of answer", r.ID, s.name, r.Input, r.Output)
	}
	if r.Spec.Client != Chat.String() || r.TTFTUs == nil {
		return
	}
	s.ttft = append(s.ttft, float64(*r.TTFTUs)/1000)
	for _, us := range r.ITLsUs {
		s.itl = append(s.itl, float64(us)/1000)
	}
}

// watch samples a server and plays the faults.
func (s *server) watch(e *sim.Engine, now int64) {
	s.e = e
	at := time.Duration(now) * time.Microsecond
	b, err := e.Books(now)
	if err != nil {
		s.rep.Broken("%s after %v: %v", s.name, at, err)
	}
	if still := time.Duration(b.StillUs) * time.Microsecond; still >= stuckAfter {
		s.rep.Stuck("%s of %s got no further for %v until %v", b.Oldest, s.name, still, at)
	}
	s.sample(at, &b)
	if s.also != nil {
		s.also(s, e, now)
	}
	if s.day.other {
		s.unload(now, &b)
		return
	}
	s.played(at, now)
	if s.told = at; s.ctx.Err() != nil {
		panic(error(errEnded))
	}
}

func (s *server) sample(at time.Duration, b *sim.Books) {
	of := " of " + s.name
	s.rep.Sample(at, "cells in use"+of, "", Shown, float64(b.Cells.Own+b.Cells.Shared))
	s.rep.Sample(at, "cells cached"+of, "", Shown, float64(b.Cells.Cached))
	s.rep.Sample(at, "host tier"+of, "tokens", Shown, float64(b.Host))
	s.rep.Sample(at, "disk tier"+of, "tokens", Shown, float64(b.Disk))
	s.rep.Sample(at, "parts"+of, "", Shown, float64(b.Parts))
	s.rep.Sample(at, "thoughts outside"+of, "", Shown, float64(b.Thoughts))
	s.rep.Sample(at, "queue"+of, "", Shown, float64(b.Waiting))
	if s.day.other {
		return
	}
	s.rep.Sample(at, "p99 of TTFT", "ms", Flat, percentile(s.ttft, 0.99))
	s.rep.Sample(at, "p99 of ITL", "ms", Flat, percentile(s.itl, 0.99))
	s.ttft, s.itl = s.ttft[:0], s.itl[:0]
	if at%heapEvery < s.Sample {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		s.rep.Sample(at, "live Go heap", "MiB", Bounded, float64(m.HeapAlloc)/(1<<20))
		s.rep.Sample(at, "goroutines", "", Bounded, float64(runtime.NumGoroutine()))
		if s.Log != nil && at%(24*time.Hour) < s.Sample {
			fmt.Fprintf(s.Log, "%v of %v after %v: %.1f MiB of live heap\n", at, s.Length,
				time.Since(s.begun).Round(time.Second), float64(m.HeapAlloc)/(1<<20))
		}
	}
}

// percentile returns the p-th part of xs in order, NaN of nothing.
func percentile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return middle(nil)
	}
	slices.Sort(xs)
	return xs[int(p*float64(len(xs)-1)+0.5)]
}

// unload ends the other model's process when it has been idle for idleFor.
func (s *server) unload(now int64, b *sim.Books) {
	if !b.Quiet {
		s.busy, s.used = now, true
		return
	}
	if s.used && now-s.busy >= idleFor.Microseconds() && s.e.Unload(now, loadTakes.Microseconds()) {
		s.used = false
		s.rep.Count("unloads of other", 1)
	}
}

// nextFault draws the next event that is a fault.
func (v *virtual) nextFault() {
	for v.fault = v.faults.Next(); v.fault.Kind < DiskFault; v.fault = v.faults.Next() {
	}
}

// The tiers by their places in sim.TierNames.
const disk, fabric = 1, 2

// played heals what has failed for long enough, and plays the faults until now.
func (v *virtual) played(at time.Duration, now int64) {
	each := func(do func(*sim.Engine)) {
		for i := range v.servers {
			if e := v.servers[i].e; e != nil {
				do(e)
			}
		}
	}
	fail := func(tier int, f sim.Fault) {
		each(func(e *sim.Engine) {
			if err := e.Fail(tier, f); err != nil {
				panic("soak: " + err.Error())
			}
		})
	}
	for tier, until := range v.heal {
		if until > 0 && until <= now {
			v.heal[tier] = 0
			fail(tier, sim.Healthy)
		}
	}
	for v.fault.At <= at && v.fault.At <= v.Length {
		rng := rand.New(rand.NewPCG(v.fault.Seed, 1))
		until := now + int64((0.5+rng.Float64())*float64(faultLasts.Microseconds()))
		how := sim.Failing
		if rng.IntN(2) == 0 {
			how = sim.Hanging
		}
		switch v.rep.Happened(v.fault.Kind); v.fault.Kind {
		case DiskFault:
			v.heal[disk] = until
			fail(disk, how)
		case FabricFault:
			if how == sim.Failing {
				each((*sim.Engine).EmptyFabric)
			}
			v.heal[fabric] = until
			fail(fabric, how)
		case ClockJump:
			each(func(e *sim.Engine) { e.Stop(until) })
		}
		v.nextFault()
	}
}

// drained reports the requests and cells that remain when every request has ended, and returns the virtual time of the
// end.
func (v *virtual) drained(reports []*sim.Report) (length time.Duration) {
	for i, rep := range reports {
		s := &v.servers[i]
		m := rep.Metrics
		end := m.Engines[0].Clock
		length = max(length, time.Duration(end)*time.Microsecond)
		v.rep.Count("steps", m.Engines[0].Steps)
		for tier, tokens := range m.Engines[0].Restored {
			v.rep.Count("tokens restored from "+sim.TierNames[tier], int(tokens))
		}
		v.rep.Count("preemptions", int(m.Preemptions))
		if n := m.StillQueued + m.StillRunning; n > 0 {
			v.rep.Leaked("%d requests of %s", n, s.name)
		}
		if s.e == nil {
			continue // it was over before the first sample
		}
		b, err := s.e.Books(end)
		if err != nil {
			v.rep.Broken("%s at the end: %v", s.name, err)
		}
		if b.Cells.Own+b.Cells.Shared+b.Cells.Pinned > 0 || b.Fetches > 0 || b.Thoughts > 0 || !b.Quiet {
			v.rep.Leaked("%s: %+v", s.name, b)
		}
	}
	return length
}
