package tiers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
)

// Stores are the tiers outside the KV pool: host memory and disk (kvsnap/snapshot), and a fabric shared with other
// machines (meridian/fabric). The decode loop owns them; they execute the core's operations.
type Stores struct {
	o      *Options
	Cache  *snapshot.Cache // nil: evicted cells are recomputed
	Remote *Remote         // nil: no fabric
	// Thoughts stores finished thoughts, in the fabric or in memory; nil unless --think-evict is offload. batch is the
	// unfinished batch.
	Thoughts *Remote
	memory   memory // the store of thoughts, if it is in memory, of at most room bytes
	room     atomic.Int64
	batch    thoughtBatch
	sources  map[core.RestoreID]*source
	failed   bool              // the newest CopyOut failed
	views    *viewStore        // nil: views of images are not kept on disk
	kept     runtime.KeptViews // in the engine's memory; nil: it reads no images

	refused  [metrics.NumTiers]atomic.Uint64 // parts that the engine refused to restore, by tier
	dropping atomic.Int32                    // running drops
}

// source delivers the parts of one restore, in order.
type source struct {
	id    core.RestoreID
	tier  core.Tier
	parts partSource
	end   int           // behind it the parts may hold cells of other tokens
	part  snapshot.Part // the next part, valid if ready
	ready bool
}

// partSource is a snapshot.Restore or a fabric pull.
type partSource interface {
	Next() (snapshot.Part, snapshot.Status)
	Close()
}

// Find implements core.Stores. The fabric's content is unknown until it is asked: Find assumes that it has every whole
// piece, or a seal at the end.
func (s *Stores) Find(ns uint64, tokens []core.Token, least int) (n int, tier core.Tier, ok bool) {
	if found, ok := s.Cache.Lookup(snapshot.Namespace(ns), tokens); ok {
		if found.Tokens >= least {
			if found.Tier == snapshot.Disk {
				return found.Tokens, core.Disk, true
			}
			return found.Tokens, core.Host, true
		}
		least = max(least, found.Tokens+core.RestoreMin)
	}
	if s.Remote == nil {
		return 0, 0, false
	}
	whole := s.Remote.whole(len(tokens))
	return whole, core.Fabric, whole >= least
}

// Missing implements core.Stores.
func (s *Stores) Missing(ns uint64, tokens []core.Token) int {
	m, ok := s.Cache.Peek(snapshot.Namespace(ns), tokens)
	switch {
	case !ok:
		return 0
	case m.Tokens == len(tokens):
		return m.Tokens
	}
	return m.Whole // the part that diverges in its middle is stored again with the new tokens
}

// CarryOut executes an operation on the stores.
func (s *Stores) CarryOut(op *core.Op) {
	switch op.Kind {
	case core.Fetch:
		s.fetch(op)
	case core.SkipPart:
		s.sources[op.Restore].ready = false
		s.Poll(op.Restore, time.Now())
	case core.CopyIn:
		begin := time.Now()
		d := s.copyIn(op)
		s.o.Loop.Progress(begin)
		s.count(begin, d.To-op.From)
		s.o.Loop.Result().Copies = append(s.o.Loop.Result().Copies, d)
	case core.CloseFetch:
		if src := s.sources[op.Restore]; src != nil {
			src.parts.Close()
			delete(s.sources, op.Restore)
		}
	case core.CopyOut:
		if s.failed = op.Follows && s.failed; s.failed {
			return
		}
		begin := time.Now()
		if err := s.copyOut(op); err != nil {
			s.failed, s.o.Loop.Result().CopyFailed = true, true
			if !errors.Is(err, snapshot.ErrTooLarge) && !errors.Is(err, snapshot.ErrNoRoom) {
				s.o.Log.Debug("snapshot", "error", err)
			}
			return
		}
		s.count(begin, op.To-op.From)
	case core.OffloadBlock:
		s.offloadBlock(op)
	case core.Flush:
		if s.Remote != nil {
			s.Remote.flush()
		}
	default:
		panic(fmt.Sprintf("daemon: operation %d is unknown", op.Kind))
	}
}

func (s *Stores) count(begin time.Time, tokens int) {
	s.o.Loop.Result().CopyTook += time.Since(begin)
	s.o.Loop.Result().CopyTokens += tokens
}

// fetch starts a restore.
func (s *Stores) fetch(op *core.Op) {
	src := &source{id: op.Restore, tier: op.Tier, end: len(op.Tokens)}
	id := op.Restore
	notify := func() { s.o.Loop.Stored(id) }
	if op.Req != 0 {
		if s.Thoughts == s.Remote {
			src.tier = core.Fabric
		}
		pull := s.Thoughts.fetchThought(op.NS, op.Tokens, op.From, op.First, notify)
		pull.patience, src.parts = op.Patience, pull
	} else if op.Tier == core.Fabric && s.Remote.seals() {
		src.parts = s.Remote.fetchSeal(op, notify)
	} else if op.Tier == core.Fabric {
		pull := s.Remote.fetch(op.NS, op.Tokens, op.From/s.Remote.piece*s.Remote.piece, notify)
		pull.patience, src.parts = op.Patience, pull
	} else {
		found, ok := s.Cache.Peek(snapshot.Namespace(op.NS), op.Tokens)
		var r *snapshot.Restore
		err := error(snapshot.ErrNotFound)
		if ok {
			r, err = s.Cache.Fetch(found, notify)
		}
		if err != nil {
			s.o.Log.Debug("restore", "error", err)
			s.o.Loop.Input(core.Input{Kind: core.PartsEnd, Restore: id}, time.Now())
			return
		}
		// What Find found may have been evicted since. The match is shorter then, and may end within a part.
		src.parts, src.end = r, found.Tokens
	}
	s.sources[id] = src
	s.Poll(id, time.Now())
}

// Poll tells the core that a restore's next part is ready, or that the parts have ended.
func (s *Stores) Poll(id core.RestoreID, now time.Time) {
	src := s.sources[id]
	if src == nil || src.ready {
		return
	}
	switch p, status := src.parts.Next(); status {
	case snapshot.Waiting:
	case snapshot.Ready:
		src.part, src.ready = p, true
		s.o.Loop.Input(core.Input{Kind: core.Part, Restore: id, P0: p.P0, P1: p.P1}, now)
	default:
		s.o.Loop.Input(core.Input{Kind: core.PartsEnd, Restore: id}, now)
	}
}

// copyIn restores the parts that are ready into the engine, up to op.To.
func (s *Stores) copyIn(op *core.Op) core.Copied {
	src := s.sources[op.Restore]
	end := min(op.Limit, src.end)
	d := core.Copied{Restore: op.Restore, To: op.From, State: core.PartsOver}
	for src.ready && src.part.P0 == d.To && src.part.P1 <= op.To {
		p := src.part
		if err := s.restorePart(&p, op.Dst); err != nil {
			s.refused[Metric[src.tier]].Add(1)
			s.o.Log.Warn("a stored prefix cannot be restored and is recomputed", "tier", Wire[src.tier].String(),
				"error", err)
			s.o.Engine.SeqRemove(op.Dst, runtime.Pos(d.To), -1)
			return d
		}
		if p.P1 > end {
			s.o.Engine.SeqRemove(op.Dst, runtime.Pos(end), -1)
		}
		d.To, src.ready = min(p.P1, end), false
		next, status := src.parts.Next()
		switch status {
		case snapshot.Waiting:
			d.State = core.PartAwaited
			return d
		case snapshot.Ready:
			src.part, src.ready = next, true
		default:
			return d
		}
	}
	if src.ready {
		d.State, d.P0, d.P1 = core.PartAtHand, src.part.P0, src.part.P1
	}
	return d
}

// restorePart restores a part into sequence dst of the engine.
func (s *Stores) restorePart(p *snapshot.Part, dst runtime.Seq) error {
	if err := s.o.Engine.Restore(p.Bytes, dst, s.o.Loop.Core().Tree().ScratchSeq(0)); err != nil {
		return err
	}
	// A seal is the whole sequence, so its bytes alone say how far it reaches.
	if _, last := s.o.Engine.SeqRange(dst); s.o.caps.Seals && int(last) != p.P1-1 {
		return fmt.Errorf("%w: its last position is %d, not %d", runtime.ErrSnapshot, last, p.P1-1)
	}
	return nil
}

// copyOut stores a part in memory and sends it to the fabric.
func (s *Stores) copyOut(op *core.Op) error {
	buf, err := s.snapshot(op.Src, op.From, op.To)
	if err != nil {
		return err
	}
	switch {
	case s.Remote == nil:
	case s.Remote.seals():
		s.Remote.pushSeal(op.NS, op.Tokens, buf, frameTier(op.Use))
	default:
		s.Remote.push(op.NS, op.Tokens, op.Src, op.From, op.To, frameTier(op.Use))
	}
	_, err = s.Cache.Put(snapshot.Namespace(op.NS), op.Tokens, op.From, buf)
	return err
}

// snapshot copies the cells [from, to) of seq, or with states the whole of it, into a buffer of the host tier's.
func (s *Stores) snapshot(seq runtime.Seq, from, to int) (*snapshot.Buffer, error) {
	first, end, scratch := runtime.Pos(from), runtime.Pos(to), s.o.Loop.Core().Tree().ScratchSeq(0)
	size, err := s.o.Engine.SnapshotSize(seq, first, end)
	if err != nil {
		return nil, err
	}
	buf, err := s.Cache.Buffer(size)
	if err != nil {
		return nil, err
	}
	n, err := s.o.Engine.Snapshot(buf.Bytes(), seq, scratch, first, end)
	if err != nil {
		buf.Release()
		return nil, err
	}
	buf.Truncate(n)
	return buf, nil
}

// Save copies a whole cached prefix out of the pool, for `uma-cli kv save`, and returns the key of its last part.
func (s *Stores) Save(entry uint64) (snapshot.Key, error) {
	if s.Cache == nil {
		return snapshot.Key{}, errors.New("this server keeps no snapshots (--cache-ram 0)")
	}
	tree := s.o.Loop.Core().Tree()
	e, ok := tree.Entry(entry)
	if !ok {
		return snapshot.Key{}, kvsnap.ErrNoEntry
	}
	tokens, err := tree.Tokens(entry)
	if err != nil {
		return snapshot.Key{}, err
	}
	for _, op := range s.o.Loop.Core().CopyAll(entry) {
		s.CarryOut(&op)
	}
	m, ok := s.Cache.Peek(snapshot.Namespace(e.NS), tokens[:e.Tokens])
	if !ok || m.Tokens < e.Tokens {
		return snapshot.Key{}, fmt.Errorf("only %d of its %d tokens fit into the snapshot cache (--cache-ram)",
			m.Tokens, e.Tokens)
	}
	return m.Key, nil
}

// Close copies the cached prefixes to the durable tiers until deadline, and closes the tiers. No request runs any more.
func (s *Stores) Close(deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if s.Durable() {
		for _, op := range s.o.Loop.Core().CopyAll(0) {
			if time.Now().After(deadline) {
				break
			}
			s.CarryOut(&op)
		}
	}
	if s.Remote != nil {
		s.Remote.close(ctx)
	}
	if s.Thoughts != nil && s.Thoughts != s.Remote {
		s.Thoughts.close(ctx)
	}
	if s.views != nil {
		s.views.close(ctx)
	}
	if s.Cache != nil {
		if err := s.Cache.Close(ctx); err != nil {
			s.o.Log.Warn("not every snapshot reached the disk", "error", err)
		}
	}
}

// Durable reports whether a tier outlives the process.
func (s *Stores) Durable() bool {
	return s.Remote != nil || s.Cache != nil && s.Cache.DiskError() == nil
}

// Open opens the tiers of a configuration. A disk tier that cannot be opened is logged and left out: it costs only
// misses.
func Open(o *Options) (*Stores, error) {
	cfg := o.Config
	o.caps = o.Engine.Capabilities()
	s := &Stores{o: o, sources: map[core.RestoreID]*source{}}
	if cfg.NoPrefixCache || o.Info.Encoder { // nothing is cached
		s.openViews()
		return s, nil
	}
	free := hostmem.Read()
	ram, ok := cfg.CacheRAM.Of(free.Available)
	if !ok {
		ram = snapshot.DefaultRAMBytes(free)
	}
	if cfg.NoHostTier() {
		ram = 0
	}
	var err error
	room := int64(0) // of ram: for thoughts
	if cfg.ThinkEvict == core.OffloadThoughts && cfg.Fabric == "" {
		room = ram / thoughtShare
	}
	scanned := make(chan struct{})
	if ram > 0 {
		disk, _ := cfg.CacheDisk.Of(0)
		s.Cache, err = snapshot.Open(snapshot.Options{
			Origin: o.Origin, Named: viewOrigin(o), RAMBytes: ram - room, Dir: cfg.CacheDir, DiskBytes: disk,
			WholeParts: o.caps.Seals, Scanned: func() { close(scanned) },
			Failed: func(what string, err error) {
				o.Log.Warn("the snapshot directory failed", "what", what, "error", err, "directory", cfg.CacheDir)
			},
		})
		if err != nil {
			return nil, err
		}
		if err := s.Cache.DiskError(); err != nil && cfg.CacheDir != "" {
			o.Log.Warn("snapshots are not kept on disk", "directory", cfg.CacheDir, "error", clierr.Text(err))
		}
	}
	if cfg.Fabric != "" {
		f, err := fabric.Open(cfg.Fabric)
		if err != nil {
			return nil, fmt.Errorf("--fabric: %w", err)
		}
		s.Remote = newRemote(f, o)
		s.Remote.reoffers = true
		if s.Cache == nil {
			return nil, errors.New("--fabric needs the host tier: --cache-ram must not be 0")
		}
	}
	if cfg.ThinkEvict == core.OffloadThoughts && s.Cache != nil {
		if err := s.openThoughts(room); err != nil {
			return nil, fmt.Errorf("--think-evict offload: %w", err)
		}
	}
	if s.Remote != nil && s.Cache.DiskError() == nil {
		go func() { <-scanned; s.offerStored() }()
	}
	s.openViews()
	s.bindMetrics(o.Metrics)
	return s, nil
}

// bindMetrics connects the metrics to the tiers' counters. Scrapes read them from any goroutine.
func (s *Stores) bindMetrics(m *metrics.Metrics) {
	if s.Cache != nil {
		m.BindStore(func() metrics.Store {
			st := s.Cache.Stats()
			st.Host = s.withThoughts(st.Host)
			tier := func(t *snapshot.TierStats) metrics.TierStats {
				return metrics.TierStats{Bytes: t.Bytes, CapBytes: t.Cap, Entries: t.Parts, Evictions: t.Evictions,
					PagesIn: t.PagesIn, PagesOut: t.PagesOut}
			}
			out := metrics.Store{Snapshots: st.Snapshots, Drops: st.Drops, Quarantined: st.Quarantined}
			out.Tiers[metrics.Host], out.Tiers[metrics.Disk] = tier(&st.Host), tier(&st.Disk)
			out.Tiers[metrics.Host].Errors = s.refused[metrics.Host].Load()
			out.Tiers[metrics.Disk].Errors = st.IOErrors + s.refused[metrics.Disk].Load()
			if s.Remote != nil {
				t := s.Remote.tier(s.refused[metrics.Fabric].Load())
				out.Tiers[metrics.Fabric] = metrics.TierStats{PagesIn: t.PagesIn, PagesOut: t.PagesOut,
					Errors: t.Errors + t.Damaged}
			}
			return out
		})
	}
	if s.Remote == nil {
		return
	}
	var reasons []string
	for r := range fabric.Reasons {
		reasons = append(reasons, r.String())
	}
	m.BindFabric(s.Remote.Guard.Label(), append(reasons, "queue_full"), func() metrics.FabricStats {
		o, g := s.Remote.Out.Stats(), s.Remote.Guard.Stats()
		st := metrics.FabricStats{
			Offloaded: o.BlocksOffloaded, Ingested: o.BlocksIngested,
			Errors:  append(g.Errors[:], o.PushesDropped+o.PullsDropped),
			Queued:  o.QueuedItems + o.QueuedPulls,
			Retried: o.PushesRetried, Again: s.Remote.again.Load(), Renewed: s.Remote.renewed.Load(),
			CircuitOpen: g.Breaker == fabric.BreakerOpen,
		}
		for t := range st.OffloadedTier {
			st.OffloadedTier[t], st.IngestedTier[t] = s.Remote.Moved(mrdn.Tier(t))
		}
		return st
	})
}
