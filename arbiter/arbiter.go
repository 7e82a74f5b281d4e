// Package arbiter decides which of several engines on one device computes its next step, and how long that step may be.
//
// Where ggml's threads spin at barriers, two engines that decode at once on the same cores take about ten times as long
// as one after the other; where they sleep, an answer's step still takes twice as long beside another engine's prompts.
// So each engine takes a lease before a step and releases it afterwards. The package is pure: the engine processes
// decide with it over claims in shared memory (daemon/shm/lease), the simulator (sim) over claims on a virtual clock.
//
// Next grants the lease in the order of due times (earliest deadline first). The next token of a visible answer is due
// when its ITL target ends. A step without visible answers, a prompt's, is due Patience after it began to wait. Due
// times of background work are put off. Every claim has a due time that does not move while it waits, and later claims
// have later ones, so no claim starves.
//
// Limit bounds the holder's step by the answers of the others: each of them must be able to compute its token before
// that is due.
package arbiter

import "time"

// Instant is a point on a monotonic axis that all engines share, in nanoseconds.
type Instant int64

// Never is the due time of an engine without visible answers.
const Never = Instant(1<<63 - 1)

const (
	// Patience is the time from the begin of its wait after which a step without visible answers is due.
	Patience = 50 * time.Millisecond
	// BackgroundFactor multiplies the time until background work is due.
	BackgroundFactor = 4
	// MaxPassedOver is the longest time after its due time for which a step without visible answers yields to answers
	// that its shortest step would make late.
	MaxPassedOver = 500 * time.Millisecond
	// Turn is the longest step while another engine waits that has no visible answers.
	Turn = 200 * time.Millisecond
	// Forgotten is the time after its due time for which the answer of an engine that neither waits nor computes still
	// counts. Later, its process is taken not to reach its step, and holding prompts for it would smooth nothing.
	Forgotten = time.Second

	// A step takes at most enoughSteps times what the others' answers take, or enoughShare of the tightest target if
	// that is more, less what the answers take. These are the bounds of a prompt beside answers of the same engine
	// (sched/predictive.go): they leave room for steps that take longer than predicted.
	enoughSteps = 6
	enoughShare = 0.7
	// Answers that take more than infeasible of the tightest target cannot meet it beside any other step. A step of
	// lateShare of their time is then always allowed: a shorter one would smooth nothing.
	infeasible = 0.9
	lateShare  = 0.5
)

// Claim describes one engine's next step to the others. It is not trusted: Next and Limit bound its times.
type Claim struct {
	Waits      bool          // for the lease
	Computes   bool          // it holds the lease
	Since      Instant       // when it began to wait; with Waits
	Due        Instant       // of the next token of its most urgent visible answer; Never = it has none
	Target     time.Duration // the tightest ITL target of its visible answers; with Due
	Step       time.Duration // a step of its visible answers alone; 0 = it has none
	Least      time.Duration // its shortest step that computes something
	Background bool          // all of its work is of the background class
}

// Visible reports whether a client sees the engine's next tokens appear.
func (c *Claim) Visible() bool { return c.Due != Never }

// DueAt returns the time that orders the claim.
func (c *Claim) DueAt() Instant {
	factor := time.Duration(1)
	if c.Background {
		factor = BackgroundFactor
	}
	if c.Visible() {
		return later(c.Due, (factor-1)*bounded(c.Target))
	}
	return later(c.Since, factor*Patience)
}

// Next returns the index of the claim that gets the lease, -1 when none waits. Equal claims are served in their order.
func Next(now Instant, claims []Claim) int {
	first, answer := -1, -1
	for i := range claims {
		c := &claims[i]
		if !c.Waits {
			continue
		}
		if first < 0 || c.DueAt() < claims[first].DueAt() {
			first = i
		}
		if c.Visible() && (answer < 0 || c.DueAt() < claims[answer].DueAt()) {
			answer = i
		}
	}
	if first == answer || answer < 0 {
		return first
	}
	c := &claims[first]
	a := &claims[answer]
	switch {
	case now > later(c.DueAt(), MaxPassedOver): // it has made way long enough
	case a.Background && !c.Background:
	case later(now, bounded(c.Least)+bounded(a.Step)) > a.Due:
		return answer
	}
	return first
}

// Limit returns how long a step of claims[self] may take from now on, so that the visible answers of the other claims
// are computed before they are due, in the order of their due times. It can be negative: then an answer is late
// already, and the shortest step is what the engine computes. ok is false when nothing limits the step.
func Limit(now Instant, self int, claims []Claim) (limit time.Duration, ok bool) {
	limit = 1<<63 - 1
	target, total := limit, time.Duration(0)
	waits := false
	for i := range claims {
		c := &claims[i]
		if i == self {
			continue
		}
		if !live(now, c) {
			waits = waits || c.Waits
			continue
		}
		ok = true
		total += bounded(c.Step)
		target = min(target, bounded(c.Target))
		limit = min(limit, until(now, c.Due)-before(now, self, claims, c))
	}
	if !ok {
		if waits {
			return Turn, true
		}
		return 0, false
	}
	limit = min(limit, max(enoughSteps*total, share(target, enoughShare))-total)
	if total > share(target, infeasible) {
		limit = max(limit, share(total, lateShare))
	}
	return limit, true
}

// before returns the time of all answers, c's included, that are computed until c's are.
func before(now Instant, self int, claims []Claim, c *Claim) (sum time.Duration) {
	for i := range claims {
		if o := &claims[i]; i != self && live(now, o) && o.Due <= c.Due {
			sum += bounded(o.Step)
		}
	}
	return sum
}

// live reports whether a claim has visible answers that count.
func live(now Instant, c *Claim) bool {
	return c.Visible() && (c.Waits || c.Computes || later(c.Due, Forgotten) >= now)
}

// maxSpan bounds the times of a claim: a broken engine may claim anything.
const maxSpan = time.Minute

func bounded(d time.Duration) time.Duration { return min(max(d, 0), maxSpan) }

// until returns the time from now to t, within ±maxSpan.
func until(now, t Instant) time.Duration {
	switch {
	case t > later(now, maxSpan):
		return maxSpan
	case later(t, maxSpan) < now:
		return -maxSpan
	}
	return time.Duration(t - now)
}

// later is t plus d without overflow.
func later(t Instant, d time.Duration) Instant {
	if s := t + Instant(d); s >= t {
		return s
	}
	return Never
}

// share returns a part of a duration; the product is rounded before it is used, on every architecture.
func share(d time.Duration, f float64) time.Duration { return time.Duration(float64(d) * f) }
