package core

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/price"
)

// TestStrictKnowsItsCells: the scheduler hears which tokens of a strict request's prompt need not be computed: those in
// the pool, and those that a measured store has sooner than they are computed.
func TestStrictKnowsItsCells(t *testing.T) {
	cfg := testConfig(256, 2, 64, "uma")
	cfg.PartTokens, cfg.ByPrice = 32, true
	var heard sched.EvArrive
	cfg.Planned = func(_ Instant, in *sched.Events, _ *sched.Plan) {
		for _, e := range in.Arrivals {
			heard = e
		}
	}
	m, err := newMachine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	id := 0
	ask := func(strict bool, prompt string) {
		t.Helper()
		id++
		r := arrival(t, []string{strconv.Itoa(id), "prompt=" + prompt, "max=4"})
		r.Strict = strict
		m.arrive(r)
		m.run(t, nil, &strings.Builder{})
	}
	ask(true, "a:120")
	if heard.Cached != 0 || heard.Restore != 0 {
		t.Errorf("an empty pool: %d tokens in %v", heard.Cached, heard.Restore)
	}
	ask(true, "a:120+d:5")
	if heard.Cached != 120 || heard.Restore != 0 {
		t.Errorf("the pool has 120: %d tokens in %v", heard.Cached, heard.Restore)
	}
	ask(false, "a:120+e:5")
	if heard.Cached != 0 {
		t.Errorf("a request that is not strict: %d tokens", heard.Cached)
	}
	ask(false, "b:240") // evicts it
	ask(true, "c:4")    // and learns what computing takes
	ask(true, "a:120+f:5")
	if heard.Cached >= 32 {
		t.Errorf("of a store that was not measured %d tokens count", heard.Cached)
	}
	ask(false, "b:240+g:5")
	m.c.prices = price.Prices{}
	for range 3 {
		m.c.prices.Learn(storeOf(Host), 100, time.Microsecond, 2*time.Microsecond)
	}
	ask(true, "a:120+h:5")
	if heard.Cached < 96 || heard.Restore <= 0 || heard.Restore > time.Millisecond {
		t.Errorf("a quick store has 96: %d tokens in %v", heard.Cached, heard.Restore)
	}
	ask(false, "b:240+i:5")
	m.c.prices = price.Prices{}
	for range 3 {
		m.c.prices.Learn(storeOf(Host), 100, time.Hour, 2*time.Hour)
	}
	ask(true, "a:120+j:5")
	if heard.Cached >= 32 {
		t.Errorf("of a slow store %d tokens count", heard.Cached)
	}
}
