package sim

import (
	"encoding/binary"
	"slices"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
	"github.com/uma-serve/uma-serve/sched"
)

// tiers keeps cells outside the pool, as the daemon's store does: in host memory, on disk, on a fabric. What is found where
// and what leaves a tier is production code (kvsnap/snapshot/index); the bytes are not there, their time is. Cells are
// moved in parts, of which only some fit between two steps.
//
// Not simulated: that copies to disk and fabric take a while. They are there at once; who would have come in between finds
// them too early.
type tiers struct {
	u      *uma
	index  *index.Index
	host   *index.Queue // in tokens, as disk
	disk   *index.Queue // nil = none
	fabric bool         // without bounds

	us   [3]float64 // microseconds a token: into or out of the pool, and from disk or fabric before it
	part int        // tokens

	restores []*restoring
	budget   int     // tokens that may still be moved before the next step
	debt     float64 // microseconds that moving took and that have not passed yet
	restored [3]int64
}

// The tiers below the pool.
const (
	tierHost = iota
	tierDisk
	tierFabric
)

// TierNames are the tiers below the pool, as EngineTotals.Restored counts them.
var TierNames = [3]string{"host", "disk", "fabric"}

// stored is a part.
type stored struct {
	node  index.Node
	holds int // restores that need it
}

func hostElem(n *index.Node) *index.Elem { return &n.Host }
func diskElem(n *index.Node) *index.Elem { return &n.Disk }
func of(n *index.Node) *stored           { return n.Owner.(*stored) }

// restoring brings a stored prefix back into the pool, as a cached prefix that those who wait for it then share.
type restoring struct {
	waiting []*served
	ns      uint32
	tokens  []kvsnap.Token
	chain   []*index.Node
	from    []int   // tier of each part
	ready   []int64 // when each part is at hand, on the engine's clock
	next    int     // of chain
	seq     kvsnap.Seq
	done    int
}

// The daemon's numbers: see daemon/store.go.
const (
	restoreMin    = 32
	maxRestores   = 8
	copyParts     = 2 // between two steps
	copyIdleParts = 64
)

func newTiers(u *uma, cfg *Config) *tiers {
	if cfg.KVCPUBlocks == 0 {
		return nil
	}
	t := &tiers{u: u, index: index.New(uint64(cfg.Seed)), host: index.NewQueue(int64(cfg.KVCPUBlocks) * int64(cfg.BlockTokens)), fabric: cfg.KVFabric, part: cfg.KVPartTokens}
	if cfg.KVDiskBlocks > 0 {
		t.disk = index.NewQueue(int64(cfg.KVDiskBlocks) * int64(cfg.BlockTokens))
	}
	copy(t.us[:], cfg.KVTierUs)
	return t
}

// restore begins to bring back what the tiers have of q's history beyond the pool, and reports whether q must wait.
func (t *tiers) restore(q *served, now int64) bool {
	if t == nil || q.noRestore {
		return false
	}
	q.noRestore = true // once per start: what is brought back may be evicted again before its turn comes
	want := q.tokens[:len(q.tokens)-1]
	m := t.u.tree.Lookup(&kvsnap.Prompt{Req: uint64(q.id), NS: q.ns, Tokens: q.tokens})
	here := m.Len + m.Ahead
	for _, re := range t.restores {
		if n := common(re.tokens, want); re.ns == q.ns && n >= max(here, m.Len+restoreMin) {
			re.waiting = append(re.waiting, q)
			q.restoring = re
			return true
		}
	}
	if len(t.restores) >= maxRestores {
		return false
	}
	n, matched := t.index.Lookup(format.Namespace(q.ns), want, false)
	if n == nil || matched < here+restoreMin {
		return false
	}
	re := &restoring{waiting: []*served{q}, ns: q.ns, tokens: slices.Clone(want[:matched]), seq: kvsnap.NoSeq}
	for p := n; p != nil; p = p.Parent {
		re.chain = append(re.chain, p)
		of(p).holds++
	}
	slices.Reverse(re.chain)
	t.host.Hit(n, hostElem)
	if t.disk != nil {
		t.disk.Hit(n, diskElem)
	}
	// What is further away is read or pulled from now on, one part after the other, beside the steps.
	at := float64(now)
	for _, p := range re.chain {
		tier := tierHost
		switch {
		case p.Host.In():
		case p.Disk.In():
			tier = tierDisk
		default:
			tier = tierFabric
		}
		if tier != tierHost {
			at += float64(t.us[tier] * float64(p.P1-p.P0))
		}
		re.from, re.ready = append(re.from, tier), append(re.ready, int64(at))
	}
	q.restoring = re
	t.restores = append(t.restores, re)
	return true
}

// common is how many leading tokens a and b share.
func common(a, b []kvsnap.Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// work goes on with the restores, first come first served, as far as the time between two steps allows: more while there
// is nobody to feel it.
func (t *tiers) work(e *Engine, now int64, idle bool) {
	if t == nil {
		return
	}
	t.budget = copyParts * t.part
	if idle {
		t.budget = copyIdleParts * t.part
	}
	if len(t.restores) == 0 {
		return
	}
	rest, moved := t.restores[:0], false
	for _, re := range t.restores {
		switch {
		case len(re.waiting) == 0:
			t.end(re, now)
			continue
		case re.next < len(re.ready) && re.ready[re.next] > now:
		case moved && t.budget < t.part:
		default:
			moved = true
			e.advances++
			if t.move(re, now) {
				continue
			}
		}
		rest = append(rest, re)
	}
	clear(t.restores[len(rest):])
	t.restores = rest
}

// due is when there is more to do, after work; false when there is nothing.
func (t *tiers) due(now int64) (at int64, ok bool) {
	if t == nil {
		return 0, false
	}
	for _, re := range t.restores {
		if next := max(now, re.at()); !ok || next < at {
			at, ok = next, true
		}
	}
	return at, ok
}

// at is when re's next part is at hand.
func (re *restoring) at() int64 {
	if re.next < len(re.ready) {
		return re.ready[re.next]
	}
	return 0
}

// move restores the next part and reports whether re has ended with it.
func (t *tiers) move(re *restoring, now int64) (ended bool) {
	u := t.u
	for ; re.next < len(re.chain); re.next++ {
		p := re.chain[re.next]
		to := min(p.P1, len(re.tokens))
		if re.seq == kvsnap.NoSeq {
			m := u.tree.Lookup(&kvsnap.Prompt{NS: re.ns, Tokens: append(re.tokens[:len(re.tokens):len(re.tokens)], 0), Alone: true})
			if p.P1 <= m.Len {
				continue // the pool has it still
			}
			u.lastRes++
			got, err := u.tree.Start(kvsnap.Instant(instant(now)), &kvsnap.Prompt{Req: firstRes + u.lastRes, NS: re.ns, Tokens: re.tokens[:p.P0+1], Alone: true})
			if err != nil {
				break // no sequence id is left
			}
			t.offload(got.Evicted)
			u.do(got.Actions)
			re.seq, re.done = got.Seq, got.Cached
		}
		if c := u.tree.Cells(); re.done != p.P0 || to <= re.done || c.Free+c.Cached < p.P1-p.P0 {
			break // what was before it is gone, or running requests need the pool: a shorter prefix will do
		}
		u.makeRoom(p.P1 - p.P0)
		u.fill(re.seq, re.tokens, re.done, to)
		t.spend(p.P1 - p.P0)
		t.restored[re.from[re.next]] += int64(to - re.done)
		t.putHost(p)
		re.done = to
		re.next++
		u.wake(u.tree.Progress(re.seq, re.tokens, re.done))
		if re.next < len(re.chain) {
			return false
		}
		break
	}
	t.end(re, now)
	return true
}

// spend counts n tokens that are moved between two steps.
func (t *tiers) spend(n int) {
	t.budget -= n
	t.debt += float64(t.us[tierHost] * float64(n))
}

// passed is the time that moving has taken since it was last asked, microseconds.
func (t *tiers) passed() int64 {
	if t == nil || t.debt == 0 {
		return 0
	}
	us := int64(t.debt)
	t.debt = 0
	return us
}

// end makes what was restored a cached prefix and lets the requests go on.
func (t *tiers) end(re *restoring, now int64) {
	u := t.u
	for _, p := range re.chain {
		of(p).holds--
	}
	if re.seq != kvsnap.NoSeq {
		u.ended(u.tree.Retain(kvsnap.Instant(instant(now)), re.seq, re.tokens[:re.done]))
		re.seq = kvsnap.NoSeq
	}
	for _, q := range re.waiting {
		q.restoring = nil
		u.in = append(u.in, sched.Event{Kind: sched.EvReady, Req: q.id})
	}
	re.waiting = nil
}

// forget takes a request from the restore that it waits for.
func (t *tiers) forget(q *served) {
	if re := q.restoring; re != nil {
		re.waiting = slices.DeleteFunc(re.waiting, func(o *served) bool { return o == q })
		q.restoring = nil
	}
}

// giveWay ends all restores: their cells are needed.
func (t *tiers) giveWay(now int64) {
	if t == nil {
		return
	}
	for _, re := range t.restores {
		t.end(re, now)
	}
	t.restores = t.restores[:0]
}

// kept is told of a history that has become a cached prefix: where others, or a later run, find it, it is copied out
// while there is time.
func (t *tiers) kept(ns uint32, tokens []kvsnap.Token) {
	if t != nil && (t.disk != nil || t.fabric) {
		t.copyOut(ns, tokens, len(tokens), len(tokens), func(int) {})
	}
}

// offload copies what cached prefixes lose, as far as the time before the next step allows: from the head on.
func (t *tiers) offload(victims []kvsnap.Victim) {
	if t == nil {
		return
	}
	for i := range victims {
		if v := &victims[i]; v.Freed > 0 && t.budget >= t.part {
			t.copyOut(v.NS, v.Tokens, v.To, t.budget/t.part, t.spend)
		}
	}
}

// copyOut stores up to parts parts of the first n tokens that are not stored yet.
func (t *tiers) copyOut(ns uint32, tokens []kvsnap.Token, n, parts int, spend func(int)) {
	p0 := 0
	if m, matched := t.index.Lookup(format.Namespace(ns), tokens[:n], false); m != nil {
		if matched == n {
			return
		}
		if p0 = m.P0; matched == m.P1 {
			p0 = m.P1
		}
	}
	for ; p0 < n && parts > 0; parts-- {
		p1 := min(p0/t.part*t.part+t.part, n)
		if !t.put(ns, tokens[:p1], p0) {
			return
		}
		spend(p1 - p0)
		p0 = p1
	}
}

// put stores the part of tokens from p0 on; false when what it stands on is gone or there is no room.
func (t *tiers) put(ns uint32, tokens []kvsnap.Token, p0 int) bool {
	before, after := format.PrefixHashes(tokens, p0)
	key := after
	binary.LittleEndian.PutUint32(key[:], binary.LittleEndian.Uint32(key[:])^ns)
	binary.LittleEndian.PutUint32(key[4:], binary.LittleEndian.Uint32(key[4:])^uint32(p0))
	n := t.index.Get(key)
	if n == nil {
		var prefix *index.Node
		if p0 > 0 {
			if prefix = t.index.Tail(format.Namespace(ns), tokens[:p0]); prefix == nil {
				return false
			}
		}
		s := &stored{}
		n = &s.node
		*n = index.Node{Key: key, Namespace: format.Namespace(ns), P0: p0, P1: len(tokens), Tokens: slices.Clone(tokens[p0:]), Before: before, After: after, Owner: s}
		for p := prefix; p != nil; p = p.Parent {
			of(p).holds++ // making room must not take what the part stands on
		}
		room := t.room(t.host, hostElem, int64(n.P1-n.P0))
		for p := prefix; p != nil; p = p.Parent {
			of(p).holds--
		}
		if !room {
			return false
		}
		t.index.Add(n)
	}
	if !t.putHost(n) {
		return false
	}
	if size := int64(n.P1 - n.P0); t.disk != nil && !n.Disk.In() && t.room(t.disk, diskElem, size) {
		t.disk.Push(n, size, diskElem)
	}
	return true
}

// putHost stores a part in host memory.
func (t *tiers) putHost(n *index.Node) bool {
	if n.Host.In() {
		t.host.Refresh(n, hostElem)
		return true
	}
	of(n).holds++
	room := t.room(t.host, hostElem, int64(n.P1-n.P0))
	of(n).holds--
	if room {
		t.host.Push(n, int64(n.P1-n.P0), hostElem)
	}
	return room
}

// room evicts from a tier until size more tokens fit.
func (t *tiers) room(q *index.Queue, which func(*index.Node) *index.Elem, size int64) bool {
	if size > q.Cap {
		return false
	}
	for q.Over(size) > 0 {
		v := q.Victim(func(n *index.Node) bool { return of(n).holds == 0 })
		if v == nil {
			return false
		}
		q.Remove(which(v))
		if whole := v.P1-v.P0 == t.part && v.P0%t.part == 0; !v.Host.In() && !v.Disk.In() && !(t.fabric && whole) {
			t.index.Remove(v)
		}
	}
	return true
}

// check verifies the tiers' books.
func (t *tiers) check() error {
	if t == nil {
		return nil
	}
	if err := t.index.Check(); err != nil {
		return err
	}
	if t.disk != nil {
		if err := t.disk.Check(); err != nil {
			return err
		}
	}
	return t.host.Check()
}
