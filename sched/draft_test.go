package sched

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/guess"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// drafter drives a scheduler with a draft model, of which a Decode costs draft milliseconds. Its guesses come true with
// chance; nothing else is guessed.
type drafter struct {
	*guesser
	draft func(l cost.Load) float64
	lag   map[ReqID]int
	last  map[ReqID]int // history at the newest Feed with guesses, plus the guesses that it computed

	fed      int
	drafting time.Duration
	forgets  bool // the draft model loses a history when it has caught up
	// With Config.DraftStates: the history's tokens that the head can compute, in steps since the newest one without
	// states; and steps with states, graphs that are built, and what each one takes.
	known          map[ReqID]int
	states, graphs int
	build          time.Duration
	shape          [2]int              // rows of the newest step, and whether it kept states
	place          func(k int) float64 // times chance, that of guess k
}

func newDrafter(t testing.TB, cfg Config, n, prompt int) *drafter {
	cfg.DraftBatch = 512
	d := &drafter{guesser: newGuesser(t, cfg, n), lag: map[ReqID]int{}, last: map[ReqID]int{}, known: map[ReqID]int{},
		place: func(int) float64 { return 1 },
		draft: func(l cost.Load) float64 { return (1+l.More)*0.8 + 0.03*l.Prefill + 0.1*l.Decode }}
	for i := range d.events.Arrivals {
		d.events.Arrivals[i].Prompt = prompt
	}
	return d
}

func (d *drafter) run(n int) {
	d.guesser.run(0)
	d.fed, d.drafting, d.states, d.graphs = 0, 0, 0, 0
	for range n {
		d.step()
	}
}

func (d *drafter) step() {
	plan := d.s.Step(d.now, &d.events)
	at, drafting := 0.0, time.Duration(0)
	noise := 0.98 + 0.04*d.rng.Float64()
	for i := range plan.Batch {
		at += Attended(plan.Batch[i].Start, plan.Batch[i].N)
	}
	if l := d.s.guesses.Draft.Load; !l.None() {
		drafting = time.Duration(d.draft(l) * noise * 1e6)
	}
	took := time.Duration(d.cost(plan.Tokens, at) * noise * 1e6)
	shape := [2]int{plan.Tokens}
	if plan.States {
		shape[1] = 1
		d.states++
	}
	if shape != d.shape {
		d.shape = shape
		d.graphs++
		took += d.build
	}
	d.now = d.now.Add(drafting + took + 100*time.Microsecond)
	d.busy += drafting + took + 100*time.Microsecond
	d.drafting += drafting
	d.longest = max(d.longest, drafting+took)
	d.steps++
	d.guessed += plan.GuessedTokens
	d.events.Reset()
	d.events.Step(EvStep{Took: took, Drafting: drafting})
	for i := range plan.Batch {
		sl := &plan.Batch[i]
		if sl.Row < 0 {
			continue
		}
		history := sl.Start + sl.N - sl.Guessed
		d.fed += sl.Feed
		has := d.last[sl.Req]
		if sl.Feed > 0 {
			has += sl.Feed
		}
		if d.forgets && has == history {
			has = 0
		}
		e := EvToken{Req: sl.Req, Thinking: d.think(sl.Req), Draft: 16}
		if n := d.s.cfg.DraftBlock; n > 0 {
			e.Draft = n
		}
		if d.s.cfg.DraftStates {
			if d.known[sl.Req] += sl.N - sl.Guessed; !plan.States {
				d.known[sl.Req], has = 0, 0
			} else if sl.Kind == SlicePrefill {
				d.known[sl.Req] = min(128, sl.N)
			}
			has = max(has, history-min(d.known[sl.Req], 128)) // it begins there
		}
		if sl.Guessed > 0 {
			if !sl.Drafted || has != history {
				d.t.Fatalf("%+v: the draft model has %d tokens of %d", *sl, has, history)
			}
			for p := d.chance(sl.Req); e.DraftRight < sl.Guessed && d.rng.Float64() < p*d.place(e.DraftRight); {
				e.DraftRight++
			}
			e.DraftWrong, e.Accepted = e.DraftRight < sl.Guessed, e.DraftRight
			if !d.s.cfg.DraftStates {
				has += min(e.DraftRight, sl.Guessed-1)
			}
		}
		d.last[sl.Req] = has
		e.Lag = history + e.Accepted + 1 - has
		if d.s.cfg.DraftStates && !plan.States {
			e.Draft, e.Lag, d.last[sl.Req] = 0, 0, 0
		}
		d.tokens += 1 + e.Accepted
		d.events.Token(e)
		if x, ok := d.s.Guessing(sl.Req); ok {
			d.reasons[x.Why]++
		}
	}
}

func TestGoodDraftModelGuesses(t *testing.T) {
	d := newDrafter(t, Config{}, 1, 400)
	d.run(150)
	d.run(400)
	if plain := 1000 / 8.7; d.rate() < 2*plain {
		t.Errorf("%.0f tokens/s; without guesses it is %.0f; the reasons are %v", d.rate(), plain, d.reasons)
	}
	if d.longest > DefaultITLTarget {
		t.Errorf("a step took %v", d.longest)
	}
	if d.reasons[reason.DraftModel] < 350 {
		t.Errorf("the reasons are %v", d.reasons)
	}
}

// TestUselessDraftModel: one whose guesses never come true is left out after a few dozen steps, and costs 1 % of the
// time from then on, whatever the number of streams.
func TestUselessDraftModel(t *testing.T) {
	for _, n := range []int{1, 4, 16} {
		d := newDrafter(t, Config{}, n, 400)
		d.chance = func(ReqID) float64 { return 0.01 }
		d.run(120)
		d.run(3000)
		if share := d.drafting.Seconds() / d.busy.Seconds(); share > 0.015 {
			t.Errorf("%d streams: the draft model takes %.3f of the time, for %d guesses in %d steps", n, share,
				d.guessed, d.steps)
		}
		if n == 1 && d.guessed > d.steps/10 {
			t.Errorf("%d streams: %d guesses in %d steps", n, d.guessed, d.steps)
		}
		if d.reasons[reason.DraftUnlikely] < d.steps*n*9/10 {
			t.Errorf("%d streams: the reasons are %v", n, d.reasons)
		}
	}
}

// TestDraftModelBecomesUseful: trials notice that guesses have begun to come true, in a request of which the draft
// model knows nothing.
func TestDraftModelBecomesUseful(t *testing.T) {
	d := newDrafter(t, Config{}, 1, 200)
	d.chance = func(ReqID) float64 { return 0.01 }
	d.run(2000)
	d.chance = func(ReqID) float64 { return 0.97 }
	d.run(3000)
	d.run(100)
	if d.guessed < 300 {
		t.Errorf("%d guesses in 100 steps; the reasons are %v", d.guessed, d.reasons)
	}
}

// TestDearDraftModel: one that is as slow as the model itself is left out, however good it is.
func TestDearDraftModel(t *testing.T) {
	d := newDrafter(t, Config{DraftCost: 1}, 1, 100)
	d.chance = func(ReqID) float64 { return 1 }
	d.draft = func(l cost.Load) float64 { return d.cost(int(l.Prefill+l.Decode), 0) + 8*l.More }
	d.run(300)
	d.run(2000)
	if share := d.drafting.Seconds() / d.busy.Seconds(); share > 0.02 {
		t.Errorf("the draft model takes %.3f of the time, for %d guesses", share, d.guessed)
	}
}

// TestCatchingUpIsPaidFor: what a long prompt costs the draft model is spent after so many tokens as it would have
// saved, and in chunks that keep the target.
func TestCatchingUpIsPaidFor(t *testing.T) {
	d := newDrafter(t, Config{ITLTarget: 40 * time.Millisecond, DraftCost: 0.1}, 1, 4000)
	d.run(60) // the prompt
	for d.fed == 0 && d.tokens < 500 {
		d.step()
	}
	// It takes 400 ms, and saves some 6 ms a token.
	if d.tokens < 30 || d.tokens > 300 {
		t.Errorf("it begins to catch up after %d tokens", d.tokens)
	}
	d.run(300)
	if d.longest > 44*time.Millisecond {
		t.Errorf("a step took %v", d.longest)
	}
	d.run(100)
	if d.guessed < 200 || d.reasons[reason.DraftModel] < 90 {
		t.Errorf("%d guesses in 100 steps; the reasons are %v", d.guessed, d.reasons)
	}
}

// TestDraftRoundsAreShared: a Decode of the draft model that is dear alone pays for several streams.
func TestDraftRoundsAreShared(t *testing.T) {
	d := newDrafter(t, Config{}, 6, 50)
	d.cost = func(rows int, _ float64) float64 { return 20 + 0.3*float64(rows) }
	d.draft = func(l cost.Load) float64 { return (1+l.More)*5 + 0.05*(l.Prefill+l.Decode) }
	d.chance = func(ReqID) float64 { return 0.8 }
	d.run(400)
	d.run(200)
	if d.guessed < 6*100 {
		x, _ := d.s.Guessing(1)
		t.Errorf("%d guesses in 200 steps of 6 streams; the reasons are %v, a chance is %.2f; the draft model: %+v",
			d.guessed, d.reasons, x.Chance, d.s.guesses.Draft.Cost.Cost())
	}
}

func TestPromptsTakeTheTimeOfTheDraftModel(t *testing.T) {
	d := newDrafter(t, Config{}, 2, 50)
	d.run(200)
	d.events.Arrive(EvArrive{Req: 9, Spec: &Spec{Prompt: 20_000, MaxTokens: 5}})
	d.run(50)
	if d.guessed > 0 || d.fed > 0 || d.reasons[reason.DraftPrompts] < 50 {
		t.Errorf("%d guesses, %d tokens computed by the draft model beside a prompt; the reasons are %v", d.guessed,
			d.fed, d.reasons)
	}
}

// TestTextsGoBeforeTheDraftModel: guesses of the text that come true are taken, as they cost less.
func TestTextsGoBeforeTheDraftModel(t *testing.T) {
	d := newDrafter(t, Config{}, 1, 50)
	d.run(200)
	g := d.guesser
	clear(g.reasons)
	for range 200 { // now text is offered too, as good
		plan := d.s.Step(d.now, &d.events)
		sl := &plan.Batch[0]
		took := time.Duration(d.cost(plan.Tokens, 0) * 1e6)
		drafting := time.Duration(0)
		if l := d.s.guesses.Draft.Load; !l.None() {
			drafting = time.Duration(d.draft(l) * 1e6)
			d.drafting += drafting
		}
		d.now = d.now.Add(took + drafting + 100*time.Microsecond)
		e := EvToken{Req: 1, Accepted: sl.Guessed, Offer: 16, Grade: 3, Draft: 16,
			Lag: min(d.events.Tokens[0].Lag+1+sl.Guessed, 1000)}
		if e.Right = min(d.events.Tokens[0].Offer, sl.Guessed+1); sl.Drafted {
			e.DraftRight, e.Lag = sl.Guessed, 2
		}
		d.events.Reset()
		d.events.Step(EvStep{Took: took, Drafting: drafting})
		d.events.Token(e)
		if g.steps++; sl.Drafted {
			g.reasons[reason.DraftModel]++
		} else if sl.Guessed > 0 {
			g.reasons[reason.Draft]++
		}
	}
	if g.reasons[reason.Draft] < 150 {
		t.Errorf("of 200 steps %d have guesses of the text, %d of the draft model", g.reasons[reason.Draft],
			g.reasons[reason.DraftModel])
	}
}

// TestCatchingUpInVainBecomesRare: where the draft model loses each history before it has guessed once, it does not
// catch up again and again.
func TestCatchingUpInVainBecomesRare(t *testing.T) {
	d := newDrafter(t, Config{}, 1, 300)
	d.forgets = true
	d.run(100)
	before := d.fed
	d.run(4000)
	t.Logf("%d tokens computed in 100 steps and %d in 4,000", before, d.fed)
	if d.guessed > 0 || before+d.fed == 0 || d.fed > 8*4500 {
		t.Errorf("%d guesses, %d tokens computed in 100 steps and %d in 4,000", d.guessed, before, d.fed)
	}
}

// TestDraftPhasesAreLearnedApart: the draft model is good at the thoughts of one request and bad at another's answer.
func TestDraftPhasesAreLearnedApart(t *testing.T) {
	d := newDrafter(t, Config{}, 2, 50)
	d.think = func(id ReqID) bool { return id == 1 }
	d.chance = func(id ReqID) float64 {
		if id == 1 {
			return 0.95
		}
		return 0.02
	}
	d.run(400)
	for i, want := range map[ReqID][2]float64{1: {0.85, 1}, 2: {0, 0.35}} {
		const times = 20
		mean := 0.0 // a single value is that of some ownMemory comparisons
		for range times {
			d.run(10)
			x, ok := d.s.Guessing(i)
			if !ok {
				t.Fatalf("request %d: nothing is known", i)
			}
			mean += x.Chance / times
		}
		if mean < want[0] || mean > want[1] {
			t.Errorf("request %d: a chance of %.2f", i, mean)
		}
	}
}

func TestWrongDraftEvents(t *testing.T) {
	for name, e := range map[string]EvToken{
		"too many":                      {Draft: guess.MaxRows + 1, Lag: 1},
		"negative":                      {Draft: -1},
		"without lag":                   {Draft: 1},
		"right ones that were not made": {DraftRight: 17},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrafter(t, Config{}, 1, 10)
			d.run(5)
			e.Req = 1
			d.events.Tokens[0] = e
			defer func() {
				if recover() == nil {
					t.Error("the event was taken")
				}
			}()
			d.s.Step(d.now, &d.events)
		})
	}
}

// TestRandomDrafts: whatever the prices and chances are, plans hold the invariants (Scheduler.check) and the step's
// target.
func TestRandomDrafts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for i := range 120 {
		blocks := GuessConfig{DraftStates: i%2 == 1, DraftBlock: i % 2 * (2 + rng.IntN(14))}
		d := newDrafter(t, Config{GuessConfig: blocks}, 1+rng.IntN(8), 1+rng.IntN(600))
		a, b, c, p := rng.Float64()*10, rng.Float64(), rng.Float64()*4, rng.Float64()
		d.cost = func(rows int, _ float64) float64 { return 0.2 + a + b*float64(rows) }
		d.draft = func(l cost.Load) float64 { return 0.05 + (1+l.More)*c + 0.3*b*(l.Prefill+l.Decode) }
		d.chance = func(id ReqID) float64 { return p }
		for range 120 {
			d.step()
			if err := d.s.check(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDraftsAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the invariants' check allocates")
	}
	for _, block := range []int{0, 8} {
		d := newDrafter(t, Config{GuessConfig: GuessConfig{DraftStates: block > 0, DraftBlock: block}}, 16, 20)
		d.run(200)
		if got := testing.AllocsPerRun(200, d.step); got != 0 {
			t.Errorf("blocks of %d: %v allocations a step", block, got)
		}
	}
}
