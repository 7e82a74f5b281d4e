package daemon

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched/threads"
)

// twoCPUs are the counters of a machine with two processors, of which another process takes one while it is busy.
type twoCPUs struct {
	busy atomic.Bool
	last time.Time
	n    threads.Counters
}

func (c *twoCPUs) read([]int) threads.Counters {
	now := time.Now()
	if !c.last.IsZero() {
		d := now.Sub(c.last)
		c.n.Own += d
		c.n.Busy += d
		if c.busy.Load() {
			c.n.Busy += d
		}
	}
	c.last = now
	return c.n
}

// supply is a machine with a meter and a battery.
type supply struct {
	none    bool
	mu      sync.Mutex
	battery bool // owned by mu, as joules
	joules  float64
}

func (s *supply) Metered() bool    { return !s.none }
func (s *supply) HasBattery() bool { return !s.none }

func (s *supply) OnBattery() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.battery
}

func (s *supply) Joules() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joules += 50
	return s.joules
}

// TestThreadsFollowTheMachine: a daemon gives up a thread while another process takes a processor, and has it back
// after; info, metrics and the engine agree.
func TestThreadsFollowTheMachine(t *testing.T) {
	cpu := &twoCPUs{}
	over := make(chan struct{})
	slow := fake.Config{Advance: func(time.Duration) { // a reading is due every 150 ms
		select {
		case <-time.After(2 * time.Millisecond):
		case <-over:
		}
	}}
	r := serveOverridden(t, slog.New(slog.DiscardHandler), slow,
		overrides{counters: cpu.read, meter: &supply{none: true}}, "--threads", "2", "--ctx-size", "20000")
	c := r.dial()
	st := r.begin(c, func(q *wire.Request) { q.MaxTokens = 19000 })
	answered := make(chan answer, 1)
	go func() { answered <- collect(st) }()
	see := func(threads int, reason string) {
		t.Helper()
		waitfor.True(t, "the number of threads", func() bool {
			in := r.info().Threads
			return in != nil && in.Now == threads && in.Most == 2 && in.Reason == reason &&
				r.engine.Threads() == threads
		})
	}
	see(2, "undisturbed")
	cpu.busy.Store(true)
	see(1, "taken")
	if in := r.info().Threads; in.Taken == nil || *in.Taken < 0.6 || *in.Taken > 1.2 {
		t.Errorf("info: %+v", in)
	}
	cpu.busy.Store(false)
	see(2, "undisturbed")
	if a, b := r.metrics.ThreadChanges.Value("taken"), r.metrics.ThreadChanges.Value("undisturbed"); a < 1 || b < 1 {
		t.Errorf("%d changes to fewer threads, %d back", a, b)
	}
	c.Close() // cancels the answer
	close(over)
	waitfor.Recv(t, "the end of the stream", answered)
	if in := r.info().Power; in == nil || in.Mode != "auto" || in.Quiet || in.Joules != nil ||
		in.JoulesPerToken != nil {
		t.Errorf("power: %+v", in)
	}
}

// TestPowerModes: quiet, and auto on battery, use half of the threads from the first step on.
func TestPowerModes(t *testing.T) {
	for _, c := range []struct {
		mode    string
		battery bool
		want    int
	}{{"auto", false, 4}, {"auto", true, 2}, {"fast", true, 4}, {"quiet", false, 2}} {
		cpu := &twoCPUs{}
		src := &supply{battery: c.battery}
		r := serveOverridden(t, slog.New(slog.DiscardHandler), fake.Config{}, overrides{counters: cpu.read, meter: src},
			"--threads", "4", "--power", c.mode)
		conn := r.dial()
		if a := r.ask(conn, func(q *wire.Request) { q.MaxTokens = 10 }); a.err != nil {
			t.Fatal(a.err)
		}
		if got := r.engine.Threads(); got != c.want {
			t.Errorf("--power %s, on battery %v: %d threads, want %d", c.mode, c.battery, got, c.want)
		}
		in := r.info()
		if p := in.Power; p == nil || p.Mode != c.mode || p.Quiet != (c.want == 2) || p.OnBattery != c.battery ||
			p.Joules == nil {
			t.Errorf("--power %s: info has %+v", c.mode, p)
		}
		// The battery is unplugged, or plugged in, while it serves.
		src.mu.Lock()
		src.battery = !c.battery
		src.mu.Unlock()
		r.power.Watch()()
		want := map[string]int{"auto": 6 - c.want, "fast": 4, "quiet": 2}[c.mode]
		if got := int(r.loop.Load().cpu.Wanted()); got != want {
			t.Errorf("--power %s, the battery changes: %d threads wanted, want %d", c.mode, got, want)
		}
		if p := r.info().Power; p.JoulesPerToken == nil || *p.JoulesPerToken <= 0 {
			t.Errorf("--power %s: energy per token %v", c.mode, p.JoulesPerToken)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestTheLoopsThreadIsPreferred: the decode loop asks for it once, and serves where it is refused.
func TestTheLoopsThreadIsPreferred(t *testing.T) {
	for _, refused := range []error{nil, errors.New("pthread_set_qos_class_self_np: operation not permitted")} {
		var asked atomic.Int32
		r := serveOverridden(t, slog.New(slog.DiscardHandler), fake.Config{}, overrides{prefer: func() error {
			asked.Add(1)
			return refused
		}})
		if a := collect(r.begin(r.dial(), func(q *wire.Request) { q.MaxTokens = 4 })); a.err != nil || a.tokens != 4 {
			t.Errorf("%+v", a)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("it asked %d times", n)
		}
	}
}
