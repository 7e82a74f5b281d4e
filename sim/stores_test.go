package sim

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/core"
)

// TestCopiesTakeTime: a copy to disk or fabric takes its time, one behind the other. A part that host memory has lost
// is found there only when its copy is complete.
func TestCopiesTakeTime(t *testing.T) {
	tokens := func(user int32, n int) (out []core.Token) {
		for i := range int32(n) {
			out = append(out, user*1000+i)
		}
		return out
	}
	for _, c := range []struct {
		name string
		disk int
		fab  bool
		tier core.Tier
	}{{"disk", 1000, false, core.Disk}, {"fabric", 0, true, core.Fabric}} {
		cfg := DefaultConfig()
		cfg.BlockTokens, cfg.KVCPUBlocks, cfg.KVDiskBlocks, cfg.KVFabric = 1, 256, c.disk, c.fab
		cfg.KVPartTokens, cfg.KVTierUs = 128, []float64{1, 100, 100}
		s := newStores(&cfg)
		find := func(user int32) (int, core.Tier) {
			n, tier, _ := s.Find(7, tokens(user, 256), 1)
			return n, tier
		}
		store := func(user int32) {
			for p1 := 128; p1 <= 256; p1 += 128 {
				if !s.put(7, tokens(user, p1), p1-128) {
					t.Fatalf("%s: no room for user %d", c.name, user)
				}
			}
		}
		store(1)
		if n, tier := find(1); n != 256 || tier != core.Host {
			t.Errorf("%s: %d tokens in %v, want 256 in host memory", c.name, n, tier)
		}
		store(2) // takes the place of the first in host memory; its copies stand behind the first's
		for _, at := range []struct {
			now  int64
			user int32
			n    int
			tier core.Tier
		}{{12_799, 1, 0, 0}, {12_800, 1, 128, c.tier}, {25_600, 1, 256, c.tier}, {25_600, 2, 256, core.Host}} {
			s.now = at.now
			if n, tier := find(at.user); n != at.n || n > 0 && tier != at.tier {
				t.Errorf("%s at %d us: %d tokens of user %d in %v, want %d in %v", c.name, at.now, n, at.user, tier,
					at.n, at.tier)
			}
		}
		store(3)
		s.now = 38_400
		if n, tier := find(2); n != 128 || tier != c.tier {
			t.Errorf("%s: %d tokens of user 2 in %v: its second part is still on its way", c.name, n, tier)
		}
	}
}

// TestThoughtsTakeTimeToTheFabric: core hears of a thought that went out when the fabric has all of it.
func TestThoughtsTakeTimeToTheFabric(t *testing.T) {
	cfg := DefaultConfig()
	cfg.BlockTokens, cfg.KVCPUBlocks, cfg.KVFabric, cfg.KVTierUs = 1, 256, true, []float64{1, 1, 100}
	s := newStores(&cfg)
	s.now = 1000
	s.offload(&core.Op{Req: 5, From: 0, To: 64})
	s.offload(&core.Op{Req: 5, From: 64, To: 96, Last: true})
	s.offload(&core.Op{Req: 6, From: 0, To: 32, Last: true})
	var told []core.ID
	hear := func(now int64) []core.ID {
		told = nil
		s.thoughts.arrive(func(id core.ID) { told = append(told, id) }, now)
		return told
	}
	if at, ok := s.next(); !ok || at != 1000+9600 {
		t.Errorf("the first thought is there at %d (%v), want %d", at, ok, 1000+9600)
	}
	if got := hear(10_599); len(got) != 0 {
		t.Errorf("told of %v too early", got)
	}
	if got := hear(10_600); !slices.Equal(got, []core.ID{5}) {
		t.Errorf("told of %v, want 5", got)
	}
	if got := hear(1 << 40); !slices.Equal(got, []core.ID{6}) {
		t.Errorf("told of %v, want 6", got)
	}
	if _, ok := s.next(); ok {
		t.Error("something is still awaited")
	}
}
