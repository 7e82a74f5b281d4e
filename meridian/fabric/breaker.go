package fabric

import "time"

// BreakerState says which operations a circuit breaker lets through.
type BreakerState uint8

const (
	BreakerClosed   BreakerState = iota // everything
	BreakerOpen                         // none until the pause is over
	BreakerHalfOpen                     // one operation, whose outcome decides
)

// String returns the state's name in metrics.
func (s BreakerState) String() string { return [...]string{"closed", "open", "half_open"}[s] }

// breaker stops the use of a failing fabric for a while. It is pure: time is an argument.
//
//	closed ── failures in a row ──► open ── pause is over ──► half-open ── success ──► closed
//	                                 ▲                            │
//	                                 └─ failure, twice the pause ─┘
type breaker struct {
	failures           int           // failures in a row that open it
	minPause, maxPause time.Duration // how long it stays open: minPause first, doubled up to maxPause

	state   BreakerState
	inRow   int           // failures since the last success
	pause   time.Duration // the current or the next pause
	until   time.Time     // end of the current pause
	probing bool          // the half-open breaker's one operation is running. Invariant: only true when half-open.
	opened  uint64        // how often it opened
}

func newBreaker(failures int, minPause, maxPause time.Duration) breaker {
	return breaker{failures: failures, minPause: minPause, maxPause: maxPause, pause: minPause}
}

// allow reports whether an operation may go ahead, and whether it is the probe of a half-open breaker. If it may, the
// caller must call done.
func (b *breaker) allow(now time.Time) (probe, ok bool) {
	if b.state == BreakerOpen && !now.Before(b.until) {
		b.state = BreakerHalfOpen
	}
	switch {
	case b.state == BreakerClosed:
		return false, true
	case b.state == BreakerHalfOpen && !b.probing:
		b.probing = true
		return true, true
	}
	return false, false
}

type outcome uint8

const (
	good    outcome = iota
	bad             // the fabric's fault
	neutral         // the caller gave up; says nothing about the fabric
)

// done records the outcome of an allowed operation. probe is the result of allow.
func (b *breaker) done(now time.Time, probe bool, o outcome) {
	if probe {
		b.probing = false
	} else if b.state != BreakerClosed {
		return // begun before the breaker opened: out of date
	}
	switch o {
	case good:
		b.state, b.inRow, b.pause = BreakerClosed, 0, b.minPause
	case bad:
		b.inRow++
		if probe {
			b.pause = min(2*b.pause, b.maxPause)
		}
		if probe || b.inRow >= b.failures {
			b.state, b.until, b.inRow = BreakerOpen, now.Add(b.pause), 0
			b.opened++
		}
	}
}
