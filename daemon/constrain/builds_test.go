package constrain

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
)

// cacheTest is a Cache with a clock that a compilation advances.
type cacheTest struct {
	*Cache
	t     *testing.T
	back  chan []*Waiter
	clock atomic.Int64  // ns
	slow  time.Duration // of one compilation; written while none runs
}

func newCacheTest(t *testing.T) *cacheTest {
	s := &cacheTest{t: t, back: make(chan []*Waiter, 1000)}
	v := grammar.NewVocabulary([][]byte{{'1'}}, nil)
	s.Cache = NewCache(metrics.New(metrics.Build{}), func() *grammar.Vocabulary { return v },
		func(list []*Waiter) { s.back <- list })
	s.now = func() time.Time { return time.Unix(1000, s.clock.Load()) }
	s.BeforeBuild(func([32]byte, func() bool) { s.clock.Add(int64(s.slow)) })
	return s
}

// want is a request of owner for the i-th format.
func want(owner uint32, i int) *Waiter {
	return &Waiter{Owner: owner, Job: &wire.Format{Kind: wire.FormatSchema,
		Payload: fmt.Sprintf(`{"type": "integer", "minimum": %d}`, i)}}
}

// sourceOf returns the source that w waits for.
func sourceOf(w *Waiter) *Source { return formatSource(w.Job.(*wire.Format), nil) }

func (s *cacheTest) ask(w *Waiter) *compiled { return s.find(sourceOf(w), w) }

// compiled is the i-th format's grammar as owner gets it, and whether it was compiled for that.
func (s *cacheTest) compiled(owner uint32, i int) (of *compiled, fresh bool) {
	s.t.Helper()
	w := want(owner, i)
	if of := s.ask(w); of != nil {
		return of, false
	}
	list := waitfor.Recv(s.t, "a format is compiled", s.back)
	if len(list) != 1 || list[0] != w {
		s.t.Fatalf("%v come back", list)
	}
	return s.ask(w), true
}

// TestGrammarsAreCompiledOnce: the same one is compiled once, a refused one too; a user may not have too much compiled;
// what was used longest ago makes way, and of many forms those of the user that has the most.
func TestGrammarsAreCompiledOnce(t *testing.T) {
	s := newCacheTest(t)
	a, fresh := s.compiled(1, 0)
	if a.bad != nil || !fresh {
		t.Fatal(a.bad)
	}
	if b, fresh := s.compiled(2, 0); a != b || fresh {
		t.Errorf("compiled again for another user")
	}
	bad := &Waiter{Owner: 1, Job: &wire.Format{Kind: wire.FormatSchema, Payload: `{"extends": {}}`}}
	if s.ask(bad) != nil {
		t.Fatal("a schema is known that was never compiled")
	}
	waitfor.Recv(t, "a schema is refused", s.back)
	if c := s.ask(bad); c == nil || c.bad == nil || c.bad.Code != wire.BadRequest ||
		!strings.Contains(c.bad.Message, "extends") {
		t.Errorf("a schema that was refused: %+v", c)
	}
	s.slow = time.Second
	refused := 0
	for i := range 20 {
		c, _ := s.compiled(1, 1+i)
		if c.bad == nil {
			continue
		}
		refused++
		if c.bad.Code != wire.QueueLimit || c.bad.RetryAfter <= 0 || !strings.Contains(c.bad.Message, "compile") {
			t.Fatalf("%+v", c.bad)
		}
	}
	if refused < 10 {
		t.Errorf("only %d of 20 seconds of compiling were refused", refused)
	}
	if c, _ := s.compiled(2, 100); c.bad != nil {
		t.Errorf("another user pays for it: %+v", c.bad)
	}
	s.clock.Add(int64(time.Minute))
	if c, _ := s.compiled(1, 101); c.bad != nil {
		t.Errorf("a minute later: %+v", c.bad)
	}
	s.slow = 0
	s.compiled(3, 102)
	for i := range 3 * keptGrammars {
		c, _ := s.compiled(4, 200+i)
		if c.bad != nil {
			t.Fatal(c.bad)
		}
	}
	if _, fresh := s.compiled(3, 102); fresh || s.kept.Len() > keptGrammars {
		t.Errorf("%d are kept, and not that of another user: compiled again %v", s.kept.Len(), fresh)
	}
	for i := range 3 * keptGrammars {
		if c, _ := s.compiled(uint32(10+i), 2000+i); i%2 == 0 {
			c.bytes.Store(keptBytes / 50)
		}
	}
	sum := int64(0)
	for _, c := range s.kept.Values() {
		sum += c.bytes.Load()
	}
	if s.kept.Len() > keptGrammars || sum > keptBytes+keptBytes/50 {
		t.Errorf("%d grammars of %d bytes are kept", s.kept.Len(), sum)
	}
}

// gate holds compilations until a test lets them go, one by one.
type gate struct {
	began chan string // the field's payload, as each begins
	free  map[string]chan struct{}
	ended chan struct{}
	mu    sync.Mutex
}

func newGate() *gate {
	return &gate{began: make(chan string, 100), ended: make(chan struct{}, 100), free: map[string]chan struct{}{}}
}

func (g *gate) of(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free[name] == nil {
		g.free[name] = make(chan struct{})
	}
	return g.free[name]
}

// before waits at the gate if names has a name for a grammar's key, asking stop as compiling does.
func (g *gate) before(names func(key [32]byte) string) func([32]byte, func() bool) {
	return func(key [32]byte, stop func() bool) {
		name := names(key)
		if name == "" {
			return
		}
		g.began <- name
		free := g.of(name)
		for !stop() {
			select {
			case <-free:
				return
			case <-time.After(time.Millisecond):
			}
		}
		g.ended <- struct{}{}
	}
}

// TestCompilingTakesTurns: one grammar of each user is compiled at a time and two in all; users take turns; the
// requests for one grammar wait for one compilation; what a user pays is known at its end.
func TestCompilingTakesTurns(t *testing.T) {
	s, g := newCacheTest(t), newGate()
	keys := map[[32]byte]string{}
	var list []*Waiter
	add := func(owner uint32, i int) {
		w := want(owner, i)
		keys[sourceOf(w).Key] = fmt.Sprint(owner, "-", i)
		list = append(list, w)
	}
	for i := range 4 {
		add(1, i)
	}
	add(1, 0)
	add(2, 10)
	add(3, 20)
	add(2, 11)
	s.BeforeBuild(g.before(func(key [32]byte) string { return keys[key] }))
	for _, w := range list {
		if s.ask(w) != nil {
			t.Fatal("it is there already")
		}
	}
	next := func() string { return waitfor.Recv(t, "a compilation begins", g.began) }
	open := func(name string) []*Waiter {
		close(g.of(name))
		return waitfor.Recv(t, "the requests for it come back", s.back)
	}
	first := []string{next(), next()}
	slices.Sort(first)
	if !slices.Equal(first, []string{"1-0", "2-10"}) {
		t.Fatalf("%q are compiled first", first)
	}
	for _, want := range []string{"3-20", "2-11"} {
		if open(first[1]); next() != want {
			t.Fatalf("behind %s, %s is not the next", first[1], want)
		}
		first[1] = want
	}
	open("2-11")
	s.clock.Add(int64(4 * time.Second)) // while that of user 1 is compiled
	close(g.of("1-0"))
	var built []*Waiter
	for range 4 { // the refused ones may come back first
		back := waitfor.Recv(t, "the forms of user 1 come back", s.back)
		c := s.ask(back[0])
		switch {
		case c == nil || back[0].Owner != 1:
			t.Errorf("%+v: %+v", back, c)
		case c.bad == nil:
			built = append(built, back...)
		case c.bad.Code != wire.QueueLimit: // the user has had 4 s
			t.Errorf("%+v: %+v", back, c.bad)
		}
	}
	if len(built) != 2 || s.ask(built[0]) != s.ask(built[1]) || keys[sourceOf(built[0]).Key] != "1-0" {
		t.Errorf("%v come back for one form", built)
	}
	s.Close(&wire.Error{Code: wire.ShuttingDown})
	s.Wait()
	if len(s.users) != 0 || len(s.turns) != 0 || s.running != 0 || s.waiting != 0 {
		t.Errorf("left: %d users, %d turns, %d builds, %d requests", len(s.users), len(s.turns), s.running, s.waiting)
	}
}
