package arbiter

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 = a fixed one")

const ms = time.Millisecond

func at(d time.Duration) Instant { return Instant(time.Hour + d) }

func TestNext(t *testing.T) {
	answer := func(due time.Duration) Claim {
		return Claim{Waits: true, Since: at(0), Due: at(due), Target: 100 * ms, Step: 6 * ms, Least: 6 * ms}
	}
	prompt := func(since, least time.Duration) Claim {
		return Claim{Waits: true, Since: at(since), Due: Never, Least: least}
	}
	background := func(c Claim) Claim { c.Background = true; return c }
	idle := Claim{Due: Never}
	for _, c := range []struct {
		name   string
		claims []Claim
		want   int
	}{
		{"none waits", []Claim{idle, {Due: at(1)}}, -1},
		{"one waits", []Claim{idle, prompt(0, ms)}, 1},
		{"the answer that is due first", []Claim{answer(80 * ms), answer(60 * ms)}, 1},
		{"equal ones in their order", []Claim{answer(80 * ms), answer(80 * ms)}, 0},
		{"an answer with time to spare waits for an old prompt", []Claim{answer(80 * ms), prompt(-40*ms, ms)}, 1},
		{"a new prompt waits for an answer", []Claim{answer(40 * ms), prompt(0, ms)}, 0},
		{"a prompt whose shortest step makes the answer late waits", []Claim{answer(80 * ms), prompt(-40*ms, 75*ms)},
			0},
		{"but not for ever", []Claim{answer(80 * ms), prompt(-Patience-MaxPassedOver-ms, 75*ms)}, 1},
		{"background prompts are due later", []Claim{answer(80 * ms), background(prompt(-40*ms, ms))}, 0},
		{"so are background answers", []Claim{background(answer(10 * ms)), answer(60 * ms)}, 1},
		{"a background answer holds up no interactive prompt",
			[]Claim{background(answer(20 * ms)), prompt(-40*ms, 75*ms)}, 1},
		{"prompts in turn", []Claim{prompt(-10*ms, ms), prompt(-20*ms, ms)}, 1},
	} {
		if got := Next(at(0), c.claims); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestLimit(t *testing.T) {
	answer := func(due, step, target time.Duration) Claim {
		return Claim{Due: at(due), Step: step, Target: target, Least: step}
	}
	for _, c := range []struct {
		name   string
		others []Claim
		limit  time.Duration
		ok     bool
	}{
		{"alone", nil, 0, false},
		{"beside an idle engine", []Claim{{Due: Never}}, 0, false},
		{"beside a prompt that waits", []Claim{{Waits: true, Due: Never}}, Turn, true},
		{"a fresh answer: a share of its target", []Claim{answer(100*ms, 6*ms, 100*ms)}, 64 * ms, true},
		{"an answer that has waited", []Claim{answer(40*ms, 6*ms, 100*ms)}, 34 * ms, true},
		{"an answer that is late", []Claim{answer(-10*ms, 6*ms, 100*ms)}, -16 * ms, true},
		{"two answers, one after the other", []Claim{answer(40*ms, 6*ms, 100*ms), answer(42*ms, 10*ms, 100*ms)},
			26 * ms, true},
		{"short answers of a slow model", []Claim{answer(100*ms, 20*ms, 100*ms)}, 80 * ms, true},
		{"answers that alone miss their target", []Claim{answer(100*ms, 95*ms, 100*ms)}, 47500 * time.Microsecond,
			true},
		{"an engine that never comes to its step", []Claim{answer(-Forgotten-ms, 6*ms, 100*ms)}, 0, false},
	} {
		claims := append([]Claim{{Computes: true, Due: Never}}, c.others...)
		limit, ok := Limit(at(0), 0, claims)
		if limit != c.limit || ok != c.ok {
			t.Errorf("%s: %v %v, want %v %v", c.name, limit, ok, c.limit, c.ok)
		}
	}
}

// TestGarbage: no claim, whatever its values, overflows or leaves the range of indices.
func TestGarbage(t *testing.T) {
	r := source(t)
	edge := []int64{0, 1, -1, 1 << 62, -1 << 62, 1<<63 - 1, -1 << 63}
	number := func() int64 {
		if r.IntN(2) == 0 {
			return edge[r.IntN(len(edge))]
		}
		return int64(r.Uint64())
	}
	for range 20000 {
		claims := make([]Claim, r.IntN(5))
		for i := range claims {
			claims[i] = Claim{Waits: r.IntN(2) == 0, Computes: r.IntN(4) == 0, Since: Instant(number()),
				Due: Instant(number()), Target: time.Duration(number()), Step: time.Duration(number()),
				Least: time.Duration(number()), Background: r.IntN(2) == 0}
		}
		now := Instant(number())
		i := Next(now, claims)
		waits := false
		for _, c := range claims {
			waits = waits || c.Waits
		}
		if i >= len(claims) || i >= 0 != waits || waits && !claims[i].Waits {
			t.Fatalf("Next(%d, %+v) = %d", now, claims, i)
		}
		if limit, _ := Limit(now, r.IntN(5), claims); limit < -10*maxSpan || limit > 40*maxSpan {
			t.Fatalf("Limit(%d, %+v) = %v", now, claims, limit)
		}
	}
}

// engine is one of the random engines of TestEngines.
type engine struct {
	Claim
	chats    bool
	work     time.Duration // of prompts that it can compute in a step; 0 = none
	lastEmit Instant
	worst    time.Duration // the longest gap between two tokens
	longest  time.Duration // the longest wait for the lease
	computed time.Duration
	steps    int
}

// TestEngines lets random engines share a device for a while and checks what the package promises: no engine starves,
// and answers meet a target that can be met.
func TestEngines(t *testing.T) {
	r := source(t)
	for range 200 {
		engines := make([]engine, 2+r.IntN(3))
		answers, least := time.Duration(0), time.Duration(0)
		target := time.Duration(50+r.IntN(150)) * ms
		for i := range engines {
			e := &engines[i]
			*e = engine{Claim: Claim{Waits: true, Since: at(0), Due: Never, Background: r.IntN(4) == 0}}
			e.chats = r.IntN(2) == 0
			if !e.chats || r.IntN(3) == 0 {
				e.work = time.Duration(1+r.IntN(8)) * ms // its smallest chunk
			}
			if e.chats {
				e.Step, e.Target, e.lastEmit = time.Duration(1+r.IntN(12))*ms, target, at(0)
				e.Due = later(at(0), target)
				answers += e.Step
			}
			e.Least = e.Step
			if !e.chats {
				e.Least = e.work
			}
			least = max(least, e.work)
		}
		now := at(0)
		for range 2000 {
			claims := make([]Claim, len(engines))
			for i := range engines {
				claims[i] = engines[i].Claim
			}
			i := Next(now, claims)
			e := &engines[i]
			e.longest = max(e.longest, time.Duration(now-e.Since))
			e.Waits, e.Computes, claims[i].Waits, claims[i].Computes = false, true, false, true
			took := e.Step
			if e.work > 0 {
				limit, ok := Limit(now, i, claims)
				if !ok {
					limit = 400 * ms
				}
				if e.chats {
					limit = min(limit, e.Target*7/10, time.Duration(e.Due-now)) // as the scheduler does
				}
				took = max(took+min(e.work, max(0, limit-took)), e.Step)
				if !e.chats || limit > took {
					took = max(took, limit, e.Least)
				}
			}
			now = later(now, took)
			e.computed += took
			e.steps++
			if e.chats {
				e.worst = max(e.worst, time.Duration(now-e.lastEmit))
				e.lastEmit, e.Due = now, later(now, target)
			}
			e.Computes, e.Waits, e.Since = false, true, now
		}
		for i := range engines {
			e := &engines[i]
			// Each other engine goes at most twice within the time in which this one becomes due.
			bound := BackgroundFactor*max(target, Patience) + MaxPassedOver + time.Duration(len(engines))*400*ms
			if e.longest > bound || e.steps == 0 {
				t.Errorf("engine %d of %+v waited %v, bound %v", i, engines, e.longest, bound)
			}
			feasible := 2*(answers+time.Duration(len(engines))*least) < target/3
			if e.chats && feasible && !e.Background && e.worst > target+least {
				t.Errorf("engine %d of %+v: a gap of %v, target %v", i, engines, e.worst, target)
			}
		}
	}
}

func source(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = 15
	}
	t.Logf("go test -run %s -seed %d", t.Name(), s)
	return rand.New(rand.NewPCG(s, 1))
}

func TestNextAndLimitDoNotAllocate(t *testing.T) {
	claims := []Claim{{Waits: true, Due: at(0)}, {Waits: true, Due: Never}, {Computes: true, Due: Never}}
	if n := testing.AllocsPerRun(100, func() { Next(at(0), claims); Limit(at(0), 2, claims) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
