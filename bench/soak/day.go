package soak

import (
	"math/rand/v2"
	"time"

	"github.com/uma-serve/uma-serve/sim/workload"
)

// day makes the requests of a server's part of the mixture: those of the other model's switches, or those of all other
// kinds. It implements workload.Reactive.
type day struct {
	v     *virtual
	mix   *Mixture
	other bool
	ready []workload.Request // of the newest event
	made  int64
	after map[int64]followed // by the number of the request before
}

// followed describes the requests that a client sends after one has ended.
type followed struct {
	rounds int // further ones
	grows  bool
	again  bool // the same request, read to its end
	rng    *rand.Rand
}

func newDay(v *virtual, other bool) *day {
	return &day{v: v, mix: NewMixture(v.Seed, v.PerMinute), other: other, after: map[int64]followed{}}
}

// number gives r the next number.
func (d *day) number(r *workload.Request) *workload.Request {
	r.Index = d.made
	d.made++
	return r
}

// Next implements workload.Source.
func (d *day) Next(r *workload.Request) bool {
	for len(d.ready) == 0 {
		ev := d.mix.Next()
		if ev.At > d.v.Length {
			return false
		}
		if ev.Kind < DiskFault && (ev.Kind == Switch) == d.other {
			d.v.rep.Happened(ev.Kind)
			d.expand(&ev)
		}
	}
	*r = d.ready[0]
	d.ready = d.ready[1:]
	return true
}

// questions is the number of different questions that clients ask, agents the number of different tasks that agents
// have.
const questions, agents = 64, 16

// question returns a request whose tokens are those of its question, behind a common system prompt.
func (d *day) question(rng *rand.Rand, ev *Event) workload.Request {
	q := rng.IntN(questions)
	r := workload.Request{Arrival: ev.At.Microseconds(), Client: ev.Kind.String(), Prefix: "system", PrefixLen: 48,
		Stream: 1 + uint64(q), Input: 64 + 3*q, Output: 16 + 5*q%80, Streaming: true}
	if q%2 == 0 {
		r.Think = r.Output / 2
	}
	return r
}

// expand makes the requests of an event.
func (d *day) expand(ev *Event) {
	rng := rand.New(rand.NewPCG(ev.Seed, 2))
	r := d.question(rng, ev)
	add := func(r workload.Request) int64 {
		d.ready = append(d.ready, *d.number(&r))
		return r.Index
	}
	soon := func() int64 { return r.Arrival + 1 + rng.Int64N((2 * time.Second).Microseconds()) }
	switch ev.Kind {
	case Chat:
		add(r)
	case Agent:
		r.Stream, r.Input = 1000+rng.Uint64N(agents), 160
		d.after[add(r)] = followed{rounds: 5, grows: true, rng: rng}
	case Cancel:
		r.Deadline = soon()
		add(r)
	case SlowReader:
		r.Output += 64
		r.Stalls = []workload.Stall{{After: 1 + rng.IntN(16), Us: 1 + rng.Int64N(2*faultLasts.Microseconds())}}
		add(r)
	case Restart:
		r.Deadline = soon()
		again := add(r)
		second := d.question(rng, ev)
		second.Deadline = r.Deadline
		add(second)
		d.after[again] = followed{rounds: 1, again: true, rng: rng}
	case Storm:
		for i := range 4 + rng.IntN(8) {
			s := workload.Request{Arrival: r.Arrival, Client: ev.Kind.String(), Input: 100 + rng.IntN(400),
				Output: 4 + rng.IntN(12)}
			if i%2 == 1 {
				s.Class = "background"
			}
			add(s)
		}
	case Switch:
		d.after[add(r)] = followed{rounds: 2, rng: rng}
	}
}

// Ended implements workload.Reactive.
func (d *day) Ended(r *workload.Request, how workload.Outcome, now int64, next *workload.Request) bool {
	f, ok := d.after[r.Index]
	delete(d.after, r.Index)
	if !ok || how != workload.Completed && !f.again {
		return false
	}
	ev := Event{At: time.Duration(now+1+f.rng.Int64N((3*time.Second).Microseconds())) * time.Microsecond}
	fresh := d.question(f.rng, &ev)
	switch *next = *r; {
	case f.grows: // the answer, and a tool's result or the user's next message
		next.Input += r.Output + 12
	case !f.again:
		*next = fresh
		next.Client = r.Client
	}
	next.Arrival, next.Deadline = fresh.Arrival, 0
	if f.rounds--; f.rounds > 0 {
		d.after[d.made] = f
	}
	d.number(next)
	return true
}
