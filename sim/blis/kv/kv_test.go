package kv

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestIndex compares with a map, with hashes that collide on purpose.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		m := map[uint64]int32{}
		for i := range rapid.IntRange(1, 400).Draw(t, "n") {
			h := rapid.Uint64Range(1, 12).Draw(t, "low")<<32 | rapid.Uint64Range(0, 6).Draw(t, "home")
			if h == 0 {
				h = 1
			}
			if rapid.Bool().Draw(t, "delete") {
				x.delete(h)
				delete(m, h)
			} else {
				x.set(h, int32(i))
				m[h] = int32(i)
			}
			if x.n != len(m) {
				t.Fatalf("%d entries, want %d", x.n, len(m))
			}
			for h, want := range m {
				if got, ok := x.get(h); !ok || got != want {
					t.Fatalf("get(%x) = %d, %v, want %d", h, got, ok, want)
				}
			}
			if _, ok := x.get(h + 99); ok {
				t.Fatal("found what was never there")
			}
		}
	})
}

// TestCache does random things to caches of all kinds and walks all blocks after each (INV-4).
func TestCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "size")
		c := New(Config{BlockTokens: size, Blocks: rapid.IntRange(1, 30).Draw(t, "blocks"),
			Tier:       rapid.SampledFrom([]Tier{NoTier, Offload, Mirror}).Draw(t, "tier"),
			HostBlocks: rapid.IntRange(1, 10).Draw(t, "host"), OffloadThreshold: 0.4, ReloadTicks: 3})
		type owner struct {
			seq       Seq
			n, filled int
		}
		var live []*owner
		for i := range rapid.IntRange(1, 80).Draw(t, "ops") {
			c.SetClock(int64(i) * 100)
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
			case op == 0 || len(live) == 0:
				o := &owner{n: rapid.IntRange(1, 30).Draw(t, "n")}
				o.seq.ID = workload.Identity{Prefix: workload.NamedStream(
					fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "group"))),
					PrefixLen: rapid.IntRange(0, o.n).Draw(t, "prefix"), Own: workload.NumberedStream(int64(i)),
					Private: rapid.Bool().Draw(t, "private")}
				cached := c.Lookup(&o.seq.ID, o.n)
				start := len(cached) * size
				if c.Allocate(&o.seq, o.n, true, start, o.n, cached) {
					o.filled = o.n
					live = append(live, o)
				} else if len(o.seq.blocks) > 0 { // a host tier may leave what it brought back with the request
					live = append(live, o)
				}
			case op == 1:
				k := rapid.IntRange(0, len(live)-1).Draw(t, "k")
				if rapid.Bool().Draw(t, "preempt") {
					c.Preempt(&live[k].seq, live[k].n)
				} else {
					c.Release(&live[k].seq)
				}
				live = append(live[:k], live[k+1:]...)
			default:
				o := live[rapid.IntRange(0, len(live)-1).Draw(t, "k")]
				before := len(o.seq.blocks)
				if o.filled >= o.n && !o.seq.Room(size) {
					if c.Allocate(&o.seq, o.n, false, o.filled, o.filled+1, nil) {
						o.filled++
					} else if len(o.seq.blocks) < before {
						t.Fatal("a failed allocation took blocks away")
					}
				}
				c.MirrorBlocks(&o.seq)
			}
			var owners []*Seq
			for _, o := range live {
				owners = append(owners, &o.seq)
			}
			if err := c.Check(owners); err != nil {
				t.Fatal(err)
			}
			if h := c.HitRate(); h < 0 || h > 1 {
				t.Fatalf("hit rate %v", h)
			}
		}
		for _, o := range live {
			c.Release(&o.seq)
		}
		if c.Used() != 0 {
			t.Fatalf("%d blocks are in use and no request is there", c.Used())
		}
	})
}

// TestPrefixSharing by hand: two prompts of 10 tokens share 6; blocks of 2.
func TestPrefixSharing(t *testing.T) {
	c := New(Config{BlockTokens: 2, Blocks: 20})
	id := func(own int64) workload.Identity {
		return workload.Identity{Prefix: workload.NamedStream("system"), PrefixLen: 6,
			Own: workload.NumberedStream(own), Private: true}
	}
	a, b := Seq{ID: id(1)}, Seq{ID: id(2)}
	if !c.Allocate(&a, 10, true, 0, 10, c.Lookup(&a.ID, 10)) {
		t.Fatal("no room")
	}
	cached := c.Lookup(&b.ID, 10)
	if len(cached) != 3 {
		t.Fatalf("%d blocks cached, want 3", len(cached))
	}
	if !c.Allocate(&b, 10, true, 6, 10, cached) || c.Used() != 7 || c.Stats().Hits != 3 || c.Stats().Misses != 7 {
		t.Fatalf("used %d, %+v", c.Used(), c.Stats())
	}
	c.Preempt(&a, 10)
	if c.Used() != 5 {
		t.Fatalf("used %d after the first left, want 5: three are shared", c.Used())
	}
	if again := c.Lookup(&a.ID, 10); len(again) != 5 {
		t.Fatalf("%d blocks of the first are still findable, want 5", len(again))
	}
}
