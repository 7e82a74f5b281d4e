package guess

import (
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// machine is a model that has learned steps of 8 ms and each ms a row.
func machine(each float64) *cost.Model {
	m := cost.New(&cost.State{})
	for i := range 600 {
		var l cost.Load
		l.AddRows(50+i%7, 1+i%20)
		m.Observe(l, time.Duration((8+each*l.Decode)*1e6), false)
	}
	return &m
}

// TestChoose: guesses get rows where they pay, and otherwise the reason says why they get none.
func TestChoose(t *testing.T) {
	const often, seldom = 8, 0 // of 8 guesses
	for name, c := range map[string]struct {
		each    float64 // ms a row
		right   int
		room    int
		limit   float64
		prompts bool
		rows    bool
		why     reason.Reason
	}{
		"they pay":     {0.5, often, 30, 100, false, true, reason.Draft},
		"wrong ones":   {0.5, seldom, 30, 100, false, false, reason.DraftUnlikely},
		"no room":      {0.5, often, 0, 100, false, false, reason.DraftRoom},
		"the target":   {0.5, often, 30, 8, false, false, reason.DraftTarget},
		"prompts wait": {0.5, often, 30, 100, true, false, reason.DraftPrompts},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(1, Config{})
			r := Request{Able: true}
			for range 30 {
				g.Token(&r, false, News{Right: c.right, Wrong: c.right < 8, Offer: 8, Grade: 2})
			}
			g.Begin(true)
			if why := g.Add(Row{Request: &r, Start: 60, N: 1, Worth: 1}); why != reason.None {
				t.Fatalf("it is left out: %v", why)
			}
			var load cost.Load
			load.AddRows(60, 1)
			step := Step{Model: machine(c.each), Load: load, Room: c.room, Limit: c.limit, Prompts: c.prompts}
			g.Choose(&step)
			row := &g.Rows()[0]
			if (row.Guesses > 0) != c.rows || row.Why != c.why {
				t.Errorf("%d rows, %v; want %v, %v", row.Guesses, row.Why, c.rows, c.why)
			}
			if got := int(step.Load.Decode - load.Decode); got != row.Guesses {
				t.Errorf("the step has %d rows more, the request %d", got, row.Guesses)
			}
		})
	}
}

// TestLeftOut: what has no guesses, and with Config.Rereads what is not alone, is told at once.
func TestLeftOut(t *testing.T) {
	g := New(2, Config{Rereads: true})
	g.Begin(false)
	for _, c := range []struct {
		r    Request
		want reason.Reason
	}{
		{Request{Able: true}, reason.DraftNone},
		{Request{Able: true, Offer: 3}, reason.DraftState},
	} {
		if got := g.Add(Row{Request: &c.r, N: 1, Worth: 1}); got != c.want {
			t.Errorf("%+v: %v, want %v", c.r, got, c.want)
		}
	}
	if g.Wanted() {
		t.Error("there is something to choose")
	}
}
