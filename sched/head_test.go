package sched

import (
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// newHeaded is newDrafter with a head, whose states are kept where the plan says so. A step of another shape than the
// one before takes longer by a new graph.
func newHeaded(t testing.TB, cfg Config, n, prompt int) *drafter {
	cfg.DraftStates = true
	d := newDrafter(t, cfg, n, prompt)
	d.build = 2 * time.Millisecond
	d.draft = func(l cost.Load) float64 { return (1+l.More)*2.5 + 0.03*l.Prefill + 0.1*l.Decode }
	return d
}

// TestUselessHead: one whose guesses never come true costs one percent of the time, with the graphs that it makes the
// engine build, from the first steps on, and its states are kept in few of them.
func TestUselessHead(t *testing.T) {
	for _, c := range []struct{ n, block int }{{1, 0}, {4, 0}, {16, 0}, {1, 8}, {4, 8}, {16, 8}} {
		n := c.n
		none := newGuesser(t, Config{}, n)
		none.chance, none.offer = func(ReqID) float64 { return 0 }, 0
		d := newHeaded(t, Config{GuessConfig: GuessConfig{DraftBlock: c.block}}, n, 4)
		d.chance = func(ReqID) float64 { return 0 }
		none.run(60)
		d.run(60)
		for _, part := range []struct {
			steps  int
			least  float64
			states int
		}{{1200, 0.985, 100}, {4000, 0.99, 100}} {
			none.run(part.steps)
			d.run(part.steps)
			t.Logf("%d streams: %.3f of the speed, %d guesses, states in %d of %d steps, %d graphs", n,
				d.rate()/none.rate(), d.guessed, d.states, part.steps, d.graphs)
			if got := d.rate() / none.rate(); got < part.least || d.states > part.states {
				t.Errorf("%d streams: %.3f of the speed is less than %.3f, or states in more than %d steps", n, got,
					part.least, part.states)
			}
		}
	}
}

// TestGoodHead: its states are kept in all steps but few, and it is used in most.
func TestGoodHead(t *testing.T) {
	for _, n := range []int{1, 4} {
		d := newHeaded(t, Config{}, n, 100)
		d.run(150)
		d.run(400)
		if d.states < 390 || d.reasons[reason.DraftModel] < 350*n {
			t.Errorf("%d streams: states in %d of 400 steps; the reasons are %v", n, d.states, d.reasons)
		}
	}
}

// TestBlocks: of the guesses that a head makes at once as many are computed as pay, by how often those at their places
// come true.
func TestBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		place          func(k int) float64
		n, least, most int // guesses in 100 steps, of each request
	}{
		"all come true":     {func(int) float64 { return 1 }, 1, 700, 800},
		"three come true":   {func(k int) float64 { return float64(min(1, max(0, 3-k))) }, 1, 280, 420},
		"three, of four":    {func(k int) float64 { return float64(min(1, max(0, 3-k))) }, 4, 200, 420},
		"the first, mostly": {func(k int) float64 { return 1 / float64(1+2*k) }, 1, 90, 300},
	} {
		t.Run(name, func(t *testing.T) {
			d := newHeaded(t, Config{GuessConfig: GuessConfig{DraftBlock: 8}}, c.n, 100)
			d.chance, d.place = func(ReqID) float64 { return 0.98 }, c.place
			d.run(300)
			d.run(400)
			none := newGuesser(t, Config{}, c.n)
			none.chance, none.offer = func(ReqID) float64 { return 0 }, 0
			none.run(400)
			got := d.guessed / 4 / c.n
			t.Logf("%d guesses in 100 steps, %.2f of the speed; %v", got, d.rate()/none.rate(), d.reasons)
			if got < c.least || got > c.most || d.rate() < none.rate() {
				t.Errorf("%d guesses in 100 steps, want %d…%d; %.2f of the speed", got, c.least, c.most,
					d.rate()/none.rate())
			}
		})
	}
}

// TestHeadBecomesUseful: trials find out, and states are kept again.
func TestHeadBecomesUseful(t *testing.T) {
	d := newHeaded(t, Config{}, 1, 200)
	d.chance = func(ReqID) float64 { return 0 }
	d.run(2000)
	d.chance = func(ReqID) float64 { return 0.97 }
	d.run(6000)
	d.run(100)
	if d.guessed < 300 || d.states < 95 {
		t.Errorf("%d guesses and %d steps with states of 100; the reasons are %v", d.guessed, d.states, d.reasons)
	}
}

// TestTrialsPayForTheirGraphs: the dearer a new graph, the rarer the trials.
func TestTrialsPayForTheirGraphs(t *testing.T) {
	trials := func(build time.Duration) int {
		d := newHeaded(t, Config{}, 1, 20)
		d.chance, d.build = func(ReqID) float64 { return 0 }, build
		d.run(100)
		d.run(6000)
		return d.reasons[reason.DraftModelTrial]
	}
	cheap, dear := trials(0), trials(40*time.Millisecond)
	if cheap <= dear || dear == 0 {
		t.Errorf("%d trials where a graph takes no time, %d where it takes 40 ms", cheap, dear)
	}
}

// TestDearFirstTexts: a head whose texts took many times as long at first as they do later catches up all the same, and
// so learns what they take.
func TestDearFirstTexts(t *testing.T) {
	d := newHeaded(t, Config{}, 1, 100)
	usual := d.draft
	d.draft = func(l cost.Load) float64 { return usual(l) + l.Prefill }
	d.run(40)
	d.draft = usual
	d.run(260)
	d.run(100)
	if d.reasons[reason.DraftModel] < 80 {
		t.Errorf("its guesses are in %d of 100 steps; the reasons are %v", d.reasons[reason.DraftModel], d.reasons)
	}
}

// TestWrongPassageIsForgotten: a passage that the head guesses wrong says little of what comes behind it.
func TestWrongPassageIsForgotten(t *testing.T) {
	d := newHeaded(t, Config{}, 1, 100)
	d.chance = func(ReqID) float64 { return 0.75 }
	d.run(400)
	d.chance = func(ReqID) float64 { return 0 }
	d.run(40)
	d.chance = func(ReqID) float64 { return 0.75 }
	d.run(100)
	if d.reasons[reason.DraftModel] < 60 {
		t.Errorf("its guesses are in %d of the next 100 steps; the reasons are %v", d.reasons[reason.DraftModel],
			d.reasons)
	}
}

// TestHeadBegins: a head that is right in three of five cases, and whose first guesses are wrong, is used: what trials
// save pays for further ones.
func TestHeadBegins(t *testing.T) {
	d := newHeaded(t, Config{}, 1, 100)
	d.chance = func(ReqID) float64 { return 0.6 }
	d.run(400)
	d.run(100)
	if d.reasons[reason.DraftModel] < 80 {
		t.Errorf("its guesses are in %d of 100 steps; the reasons are %v", d.reasons[reason.DraftModel], d.reasons)
	}
}
