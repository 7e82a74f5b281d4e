package sim

import (
	"encoding/binary"
	"slices"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

// stores keeps cells outside the pool, as the daemon does: in host memory, on disk, on a fabric. What is found where
// and what leaves a tier is production code (kvsnap/snapshot/index); the bytes are not there, their time is.
//
// A copy to disk or fabric takes the time of its tokens, behind those that were begun before it. Until then the part is
// found in host memory or not at all; evicting it there loses nothing, since the writer has the bytes.
type stores struct {
	index  *index.Index
	host   *index.Queue // in tokens, as disk
	disk   *index.Queue // nil = none
	fabric bool         // without bounds

	us   [3]float64 // microseconds a token: into or out of the pool, and from and to disk or fabric
	part int        // tokens
	now  int64
	free [3]int64 // when the copies to disk and fabric that were begun are complete

	failed bool // the newest CopyOut

	thoughts thoughts
	fetches  []*fetch
	debt     float64 // microseconds that copying took and that have not passed yet
	restored [3]int64
	fault    [3]Fault // of each tier
}

// The tiers below the pool.
const (
	tierHost = iota
	tierDisk
	tierFabric
	tierNone // on its way to one
)

// TierNames are the tiers below the pool, as EngineTotals.Restored counts them.
var TierNames = [3]string{"host", "disk", "fabric"}

// stored is a part.
type stored struct {
	node    index.Node
	refs    int  // fetches that need it
	thought bool // a part of a thought: the index does not have it
	// when the copy on disk and the one on the fabric are complete; 0 = never begun
	onDisk, onFabric int64
}

func hostElem(n *index.Node) *index.Elem { return &n.Host }
func diskElem(n *index.Node) *index.Elem { return &n.Disk }
func of(n *index.Node) *stored           { return n.Owner.(*stored) }

func newStores(cfg *Config) *stores {
	if cfg.KVCPUBlocks == 0 || cfg.NoPrefixCache {
		return nil
	}
	t := &stores{index: index.New(uint64(cfg.Seed)),
		host: index.NewQueue(int64(cfg.KVCPUBlocks) * int64(cfg.BlockTokens)), fabric: cfg.KVFabric,
		part: cfg.KVPartTokens}
	if cfg.KVDiskBlocks > 0 {
		t.disk = index.NewQueue(int64(cfg.KVDiskBlocks) * int64(cfg.BlockTokens))
	}
	copy(t.us[:], cfg.KVTierUs)
	return t
}

// Find implements core.Stores.
func (t *stores) Find(ns uint64, tokens []core.Token, least int) (n int, tier core.Tier, ok bool) {
	node, matched := t.index.Lookup(format.Namespace(ns), tokens, false)
	if node == nil || matched < least {
		return 0, 0, false
	}
	tier = core.Host
	for p := node; p != nil; p = p.Parent {
		at := t.tierOf(p)
		if at == tierNone {
			matched, tier = p.P0, core.Host // nothing behind it is of use
			continue
		}
		tier = max(tier, core.Host+core.Tier(at))
	}
	return matched, tier, matched >= max(least, 1)
}

// tierOf returns the nearest tier that has all of a part.
func (t *stores) tierOf(p *index.Node) int {
	s := of(p)
	switch {
	case p.Host.In():
		return tierHost
	case p.Disk.In() && s.onDisk <= t.now:
		return tierDisk
	case s.onFabric > 0 && s.onFabric <= t.now:
		return tierFabric
	}
	return tierNone
}

// write begins a copy of n tokens to a tier, and returns when it is complete.
func (t *stores) write(tier int, n int64) int64 {
	t.free[tier] = max(t.free[tier], t.now) + int64(t.us[tier]*float64(n))
	return max(1, t.free[tier])
}

// Missing implements core.Stores.
func (t *stores) Missing(ns uint64, tokens []core.Token) int {
	m, matched := t.index.Lookup(format.Namespace(ns), tokens, false)
	switch {
	case m == nil:
		return 0
	case matched == len(tokens), matched == m.P1:
		return matched
	}
	return m.P0
}

// spend counts n tokens that are copied before a decode.
func (t *stores) spend(n int) { t.debt += float64(t.us[tierHost] * float64(n)) }

// debtUs returns the time that copying takes and that has not passed, microseconds.
func (t *stores) debtUs() int64 {
	if t == nil {
		return 0
	}
	return int64(t.debt)
}

// passed is debtUs, which has passed then.
func (t *stores) passed() int64 {
	if t == nil {
		return 0
	}
	us := int64(t.debt)
	t.debt = 0
	return us
}

// put stores the part of tokens from p0 on. It returns false when an earlier part is gone or there is no room.
func (t *stores) put(ns uint64, tokens []kvsnap.Token, p0 int) bool {
	before, after := format.PrefixHashes(tokens, p0)
	key := after
	binary.LittleEndian.PutUint64(key[:], binary.LittleEndian.Uint64(key[:])^ns^uint64(p0)<<32)
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
		*n = index.Node{Key: key, Namespace: format.Namespace(ns), P0: p0, P1: len(tokens),
			Tokens: slices.Clone(tokens[p0:]), Before: before, After: after, Owner: s}
		for p := prefix; p != nil; p = p.Parent {
			of(p).refs++ // making room must not evict the parts before it
		}
		room := t.room(t.host, hostElem, int64(n.P1-n.P0))
		for p := prefix; p != nil; p = p.Parent {
			of(p).refs--
		}
		if !room {
			return false
		}
		t.index.Add(n)
	}
	if !t.putHost(n) {
		return false
	}
	size := int64(n.P1 - n.P0)
	if t.disk != nil && t.fault[tierDisk] != Failing && !n.Disk.In() && t.room(t.disk, diskElem, size) {
		t.disk.Push(n, size, diskElem)
		of(n).onDisk = t.write(tierDisk, size)
	}
	if t.fabric && t.fault[tierFabric] != Failing && of(n).onFabric == 0 && t.whole(n) {
		of(n).onFabric = t.write(tierFabric, size)
	}
	return true
}

// putHost stores a part in host memory.
func (t *stores) putHost(n *index.Node) bool {
	if n.Host.In() {
		t.host.Refresh(n, hostElem)
		return true
	}
	of(n).refs++
	room := t.room(t.host, hostElem, int64(n.P1-n.P0))
	of(n).refs--
	if room {
		t.host.Push(n, int64(n.P1-n.P0), hostElem)
	}
	return room
}

// room evicts from a tier until size more tokens fit.
func (t *stores) room(q *index.Queue, which func(*index.Node) *index.Elem, size int64) bool {
	if size > q.Cap {
		return false
	}
	for q.Over(size) > 0 {
		v := q.Victim(func(n *index.Node) bool { return of(n).refs == 0 })
		if v == nil {
			return false
		}
		q.Remove(which(v))
		if !v.Host.In() && !v.Disk.In() && of(v).onFabric == 0 {
			t.index.Remove(v)
		}
	}
	return true
}

// whole reports whether a part can be on a fabric, which takes whole ones only.
func (t *stores) whole(n *index.Node) bool { return n.P1-n.P0 == t.part && n.P0%t.part == 0 }

// check verifies the tiers' books.
func (t *stores) check() error {
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

// check verifies the tiers' books (build tag invariants), at every 64th step because it walks over everything stored.
// Core checks its books, and the fake engine too.
func (u *uma) check() {
	if u.checked++; u.checked%64 == 0 {
		if err := u.stores.check(); err != nil {
			panic("sim: tiers: " + err.Error())
		}
	}
}
