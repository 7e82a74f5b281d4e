package kvevents

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
)

// BlockTokens is the number of tokens of a block: vLLM's default, and routers' too.
const BlockTokens = 16

// Tier is the place of a block.
type Tier uint8

// The tiers, and the number of them.
const (
	Device  Tier = iota // the KV pool
	Host                // --cache-ram
	Storage             // --cache-dir
	NumTiers
)

// String returns vLLM's name of the tier, "medium" in an event.
func (t Tier) String() string { return [...]string{"GPU", "CPU", "STORAGE"}[t] }

// Event is a change of what one tier of one model's cache holds: a chain of blocks that were stored, or blocks that
// were removed.
type Event struct {
	Tier    Tier
	Removed bool
	Hashes  []uint64
	// Of stored blocks: NS is the user whose blocks they are, First the index of the first one in its sequence, Parent
	// the hash of the block before it (none if First is 0), and Tokens those of all blocks.
	NS     uint64
	First  int
	Parent uint64
	Tokens []int32
}

// blockHash returns the hash of a block behind the one with hash parent. Users have different hashes for the same
// tokens, because they do not share cells. The hash depends on its input alone, so that it is the same after a restart.
func blockHash(parent uint64, ns uint64, tokens []int32) uint64 {
	var b [16 + 4*BlockTokens]byte
	binary.LittleEndian.PutUint64(b[:], parent)
	binary.LittleEndian.PutUint64(b[8:], ns)
	for i, t := range tokens[:BlockTokens] {
		binary.LittleEndian.PutUint32(b[16+4*i:], uint32(t))
	}
	sum := blake3.Sum256(b[:])
	return binary.LittleEndian.Uint64(sum[:])
}

// chain is a sequence that was seen: its whole blocks.
type chain struct {
	owner  uint64
	ns     uint64
	hashes []uint64
	seen   uint64 // number of the newest scan that had it
}

// Tracker follows one tier of a cache. Call Begin, then Sequence for every sequence that the tier holds, then End. It
// is pure, and belongs to one goroutine.
type Tracker struct {
	tier   Tier
	most   int // blocks that are followed
	scan   uint64
	chains map[uint64]*chain
	refs   map[uint64]int // number of sequences with a block, by its hash
	events []Event
	gone   []uint64 // blocks that a sequence of this scan gave up
}

// NewTracker makes a Tracker that follows at most so many blocks: further ones are not reported.
func NewTracker(tier Tier, most int) *Tracker {
	return &Tracker{tier: tier, most: most, chains: map[uint64]*chain{}, refs: map[uint64]int{}}
}

// Begin begins a scan.
func (t *Tracker) Begin() { t.scan, t.events, t.gone = t.scan+1, nil, t.gone[:0] }

// Sequence reports a sequence that the tier holds. slot names its place among those of one scan; owner changes when
// other tokens take the place. As long as owner is the same, tokens begin as they did in the scan before, or are a
// prefix of what they were. They are read during the call only.
func (t *Tracker) Sequence(slot, owner uint64, ns uint64, tokens []int32) {
	c := t.chains[slot]
	if c == nil {
		c = &chain{ns: ns}
		t.chains[slot] = c
	}
	c.seen = t.scan
	n := len(tokens) / BlockTokens
	same := 0 // leading blocks that have stayed
	if c.owner == owner && c.ns == ns {
		same = min(n, len(c.hashes))
	} else {
		parent := uint64(0)
		for c.ns == ns && same < min(n, len(c.hashes)) {
			h := blockHash(parent, ns, tokens[same*BlockTokens:])
			if h != c.hashes[same] {
				break
			}
			parent = h
			same++
		}
	}
	c.owner, c.ns = owner, ns
	t.gone = append(t.gone, c.hashes[same:]...)
	c.hashes = c.hashes[:same]
	first := -1 // of the run of blocks that are new to the tier
	for i := same; i < n; i++ {
		h := blockHash(c.last(), ns, tokens[i*BlockTokens:])
		if t.refs[h] == 0 && len(t.refs) >= t.most {
			break
		}
		c.hashes = append(c.hashes, h)
		if t.refs[h]++; t.refs[h] > 1 {
			t.stored(c, first, i, tokens)
			first = -1
		} else if first < 0 {
			first = i
		}
	}
	t.stored(c, first, len(c.hashes), tokens)
}

// last returns the hash of the last block, 0 without blocks.
func (c *chain) last() uint64 {
	if len(c.hashes) == 0 {
		return 0
	}
	return c.hashes[len(c.hashes)-1]
}

// stored adds the event for the blocks [first, end) of a chain.
func (t *Tracker) stored(c *chain, first, end int, tokens []int32) {
	if first < 0 || first >= end {
		return
	}
	e := Event{Tier: t.tier, NS: c.ns, First: first, Hashes: append([]uint64(nil), c.hashes[first:end]...),
		Tokens: append([]int32(nil), tokens[first*BlockTokens:end*BlockTokens]...)}
	if first > 0 {
		e.Parent = c.hashes[first-1]
	}
	t.events = append(t.events, e)
}

// End ends a scan and returns what has changed: what was stored, then what was removed.
func (t *Tracker) End() []Event {
	for slot, c := range t.chains {
		if c.seen != t.scan {
			t.gone = append(t.gone, c.hashes...)
			delete(t.chains, slot)
		}
	}
	var removed []uint64
	for _, h := range t.gone {
		if t.refs[h]--; t.refs[h] == 0 {
			delete(t.refs, h)
			removed = append(removed, h)
		}
	}
	if len(removed) > 0 {
		t.events = append(t.events, Event{Tier: t.tier, Removed: true, Hashes: removed})
	}
	return t.events
}

// Has reports whether a sequence was there in the scan before.
func (t *Tracker) Has(slot uint64) bool { return t.chains[slot] != nil }

// Stored is Sequence for a sequence that never changes: tokens are needed only where Has is false.
func (t *Tracker) Stored(slot uint64, ns uint64, tokens []int32) {
	if c := t.chains[slot]; c != nil {
		c.seen = t.scan
		return
	}
	t.Sequence(slot, 1, ns, tokens)
}

// Forget makes the next scan report everything that the tier holds as stored.
func (t *Tracker) Forget() {
	clear(t.chains)
	clear(t.refs)
}
