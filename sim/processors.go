package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/sched/threads"
)

// Busy is a span in which processes that never sleep take processors from the server's compute threads.
type Busy struct {
	FromMs    float64 `json:"from_ms"`
	ToMs      float64 `json:"to_ms"`
	Processes int     `json:"processes"`
}

const (
	maxThreads = 1 << 12
	maxBusy    = 1 << 12 // spans

	// A step of fewer threads takes (all / fewer) to this power as long.
	fewerPower = 0.85
	// A step of more threads than there are processors for takes so many times as long: two threads beside one busy
	// process on two processors had 0.24 … 0.33 of their speed.
	crowded = 3.5
)

// ParseBusy reads a span as on a command line: FROM-TO or FROM-TOxPROCESSES, times as "1.5s".
func ParseBusy(s string) (b Busy, err error) {
	text, count, many := strings.Cut(s, "x")
	from, to, ok := strings.Cut(text, "-")
	a, err1 := time.ParseDuration(from)
	z, err2 := time.ParseDuration(to)
	b = Busy{FromMs: float64(a) / 1e6, ToMs: float64(z) / 1e6, Processes: 1}
	if many {
		b.Processes, err = strconv.Atoi(count)
	}
	if !ok || err1 != nil || err2 != nil || err != nil {
		return b, fmt.Errorf("%q must be FROM-TO or FROM-TOxPROCESSES, such as 5s-10s or 1.5s-2sx3", s)
	}
	return b, nil
}

// checkBusy returns what is wrong with Threads and Busy.
func (c *Config) checkBusy(bad func(format string, args ...any)) {
	if c.Threads < 0 || c.Threads > maxThreads {
		bad("threads = %d: must be between 0 (not modelled) and %d", c.Threads, maxThreads)
	}
	if len(c.Busy) > maxBusy {
		bad("busy has %d spans, more than %d", len(c.Busy), maxBusy)
	}
	for i, b := range c.Busy {
		if !(b.FromMs >= 0 && b.FromMs <= b.ToMs && b.ToMs < 1e12) || b.Processes < 1 || b.Processes > maxThreads {
			bad("busy[%d] = %+v: from_ms must be ≥ 0 and ≤ to_ms, processes between 1 and %d", i, b, maxThreads)
		}
	}
	if len(c.Busy) > 0 && (c.Threads == 0 || c.BatchFormation != "uma") {
		bad("busy needs threads > 0 and batch_formation uma")
	}
}

// processors is a machine with as many processors as the server has compute threads, and the daemon's control of the
// number of threads. nil: steps take what the latency model says.
type processors struct {
	cfg   *Config
	ctl   *threads.Controller
	n     threads.Counters
	taken time.Duration // by other processes
}

func newProcessors(cfg *Config, c *core.Core) *processors {
	if cfg.Threads == 0 {
		return nil
	}
	c.Handle(0, core.Input{Kind: core.Threads, N: cfg.Threads})
	return &processors{cfg: cfg, ctl: threads.New(threads.Config{Most: cfg.Threads, Processors: cfg.Threads,
		Fixed: cfg.FixedThreads})}
}

// processes returns the number of other processes that run at a time.
func (p *processors) processes(us int64) (n int) {
	for _, b := range p.cfg.Busy {
		if at := float64(us) / 1000; at >= b.FromMs && at < b.ToMs {
			n += b.Processes
		}
	}
	return n
}

// stretch returns how long a step that begins now takes, of which the latency model says us.
func (p *processors) stretch(now, us int64) int64 {
	if p == nil {
		return us
	}
	n, all := p.ctl.Threads(), p.cfg.Threads
	x := float64(us) * math.Pow(float64(all)/float64(n), fewerPower)
	if others := p.processes(now); others > 0 && n+others > all && n > 1 {
		x *= crowded
	}
	return max(1, int64(math.Round(x)))
}

// stepped lets the control see a step that ended at now, and tells the core of a change.
func (p *processors) stepped(c *core.Core, now int64, took, predicted time.Duration) {
	if p == nil {
		return
	}
	n, all, others := float64(p.ctl.Threads()), float64(p.cfg.Threads), float64(p.processes(now))
	got := min(n, max(all-others, all*n/(n+others))) // processors that the threads have had
	part := func(x float64) time.Duration { return time.Duration(x * float64(took)) }
	p.n.Own += part(got)
	p.n.Ran += part(got)
	p.n.Waited += part(n - got)
	p.taken += part(min(others, all-got))
	p.n.Busy = p.n.Own + p.taken
	p.n.Stalled, p.n.Throttled, p.n.Switches = threads.Unknown, threads.Unknown, threads.Unknown
	p.ctl.Step(took, predicted)
	if d := p.ctl.Read(time.Duration(instant(now)), p.n); d.Changed {
		c.Handle(instant(now), core.Input{Kind: core.Threads, N: d.Threads, Disturbed: d.Disturbed})
	}
}
