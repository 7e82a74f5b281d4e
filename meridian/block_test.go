package meridian

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func newTestBlocks(t testing.TB, cells, blockCells int) *Blocks {
	t.Helper()
	b, err := NewBlocks(BlocksConfig{Cells: cells, BlockCells: blockCells, CellBytes: 2})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func allocate(t testing.TB, b *Blocks, o Owner, tier Tier, n int) []BlockVictim {
	t.Helper()
	v, err := b.Allocate(o, tier, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.check(); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(v)
}

func evict(t testing.TB, b *Blocks, n int) string {
	t.Helper()
	freed, victims := b.EvictFor(n, 0)
	if err := b.check(); err != nil {
		t.Fatal(err)
	}
	return text(freed, victims)
}

func text(freed int, victims []BlockVictim) string {
	s := fmt.Sprint(freed)
	for _, v := range victims {
		s += fmt.Sprintf(" %d:%v:%dx%d", v.Owner, v.Tier, v.Blocks, v.Cells)
	}
	return s
}

// TestEvictionOrder holds the anchors of meridian-core's tests: the lowest tier goes first and no more than is needed.
func TestEvictionOrder(t *testing.T) {
	b := newTestBlocks(t, 6*16, 16)
	allocate(t, b, 1, OutputCritical, 32)
	allocate(t, b, 2, ThinkActive, 32)
	allocate(t, b, 3, ThinkComplete, 32)
	if got, want := evict(t, b, 32), "32 3:think_complete:2x32"; got != want {
		t.Errorf("evicted %s, want %s", got, want)
	}

	b = newTestBlocks(t, 64, 16)
	for tier, o := range map[Tier]Owner{OutputCritical: 1, ThinkActive: 2, ThinkComplete: 3, Prefix: 4} {
		allocate(t, b, o, tier, 16)
	}
	if got, want := evict(t, b, 64), "64 4:prefix:1x16 3:think_complete:1x16 2:think_active:1x16 1:output_critical:1x16"; got != want {
		t.Errorf("evicted %s, want %s", got, want)
	}
	if s := b.Snapshot(); s.OutputCriticalEvictions != 1 || s.Evicted[ThinkActive][EvictPressure] != 1 || s.EvictedCells[Prefix][EvictPressure] != 16 {
		t.Errorf("counted %+v", s)
	}
	// meridian-core counts an output-critical eviction also when there is nothing to evict.
	if got := evict(t, b, 16); got != "0" || b.Snapshot().OutputCriticalEvictions != 1 {
		t.Errorf("an empty pool evicted %s, %d output-critical", got, b.Snapshot().OutputCriticalEvictions)
	}
}

func TestLeastRecentlyUsedGoesFirst(t *testing.T) {
	b := newTestBlocks(t, 48, 16)
	for o := Owner(1); o <= 3; o++ {
		allocate(t, b, o, ThinkActive, 16)
	}
	b.Touch(1)
	b.Touch(3)
	b.TouchBlock(99) // not live: ignored
	if got, want := evict(t, b, 16), "16 2:think_active:1x16"; got != want {
		t.Errorf("evicted %s, want %s", got, want)
	}
}

// TestDemoteKeepsAge: a demoted block competes with its own age, and the eviction is the tier's that it has then.
func TestDemoteKeepsAge(t *testing.T) {
	b := newTestBlocks(t, 96, 16)
	allocate(t, b, 1, ThinkComplete, 16)
	allocate(t, b, 2, ThinkActive, 32)
	allocate(t, b, 3, ThinkComplete, 16)
	allocate(t, b, 2, OutputCritical, 16)
	if n := b.Demote(2); n != 32 || b.Demote(2) != 0 || b.Demote(77) != 0 {
		t.Errorf("%d cells demoted", n)
	}
	if err := b.check(); err != nil {
		t.Fatal(err)
	}
	if got, want := evict(t, b, 60), "64 1:think_complete:1x16 2:think_complete:2x32 3:think_complete:1x16"; got != want {
		t.Errorf("evicted %s, want %s", got, want)
	}
	if c := b.CellsOf(2, OutputCritical); c != 16 {
		t.Errorf("request 2 has %d cells of its answer left", c)
	}
}

func TestIdsAreReused(t *testing.T) {
	b := newTestBlocks(t, 64, 16)
	allocate(t, b, 1, ThinkActive, 48)
	ids := b.BlocksOf(nil, 1)
	if len(ids) != 3 || b.Free(1) != 48 || b.Free(1) != 0 {
		t.Fatalf("blocks %v", ids)
	}
	allocate(t, b, 2, ThinkActive, 16)
	if got := b.BlocksOf(nil, 2); !slices.Equal(got, ids[2:]) {
		t.Errorf("the next block is %v, want the last one freed, %v", got, ids[2:])
	}
}

// TestAllocateChecksFirst: meridian-core evicts and then fails, takes the caller's own blocks, and reports neither.
func TestAllocateChecksFirst(t *testing.T) {
	b := newTestBlocks(t, 64, 16)
	allocate(t, b, 1, ThinkComplete, 32)
	allocate(t, b, 2, OutputCritical, 32)
	before := b.Snapshot()
	if _, err := b.Allocate(2, OutputCritical, 33); !errors.Is(err, ErrNoCells) {
		t.Errorf("33 cells of others' 32: %v", err)
	}
	if _, err := b.AllocateAll([]Want{{3, ThinkActive, 40}, {4, ThinkActive, 40}}); !errors.Is(err, ErrNoCells) {
		t.Errorf("80 of 64 cells: %v", err)
	}
	if after := b.Snapshot(); after != before {
		t.Errorf("a refused allocation changed %+v to %+v", before, after)
	}
	if got, want := text(0, allocate(t, b, 2, OutputCritical, 20)), "0 1:think_complete:2x32"; got != want {
		t.Errorf("evicted %s, want %s", got, want)
	}
	if s := b.Snapshot(); s.Cells[OutputCritical] != 52 || s.FreeCells != 12 || s.Blocks[OutputCritical] != 4 || s.Bytes[OutputCritical] != 104 {
		t.Errorf("%+v", s)
	}
	if _, err := b.Allocate(1, NumTiers, 1); err == nil {
		t.Error("a tier that is none was allocated")
	}
	if _, err := b.Allocate(1, Prefix, -1); err == nil {
		t.Error("a negative number was allocated")
	}
}

func TestSharedBlocksStay(t *testing.T) {
	b := newTestBlocks(t, 64, 16)
	allocate(t, b, 1, Prefix, 32)
	ids := b.BlocksOf(nil, 1)
	if err := b.Share(ids[0]); err != nil {
		t.Fatal(err)
	}
	if got, want := evict(t, b, 64), "16 1:prefix:1x16"; got != want {
		t.Errorf("evicted %s, want %s", got, want)
	}
	if n := b.Free(1); n != 0 || b.CellsOf(SharedOwner, Prefix) != 16 || b.Snapshot().CachedCells != 16 {
		t.Errorf("%d cells freed of a shared block, %d held", n, b.CellsOf(SharedOwner, Prefix))
	}
	if err := b.Unshare(ids[0]); err != nil || b.FreeCells() != 64 {
		t.Errorf("%d cells free after the last holder (%v)", b.FreeCells(), err)
	}
	if b.Unshare(ids[0]) == nil || b.Share(ids[0]) == nil || b.Share(-1) == nil {
		t.Error("a block that is not live was shared")
	}
	if err := b.check(); err != nil {
		t.Fatal(err)
	}
}

// TestDaemonsWay is one request's life as the daemon tells it.
func TestDaemonsWay(t *testing.T) {
	b := newTestBlocks(t, 200, 16)
	step := func(ok bool, what string) {
		t.Helper()
		if err := b.check(); !ok || err != nil {
			t.Fatalf("%s: %v, %v", what, ok, err)
		}
	}
	step(b.SetCache(100, 0), "100 cells are cached")
	step(b.SetCache(40, 60), "the request shares 60 of them")
	step(b.OnCells(7, Prefix, 20), "the rest of its prompt")
	for range 17 {
		step(b.OnCells(7, ThinkActive, 1), "it thinks")
	}
	b.Demote(7)
	for range 5 {
		step(b.OnCells(7, OutputCritical, 1), "it answers")
	}
	step(!b.OnCells(7, OutputCritical, 59), "58 cells are free")
	if freed, order := b.EvictOrder(45, 7); text(freed, order) != fmt.Sprintf("40 %d:prefix:3x40", CacheOwner) {
		t.Errorf("to go first: %s", text(freed, order))
	}
	if s := b.Snapshot(); s.LiveCells != 42 || s.CachedCells != 100 || s.FreeCells != 58 || s.Blocks[ThinkComplete] != 2 {
		t.Errorf("%+v", s)
	}
	// At the end of the turn 70 of its cells stay as a cached prefix.
	step(b.Free(7) == 42 && b.SetCache(110, 0), "the turn ends")
	step(!b.SetCache(150, 51), "more than the pool")
	step(b.SetCells(8, Prefix, 30) && b.SetCells(8, Prefix, 11) && !b.SetCells(8, Prefix, -1) && b.CellsOf(8, Prefix) == 11, "set")
	step(b.Evict(8, EvictPreempt) == 11 && b.Snapshot().Evicted[Prefix][EvictPreempt] == 1, "preempted")
	step(b.EvictCells(CacheOwner, Prefix, 60, EvictPressure) && b.SetCache(50, 0), "the tree has evicted 60")
	if s := b.Snapshot(); s.EvictedCells[Prefix][EvictPressure] != 60 || s.Evicted[Prefix][EvictPressure] != 3 {
		t.Errorf("60 evicted cells are counted as %d in %d blocks", s.EvictedCells[Prefix][EvictPressure], s.Evicted[Prefix][EvictPressure])
	}
	step(!b.EvictCells(CacheOwner, Prefix, 51, EvictDropped) && !b.EvictCells(9, ThinkActive, -1, EvictDropped), "more than there are")
	step(b.OnCells(9, OutputCritical, 20) && b.Evict(9, EvictPreempt) == 20 && b.Snapshot().OutputCriticalEvictions == 2, "an answer is preempted")
	step(b.SetCache(0, 0) && b.FreeCells() == 200, "nothing is left")
}

// TestBlocksModel compares with plain sums of cells by owner and tier.
func TestBlocksModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.IntRange(1, 120).Draw(t, "cells")
		size := rapid.IntRange(1, 8).Draw(t, "block")
		b, err := NewBlocks(BlocksConfig{Cells: cells, BlockCells: size, CellBytes: 3})
		if err != nil {
			t.Fatal(err)
		}
		have := map[Owner]map[Tier]int{}
		for o := Owner(1); o <= 4; o++ {
			have[o] = map[Tier]int{}
		}
		owner := func() Owner { return Owner(rapid.IntRange(1, 4).Draw(t, "owner")) }
		tier := func() Tier { return Tier(rapid.IntRange(0, int(NumTiers)-1).Draw(t, "tier")) }
		total := func(but Owner) (n int) {
			for o, by := range have {
				for _, c := range by {
					if o != but {
						n += c
					}
				}
			}
			return n
		}
		take := func(victims []BlockVictim, except Owner) {
			rank := -1
			for _, v := range victims {
				r := slices.Index(evictionOrder[:], v.Tier)
				if v.Owner == except || r < rank || v.Bytes != int64(v.Cells)*3 {
					t.Fatalf("victims %v, of which %d is the caller's", victims, except)
				}
				// Nothing of a tier goes while others have cells of a lower one.
				for _, lower := range evictionOrder[:r] {
					for o, by := range have {
						if o != except && by[lower] > 0 {
							t.Fatalf("%v while owner %d has %d cells of %v", v, o, by[lower], lower)
						}
					}
				}
				rank = r
				have[v.Owner][v.Tier] -= v.Cells
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if err := b.check(); err != nil {
					t.Fatal(err)
				}
				for o, by := range have {
					for tr := range NumTiers {
						if got := b.CellsOf(o, tr); got != by[tr] {
							t.Fatalf("owner %d has %d cells of %v, want %d", o, got, tr, by[tr])
						}
					}
				}
			},
			"allocate": func(t *rapid.T) {
				o, tr, n := owner(), tier(), rapid.IntRange(0, 60).Draw(t, "n")
				could := cells - total(0) + total(o)
				v, err := b.Allocate(o, tr, n)
				if (err == nil) != (n <= could) {
					t.Fatalf("%d cells for owner %d, %d could be had: %v", n, o, could, err)
				}
				if err == nil {
					take(v, o)
					have[o][tr] += n
				}
			},
			"on": func(t *rapid.T) {
				o, tr, n := owner(), tier(), rapid.IntRange(-20, 20).Draw(t, "n")
				want := n <= cells-total(0) && have[o][tr]+n >= 0
				if got := b.OnCells(o, tr, n); got != want {
					t.Fatalf("%d cells more of %d: %v", n, have[o][tr], got)
				} else if got {
					have[o][tr] += n
				}
			},
			"demote": func(t *rapid.T) {
				o := owner()
				b.Demote(o)
				have[o][ThinkComplete] += have[o][ThinkActive]
				have[o][ThinkActive] = 0
			},
			"touch": func(t *rapid.T) { b.Touch(owner()) },
			"free": func(t *rapid.T) {
				o := owner()
				b.Free(o)
				have[o] = map[Tier]int{}
			},
			"evict": func(t *rapid.T) {
				n, o := rapid.IntRange(0, 60).Draw(t, "n"), owner()
				would, order := b.EvictOrder(n, o)
				announced := slices.Clone(order)
				freed, v := b.EvictFor(n, o)
				if freed < min(n, total(o)) || freed != would || !slices.Equal(announced, v) {
					t.Fatalf("%d freed of %d, announced %d: %v, %v", freed, n, would, v, announced)
				}
				take(v, o)
			},
		})
	})
}

func TestBlocksConfig(t *testing.T) {
	for _, c := range []BlocksConfig{{}, {Cells: -1}, {Cells: 1 << 31}, {Cells: 1, BlockCells: -1}, {Cells: 1, CellBytes: -1}} {
		if _, err := NewBlocks(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// TestBlocksAllocateNothing: a decoded token costs no garbage.
func TestBlocksAllocateNothing(t *testing.T) {
	b := newTestBlocks(t, 1<<16, 16)
	b.SetCache(1000, 1000)
	for o := Owner(1); o <= 8; o++ {
		b.OnCells(o, Prefix, 100)
	}
	if n := testing.AllocsPerRun(1000, func() {
		for o := Owner(1); o <= 8; o++ {
			b.OnCells(o, OutputCritical, 1)
		}
	}); n != 0 {
		t.Errorf("a step of 8 tokens allocates %v times", n)
	}
}

func BenchmarkBlocksToken(b *testing.B) {
	l := newTestBlocks(b, 1<<20, 16)
	for o := Owner(1); o <= 32; o++ {
		l.OnCells(o, Prefix, 1000)
	}
	b.ReportAllocs()
	for i := range b.N {
		if !l.OnCells(Owner(i%32+1), OutputCritical, 1) {
			b.StopTimer()
			for o := Owner(1); o <= 32; o++ {
				l.SetCells(o, OutputCritical, 1)
			}
			b.StartTimer()
		}
	}
}
