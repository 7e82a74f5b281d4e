package blocks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func newLedger(t testing.TB, cells int) *Ledger {
	t.Helper()
	l, err := New(Config{Cells: cells, CellBytes: 2})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var (
	runs = Holders{All: 1, Running: 1}
	idle = Holders{All: 1}
)

// TestEvictionOrder holds the anchors of meridian-core's tests: the lowest tier goes first.
func TestEvictionOrder(t *testing.T) {
	l := newLedger(t, 64)
	spans := make([]Span, NumTiers)
	var order []*Span
	for tier := range NumTiers {
		l.Allocate(&spans[tier], tier, 16, runs)
		l.Hold(&spans[tier], Holders{Running: -1, Parked: 1})
		order = append(order, &spans[tier])
	}
	slices.SortFunc(order, l.Compare)
	got := ""
	for _, s := range order {
		got += s.Tier().String() + " "
	}
	if want := "prefix think_complete think_active output_critical "; got != want {
		t.Errorf("evicted in the order %s, want %s", got, want)
	}
	for i, tier := range EvictionOrder {
		if want := 16 * i; l.EvictableBefore(tier) != want {
			t.Errorf("%d cells go before %v, want %d", l.EvictableBefore(tier), tier, want)
		}
	}
}

// TestLeastValuableGoesFirst: within a tier the value decides, then the last use; both rise when a span is used.
func TestLeastValuableGoesFirst(t *testing.T) {
	l := newLedger(t, 64)
	var a, b Span
	l.Allocate(&a, Prefix, 16, idle)
	l.Allocate(&b, Prefix, 16, idle)
	if l.Compare(&a, &b) != 0 {
		t.Error("two new spans differ")
	}
	l.Touch(&a, 5, 1)
	l.Touch(&b, 7, 1)
	if l.Compare(&a, &b) >= 0 {
		t.Error("the least recently used span does not go first")
	}
	l.Touch(&a, 6, 3)
	if l.Compare(&a, &b) <= 0 || !l.MoreValuable(&a, &b) {
		t.Error("the more valuable span goes first")
	}
	l.RaiseLevel(&a) // a is evicted, so what is used from now on is worth more than a was
	l.Touch(&b, 8, 1)
	if l.Compare(&a, &b) >= 0 || l.Worth(&b) != 1 {
		t.Errorf("worth %v of a span used after an eviction", l.Worth(&b))
	}
	var c Span
	l.Allocate(&c, Prefix, 1, idle)
	l.Inherit(&c, &b)
	if l.MoreValuable(&b, &c) {
		t.Error("a span is worth less than the one it replaces")
	}
}

// TestStates: each holder moves the cells to the state that it makes of them, and the last one frees them.
func TestStates(t *testing.T) {
	l := newLedger(t, 100)
	var s Span
	step := func(what string, want Cells, tier Tier) {
		t.Helper()
		if got := l.Cells(); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		if s.Tier() != tier {
			t.Errorf("%s: tier %v, want %v", what, s.Tier(), tier)
		}
	}
	l.Allocate(&s, ThinkActive, 30, runs)
	step("a request thinks", Cells{Own: 30, Free: 70}, ThinkActive)
	l.Grow(&s, 10)
	l.SetTier(&s, ThinkComplete)
	step("its thought has ended", Cells{Own: 40, Free: 60}, ThinkComplete)
	l.Hold(&s, runs)
	step("another request shares it", Cells{Shared: 40, Free: 60}, ThinkComplete)
	l.Hold(&s, runs.Minus())
	l.Hold(&s, Holders{Running: -1, Parked: 1})
	step("the request is preempted", Cells{Cached: 40, Free: 60}, ThinkComplete)
	l.Hold(&s, Holders{Pinned: 1})
	step("a user pins it", Cells{Pinned: 40, Free: 60}, ThinkComplete)
	l.Hold(&s, Holders{Parked: -1})
	step("the request ends", Cells{Pinned: 40, Free: 60}, Prefix)
	l.Hold(&s, Holders{Pinned: -1})
	step("it is unpinned", Cells{Cached: 40, Free: 60}, Prefix)
	if l.Room() != 100 || l.Free() != 60 {
		t.Errorf("room for %d cells, %d free", l.Room(), l.Free())
	}
	l.Reserve(25)
	if l.Room() != 75 || l.Reserved() != 25 {
		t.Errorf("room for %d cells beside %d reserved ones", l.Room(), l.Reserved())
	}
	l.Reserve(-25)
	l.Hold(&s, idle.Minus())
	step("it is evicted", Cells{Free: 100}, Prefix)
}

func TestEvictionsAreCounted(t *testing.T) {
	l := newLedger(t, 100)
	var s Span
	l.Allocate(&s, OutputCritical, 40, runs)
	l.Evict(&s, 40, Preempted)
	l.Evict(&s, 17, Pressure)
	l.Evict(&s, 1, Dropped)
	e := l.Evictions()
	if want := [NumReasons]uint64{Pressure: 2, Preempted: 3, Dropped: 1}; e.Blocks[OutputCritical] != want {
		t.Errorf("blocks %v, want %v", e.Blocks[OutputCritical], want)
	}
	if want := [NumReasons]uint64{Pressure: 17, Preempted: 40, Dropped: 1}; e.Cells[OutputCritical] != want ||
		e.Answers != 5 {
		t.Errorf("cells %v, want %v; %d blocks of answers", e.Cells[OutputCritical], want, e.Answers)
	}
	before := l.AnswerBlocks()
	l.Interrupted(before)
	l.Evict(&s, 33, Pressure)
	l.Evict(&s, 1, Pressure)
	l.Interrupted(before)
	if e := l.Evictions(); e.Interruptions != 1 || e.Answers != 5+4 {
		t.Errorf("%d events of %d blocks, want 1 of 9", e.Interruptions, e.Answers)
	}
	if tiers := l.Tiers(); tiers != [NumTiers]int{OutputCritical: 40} || l.Bytes(40) != 80 {
		t.Errorf("tiers %v", tiers)
	}
}

// TestLedgerModel: after any changes of any spans the sums are those of the spans, and the cells are the pool's.
func TestLedgerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.IntRange(1, 500).Draw(t, "cells")
		l, err := New(Config{Cells: cells, BlockCells: rapid.IntRange(1, 20).Draw(t, "block")})
		if err != nil {
			t.Fatal(err)
		}
		var spans []*Span
		pick := func(t *rapid.T) *Span {
			if len(spans) == 0 {
				t.Skip("there is no span")
			}
			return rapid.SampledFrom(spans).Draw(t, "span")
		}
		tier := func(t *rapid.T) Tier { return rapid.SampledFrom(EvictionOrder[:]).Draw(t, "tier") }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if err := l.Audit(slices.Values(spans)); err != nil {
					t.Fatal(err)
				}
			},
			"allocate": func(t *rapid.T) {
				if l.Free() == 0 {
					t.Skip("no cell is free")
				}
				s := &Span{}
				l.Allocate(s, tier(t), rapid.IntRange(1, l.Free()).Draw(t, "n"),
					rapid.SampledFrom([]Holders{runs, idle}).Draw(t, "holders"))
				spans = append(spans, s)
			},
			"grow": func(t *rapid.T) { l.Grow(pick(t), rapid.IntRange(0, l.Free()).Draw(t, "n")) },
			"share": func(t *rapid.T) {
				l.Hold(pick(t), rapid.SampledFrom([]Holders{runs, idle, {All: 1, Pinned: 1}, {All: 1, Parked: 1}}).Draw(
					t, "holders"))
			},
			"end": func(t *rapid.T) {
				if s := pick(t); s.Holders().Running > 0 {
					l.Hold(s, Holders{Running: -1})
				}
			},
			"free": func(t *rapid.T) {
				s := pick(t)
				if l.Hold(s, s.Holders().Minus()); s.Holders() != (Holders{}) {
					t.Fatalf("holders %+v", s.Holders())
				}
				spans = slices.DeleteFunc(spans, func(o *Span) bool { return o == s })
			},
			"tier": func(t *rapid.T) {
				if s := pick(t); s.Holders().Running > 0 {
					l.SetTier(s, tier(t))
				}
			},
			"split and join": func(t *rapid.T) {
				s := pick(t)
				if s.Cells() < 2 {
					t.Skip("one cell")
				}
				var upper Span
				before := *s
				l.Split(&upper, s, rapid.IntRange(1, s.Cells()-1).Draw(t, "at"))
				if err := l.Audit(slices.Values(append(slices.Clone(spans), &upper))); err != nil {
					t.Fatal(err)
				}
				if l.Join(&upper, s); *s != before {
					t.Fatalf("%+v became %+v", before, *s)
				}
			},
		})
	})
}

// TestBrokenCallersPanic: what would make the sums wrong panics.
// TestOffload: the three operations of ADR-0006. A thought's cells are given up and come back; until then it is
// elsewhere, its length stays, and its cells belong to others. When nothing needs it any more, it is nowhere.
func TestOffload(t *testing.T) {
	l := newLedger(t, 100)
	var s Span
	l.Allocate(&s, ThinkComplete, 40, Holders{All: 1, Parked: 1})
	step := func(what string, at Location, cells, away, free int) {
		t.Helper()
		if l.BlockLocation(&s) != at || s.Cells() != cells || l.Offloaded() != away || l.Free() != free ||
			s.Len() != 40 {
			t.Errorf("%s: %v, %d of %d cells, %d offloaded, %d free", what, l.BlockLocation(&s), s.Cells(), s.Len(),
				l.Offloaded(), l.Free())
		}
		if err := l.Audit(func(yield func(*Span) bool) { yield(&s) }); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	step("parked", Local, 40, 0, 60)
	if n := l.OffloadBlock(&s); n != 40 {
		t.Errorf("%d cells were given up", n)
	}
	step("offloaded", Offloaded, 0, 40, 100)
	l.IngestBlock(&s)
	step("ingested", Local, 40, 0, 60)
	l.OffloadBlock(&s)
	l.Hold(&s, Holders{All: -1, Parked: -1})
	if l.Offloaded() != 0 || l.Free() != 100 {
		t.Errorf("its request has ended: %d cells are offloaded, %d free", l.Offloaded(), l.Free())
	}
}

func TestBrokenCallersPanic(t *testing.T) {
	for what, do := range map[string]func(l *Ledger){
		"a span grows by 11 cells, 10 are free": func(l *Ledger) { l.Allocate(&Span{}, Prefix, 11, runs) },
		"-1 cells are reserved":                 func(l *Ledger) { l.Reserve(-1) },
		"a span of 10 cells with holders {All:1 Running:1": func(l *Ledger) {
			var s Span
			l.Allocate(&s, ThinkComplete, 10, runs)
			l.OffloadBlock(&s)
		},
		"a span of 0 cells with holders": func(l *Ledger) { l.OffloadBlock(&Span{}) },
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, what) {
					t.Errorf("panic %q, want %q", p, what)
				}
			}()
			do(newLedger(t, 10))
		}()
	}
}

func TestAuditFinds(t *testing.T) {
	l := newLedger(t, 10)
	var s Span
	l.Allocate(&s, ThinkActive, 4, runs)
	forgotten := slices.Values([]*Span{})
	if err := l.Audit(forgotten); err == nil || !strings.Contains(err.Error(), "the ledger counts") {
		t.Errorf("a span that the tree forgot: %v", err)
	}
	wrong := s
	wrong.holders.Running = 2
	if err := l.Audit(slices.Values([]*Span{&wrong})); err == nil || !strings.Contains(err.Error(), "holders") {
		t.Errorf("a span with more running holders than holders: %v", err)
	}
	wrong = s
	wrong.holders = idle
	if err := l.Audit(slices.Values([]*Span{&wrong})); err == nil ||
		!strings.Contains(err.Error(), "no request needs") {
		t.Errorf("an idle thought: %v", err)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "cells = 0"},
		{Config{Cells: 1 << 31}, "cells = 2147483648"},
		{Config{Cells: 1, BlockCells: -1}, "block cells = -1"},
		{Config{Cells: 1, CellBytes: -1}, "cell bytes = -1"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.cfg, err, c.want)
		}
	}
}

// TestAllocations: a decoded token costs no garbage.
func TestAllocations(t *testing.T) {
	l := newLedger(t, 1<<16)
	spans := make([]Span, 8)
	for i := range spans {
		l.Allocate(&spans[i], OutputCritical, 1, runs)
	}
	if n := testing.AllocsPerRun(1000, func() {
		for i := range spans {
			l.Grow(&spans[i], 1)
		}
	}); n != 0 {
		t.Errorf("a step of 8 tokens allocates %v times", n)
	}
}
