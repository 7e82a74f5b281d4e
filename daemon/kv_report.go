package daemon

import (
	"fmt"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
)

// kvReport reports the cells, the tiers and the cached prefixes: uid's, or those of all users for an operator.
func (l *loop) kvReport(tree bool, uid uint32, now time.Time) *wire.KVReport {
	c, st := l.core.Tree().Cells(), l.core.Tree().Stats()
	rep := &wire.KVReport{
		Cells: wire.KVCells{Total: l.cells, Own: c.Own, Shared: c.Shared, Cached: c.Cached,
			Pinned: c.Pinned, Free: c.Free},
		BytesPerToken: int64(l.cellBytes), BlockTokens: l.cfg.KVBlockTokens, SeqsUsed: st.Entries + st.Runs,
		SeqsMax: l.caps.MaxSequences,
		Lookups: st.Lookups, Hits: st.Hits, CachedTokens: st.CachedTokens, Entries: []wire.KVEntry{},
	}
	if st.Lookups > 0 {
		rep.HitRatio = float64(st.Hits) / float64(st.Lookups)
	}
	held := int64(l.cells - c.Free)
	rep.Tiers = append(rep.Tiers, wire.KVTier{
		Tier: wire.TierDevice, Entries: st.Entries, Tokens: held, Bytes: held * int64(l.cellBytes),
		CapBytes: int64(l.cells) * int64(l.cellBytes), Hits: st.Hits, HitTokens: st.CachedTokens,
		Evictions: st.Evictions,
	})
	rep.Tiers = append(rep.Tiers, l.stores.tiers()...)
	if l.stores.cache != nil {
		rep.Snapshots = l.stores.cache.Stats().Snapshots
	}
	all := l.cfg.Privileged(uid)
	age := func(t kvsnap.Instant) float64 { return wire.Ms(time.Duration(l.instant(now)) - time.Duration(t)) }
	for _, e := range l.core.Tree().Entries(nil) {
		if e.NS != uid && !all {
			continue
		}
		w := wire.KVEntry{
			Name: e.Hash, Kind: "prefix", Tier: wire.TierDevice, Class: blocks.Prefix.String(), Number: e.Req,
			UID: e.NS, Seq: int(e.Seq),
			Tokens: e.Tokens, OwnTok: e.OwnCells, Bytes: int64(e.Tokens) * int64(l.cellBytes), OwnBytes: e.OwnBytes,
			AgeMs: age(e.Created), IdleMs: age(e.Used), Hits: e.Hits, Turns: e.Turns, Pinned: e.Pinned, Hash: e.Hash,
			Why: e.Why,
		}
		if e.Running {
			w.Kind, w.Name = "request", "#"+strconv.FormatUint(e.Req, 10)
			if e.Req == 0 {
				w.Kind, w.Why = "restore", "being restored"
			} else if r := l.requests[sched.ReqID(e.Req)]; r != nil {
				w.Request, w.Class = r.wireID, l.core.TierOf(&r.Request).String()
			}
		}
		rep.Entries = append(rep.Entries, w)
	}
	rep.Entries = append(rep.Entries, l.stores.entries(uid, all, now)...)
	if tree && all {
		rep.Tree = l.core.Tree().Dump()
	} else if tree {
		rep.Tree = "(only root and the server's user may see the tree: it shows the prefixes of all users)"
	}
	return rep
}

// storedName is the name of a stored part in kv.
func storedName(i *snapshot.Info) string { return fmt.Sprintf("%x", i.Key[:8]) }

// tiers are the stores' part of a kv report.
func (s *stores) tiers() []wire.KVTier {
	if s.cache == nil {
		return []wire.KVTier{{Tier: wire.TierHost, Off: "--cache-ram is 0"}}
	}
	st := s.cache.Stats()
	st.Host = s.withThoughts(st.Host)
	of := func(name wire.CacheTier, t *snapshot.TierStats) wire.KVTier {
		return wire.KVTier{
			Tier: name, Entries: t.Parts, Bytes: t.Bytes, CapBytes: t.Cap,
			Tokens: t.Bytes / int64(max(s.l.cellBytes, 1)), Hits: t.Hits,
			HitTokens: t.HitTokens, Evictions: t.Evictions, PagesIn: t.PagesIn, PagesOut: t.PagesOut,
			RestoreMs: t.Restores.MeanMs(),
		}
	}
	host, disk := of(wire.TierHost, &st.Host), of(wire.TierDisk, &st.Disk)
	disk.Damaged, disk.LastError = st.Quarantined, st.LastError
	host.Errors = s.refused[metrics.Host].Load()
	if disk.Off, disk.Errors = st.Disabled, st.IOErrors+s.refused[metrics.Disk].Load(); s.l.cfg.CacheDir == "" {
		disk.Off = "start uma-serve with --cache-dir to keep cells on disk"
	}
	out := []wire.KVTier{host, disk}
	if s.remote != nil {
		out = append(out, s.remote.tier(s.refused[metrics.Fabric].Load()))
	}
	return out
}

// tier is the fabric's part of a kv report, when the engine has refused so many parts of it. Safe from any goroutine.
func (m *remote) tier(refused uint64) wire.KVTier {
	f, g, block := m.out.Stats(), m.guard.Stats(), uint64(m.l.cfg.KVBlockTokens)
	errs := refused + f.PushesDropped + f.PullsDropped
	for r, n := range g.Errors {
		if fabric.Reason(r) != fabric.ReasonCorrupt {
			errs += n
		}
	}
	return wire.KVTier{
		Tier: wire.TierFabric, Damaged: g.Errors[fabric.ReasonCorrupt], LastError: g.LastError,
		Paused:  g.Breaker == fabric.BreakerOpen,
		PagesIn: f.BlocksIngested * block, PagesOut: f.BlocksOffloaded * block,
		Bytes: int64(f.BytesOffloaded), Errors: errs,
	}
}

// entries are the entries of a kv report for stored parts.
func (s *stores) entries(uid uint32, all bool, now time.Time) (out []wire.KVEntry) {
	if s.cache == nil {
		return nil
	}
	for _, i := range s.cache.List() {
		if uint32(i.Namespace) != uid && !all {
			continue
		}
		tier := wire.TierHost
		if i.HostBytes == 0 {
			tier = wire.TierDisk
		}
		hash := storedName(&i)
		out = append(out, wire.KVEntry{
			Name: hash, Kind: "snapshot", Tier: tier, Class: blocks.Prefix.String(), UID: uint32(i.Namespace), Seq: -1,
			From:   i.P0,
			Tokens: i.P1 - i.P0, OwnTok: i.P1 - i.P0, Bytes: i.Bytes, OwnBytes: i.Bytes,
			AgeMs:  wire.Ms(now.Sub(i.Created)),
			IdleMs: wire.Ms(now.Sub(i.Used)), Hits: int(i.Hits), Pinned: i.Pinned, Hash: hash,
			Why: "copied out of the pool",
		})
	}
	return out
}
