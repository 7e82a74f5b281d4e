package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/clierr"
	"github.com/uma-serve/uma-serve/internal/hostmem"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// store moves cells out of the pool and back: to host memory and disk (kvsnap/snapshot) and to a fabric that other
// machines share (meridian/fabric). It belongs to the decode loop. Each move is cut into parts, and between two steps no more
// time than copyTime goes into them while answers run, so that nobody who is being answered feels it.
type store struct {
	l      *loop
	cache  *snapshot.Cache // nil: cells that are evicted are computed again
	remote *remote         // nil: no fabric

	partTokens int // of a part: see partTokensOf

	restores []*restore
	copies   []uint64      // cached prefixes to copy out while there is time, oldest first
	lastID   uint64        // of restores, in the tree's numbering of requests
	running  []*request    // whose finished thoughts are being copied out (--think-evict=offload)
	left     time.Duration // that may still go into copies before the next decode
}

// partTokensOf is the unit of every copy, in tokens: at most 128 and about 4 MiB, which take 0.3 to 1 ms. It follows from the
// model alone and parts end at multiples of it, so that two machines cut the same prompt in the same places.
func partTokensOf(cellBytes int) int {
	return min(128, max(16, 4<<20/max(cellBytes, 1)/16*16))
}

const (
	// restoreMin is how many tokens more than the pool has a store must offer to be worth the wait.
	restoreMin = 32
	// maxRestores bounds the restores at one time; each needs a sequence id.
	maxRestores = 8
	// firstRestore begins the numbers under which the tree knows restores, which are no requests.
	firstRestore = uint64(1) << 63
)

// How long cells may be copied between two decodes, in both directions: what an answer's next token then comes later, and
// how late a request is noticed that comes while there is nobody to feel it. Evictions may overdraw it by copyTime, and what
// has begun is finished: a part more.
const (
	copyTime     = 2 * time.Millisecond
	copyIdleTime = 5 * time.Millisecond
)

// source hands out the parts of a restore, in order.
type source interface {
	Next() (snapshot.Part, snapshot.Status)
	Close()
}

// restore brings a stored prefix back into the pool, as a cached prefix that those who wait for it then share.
type restore struct {
	waiting []*request // none when all of them ended meanwhile
	ns      uint32
	tokens  []runtime.Token // what is to be restored, from position 0
	src     source
	seq     runtime.Seq // NoSeq before the first part that is not in the pool
	done    int         // positions in seq
	have    int         // of them: shared from the pool
	tier    wire.CacheTier
	wait    bool // for src; arrived ends it
	begin   time.Time
}

// restore begins to bring back what the stores have of r's history beyond the pool, and reports whether r must wait.
func (s *store) restore(r *request, now time.Time) bool {
	if s.cache == nil && s.remote == nil || r.noRestore || !s.l.caps.CanRemoveRange {
		return false
	}
	r.noRestore = true // once per start: what is brought back may be evicted again before its turn comes
	want := r.tokens[:len(r.tokens)-1]
	m := s.l.tree.Lookup(&kvsnap.Prompt{Req: uint64(r.id), NS: r.owner, Tokens: r.tokens, Shareable: r.shareable})
	here := m.Len + m.Ahead
	for _, re := range s.restores { // nothing is brought back twice
		if n := common(re.tokens, want); re.ns == r.owner && n >= max(here, m.Len+restoreMin) {
			re.waiting = append(re.waiting, r)
			r.restoring = re
			return true
		}
	}
	if len(s.restores) >= maxRestores {
		return false
	}
	if s.cache != nil {
		found, ok := s.cache.Lookup(snapshot.Namespace(r.owner), want)
		if ok && found.Tokens >= here+restoreMin {
			re := &restore{ns: r.owner, tokens: want[:found.Tokens], seq: kvsnap.NoSeq, tier: wire.TierHost, begin: now}
			if found.Tier == snapshot.Disk {
				re.tier = wire.TierDisk
			}
			src, err := s.cache.Fetch(found, func() { s.l.mail.put(command{kind: cmdStored, stored: re}) })
			if err == nil {
				re.src = src
				return s.add(re, r)
			}
			s.l.log.Debug("restore", "request", r.wireID, "error", err)
		}
		if ok {
			here = max(here, found.Tokens)
		}
	}
	if s.remote == nil {
		return false
	}
	if whole := len(want) / s.remote.piece * s.remote.piece; whole >= here+restoreMin {
		re := &restore{ns: r.owner, tokens: want[:whole], seq: kvsnap.NoSeq, tier: wire.TierFabric, begin: now}
		re.src = s.remote.fetch(re, m.Len/s.remote.piece*s.remote.piece, func() { s.l.mail.put(command{kind: cmdStored, stored: re}) })
		return s.add(re, r)
	}
	return false
}

// common is how many leading tokens a and b share.
func common(a, b []runtime.Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func (s *store) add(re *restore, r *request) bool {
	re.waiting = append(re.waiting, r)
	r.restoring = re
	s.restores = append(s.restores, re)
	return true
}

// arrived lets a restore go on that waited for a disk or a fabric.
func (s *store) arrived(re *restore) { re.wait = false }

// work moves a little, for no longer than limit: restores, first come first served, and, when nothing runs, copies. It
// reports whether there is more to do at once, so that the loop should not sleep.
func (s *store) work(now time.Time, limit time.Duration, idle bool) (more bool) {
	s.left = limit
	if len(s.running) > 0 {
		s.copyRunning()
	}
	if len(s.restores) == 0 && (len(s.copies) == 0 || !idle) {
		return len(s.running) > 0
	}
	rest := s.restores[:0]
	for _, re := range s.restores {
		switch {
		case len(re.waiting) == 0:
			s.end(re, now) // whoever wanted it is gone; what came so far stays cached
			continue
		case !re.wait && s.left > 0 && s.parts(re, now):
			continue
		}
		more = more || !re.wait
		rest = append(rest, re)
	}
	clear(s.restores[len(rest):])
	s.restores = rest
	if idle && !more && len(s.copies) > 0 {
		more = s.copyIdle()
	}
	return more || len(s.l.events) > 0
}

// parts restores what there is time for, a part at least, and reports whether re has ended with it.
func (s *store) parts(re *restore, now time.Time) (ended bool) {
	l := s.l
	for s.left > 0 {
		begin, left := time.Now(), s.left
		p, status := re.src.Next()
		switch status {
		case snapshot.Waiting:
			re.wait = true
			return false
		case snapshot.Done, snapshot.Failed:
			s.end(re, now)
			return true
		}
		if re.seq == kvsnap.NoSeq {
			m := l.tree.Lookup(&kvsnap.Prompt{NS: re.ns, Tokens: append(re.tokens[:len(re.tokens):len(re.tokens)], 0), Alone: true})
			if p.P1 <= m.Len {
				continue // the pool has it still
			}
			if !s.begin(re, p.P0, now) {
				s.end(re, now)
				return true
			}
		}
		n := min(p.P1, len(re.tokens)) - re.done
		if re.done != p.P0 || n <= 0 {
			s.end(re, now) // what the pool had before it was evicted meanwhile
			return true
		}
		if l.tree.Cells().Free+l.tree.Cells().Cached < p.P1-p.P0 {
			s.end(re, now) // running requests need the pool: a shorter prefix will do
			return true
		}
		l.makeRoom(p.P1-p.P0, now)
		if err := l.eng.Restore(p.Bytes, re.seq, l.tree.ScratchSeq(0)); err != nil {
			l.log.Warn("a stored prefix cannot be restored; it is computed again", "tier", re.tier, "error", err)
			l.eng.SeqRemove(re.seq, runtime.Pos(re.done), -1)
			s.end(re, now)
			return true
		}
		if p.P1 > len(re.tokens) {
			l.eng.SeqRemove(re.seq, runtime.Pos(len(re.tokens)), -1)
		}
		re.done += n
		l.wake(l.tree.Progress(re.seq, re.tokens, re.done))
		s.left = left - time.Since(begin) // what makeRoom copied is in it
	}
	return false
}

// begin gives re a sequence that shares what the pool has before position p0.
func (s *store) begin(re *restore, p0 int, now time.Time) bool {
	l := s.l
	s.lastID++
	got, err := l.tree.Start(kvsnap.Instant(l.instant(now)), &kvsnap.Prompt{
		Req: firstRestore + s.lastID, NS: re.ns, Tokens: re.tokens[:p0+1], Alone: true,
	})
	if err != nil {
		return false // no sequence id is left
	}
	for i := range got.Evicted {
		s.offload(&got.Evicted[i])
	}
	l.do(got.Actions)
	re.seq, re.done, re.have = got.Seq, got.Cached, got.Cached
	return true
}

// end makes what was restored a cached prefix and lets the request go on.
func (s *store) end(re *restore, now time.Time) {
	l := s.l
	re.src.Close()
	if re.seq != kvsnap.NoSeq {
		l.ended(l.tree.Retain(kvsnap.Instant(l.instant(now)), re.seq, re.tokens[:re.done]))
		re.seq = kvsnap.NoSeq
		if re.done > re.have {
			l.m.Restored(tierIndex[re.tier], now.Sub(re.begin))
		}
	}
	for _, r := range re.waiting {
		r.restoring = nil
		if re.done > re.have {
			r.restored = re.tier
		}
		l.events = append(l.events, sched.Event{Kind: sched.EvReady, Req: r.id})
	}
	re.waiting = nil
}

// forget takes the request from the restore that it waits for.
func (s *store) forget(r *request) {
	if re := r.restoring; re != nil {
		re.waiting = slices.DeleteFunc(re.waiting, func(o *request) bool { return o == r })
		r.restoring = nil
	}
}

// giveWay ends all restores: their cells are needed.
func (s *store) giveWay() {
	now := time.Now()
	for _, re := range s.restores {
		s.end(re, now)
	}
	s.restores = s.restores[:0]
}

// kept is told of every new cached prefix. Where it should outlive this process, or be found by other machines, it is
// copied out when there is time; elsewhere not before its cells are needed.
func (s *store) kept(entry uint64) {
	if s.durable() {
		s.copies = append(s.copies, entry)
	}
}

// durable reports whether there is a place for cells beyond this process's life.
func (s *store) durable() bool {
	return s.remote != nil || s.cache != nil && s.cache.DiskError() == nil
}

// copyIdle copies some of the oldest prefix that waits for it.
func (s *store) copyIdle() (more bool) {
	entry := s.copies[0]
	for _, e := range s.l.tree.Entries(nil) {
		if e.ID != entry {
			continue
		}
		tokens, err := s.l.tree.Tokens(entry)
		if err == nil && s.copyOut(e.NS, tokens, e.Seq, e.Tokens, s.left) {
			return true // there is more of it
		}
		break
	}
	s.copies = s.copies[1:]
	if len(s.copies) == 0 && s.remote != nil {
		s.remote.flush()
	}
	return len(s.copies) > 0
}

// offload copies what a cached prefix loses, as far as the time before the next decode allows: from the head on, since
// a tail without its head is of no use. It may overdraw: a restore that took its time can go on later, what is not copied now
// is computed again.
func (s *store) offload(v *kvsnap.Victim) {
	if s.l.caps.CanRemoveRange && v.Freed > 0 {
		s.copyOut(v.NS, v.Tokens, v.Seq, v.To, s.left+copyTime)
	}
}

// copyOut copies those parts of the first n positions of seq that the cache does not have, no further one once limit is
// over, and reports whether some are left.
func (s *store) copyOut(ns uint32, tokens []runtime.Token, seq runtime.Seq, n int, limit time.Duration) (more bool) {
	if s.cache == nil {
		return false
	}
	begin := time.Now()
	defer func() { s.left -= time.Since(begin) }()
	p0 := 0
	if m, ok := s.cache.Peek(snapshot.Namespace(ns), tokens[:n]); ok {
		if m.Tokens == n {
			return false
		}
		p0 = m.Whole // a part that goes on with other tokens from its middle on has a sibling from now on
	}
	for p0 < n && time.Since(begin) < limit {
		p1 := min(p0/s.partTokens*s.partTokens+s.partTokens, n)
		if err := s.copyPart(ns, tokens, seq, p0, p1); err != nil {
			if !errors.Is(err, snapshot.ErrTooLarge) && !errors.Is(err, snapshot.ErrNoRoom) {
				s.l.log.Debug("snapshot", "error", err)
			}
			return false
		}
		p0 = p1
	}
	return p0 < n
}

func (s *store) copyPart(ns uint32, tokens []runtime.Token, seq runtime.Seq, p0, p1 int) error {
	l := s.l
	size, err := l.eng.SnapshotSize(seq, runtime.Pos(p0), runtime.Pos(p1))
	if err != nil {
		return err
	}
	buf, err := s.cache.Buffer(size)
	if err != nil {
		return err
	}
	n, err := l.eng.Snapshot(buf.Bytes(), seq, l.tree.ScratchSeq(0), runtime.Pos(p0), runtime.Pos(p1))
	if err != nil {
		buf.Release()
		return err
	}
	buf.Truncate(n)
	if s.remote != nil {
		s.remote.push(ns, tokens, seq, p0, p1)
	}
	_, err = s.cache.Put(snapshot.Namespace(ns), tokens[:p1], p0, buf)
	return err
}

// save copies a cached prefix out whole, for `uma-cli kv save`, and returns the key of its last part.
func (s *store) save(entry uint64) (snapshot.Key, error) {
	if s.cache == nil {
		return snapshot.Key{}, errors.New("this server keeps no snapshots (--cache-ram 0)")
	}
	for _, e := range s.l.tree.Entries(nil) {
		if e.ID != entry {
			continue
		}
		tokens, err := s.l.tree.Tokens(entry)
		if err != nil {
			return snapshot.Key{}, err
		}
		s.copyOut(e.NS, tokens, e.Seq, e.Tokens, time.Minute)
		m, ok := s.cache.Peek(snapshot.Namespace(e.NS), tokens[:e.Tokens])
		if !ok || m.Tokens < e.Tokens {
			return snapshot.Key{}, fmt.Errorf("only %d of its %d tokens fit into the snapshot cache (--cache-ram)", m.Tokens, e.Tokens)
		}
		return m.Key, nil
	}
	return snapshot.Key{}, kvsnap.ErrNoEntry
}

// close copies what is worth keeping to where it outlives the process, and ends the tiers. Nothing runs any more.
func (s *store) close(timeout time.Duration) {
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if s.durable() && s.cache != nil {
		for _, e := range s.l.tree.Entries(nil) {
			if tokens, err := s.l.tree.Tokens(e.ID); err == nil {
				s.copyOut(e.NS, tokens, e.Seq, e.Tokens, time.Until(deadline))
			}
		}
	}
	if s.remote != nil {
		s.remote.close(ctx)
	}
	if s.cache != nil {
		if err := s.cache.Close(ctx); err != nil {
			s.l.log.Warn("not every snapshot reached the disk", "error", err)
		}
	}
}

// openStore opens the tiers that cfg asks for. What cannot be had is told and done without: it costs misses only.
func openStore(cfg *Config, l *loop, origin snapshotOrigin) (*store, error) {
	s := &store{l: l, left: copyIdleTime, partTokens: partTokensOf(l.cellBytes)}
	if cfg.NoPrefixCache {
		return s, nil
	}
	free := hostmem.Read()
	ram, ok := cfg.CacheRAM.Of(free.Available)
	if !ok {
		ram = snapshot.DefaultRAMBytes(free)
	}
	var err error
	if ram > 0 {
		disk, _ := cfg.CacheDisk.Of(0)
		s.cache, err = snapshot.Open(snapshot.Options{
			Origin: origin.format(), RAMBytes: ram, Dir: cfg.CacheDir, DiskBytes: disk, WholeParts: !l.caps.CanRemoveRange,
		})
		if err != nil {
			return nil, err
		}
		if err := s.cache.DiskError(); err != nil && cfg.CacheDir != "" {
			l.log.Warn("snapshots are not kept on disk", "directory", cfg.CacheDir, "error", clierr.Text(err))
		}
	}
	if cfg.Fabric != "" {
		f, err := fabric.Open(cfg.fabricURL())
		if err != nil {
			return nil, fmt.Errorf("--fabric: %w", err)
		}
		s.remote = newRemote(f, origin, l, s.partTokens)
		if s.cache == nil {
			return nil, errors.New("--fabric needs the host tier: --cache-ram must not be 0")
		}
	}
	s.bindMetrics(l.m)
	return s, nil
}

// fabricURL is --fabric with --fabric-ttl in it.
func (c *Config) fabricURL() string {
	if c.FabricTTL == 0 {
		return c.Fabric
	}
	sep := "?"
	if strings.Contains(c.Fabric, "?") {
		sep = "&"
	}
	return c.Fabric + sep + "ttl=" + c.FabricTTL.String()
}

// bindMetrics names the sources of the tiers' numbers. They are read by scrapes, from any goroutine.
func (s *store) bindMetrics(m *metrics.Metrics) {
	if s.cache != nil {
		m.BindStore(func() metrics.Store {
			st := s.cache.Stats()
			tier := func(t *snapshot.TierStats) metrics.TierStats {
				return metrics.TierStats{Bytes: t.Bytes, CapBytes: t.Cap, Entries: t.Parts, Evictions: t.Evictions, PagesIn: t.PagesIn, PagesOut: t.PagesOut}
			}
			out := metrics.Store{Snapshots: st.Snapshots, Drops: st.Drops, Quarantined: st.Quarantined}
			out.Tiers[metrics.Host], out.Tiers[metrics.Disk] = tier(&st.Host), tier(&st.Disk)
			out.Tiers[metrics.Disk].Errors = st.IOErrors
			return out
		})
	}
	if s.remote == nil {
		return
	}
	var reasons []string
	for r := range fabric.Reasons {
		reasons = append(reasons, r.String())
	}
	m.BindFabric(s.remote.guard.Label(), append(reasons, "queue_full"), func() metrics.FabricStats {
		o, g := s.remote.out.Stats(), s.remote.guard.Stats()
		return metrics.FabricStats{
			Offloaded: o.BlocksOffloaded, Ingested: o.BlocksIngested, Errors: append(g.Errors[:], o.PushesDropped+o.PullsDropped),
			CircuitOpen: g.Breaker == fabric.BreakerOpen,
		}
	})
}
