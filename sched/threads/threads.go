// Package threads decides how many compute threads a decode step uses.
//
// It optimises: tokens per second beside processes that take processors away, and the return to all threads when they
// have ended. The threads of a graph meet at a barrier behind each of its nodes, some hundred times a step, and all
// wait for the last: a thread that the kernel lets wait for its processor stops all others, so that one thread fewer is
// faster.
//
// It gives up: what a thread could have computed while its processor was free for some milliseconds.
//
// When not to use it: where layers run on a device, the processors compute little.
//
// How much other processes take is the busy time of the processors less the process's own CPU time. Where the kernel
// does not tell that, the compute threads' waits for a processor say that they are disturbed, and trying says that they
// no longer are. The package is pure: readings and their times come as values.
package threads

import (
	"fmt"
	"time"
)

// Unknown is the value of a counter that the system does not tell.
const Unknown = -1

// Counters are sums since some moment in the past, read at the same time, or Unknown.
type Counters struct {
	Busy      time.Duration // of the processors that this process may use: all but idle time
	Own       time.Duration // CPU time of this process
	Ran       time.Duration // CPU time of the compute threads
	Waited    time.Duration // time in which compute threads were ready to run and had no processor
	Stalled   time.Duration // time in which some task of the machine waited for a processor
	Throttled time.Duration // time in which a quota stopped the process
	Switches  int64         // how often a thread of the process lost its processor
}

// Config describes the machine.
type Config struct {
	Most       int // compute threads of an undisturbed step, ≥ 1
	Processors int // that this process may use, a quota aside, ≥ 1
	// Fixed says that the number of threads is always Most.
	Fixed bool
}

// Reason is the cause of the number of threads in use.
type Reason uint8

const (
	Undisturbed Reason = iota // all threads
	Taken                     // other processes take processors
	Waiting                   // compute threads wait for a processor, and the system does not say what takes it
	Throttled                 // a quota stops the process
	Trying                    // more threads, to see whether they are still disturbed

	numReasons
)

var reasonNames = [numReasons]string{"undisturbed", "taken", "waiting", "throttled", "trying"}

// String returns the reason's name, as metrics and info show it.
func (r Reason) String() string {
	if r >= numReasons {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasonNames[r]
}

// Reasons returns all reasons.
func Reasons() []Reason {
	out := make([]Reason, numReasons)
	for i := range out {
		out[i] = Reason(i)
	}
	return out
}

// Decision is the number of threads from now on, with the cause of the newest change.
type Decision struct {
	Threads int
	Changed bool
	// Disturbed says that the steps before this decision were disturbed: their times tell nothing about any number of
	// threads.
	Disturbed bool
	Reason    Reason
}

// Windows and thresholds. Shares of processors are in units of one processor's time.
const (
	// Window is the shortest time between two readings that a decision is made of. /proc/stat counts in steps of 10 ms,
	// so that the error of two processors is an eighth of one.
	Window = 150 * time.Millisecond
	// stale is the longest window that counts: the decode loop takes no readings while it sleeps.
	stale = time.Second

	// A thread stops for as much of the time as its processor is taken, and all others with it. So giving it up pays
	// when more than half of a processor is taken: a process that never sleeps takes two thirds from two threads on two
	// processors, and all that one thread leaves. The clients of a server take some tenths.
	takenDown = 0.6
	takenUp   = 0.35
	// computing is the share of a window that this process must have spent in Decode for the window to count. Otherwise
	// the busy processors may be those of another engine that computes while this one waits for its turn or is idle.
	computing = 0.7
	// calm is the time that a processor must be free before a thread comes back to it.
	calm = 250 * time.Millisecond

	// slowRatio is the ratio of measured to predicted step time from which on steps count as disturbed. Where steps are
	// not slower, a single window may be a counting error: two in a row must report a taken processor.
	slowRatio = 1.3

	// Without the busy time of processors: threads wait for this share of their time.
	waitShare  = 0.12
	stallShare = 0.3
	switchRate = 40  // per second and thread
	slowAlone  = 1.6 // nothing but the time of steps is known
	minSteps   = 3

	// After fewer threads were chosen by waits, more are tried after tryFirst, twice as long after each try that was
	// disturbed, up to tryMost: undisturbed speed is back within two seconds.
	tryFirst = 500 * time.Millisecond
	tryMost  = 1500 * time.Millisecond
	// When a quota has stopped the process for this share of the time, one thread fewer is used for capFor: quotas
	// seldom change.
	throttledShare = 0.03
	capFor         = 10 * time.Second
)

// Controller chooses the number of threads. It belongs to the goroutine that decodes.
type Controller struct {
	cfg Config

	threads int // Invariant: 1 ≤ threads ≤ cfg.Most
	reason  Reason

	last   Counters
	lastAt time.Duration
	any    bool // last is set

	// Of the steps since last.
	steps           int
	took, predicted time.Duration

	cap       int // because of a quota, until capUntil
	capUntil  time.Duration
	taken     int           // windows in a row in which processors were taken
	freeSince time.Duration // since when more threads would be right; -1 = they would not
	tryAt     time.Duration // when to try one more, by the rules without busy time
	backoff   time.Duration

	load Load
}

// Load is the load of the machine in the newest window.
type Load struct {
	Taken     float64 // processors that other processes used; Unknown
	Waited    float64 // share of the compute threads' time in which they waited for a processor; Unknown
	Slowdown  float64 // time of the steps, relative to the cost model's; 0 = no steps
	Stalled   float64 // share of the time in which a task of the machine waited; Unknown
	Throttled float64 // share of the time; Unknown
	Switches  float64 // per second; Unknown
}

// New returns a controller that begins with all threads.
func New(cfg Config) *Controller {
	cfg.Most, cfg.Processors = max(cfg.Most, 1), max(cfg.Processors, 1)
	return &Controller{cfg: cfg, threads: cfg.Most, cap: cfg.Most, freeSince: -1, backoff: tryFirst,
		load: Load{Taken: Unknown, Waited: Unknown, Stalled: Unknown, Throttled: Unknown, Switches: Unknown}}
}

// Threads returns the number of threads of the next step.
func (c *Controller) Threads() int { return c.threads }

// Most returns Config.Most, or what SetMost made of it.
func (c *Controller) Most() int { return c.cfg.Most }

// Reason returns the cause of that number.
func (c *Controller) Reason() Reason { return c.reason }

// Load returns the load in the newest window.
func (c *Controller) Load() Load { return c.load }

// SetMost changes Config.Most, for less power or more speed (--power).
func (c *Controller) SetMost(most int) Decision {
	most = max(most, 1)
	full := c.threads == c.cfg.Most
	c.cfg.Most, c.cap, c.capUntil = most, most, 0
	if full || c.threads > most {
		return c.change(most, Undisturbed, false)
	}
	return c.same()
}

// Step counts a decode step: how long it took, and how long the cost model said.
func (c *Controller) Step(took, predicted time.Duration) {
	if predicted > 0 && took > 0 && max(took, predicted) < time.Hour {
		c.steps++
		c.took += took
		c.predicted += predicted
	}
}

// Due reports whether Read would decide.
func (c *Controller) Due(now time.Duration) bool { return !c.any || now-c.lastAt >= Window }

// Read takes a reading at a time since some moment, and decides. A reading earlier than Window after the one before is
// ignored.
func (c *Controller) Read(now time.Duration, n Counters) Decision {
	if !c.Due(now) {
		return c.same()
	}
	before, span, any := c.last, now-c.lastAt, c.any
	c.last, c.lastAt, c.any = n, now, true
	if !any || span <= 0 {
		c.forget()
		return c.same()
	}
	c.observe(&before, &n, span)
	d := c.decide(now, span)
	c.forget()
	return d
}

// forget empties the window's steps.
func (c *Controller) forget() { c.steps, c.took, c.predicted = 0, 0, 0 }

// observe computes the window's load.
func (c *Controller) observe(a, b *Counters, span time.Duration) {
	l := Load{Taken: Unknown, Waited: Unknown, Stalled: share(a.Stalled, b.Stalled, span),
		Throttled: share(a.Throttled, b.Throttled, span), Switches: Unknown}
	if busy, own := delta(a.Busy, b.Busy), delta(a.Own, b.Own); busy >= 0 && own >= 0 {
		l.Taken = min(max(0, float64(busy-own)/float64(span)), float64(c.cfg.Processors))
	}
	if ran, waited := delta(a.Ran, b.Ran), delta(a.Waited, b.Waited); ran >= 0 && waited >= 0 {
		l.Waited = 0
		if waited > 0 {
			l.Waited = float64(waited) / (float64(ran) + float64(waited)) // as integers the sum may overflow
		}
	}
	if a.Switches >= 0 && b.Switches >= a.Switches {
		l.Switches = float64(b.Switches-a.Switches) / span.Seconds()
	}
	if c.steps > 0 {
		l.Slowdown = float64(c.took) / float64(c.predicted)
	}
	c.load = l
}

// delta returns the growth of a counter, Unknown where one reading is, or where it has shrunk.
func delta(a, b time.Duration) time.Duration {
	if a < 0 || b < a {
		return Unknown
	}
	return b - a
}

func share(a, b, span time.Duration) float64 {
	d := delta(a, b)
	if d < 0 {
		return Unknown
	}
	return min(float64(d)/float64(span), 1)
}

func (c *Controller) decide(now, span time.Duration) Decision {
	l := &c.load
	switch {
	case c.cfg.Fixed:
		return c.same()
	case l.Throttled >= throttledShare && c.threads > 1 && span <= stale:
		c.cap, c.capUntil = c.threads-1, now+capFor
		return c.change(c.cap, Throttled, true)
	case now >= c.capUntil:
		c.cap = c.cfg.Most
	}
	if l.Taken >= 0 {
		return c.byTaken(now, span)
	}
	return c.byWaits(now, span)
}

// most returns the limit on threads, with that of a quota.
func (c *Controller) most() int { return max(1, min(c.cfg.Most, c.cap)) }

// byTaken leaves the processors that other processes use to them.
func (c *Controller) byTaken(now, span time.Duration) Decision {
	free := float64(c.cfg.Processors) - c.load.Taken
	down, up := c.fit(free+takenDown), c.fit(free+takenUp)
	if c.taken++; down >= c.threads {
		c.taken = 0
	}
	switch {
	// The processors may be taken by an engine that computes while this one waits.
	case down < c.threads && float64(c.took) < computing*float64(span):
		c.freeSince = -1
		return c.same()
	case down < c.threads && c.taken == 1 && c.load.Slowdown < slowRatio:
		c.freeSince = -1
		return c.same() // the error of one window, perhaps: the steps were not slower
	case down < c.threads:
		c.freeSince, c.taken = -1, 0
		return c.change(down, Taken, true)
	case up <= c.threads:
		c.freeSince = -1
		return c.same()
	case c.freeSince < 0:
		c.freeSince = now - span // the whole window was calm
	}
	if now-c.freeSince < calm {
		return c.same()
	}
	c.freeSince = -1
	why := Taken
	if up == c.cfg.Most {
		why = Undisturbed
	}
	return c.change(up, why, false)
}

// fit returns the number of threads for so many processors.
func (c *Controller) fit(processors float64) int {
	return min(max(int(processors), 1), c.most())
}

// byWaits decides where the busy time of processors is not known.
func (c *Controller) byWaits(now, span time.Duration) Decision {
	if c.disturbed() && c.threads > 1 && span <= stale {
		fewer := 1
		// The share of their time that threads wait is the share of threads without a processor.
		if l := c.load.Waited; l > 0 {
			fewer = max(1, int(l*float64(c.threads)+0.5))
		}
		if c.reason == Trying {
			c.backoff = min(2*c.backoff, tryMost)
		} else {
			c.backoff = tryFirst
		}
		c.tryAt = now + c.backoff
		return c.change(max(1, c.threads-fewer), Waiting, true)
	}
	if c.threads < c.most() {
		if now < c.tryAt {
			return c.same()
		}
		c.tryAt = now + c.backoff
		return c.change(c.most(), Trying, false)
	}
	if c.reason == Trying && c.steps >= minSteps {
		c.reason, c.backoff = Undisturbed, tryFirst
	}
	return c.same()
}

// disturbed reports whether the window's steps waited for processors.
func (c *Controller) disturbed() bool {
	l := &c.load
	if c.steps < minSteps && c.took < Window {
		return false
	}
	if l.Waited == Unknown && l.Stalled == Unknown && l.Switches == Unknown {
		return l.Slowdown >= slowAlone
	}
	if c.reason != Trying && l.Slowdown < slowRatio {
		return false // the waits cost little
	}
	switch {
	case l.Waited != Unknown:
		return l.Waited >= waitShare
	case l.Stalled != Unknown:
		return l.Stalled >= stallShare
	}
	return l.Switches >= switchRate*float64(c.threads)
}

func (c *Controller) same() Decision { return Decision{Threads: c.threads, Reason: c.reason} }

func (c *Controller) change(n int, why Reason, disturbed bool) Decision {
	changed := n != c.threads
	c.threads, c.reason = n, why
	return Decision{Threads: n, Changed: changed, Disturbed: disturbed && changed, Reason: why}
}
