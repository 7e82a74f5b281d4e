package daemon

import (
	"errors"
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
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// formsTest is forms without a server, with a clock that a compilation advances.
type formsTest struct {
	*forms
	t     *testing.T
	back  chan []job
	clock atomic.Int64  // ns
	slow  time.Duration // of one compilation; written while none runs
}

func newFormsTest(t *testing.T) *formsTest {
	s := &formsTest{t: t, back: make(chan []job, 1000)}
	v := grammar.NewVocabulary([][]byte{{'1'}}, nil)
	s.forms = newForms(metrics.New(metrics.Build{}), func() *grammar.Vocabulary { return v },
		func(jobs []job) { s.back <- jobs })
	s.now = func() time.Time { return time.Unix(1000, s.clock.Load()) }
	s.compile = func(b *formSource, l grammar.Limits) (*grammar.Grammar, error) {
		s.clock.Add(int64(s.slow))
		return b.compile(l)
	}
	return s
}

// want is a request of owner for the i-th form.
func want(owner uint32, i int) job {
	return job{r: newTestRequest(fmt.Sprint(owner, "-", i), owner), w: &wire.Request{
		Format: wire.Format{Kind: wire.FormatSchema, Payload: fmt.Sprintf(`{"type": "integer", "minimum": %d}`, i)}}}
}

func (s *formsTest) ask(j job) *compiled { return s.get(formSourceOf(j.w, nil), j) }

// compiled is the i-th form as owner gets it, and whether it was compiled for that.
func (s *formsTest) compiled(owner uint32, i int) (c *compiled, fresh bool) {
	s.t.Helper()
	j := want(owner, i)
	if c := s.ask(j); c != nil {
		return c, false
	}
	jobs := waitfor.Recv(s.t, "a form is compiled", s.back)
	if len(jobs) != 1 || jobs[0].r != j.r {
		s.t.Fatalf("%v come back", jobs)
	}
	return s.ask(jobs[0]), true
}

// TestFormsAreCompiledOnce: the same form is compiled once, a refused one too; a user may not have too much compiled;
// what was used longest ago makes way, and of many forms those of the user that has the most.
func TestFormsAreCompiledOnce(t *testing.T) {
	s := newFormsTest(t)
	a, fresh := s.compiled(1, 0)
	if a.bad != nil || !fresh {
		t.Fatal(a.bad)
	}
	if b, fresh := s.compiled(2, 0); a != b || fresh {
		t.Errorf("compiled again for another user")
	}
	bad := job{r: newTestRequest("bad", 1),
		w: &wire.Request{Format: wire.Format{Kind: wire.FormatSchema, Payload: `{"extends": {}}`}}}
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
	for i := range 3 * keptForms {
		c, _ := s.compiled(4, 200+i)
		if c.bad != nil {
			t.Fatal(c.bad)
		}
	}
	if _, fresh := s.compiled(3, 102); fresh || s.kept.Len() > keptForms {
		t.Errorf("%d are kept, and not that of another user: compiled again %v", s.kept.Len(), fresh)
	}
	for i := range 3 * keptForms {
		if c, _ := s.compiled(uint32(10+i), 2000+i); i%2 == 0 {
			c.bytes.Store(keptBytes / 50)
		}
	}
	sum := int64(0)
	for _, c := range s.kept.Values() {
		sum += c.bytes.Load()
	}
	if s.kept.Len() > keptForms || sum > keptBytes+keptBytes/50 {
		t.Errorf("%d grammars of %d bytes are kept", s.kept.Len(), sum)
	}
}

// gate holds compilations until a test lets them go, one by one.
type gate struct {
	began chan string // the field's payload, as each begins
	free  map[string]chan struct{}
	ended chan error
	mu    sync.Mutex
}

func newGate() *gate {
	return &gate{began: make(chan string, 100), ended: make(chan error, 100), free: map[string]chan struct{}{}}
}

func (g *gate) of(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free[name] == nil {
		g.free[name] = make(chan struct{})
	}
	return g.free[name]
}

// compile waits at the gate if names has a name for b, asking l.Stop as compiling does.
func (g *gate) compile(names func(b *formSource) string) func(*formSource, grammar.Limits) (*grammar.Grammar, error) {
	return func(b *formSource, l grammar.Limits) (*grammar.Grammar, error) {
		name := names(b)
		if name == "" {
			return b.compile(l)
		}
		g.began <- name
		free := g.of(name)
		for {
			select {
			case <-free:
				return b.compile(l)
			case <-time.After(time.Millisecond):
			}
			if l.Stop() {
				g.ended <- grammar.ErrStopped
				return nil, grammar.ErrStopped
			}
		}
	}
}

// TestCompilingTakesTurns: one form of each user is compiled at a time and two in all; users take turns; the requests
// for one form wait for one compilation; what a user pays is known at its end.
func TestCompilingTakesTurns(t *testing.T) {
	s, g := newFormsTest(t), newGate()
	keys := map[[32]byte]string{}
	var jobs []job
	add := func(owner uint32, i int) {
		j := want(owner, i)
		keys[formSourceOf(j.w, nil).key] = fmt.Sprint(owner, "-", i)
		jobs = append(jobs, j)
	}
	for i := range 4 {
		add(1, i)
	}
	add(1, 0)
	add(2, 10)
	add(3, 20)
	add(2, 11)
	s.compile = g.compile(func(b *formSource) string { return keys[b.key] })
	for _, j := range jobs {
		if s.ask(j) != nil {
			t.Fatal("it is there already")
		}
	}
	next := func() string { return waitfor.Recv(t, "a compilation begins", g.began) }
	open := func(name string) []job {
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
	var built []job
	for range 4 { // the refused ones may come back first
		back := waitfor.Recv(t, "the forms of user 1 come back", s.back)
		c := s.ask(back[0])
		switch {
		case c == nil || back[0].r.Owner != 1:
			t.Errorf("%+v: %+v", back, c)
		case c.bad == nil:
			built = append(built, back...)
		case c.bad.Code != wire.QueueLimit: // the user has had 4 s
			t.Errorf("%+v: %+v", back, c.bad)
		}
	}
	if len(built) != 2 || s.ask(built[0]) != s.ask(built[1]) || keys[formSourceOf(built[0].w, nil).key] != "1-0" {
		t.Errorf("%v come back for one form", built)
	}
	s.forms.close()
	s.wait()
	if len(s.users) != 0 || len(s.turns) != 0 || s.running != 0 || s.parked != 0 {
		t.Errorf("left: %d users, %d turns, %d builds, %d requests", len(s.users), len(s.turns), s.running, s.parked)
	}
}

// slowSchema is one whose compilation the gate holds under this name.
func slowSchema(name string) wire.Format {
	return wire.Format{Kind: wire.FormatSchema, Payload: `{"type":"integer","title":"` + name +
		`","minimum":0,"maximum":9}`}
}

// slowServer is a daemon whose compilations of slowSchema wait at a gate.
func slowServer(t *testing.T, args ...string) (*running, *gate) {
	r, g := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "1"}}}, args...), newGate()
	r.forms.mu.Lock()
	defer r.forms.mu.Unlock()
	names := map[[32]byte]string{}
	for _, user := range "abc" {
		for i := range 20 {
			f := slowSchema(fmt.Sprintf("%c%d", user, i))
			names[formKey(&f)] = fmt.Sprintf("%c%d", user, i)
		}
	}
	r.forms.compile = g.compile(func(b *formSource) string { return names[b.key] })
	return r, g
}

// TestSlowSchemasDelayNoOtherUser: while one user's schemas are compiled without end, another user's requests pass,
// with forms and without. why and the metrics show the parked requests; a cancel ends a parked request at once and
// stops the build that no other request waits for; the shutdown refuses the rest.
func TestSlowSchemasDelayNoOtherUser(t *testing.T) {
	r, g := slowServer(t)
	const flooder, other = 1001, 1002
	flood := r.as(flooder)
	for i := range 6 {
		flood.send(fmt.Sprint(i), func(q *wire.Request) {
			q.Format, q.MaxTokens, q.Sampling.IgnoreEOS = slowSchema(fmt.Sprintf("a%d", i)), 9, false
		})
	}
	if name := waitfor.Recv(t, "the first is compiled", g.began); name != "a0" {
		t.Errorf("%s is compiled first", name)
	}
	eventually(t, "all of them wait", func() bool { return r.metrics.GrammarCompiling.Value() == 6 })
	c := r.as(other)
	for i := range 8 {
		c.send(fmt.Sprint(i), func(q *wire.Request) {
			if q.Prompt, q.MaxTokens, q.Sampling.IgnoreEOS = "hello", 20, false; i%2 == 0 {
				q.Format = wire.Format{Kind: wire.FormatSchema,
					Payload: fmt.Sprintf(`{"type": "integer", "minimum": %d, "maximum": 9}`, i)}
			}
		})
	}
	for id, ev := range c.ends(8) {
		if ev.Kind != wire.EventEOS {
			t.Fatalf("request %s: %+v", id, ev.Error)
		}
	}
	rep := r.as(flooder).why(wire.WhyQuestion{Last: 4})
	if len(rep.Requests) != 4 || rep.Requests[0].State != "compiling" || rep.Requests[0].Form.Form != "json" ||
		rep.Requests[0].Decisions[0].Reason != "compiling" || rep.Requests[0].Number != 0 {
		t.Errorf("why says %+v", rep)
	}
	rep = r.as(other).why(wire.WhyQuestion{Last: 50})
	if slices.ContainsFunc(rep.Requests, func(w wire.WhyRequest) bool { return w.State == "compiling" }) {
		t.Errorf("another user sees %+v", rep)
	}
	flood.Cancel("0")
	if ev := flood.end("0"); ev.Kind != wire.EventEOS || ev.EOS.Reason != wire.Cancelled {
		t.Errorf("%+v", ev)
	}
	if err := waitfor.Recv(t, "its compilation is broken off", g.ended); !errors.Is(err, grammar.ErrStopped) {
		t.Error(err)
	}
	if name := waitfor.Recv(t, "the next one is compiled", g.began); name != "a1" {
		t.Errorf("%s is compiled next", name)
	}
	flood.Cancel("3") // it waits to be compiled
	if ev := flood.end("3"); ev.Kind != wire.EventEOS || ev.EOS.Reason != wire.Cancelled {
		t.Errorf("%+v", ev)
	}
	close(g.of("a1"))
	if ev := flood.end("1"); ev.Kind != wire.EventEOS {
		t.Errorf("%+v", ev.Error)
	}
	var told []wire.WhyRequest
	r.inLoop(func(l *loop) { told = l.why(wire.WhyQuestion{Request: "1"}, flooder, time.Now()).Requests })
	if len(told) != 1 || told[0].Form == nil || told[0].Form.CompileMs <= 0 ||
		told[0].Decisions[0].Reason != "compiled" {
		t.Errorf("why says of a request that has waited: %+v", told)
	}
	waitfor.Recv(t, "another one is compiled", g.began)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	ends := flood.ends(3)
	for _, id := range []string{"2", "4", "5"} {
		if ev := ends[id]; ev.Kind != wire.EventError || ev.Error.Code != wire.ShuttingDown {
			t.Errorf("request %s at the shutdown: %+v", id, ev)
		}
	}
	if n := r.metrics.GrammarCompiling.Value(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}
