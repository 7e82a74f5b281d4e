package report

import (
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/meridian/fabric"
)

// TestPool: the cells of a report add up, and a running request, a restore and a cached prefix have entries of their
// kinds.
func TestPool(t *testing.T) {
	p := Pool{Cells: blocks.Cells{Own: 10, Shared: 20, Cached: 30, Pinned: 4, Free: 36}, Total: 100, CellBytes: 8,
		Stats: kvsnap.Stats{Lookups: 4, Hits: 3, Entries: 2, Runs: 1}}
	rep := KV(&p, NoStores())
	c := rep.Cells
	if c.Own+c.Shared+c.Cached+c.Pinned+c.Free != c.Total || rep.HitRatio != 0.75 || rep.SeqsUsed != 3 {
		t.Errorf("%+v", rep)
	}
	if len(rep.Tiers) != 2 || rep.Tiers[0].Tokens != 64 || rep.Tiers[0].Bytes != 512 || rep.Tiers[1].Off == "" ||
		rep.Entries == nil {
		t.Errorf("%+v", rep)
	}
	const now = kvsnap.Instant(5 * time.Second)
	for _, c := range []struct {
		e          kvsnap.Entry
		kind, name string
	}{
		{kvsnap.Entry{ID: 3, Hash: "abcd", Tokens: 7}, "prefix", "abcd"},
		{kvsnap.Entry{Req: 9, Running: true, Hash: "abcd", Tokens: 7}, "request", "#9"},
		{kvsnap.Entry{Running: true, Hash: "abcd", Tokens: 7}, "restore", "#0"},
	} {
		w := p.Prefix(&c.e, now)
		if w.Kind != c.kind || w.Name != c.name || w.Bytes != 56 || w.AgeMs != 5000 {
			t.Errorf("%s: %+v", c.kind, w)
		}
	}
}

// TestTiersBelowThePool: a part is in the nearest tier that has it, and each tier tells what failed.
func TestTiersBelowThePool(t *testing.T) {
	now := time.Unix(100, 0)
	for tier, bytes := range map[wire.CacheTier]int64{wire.TierHost: 64, wire.TierDisk: 0} {
		i := snapshot.Info{Key: snapshot.Key{1, 2, 0xff}, P0: 32, P1: 96, HostBytes: bytes, DiskBytes: 64, Created: now}
		w := Stored(&i, now.Add(time.Second))
		if w.Tier != tier || w.Tokens != 64 || w.From != 32 || w.AgeMs != 1000 || w.Name != "0102ff0000000000" {
			t.Errorf("%+v", w)
		}
	}
	st := snapshot.Stats{IOErrors: 2, Quarantined: 1, LastError: "why", Disabled: "full"}
	st.Host.Tokens, st.Disk.Tokens, st.Disk.Bytes = 64, 96, 1<<20 // with images
	reasons := map[bool]string{true: "full", false: "start uma-serve with --cache-dir to keep cells on disk"}
	for persistent, off := range reasons {
		tiers := Tiers(&st, 5, 7, persistent)
		if host, disk := tiers[0], tiers[1]; host.Errors != 5 || disk.Errors != 9 || disk.Damaged != 1 ||
			disk.LastError != "why" || disk.Off != off || host.Tokens != 64 || disk.Tokens != 96 {
			t.Errorf("persistent %v: %+v", persistent, tiers)
		}
	}
	g := fabric.GuardStats{Breaker: fabric.BreakerOpen}
	g.Errors[fabric.ReasonCorrupt], g.Errors[fabric.ReasonTimeout] = 3, 4
	f := fabric.OffloadStats{BlocksIngested: 2, PushesDropped: 1}
	if w := Fabric(&f, &g, 16, 10); w.Damaged != 3 || w.Errors != 15 || !w.Paused || w.PagesIn != 32 {
		t.Errorf("%+v", w)
	}
}
