package sched

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/sched/guess"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// guesser drives a scheduler on a machine of which a step costs cost milliseconds. Guesses of each request come true
// with chance; offer tokens of a grade are offered after each token.
type guesser struct {
	t      testing.TB
	s      *Scheduler
	rng    *rand.Rand
	now    Instant
	events Events
	cost   func(rows int, attended float64) float64
	chance func(id ReqID) float64
	offer  int
	think  func(id ReqID) bool

	offered map[ReqID]int
	tokens  int
	steps   int
	guessed int
	busy    time.Duration
	longest time.Duration
	reasons map[Reason]int
}

func newGuesser(t testing.TB, cfg Config, n int) *guesser {
	cfg.Policy, cfg.MaxRunning, cfg.Cells, cfg.MaxBatch, cfg.MaxQueue = "meridian", 16, 1<<24, 512, 16
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g := &guesser{t: t, s: s, rng: rand.New(rand.NewPCG(1, 2)), offered: map[ReqID]int{}, offer: 16,
		cost:   func(rows int, attended float64) float64 { return 8 + 0.6*float64(rows) + 1e-4*attended },
		chance: func(ReqID) float64 { return 0.95 }, think: func(ReqID) bool { return false },
		reasons: map[Reason]int{}}
	for id := range n {
		g.events.Arrive(EvArrive{Req: ReqID(id + 1),
			Spec: &Spec{Prompt: 4, MaxTokens: 1 << 20}, Guesses: true})
	}
	return g
}

// run makes n steps from zero counts.
func (g *guesser) run(n int) {
	g.tokens, g.steps, g.guessed, g.busy, g.longest = 0, 0, 0, 0, 0
	clear(g.reasons)
	for range n {
		g.step()
	}
}

func (g *guesser) step() {
	plan := g.s.Step(g.now, &g.events)
	attended := 0.0
	for i := range plan.Batch {
		attended += Attended(plan.Batch[i].Start, plan.Batch[i].N)
	}
	took := time.Duration(g.cost(plan.Tokens, attended) * (0.98 + 0.04*g.rng.Float64()) * 1e6)
	g.now = g.now.Add(took + 100*time.Microsecond)
	g.busy += took + 100*time.Microsecond
	g.longest = max(g.longest, took)
	g.steps++
	g.guessed += plan.GuessedTokens
	g.events.Reset()
	g.events.Step(EvStep{Took: took})
	for i := range plan.Batch {
		sl := &plan.Batch[i]
		if sl.Row < 0 {
			continue
		}
		e := EvToken{Req: sl.Req, Thinking: g.think(sl.Req), Offer: g.offer, Grade: 3}
		for p := g.chance(sl.Req); e.Right < g.offered[sl.Req] && e.Right <= sl.Guessed && g.rng.Float64() < p; {
			e.Right++
		}
		e.Wrong = e.Right < g.offered[sl.Req] && e.Right <= sl.Guessed
		e.Accepted = min(e.Right, sl.Guessed)
		if g.s.cfg.Rereads && e.Accepted < sl.Guessed {
			e.Again = sl.N - sl.Guessed + e.Accepted
		}
		g.tokens += 1 + e.Accepted
		g.offered[sl.Req] = e.Offer
		g.events.Token(e)
		if x, ok := g.s.Guessing(sl.Req); ok {
			g.reasons[x.Why]++
		}
	}
}

// rate is tokens a second.
func (g *guesser) rate() float64 { return float64(g.tokens) / g.busy.Seconds() }

func TestGoodGuessesAreComputed(t *testing.T) {
	g := newGuesser(t, Config{}, 1)
	g.run(100)
	g.run(400)
	if plain := 1000 / 8.7; g.rate() < 3*plain {
		t.Errorf("%.0f tokens/s; without guesses it is %.0f", g.rate(), plain)
	}
	if g.longest > DefaultITLTarget {
		t.Errorf("a step took %v", g.longest)
	}
}

func TestWrongGuessesCostNothing(t *testing.T) {
	for _, n := range []int{1, 4, 16} {
		g := newGuesser(t, Config{}, n)
		g.chance = func(ReqID) float64 { return 0.05 }
		g.run(200)
		g.run(2000)
		plain := newGuesser(t, Config{}, n)
		plain.offer = 0
		plain.run(200)
		plain.run(2000)
		if r := g.rate() / plain.rate(); r < 0.995 || g.guessed > g.steps*n/20 {
			t.Errorf("%d streams: %.4f of the tokens/s without guesses; %d were computed in %d steps", n, r, g.guessed,
				g.steps)
		}
		if g.reasons[reason.DraftUnlikely] < g.steps*9/10 {
			t.Errorf("%d streams: the reasons are %v", n, g.reasons)
		}
	}
}

// TestGuessesWithStates: a wrong guess makes its slice be computed again. Guesses that come true rarely are not made,
// those that come true mostly pay, and beside another request there are none.
func TestGuessesWithStates(t *testing.T) {
	for _, chance := range []float64{0, 0.05, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1} {
		g := newGuesser(t, Config{Rereads: true}, 1)
		g.chance = func(ReqID) float64 { return chance }
		g.run(200)
		g.run(2000)
		plain := newGuesser(t, Config{Rereads: true}, 1)
		plain.offer = 0
		plain.run(200)
		plain.run(2000)
		least := 0.99
		switch {
		case chance >= 0.95:
			least = 2.5
		case chance >= 0.8:
			least = 1.4
		case chance >= 0.6:
			least = 1.1
		}
		r := g.rate() / plain.rate()
		t.Logf("chance %.2f: %.3f of the tokens/s without guesses", chance, r)
		if r < least {
			t.Errorf("chance %.2f: %.3f of the tokens/s without guesses, want %.2f", chance, r, least)
		}
	}
	g := newGuesser(t, Config{Rereads: true}, 2)
	g.run(200)
	if g.guessed > 0 || g.reasons[reason.DraftState] < 300 {
		t.Errorf("two streams: %d guesses, the reasons are %v", g.guessed, g.reasons)
	}
}

// TestGuessesBeginToComeTrue: a request that begins to repeat itself is noticed although none of its guesses is
// computed.
func TestGuessesBeginToComeTrue(t *testing.T) {
	g := newGuesser(t, Config{}, 1)
	g.chance = func(ReqID) float64 { return 0.02 }
	g.run(500)
	g.chance = func(ReqID) float64 { return 1 }
	g.run(30)
	if g.guessed < 100 {
		t.Errorf("%d guesses were computed in the 30 steps after they began to come true", g.guessed)
	}
	g.chance = func(ReqID) float64 { return 0.02 }
	g.run(30)
	g.run(100)
	if g.guessed > 30 {
		t.Errorf("%d guesses were computed in 100 steps after they ceased to come true", g.guessed)
	}
}

// TestRowsThatCostAStepEach: guesses do not pay where a row costs what a step does, but for a trial now and then. When
// rows become cheap, a trial shows it.
func TestRowsThatCostAStepEach(t *testing.T) {
	const trialEvery, trialRows = 256, 3 // of package guess
	g := newGuesser(t, Config{}, 1)
	g.cost = func(rows int, _ float64) float64 { return 0.5 + 9.5*float64(rows) }
	g.chance = func(ReqID) float64 { return 0.9 }
	g.run(300)
	g.run(3 * trialEvery)
	if g.guessed == 0 || g.guessed > 4*trialRows {
		t.Errorf("%d guesses were computed in %d steps", g.guessed, g.steps)
	}
	if g.reasons[reason.DraftTrial] == 0 || g.reasons[reason.DraftUnlikely] < g.steps*9/10 {
		t.Errorf("the reasons are %v", g.reasons)
	}
	g.cost = func(rows int, _ float64) float64 { return 8 + 2*float64(rows) }
	g.run(6 * trialEvery)
	g.run(100)
	if g.guessed < 200 {
		t.Errorf("%d guesses were computed in 100 steps after rows had become cheap", g.guessed)
	}
}

func TestPromptsTakeTheTimeOfGuesses(t *testing.T) {
	g := newGuesser(t, Config{}, 2)
	g.run(100)
	g.events.Arrive(EvArrive{Req: 9, Spec: &Spec{Prompt: 20_000, MaxTokens: 5}})
	g.run(50)
	if g.guessed > 0 || g.reasons[reason.DraftPrompts] < 50 {
		t.Errorf("%d guesses were computed beside a prompt; the reasons are %v", g.guessed, g.reasons)
	}
}

func TestGuessesKeepTheTarget(t *testing.T) {
	g := newGuesser(t, Config{ITLTarget: 20 * time.Millisecond}, 2)
	g.cost = func(rows int, _ float64) float64 { return 10 + 1.5*float64(rows) }
	g.run(200)
	late := 0
	for range 400 {
		g.run(1)
		if g.longest > 20*time.Millisecond {
			late++
		}
	}
	if late > 20 {
		t.Errorf("%d of 400 steps took longer than the target", late)
	}
	g.run(100)
	if g.guessed < 100 {
		t.Errorf("%d guesses were computed in 100 steps: the target leaves time for two a step", g.guessed)
	}
	// A target that the tokens alone miss: guesses are all that helps.
	g = newGuesser(t, Config{ITLTarget: 5 * time.Millisecond}, 1)
	g.run(100)
	g.run(100)
	if g.guessed < 300 {
		t.Errorf("%d guesses were computed in 100 steps whose target cannot be met", g.guessed)
	}
}

// TestPhasesAreLearnedApart: guesses that come true while a request thinks say nothing about its answer.
func TestPhasesAreLearnedApart(t *testing.T) {
	g := newGuesser(t, Config{}, 2)
	g.think = func(id ReqID) bool { return id == 1 }
	g.chance = func(id ReqID) float64 {
		if id == 1 {
			return 0.97
		}
		return 0.03
	}
	g.run(300)
	for i, want := range map[ReqID][2]float64{1: {0.85, 1}, 2: {0, 0.15}} {
		if x, ok := g.s.Guessing(i); !ok || x.Chance < want[0] || x.Chance > want[1] {
			t.Errorf("request %d: a chance of %.2f", i, x.Chance)
		}
	}
	var fresh guess.Request
	think, answer := g.s.guesses.Chance(&fresh, true, 3), g.s.guesses.Chance(&fresh, false, 3)
	if think < 0.85 || answer > 0.15 {
		t.Errorf("a new request: a chance of %.2f thinking, %.2f answering", think, answer)
	}
}

func TestBackgroundGuessesAreWorthLess(t *testing.T) {
	g := newGuesser(t, Config{}, 2)
	g.events.Arrivals[1].Class = Background
	g.cost = func(rows int, _ float64) float64 { return 10 + 3*float64(rows) }
	g.chance = func(ReqID) float64 { return 0.8 }
	front, back := 0, 0
	for range 400 {
		plan := g.s.plan
		g.step()
		for i := range plan.Batch {
			if sl := &plan.Batch[i]; sl.Req == 1 {
				front += sl.Guessed
			} else {
				back += sl.Guessed
			}
		}
	}
	if front < 2*back {
		t.Errorf("%d guesses of the interactive request, %d of the background one", front, back)
	}
}

func TestWrongGuessEvents(t *testing.T) {
	for name, e := range map[string]EvToken{
		"more accepted than computed": {Accepted: 17, Right: 17},
		"more accepted than right":    {Accepted: 1},
		"more right than offered":     {Right: 17},
		"wrong behind the last":       {Right: 16, Wrong: true},
		"too many":                    {Offer: guess.MaxRows + 1},
		"grade":                       {Offer: 1, Grade: guess.NumGrades},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuesser(t, Config{}, 1)
			g.run(20)
			e.Req = 1
			g.events.Tokens[0] = e
			defer func() {
				if recover() == nil {
					t.Error("the event was taken")
				}
			}()
			g.s.Step(g.now, &g.events)
		})
	}
}

func TestGuessesAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the invariants' check allocates")
	}
	g := newGuesser(t, Config{}, 16)
	g.run(200)
	if got := testing.AllocsPerRun(200, g.step); got != 0 {
		t.Errorf("%v allocations a step", got)
	}
}

func BenchmarkGuesses(b *testing.B) {
	g := newGuesser(b, Config{}, 16)
	g.run(200)
	b.ReportAllocs()
	for b.Loop() {
		g.step()
	}
}
