package daemon

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/internal/gguf"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// The decode loop's side of KV memory: it asks the prefix tree what a new request can share, carries out in the
// engine what the tree decides, and tells the scheduler what became of it. The tree keeps the books of the whole
// pool; the scheduler counts what its requests computed themselves, and is told of the rest by EvPool.

// scratchSeqs are the sequence ids that the tree never hands out: one for snapshots, the others for probe forks of
// one step.
const scratchSeqs = 5

// kvSequences is how many sequence ids the engine is opened with: one a request, the rest for cached prefixes. Recurrent
// models pay for an id with the memory of a whole state, so they get a few.
func (c *Config) kvSequences(path string) int {
	info, err := gguf.Inspect(path)
	if c.NoPrefixCache || err == nil && info.Recurrent {
		return min(maxSequencesLimit, c.Parallel+scratchSeqs)
	}
	return maxSequencesLimit
}

// newTree is the prefix tree of an open engine.
func newTree(cfg *Config, caps runtime.Capabilities, info runtime.ModelInfo) (*kvsnap.Tree, error) {
	c := kvsnap.Config{
		Cells: caps.ContextTokens, CellBytes: info.KVBytesPerToken, Sequences: caps.MaxSequences, Scratch: scratchSeqs,
		WholeOnly: !caps.CanRemoveRange, ShareSystem: cfg.SharePrefixes == "system",
	}
	if cfg.NoPrefixCache {
		c.KeepMin = 1 << 30 // nothing is long enough to be kept
	}
	return kvsnap.New(c)
}

// do carries out what the tree asks of the engine.
func (l *loop) do(actions []kvsnap.Action) {
	for i := range actions {
		a := &actions[i]
		switch a.Kind {
		case kvsnap.Shift:
			if err := l.eng.SeqAdd(a.Dst, runtime.Pos(a.From), runtime.Pos(a.To), runtime.Pos(a.Delta)); err != nil {
				panic("daemon: the engine cannot shift positions, which it promised: " + err.Error())
			}
		case kvsnap.Copy:
			l.eng.SeqCopy(a.Src, a.Dst, runtime.Pos(a.From), runtime.Pos(a.To))
		case kvsnap.Remove:
			if !l.eng.SeqRemove(a.Dst, runtime.Pos(a.From), runtime.Pos(a.To)) {
				panic(fmt.Sprintf("daemon: the engine cannot drop positions %d…%d of sequence %d, which the prefix tree counts on", a.From, a.To, a.Dst))
			}
		}
	}
}

// startRequest answers a Plan.Start: share what is resident, fetch what is stored, or wait for who computes it.
func (l *loop) startRequest(st sched.Start, now time.Time) {
	r := l.requests[st.Req]
	if r == nil || r.finished || r.cancelled.Load() {
		l.events = append(l.events, sched.Event{Kind: sched.EvCancel, Req: st.Req})
		return
	}
	if l.store.restore(r, now) {
		l.events = append(l.events, sched.Event{Kind: sched.EvHold, Req: r.id, Finish: sched.ReasonRestoring})
		return
	}
	p := kvsnap.Prompt{Req: uint64(r.id), NS: r.owner, Tokens: r.tokens, Shareable: r.shareable, Alone: r.joined}
	if m := l.tree.Lookup(&p); m.Ahead > 0 && r.class == sched.Interactive {
		// Whom it would wait for might itself wait behind everybody of r's class.
		if o := l.requests[sched.ReqID(m.On)]; o == nil || o.class != sched.Interactive {
			p.Alone = true
		}
	}
	got, err := l.tree.Start(kvsnap.Instant(l.instant(now)), &p)
	if err != nil {
		// Every id is with a request that runs or has just ended: those that have ended give theirs up.
		l.settleLingering(now)
		got, err = l.tree.Start(kvsnap.Instant(l.instant(now)), &p)
	}
	if err != nil {
		panic("daemon: " + err.Error() + ": fewer ids were reserved than requests may run")
	}
	if got.Held {
		r.joined = true // once: whom it waited for may be preempted, and two must not wait for each other's halves
		r.held = true
		l.events = append(l.events, sched.Event{Kind: sched.EvHold, Req: r.id, Finish: sched.ReasonJoining})
		return
	}
	for i := range got.Evicted {
		l.store.offload(&got.Evicted[i])
	}
	l.do(got.Actions)
	r.seq, r.computed, r.own = got.Seq, got.Cached, got.Cached-got.Shared
	l.own += r.own
	l.slots[st.Seq] = r
	if r.had > 0 {
		// Parked, when most of what it had was still in the pool or came back from a store.
		if got.Cached >= r.had/2 {
			l.m.ParkedTotal.Inc()
		} else {
			l.m.Recomputed.Inc()
		}
		r.had = 0
	}
	if !r.counted {
		r.counted = true
		r.cached = min(got.Cached, r.nPrompt)
		r.tier = wire.TierNone
		if r.cached > 0 {
			r.tier = wire.TierDevice
			if r.restored != wire.TierNone {
				r.tier = r.restored
			}
		}
		r.miss = missText(&got.Match, r.nPrompt)
		l.m.Lookup(tierIndex[r.tier], r.cached)
		if got.Match.Reason != kvsnap.ReasonFull {
			l.m.CacheMisses.Inc(got.Match.Reason.String())
		}
	}
	l.addCells(r, got.Cached-got.Shared)
	l.events = append(l.events, sched.Event{Kind: sched.EvStarted, Req: r.id, Cached: got.Cached, Shared: got.Shared})
}

// missText tells a client why no more of its prompt was cached; "" when all of it was.
func missText(m *kvsnap.Match, prompt int) string {
	switch m.Reason {
	case kvsnap.ReasonFull:
		return ""
	case kvsnap.ReasonNothing:
		return "nothing cached begins like this prompt"
	case kvsnap.ReasonEnded:
		return fmt.Sprintf("the cached prefix ends at token %d of %d", m.At, prompt)
	case kvsnap.ReasonDiverged:
		return fmt.Sprintf("diverged at token %d of %d", m.At, prompt)
	case kvsnap.ReasonComputing:
		return fmt.Sprintf("from token %d of %d on another request was still computing it", m.At, prompt)
	case kvsnap.ReasonEvicted:
		return fmt.Sprintf("from token %d of %d on it was computed lately and is gone, most likely evicted for want of cells", m.At, prompt)
	}
	return "this model's memory shares whole sequences only"
}

// releaseSlot takes a sequence back from a request that ended or was preempted.
func (l *loop) releaseSlot(rel *sched.Release, now time.Time) {
	r := l.slots[rel.Seq]
	if r == nil && rel.Final {
		return // it was cancelled before it was given a sequence
	}
	if r == nil || r.id != rel.Req {
		panic(fmt.Sprintf("daemon: request %d gives up slot %d, which it does not have", rel.Req, rel.Seq))
	}
	l.slots[rel.Seq] = nil
	l.own -= r.own
	r.own = 0
	l.freeTiers(r, rel)
	if !rel.Final {
		r.had, r.noRestore, r.joined = r.computed, false, false
	}
	switch {
	case rel.Reason == sched.ReasonFailed:
		// What a failed decode left in the cells is not known.
		l.ended(l.tree.Release(r.seq))
		r.seq = kvsnap.NoSeq
	case rel.Final && r.chat && l.linger(r):
	default:
		l.retain(r, r.tokens[:r.computed], now)
	}
	r.computed = 0
}

// retain ends r's sequence and keeps what it has of history as a cached prefix.
func (l *loop) retain(r *request, history []runtime.Token, now time.Time) {
	e := l.tree.Retain(kvsnap.Instant(l.instant(now)), r.seq, history)
	r.seq = kvsnap.NoSeq
	l.ended(e)
	if e.Entry != 0 {
		l.store.kept(e.Entry)
	}
}

func (l *loop) ended(e kvsnap.Ended) {
	l.do(e.Actions)
	l.wake(e.Wake)
}

// wake lets requests go on that waited for another one's prompt.
func (l *loop) wake(reqs []uint64) {
	for _, id := range reqs {
		r := l.requests[sched.ReqID(id)]
		if r == nil || !r.held {
			continue
		}
		r.held = false
		ready := sched.Event{Kind: sched.EvReady, Req: r.id}
		// Cells of a cached prefix count as free until r shares them: only those of a running request are a hint.
		if m := l.tree.Lookup(&kvsnap.Prompt{Req: id, NS: r.owner, Tokens: r.tokens, Shareable: r.shareable, Alone: true}); m.Running {
			ready.Shared = m.Len
		}
		l.events = append(l.events, ready)
	}
}

// stall tells the tree that nobody should wait for r's prompt, or may again.
func (l *loop) stall(r *request, stalled bool) {
	if r.seq >= 0 && !r.finished {
		l.wake(l.tree.Stall(r.seq, stalled))
	}
}

// forgetHeld takes a request that ended from the tree's and the store's waiting lists.
func (l *loop) forgetHeld(r *request) {
	if r.held {
		r.held = false
		l.tree.Cancel(uint64(r.id))
	}
	l.store.forget(r)
}

// A conversation's next turn begins with its history as the chat template renders it then, which is not always what
// was computed: many templates drop past thinking. So the sequence of a chat that has ended lingers for the moment
// that rendering takes on the intake goroutine; then exactly the longest common prefix stays cached.

// linger hands r's history to intake; false when intake has too much to do.
func (l *loop) linger(r *request) bool {
	select {
	case l.histories <- r:
	default:
		return false
	}
	r.lingers = r.computed
	l.lingering = append(l.lingering, r)
	return true
}

// historyReady ends the lingering of r. tokens is nil when its history could not be rendered.
func (l *loop) historyReady(r *request, tokens []runtime.Token, now time.Time) {
	for i, o := range l.lingering {
		if o == r {
			l.lingering = append(l.lingering[:i], l.lingering[i+1:]...)
			if tokens == nil {
				tokens = r.tokens[:r.lingers]
			}
			l.retain(r, tokens, now)
			return
		}
	}
}

// settleLingering keeps the whole of what lingers: its cells or its id are needed now.
func (l *loop) settleLingering(now time.Time) {
	for _, r := range l.lingering {
		l.retain(r, r.tokens[:r.lingers], now)
	}
	l.lingering = l.lingering[:0]
}

// makeRoom frees cells for the next batch.
func (l *loop) makeRoom(n int, now time.Time) {
	c := l.tree.Cells()
	if c.Free >= n {
		return
	}
	if c.Free+c.Cached < n {
		l.settleLingering(now)
	}
	// A few more than asked for: what follows is mostly one cell a request and step, and each eviction copies.
	_, victims, actions := l.tree.EvictCells(max(n-l.tree.Cells().Free, evictCells))
	for i := range victims {
		l.store.offload(&victims[i])
		l.blocks.EvictCells(meridian.CacheOwner, meridian.Prefix, victims[i].Freed, meridian.EvictPressure)
	}
	l.do(actions)
	l.countCache()
}

// evictCells is the least that an eviction frees: at 64 cells a copy of them is far below a millisecond even for
// large models, and 16 streams ask for it every fourth step.
const evictCells = 64

// reclaim makes pinned and held cells give way to the only request that could run.
func (l *loop) reclaim(n int, now time.Time) {
	defer l.poolEvent() // so that the scheduler looks again
	l.settleLingering(now)
	l.store.giveWay()
	for _, e := range l.tree.Entries(nil) {
		if l.tree.Cells().Pinned == 0 || n <= 0 {
			return
		}
		if e.Pinned {
			l.log.Warn("a pinned prefix gives way: the only request that runs needs its cells", "entry", e.ID, "tokens", e.Tokens)
			before := l.tree.Cells().Pinned
			if err := l.tree.Unpin(e.ID); err == nil {
				n -= before - l.tree.Cells().Pinned
			}
		}
	}
}

// poolEvent tells the scheduler how many cells are in use beyond what its requests computed themselves.
func (l *loop) poolEvent() {
	c := l.tree.Cells()
	if len(l.lingering)+len(l.store.restores) > 0 && c.Free+c.Cached < len(l.slots)+evictCells {
		// What is being rendered or brought back must not cost a running request its place.
		now := time.Now()
		l.settleLingering(now)
		l.store.giveWay()
		c = l.tree.Cells()
	}
	l.evictable = c.Cached
	pool := c.Own + c.Shared + c.Pinned - l.own
	if pool == l.pool {
		return
	}
	l.pool = pool
	l.countCache()
	l.events = append(l.events, sched.Event{Kind: sched.EvPool, Cells: pool})
}

// check holds the three books of KV cells against each other: the tree's, the scheduler's, this loop's.
func (l *loop) check() {
	if err := l.tree.Check(); err != nil {
		panic("daemon: prefix tree: " + err.Error())
	}
	own := 0
	for _, r := range l.slots {
		if r != nil {
			own += r.own
		}
	}
	if st := l.sched.Stats(); own != l.own || own != st.LiveCells || l.pool != st.PoolCells {
		panic(fmt.Sprintf("daemon: requests own %d cells, the loop counts %d, the scheduler %d; pool %d, the scheduler says %d",
			own, l.own, st.LiveCells, l.pool, st.PoolCells))
	}
}

// tierIndex is a tier of the protocol in the metrics.
var tierIndex = map[wire.CacheTier]metrics.Tier{
	wire.TierNone: metrics.Device, wire.TierDevice: metrics.Device, wire.TierHost: metrics.Host, wire.TierDisk: metrics.Disk, wire.TierFabric: metrics.Fabric,
}
