package report

import (
	"fmt"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/meridian/fabric"
)

// Pool describes the cells of a model and the prefixes in them.
type Pool struct {
	Cells       blocks.Cells
	Total       int // cells
	CellBytes   int
	BlockTokens int
	SeqsMax     int
	Stats       kvsnap.Stats
}

// KV returns the report of a pool, without entries. below are the tiers below it, nearest first.
func KV(p *Pool, below []reports.KVTier) *reports.KVReport {
	c, st := &p.Cells, &p.Stats
	rep := &reports.KVReport{
		Cells: reports.KVCells{Total: p.Total, Own: c.Own, Shared: c.Shared, Cached: c.Cached, Pinned: c.Pinned,
			Free: c.Free},
		BytesPerToken: int64(p.CellBytes), BlockTokens: p.BlockTokens, SeqsUsed: st.Entries + st.Runs,
		SeqsMax: p.SeqsMax, Lookups: st.Lookups, Hits: st.Hits, CachedTokens: st.CachedTokens,
		Entries: []reports.KVEntry{},
	}
	if st.Lookups > 0 {
		rep.HitRatio = float64(st.Hits) / float64(st.Lookups)
	}
	held := int64(p.Total - c.Free)
	rep.Tiers = append([]reports.KVTier{{
		Tier: wire.TierDevice, Entries: st.Entries, Tokens: held, Bytes: held * int64(p.CellBytes),
		CapBytes: int64(p.Total) * int64(p.CellBytes), Hits: st.Hits, HitTokens: st.CachedTokens,
		Evictions: st.Evictions,
	}}, below...)
	return rep
}

// Prefix returns the entry of a resident sequence. now is the instant of e's times.
func (p *Pool) Prefix(e *kvsnap.Entry, now kvsnap.Instant) reports.KVEntry {
	age := func(t kvsnap.Instant) float64 { return wire.Ms(time.Duration(now) - time.Duration(t)) }
	w := reports.KVEntry{
		Name: e.Hash, Kind: "prefix", Tier: wire.TierDevice, Class: blocks.Prefix.String(), Number: e.Req,
		UID: e.NS & reports.ShownUID, Seq: int(e.Seq), Tokens: e.Tokens, OwnTok: e.OwnCells,
		Bytes: int64(e.Tokens) * int64(p.CellBytes), OwnBytes: e.OwnBytes, AgeMs: age(e.Created),
		IdleMs: age(e.Used), Hits: e.Hits, Turns: e.Turns, Pinned: e.Pinned, Hash: e.Hash, Why: e.Why,
	}
	if e.Running {
		w.Kind, w.Name = "request", "#"+strconv.FormatUint(e.Req, 10)
		if e.Req == 0 {
			w.Kind, w.Why = "restore", "being restored"
		}
	}
	return w
}

// Stored returns the entry of a part outside the pool.
func Stored(i *snapshot.Info, now time.Time) reports.KVEntry {
	tier := wire.TierHost
	if i.HostBytes == 0 {
		tier = wire.TierDisk
	}
	hash := StoredName(i)
	if i.Named {
		return reports.KVEntry{
			Name: hash, Kind: "image", Tier: tier, Class: blocks.Prefix.String(),
			UID: uint64(i.Namespace) & reports.ShownUID, Seq: -1, Bytes: i.Bytes, OwnBytes: i.Bytes,
			AgeMs: wire.Ms(now.Sub(i.Created)), IdleMs: wire.Ms(now.Sub(i.Used)), Hits: int(i.Hits), Pinned: i.Pinned,
			Hash: hash, Why: "embeddings of an image or a sound",
		}
	}
	return reports.KVEntry{
		Name: hash, Kind: "snapshot", Tier: tier, Class: blocks.Prefix.String(),
		UID: uint64(i.Namespace) & reports.ShownUID, Seq: -1,
		From: i.P0, Tokens: i.P1 - i.P0, OwnTok: i.P1 - i.P0, Bytes: i.Bytes, OwnBytes: i.Bytes,
		AgeMs: wire.Ms(now.Sub(i.Created)), IdleMs: wire.Ms(now.Sub(i.Used)), Hits: int(i.Hits), Pinned: i.Pinned,
		Hash: hash, Why: "copied out of the pool",
	}
}

// StoredName returns the name of a stored part in kv.
func StoredName(i *snapshot.Info) string { return fmt.Sprintf("%x", i.Key[:8]) }

// NoStores returns the tiers of a daemon that copies no cells out of the pool.
func NoStores() []reports.KVTier {
	return []reports.KVTier{{Tier: wire.TierHost, Off: "--cache-ram is 0"}}
}

// Tiers returns host memory and disk. Of the parts that they had, the engine has refused hostRefused and diskRefused.
// persistent: a folder for the disk is named.
func Tiers(st *snapshot.Stats, hostRefused, diskRefused uint64, persistent bool) []reports.KVTier {
	of := func(name wire.CacheTier, t *snapshot.TierStats) reports.KVTier {
		return reports.KVTier{
			Tier: name, Entries: t.Parts, Bytes: t.Bytes, CapBytes: t.Cap,
			Tokens: t.Tokens, Hits: t.Hits,
			HitTokens: t.HitTokens, Evictions: t.Evictions, PagesIn: t.PagesIn, PagesOut: t.PagesOut,
			RestoreMs: t.Restores.MeanMs(),
		}
	}
	host, disk := of(wire.TierHost, &st.Host), of(wire.TierDisk, &st.Disk)
	host.Errors = hostRefused
	disk.Damaged, disk.LastError = st.Quarantined, st.LastError
	if disk.Off, disk.Errors = st.Disabled, st.IOErrors+diskRefused; !persistent {
		disk.Off = "start uma-serve with --cache-dir to keep cells on disk"
	}
	return []reports.KVTier{host, disk}
}

// Fabric returns the fabric's tier, of whose parts the engine has refused so many.
func Fabric(f *fabric.OffloadStats, g *fabric.GuardStats, blockTokens int, refused uint64) reports.KVTier {
	block := uint64(blockTokens)
	errs := refused + f.PushesDropped + f.PullsDropped
	for r, n := range g.Errors {
		if fabric.Reason(r) != fabric.ReasonCorrupt {
			errs += n
		}
	}
	return reports.KVTier{
		Tier: wire.TierFabric, Damaged: g.Errors[fabric.ReasonCorrupt], LastError: g.LastError,
		Paused:  g.Breaker == fabric.BreakerOpen,
		PagesIn: f.BlocksIngested * block, PagesOut: f.BlocksOffloaded * block,
		Bytes: int64(f.BytesOffloaded), Errors: errs,
	}
}

// Miss returns the reason why no more of a prompt was cached; "" if all of it was.
func Miss(m *kvsnap.Match, prompt int) string {
	switch m.Reason {
	case kvsnap.ReasonFull:
		return ""
	case kvsnap.ReasonNothing:
		return "nothing cached begins like this prompt"
	case kvsnap.ReasonEnded:
		return fmt.Sprintf("the cached prefix ends at token %d of %d", m.Len, prompt)
	case kvsnap.ReasonDiverged:
		return fmt.Sprintf("diverged at token %d of %d", m.Len, prompt)
	case kvsnap.ReasonComputing:
		return fmt.Sprintf("another request was still computing it from token %d of %d", m.Len, prompt)
	case kvsnap.ReasonEvicted:
		return fmt.Sprintf("computed recently but no longer cached from token %d of %d, most likely evicted for lack "+
			"of cells",
			m.Len, prompt)
	}
	return fmt.Sprintf("tokens beyond %d agree, and no seal ends there: a model with states is shared at seals", m.Len)
}
