package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// The simulated decode loop's side of KV memory: what daemon/kv.go does with an engine of cells, here with one that has
// none (or the fake one).

// do carries out what the tree asks of the engine.
func (u *uma) do(actions []kvsnap.Action) {
	if u.eng == nil {
		return
	}
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case kvsnap.Copy:
			u.eng.SeqCopy(a.Src, a.Dst, runtime.Pos(a.From), runtime.Pos(a.To))
		case kvsnap.Remove:
			u.eng.SeqRemove(a.Dst, runtime.Pos(a.From), runtime.Pos(a.To))
		}
	}
}

// start answers a Plan.Start: share what is resident, or wait for who computes it.
func (u *uma) start(st sched.Start, at sched.Instant) {
	q := u.byID[st.Req]
	if q == nil {
		u.in = append(u.in, sched.Event{Kind: sched.EvCancel, Req: st.Req})
		return
	}
	if len(q.tokens) == 0 {
		q.tokens = slices.Grow(q.tokens, q.prompt+min(q.r.spec.Output, q.r.limit)) // the slice's room decides nothing
		q.tokens = q.r.seq.ID.AppendTokens(q.tokens, 0, q.prompt)
		u.restore(q, at)
	}
	if u.tiers.restore(q, u.now) {
		u.in = append(u.in, sched.Event{Kind: sched.EvHold, Req: q.id, Finish: sched.ReasonRestoring})
		return
	}
	p := kvsnap.Prompt{Req: uint64(q.id), NS: q.ns, Tokens: q.tokens, Alone: q.joined}
	if m := u.tree.Lookup(&p); m.Ahead > 0 && q.class == sched.Interactive {
		// Whom it would wait for might itself wait behind everybody of its class.
		if o := u.byID[sched.ReqID(m.On)]; o == nil || o.class != sched.Interactive {
			p.Alone = true
		}
	}
	got, err := u.tree.Start(kvsnap.Instant(at), &p)
	if err != nil {
		panic("sim: " + err.Error() + ": fewer ids were reserved than requests may run")
	}
	if got.Held {
		q.joined, q.held = true, true
		u.in = append(u.in, sched.Event{Kind: sched.EvHold, Req: q.id, Finish: sched.ReasonJoining})
		return
	}
	u.tiers.offload(got.Evicted)
	u.do(got.Actions)
	q.seq, q.computed, q.own, q.slot = got.Seq, got.Cached, got.Cached-got.Shared, st.Seq
	u.own += q.own
	u.slots[st.Seq] = q
	if !q.counted {
		q.counted = true
		u.prompt += int64(q.prompt)
		u.cached += int64(min(got.Cached, q.prompt))
	}
	u.addCells(q, q.own)
	u.in = append(u.in, sched.Event{Kind: sched.EvStarted, Req: q.id, Cached: got.Cached, Shared: got.Shared})
}

// restore makes what a recording says was there when a request started a cached prefix, as far as the pool has room: in
// the daemon it came from a snapshot, or was left by somebody whom the recording does not know.
func (u *uma) restore(q *served, at sched.Instant) {
	n := min(q.r.spec.Resident, q.prompt-1)
	p := kvsnap.Prompt{Req: firstRes + u.lastRes, NS: q.ns, Tokens: q.tokens, Alone: true}
	m := u.tree.Lookup(&p)
	if c := u.tree.Cells(); m.Len+m.Ahead >= n || c.Free+c.Cached < n-m.Len {
		return
	}
	u.lastRes++
	p.Tokens = q.tokens[:n+1]
	got, err := u.tree.Start(kvsnap.Instant(at), &p)
	if err != nil {
		return // no sequence id is left
	}
	u.tiers.offload(got.Evicted)
	u.do(got.Actions)
	u.makeRoom(n - got.Cached)
	u.fill(got.Seq, p.Tokens, got.Cached, n)
	u.wake(u.tree.Progress(got.Seq, p.Tokens, n))
	u.ended(u.tree.Retain(kvsnap.Instant(at), got.Seq, p.Tokens[:n]))
}

// fill gives a sequence of the fake engine the cells of positions [from, to), which it can only by decoding.
func (u *uma) fill(seq kvsnap.Seq, tokens []kvsnap.Token, from, to int) {
	if u.eng == nil {
		return
	}
	for from < to {
		b := u.eng.Batch()
		b.Reset()
		for ; from < to && b.Len() < cap(b.Token); from++ {
			b.Add(u.token(tokens[from]), runtime.Pos(from), seq, false)
		}
		if err := u.eng.Decode(); err != nil {
			panic("sim: restore on the fake engine: " + err.Error())
		}
	}
}

// release takes a sequence back from a request that ended or was preempted, and keeps its history as a cached prefix.
func (u *uma) release(rel *sched.Release, at sched.Instant) {
	q := u.slots[rel.Seq]
	if q == nil || q.id != rel.Req {
		panic(fmt.Sprintf("sim: request %d gives up slot %d, which it does not have", rel.Req, rel.Seq))
	}
	u.slots[rel.Seq] = nil
	u.runs.End(uint64(rel.Req))
	u.own -= q.own
	if rel.Final {
		u.blocks.Free(meridian.Owner(q.id))
	} else {
		u.blocks.Evict(meridian.Owner(q.id), meridian.EvictPreempt)
	}
	if !rel.Final {
		q.noRestore, q.joined = false, false
	}
	kept := u.tree.Retain(kvsnap.Instant(at), q.seq, q.tokens[:q.computed])
	u.ended(kept)
	if kept.Entry != 0 {
		u.tiers.kept(q.ns, q.tokens[:q.computed])
	}
	q.slot, q.seq, q.own, q.computed = -1, kvsnap.NoSeq, 0, 0
	if q.r == nil {
		u.spare = append(u.spare, q)
	}
}

func (u *uma) ended(e kvsnap.Ended) {
	u.do(e.Actions)
	u.wake(e.Wake)
}

// wake lets requests go on that waited for another one's prompt.
func (u *uma) wake(ids []uint64) {
	for _, id := range ids {
		q := u.byID[sched.ReqID(id)]
		if q == nil || !q.held {
			continue
		}
		q.held = false
		ready := sched.Event{Kind: sched.EvReady, Req: q.id}
		// Cells of a cached prefix count as free until q shares them: only those of a running request are a hint.
		if m := u.tree.Lookup(&kvsnap.Prompt{Req: id, NS: q.ns, Tokens: q.tokens, Alone: true}); m.Running {
			ready.Shared = m.Len
		}
		u.in = append(u.in, ready)
	}
}

// makeRoom frees cells for the next batch.
func (u *uma) makeRoom(n int) {
	c := u.tree.Cells()
	if c.Free >= n {
		return
	}
	_, victims, actions := u.tree.EvictCells(max(n-c.Free, evictCells))
	for i := range victims {
		u.blocks.EvictCells(meridian.CacheOwner, meridian.Prefix, victims[i].Freed, meridian.EvictPressure)
	}
	u.tiers.offload(victims)
	u.do(actions)
	u.countCache()
}

// computed tells that q's sequence now holds n tokens of its history.
func (u *uma) computed(q *served, n int) {
	more := n - q.computed
	q.computed = n
	q.own += more
	u.own += more
	u.addCells(q, more)
	if ids := u.tree.Progress(q.seq, q.tokens, n); ids != nil {
		u.wake(ids)
	}
}

// poolEvent tells the scheduler how many cells are in use beyond what its requests computed themselves.
func (u *uma) poolEvent() {
	c := u.tree.Cells()
	if u.tiers != nil && len(u.tiers.restores) > 0 && c.Free+c.Cached < len(u.slots)+evictCells {
		u.tiers.giveWay(u.now) // what is being brought back must not cost a running request its place
		c = u.tree.Cells()
	}
	pool := c.Own + c.Shared + c.Pinned - u.own
	if pool == u.pool {
		return
	}
	u.pool = pool
	u.countCache()
	u.in = append(u.in, sched.Event{Kind: sched.EvPool, Cells: pool})
}

// addCells counts n more cells of q's own by what they are to it.
func (u *uma) addCells(q *served, n int) {
	if n <= 0 {
		return
	}
	tier := meridian.OutputCritical
	switch {
	case q.computed <= q.prompt:
		tier = meridian.Prefix
	case q.thinking:
		tier = meridian.ThinkActive
	}
	u.blocks.OnCells(meridian.Owner(q.id), tier, n)
}

// countCache tells the ledger what is cached.
func (u *uma) countCache() { u.blocks.SetCache(u.tree.Cells().Cached, u.pool) }

// token is a simulated token in the fake engine's vocabulary. Which one does not matter there: what is shared, the tree
// decides by all of its bits.
func (u *uma) token(t kvsnap.Token) runtime.Token {
	v := runtime.Token(u.eng.Model().VocabSize)
	return v - 1 - t%(v/2)
}

// decode has the fake engine compute the plan's batch and returns what it took.
func (u *uma) decode() time.Duration {
	b := u.eng.Batch()
	b.Reset()
	forks := 0
	for i := range u.plan.Batch {
		sl := &u.plan.Batch[i]
		q := u.byID[sl.Req]
		if sl.Kind == sched.SliceProbe {
			forks++
			seq := u.tree.ScratchSeq(forks)
			u.eng.SeqCopy(q.seq, seq, 0, runtime.Pos(sl.Start))
			for j := range sl.N {
				b.Add(u.token(q.tokens[sl.Start]), runtime.Pos(sl.Start+j), seq, j == sl.N-1)
			}
			continue
		}
		for j := range sl.N {
			row := b.Add(u.token(q.tokens[sl.Start+j]), runtime.Pos(sl.Start+j), q.seq, sl.Row >= 0 && j == sl.N-1)
			if j == sl.N-1 && sl.Row >= 0 && row != sl.Row {
				panic(fmt.Sprintf("sim: logits row of request %d is %d, the plan says %d", sl.Req, row, sl.Row))
			}
		}
	}
	if err := u.eng.Decode(); err != nil {
		panic("sim: the fake engine refuses the plan: " + err.Error())
	}
	for ; forks > 0; forks-- {
		u.eng.SeqRemove(u.tree.ScratchSeq(forks), 0, -1)
	}
	return u.eng.LastDecode()
}

// check holds the books of KV cells against each other (build tag invariants): the tree's, the scheduler's, this loop's,
// and the fake engine's.
func (u *uma) check() {
	if err := u.tree.Check(); err != nil {
		panic("sim: prefix tree: " + err.Error())
	}
	// A walk over everything stored: now and then.
	if u.checked++; u.checked%64 == 0 {
		if err := u.tiers.check(); err != nil {
			panic("sim: tiers: " + err.Error())
		}
	}
	own := 0
	for _, q := range u.slots {
		if q != nil {
			own += q.own
		}
	}
	if st := u.s.Stats(); own != u.own || own != st.LiveCells || u.pool != st.PoolCells {
		panic(fmt.Sprintf("sim: requests own %d cells, the loop counts %d, the scheduler %d; pool %d, the scheduler says %d",
			own, u.own, st.LiveCells, u.pool, st.PoolCells))
	}
	if c := u.tree.Cells(); u.eng != nil && u.eng.Used() != u.cells-c.Free {
		panic(fmt.Sprintf("sim: the fake engine holds %d cells, the tree %d", u.eng.Used(), u.cells-c.Free))
	}
}
