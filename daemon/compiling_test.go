package daemon

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/constrain"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

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

// slowSchema is one whose compilation the gate holds under this name.
func slowSchema(name string) wire.Format {
	return wire.Format{Kind: wire.FormatSchema, Payload: `{"type":"integer","title":"` + name +
		`","minimum":0,"maximum":9}`}
}

// slowServer is a daemon whose compilations of slowSchema wait at a gate.
func slowServer(t *testing.T, args ...string) (*running, *gate) {
	r, g := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "1"}}}, args...), newGate()
	names := map[[32]byte]string{}
	for _, user := range "abc" {
		for i := range 20 {
			f := slowSchema(fmt.Sprintf("%c%d", user, i))
			format, _, _ := constrain.Sources(&wire.Request{Format: f}, nil, nil, nil)
			names[format.Key] = fmt.Sprintf("%c%d", user, i)
		}
	}
	r.grammars.BeforeBuild(g.before(func(key [32]byte) string { return names[key] }))
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
	if slices.ContainsFunc(rep.Requests, func(w reports.WhyRequest) bool { return w.State == "compiling" }) {
		t.Errorf("another user sees %+v", rep)
	}
	flood.Cancel("0")
	if ev := flood.end("0"); ev.Kind != wire.EventEOS || ev.EOS.Reason != wire.Cancelled {
		t.Errorf("%+v", ev)
	}
	waitfor.Recv(t, "its compilation is broken off", g.ended)
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
	var told []reports.WhyRequest
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
