package tiers

import (
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime"
)

// Prefixes are pushed to the fabric when they are copied out of the pool, once. A value that the fabric lacks later is
// pushed again: its push was given up or found no room, the store has lost or evicted it, or an earlier process
// computed it without this fabric.
//
//   - When a request uses a prefix, its values are renewed, so that they do not expire. Those that the fabric lacks are
//     pushed again.
//   - After a push was given up or refused, everything in the pool is offered when the fabric stores something again.
//   - After a start, everything in host memory and on disk is offered.
//
// Pushing again needs the cells: from the pool, else from host memory or disk if the pool has free cells for a part.
// The loop takes them while nothing runs (OfferSome).

// Offers queues prefixes of which the fabric lacks values, so that they are pushed again. Its methods are safe from any
// goroutine.
type Offers struct {
	mu     sync.Mutex
	queue  []*offer
	lost   bool          // a push was given up or refused since everything in the pool was offered last
	closed chan struct{} // closed at the end
}

// offer is a prefix of which the fabric lacks values.
type offer struct {
	ns      uint64
	tokens  []runtime.Token
	missing []int // first positions of the missing pieces, ascending

	// Owned by the loop: the restore of the parts that the pool lacks, nil until it has begun, and the number of tokens
	// that they have in common with the prefix.
	stored  *snapshot.Restore
	matched int
	// begun are the parts of stored in which the first missing piece lies and does not end, and begins at is the
	// first position of theirs.
	begun  [][]byte
	begins int
	done   func(error) // called once at its end; nil = nothing to call
}

// maxOffers bounds the queue. When it overflows, everything in the pool is offered later instead.
const maxOffers = 64

func newOffers() *Offers { return &Offers{closed: make(chan struct{})} }

// put queues an offer and reports whether there was room.
func (f *Offers) put(o *offer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) >= maxOffers {
		f.lost = true
		return false
	}
	f.queue = append(f.queue, o)
	return true
}

// Lose records that a push was given up or refused.
func (f *Offers) Lose() { f.mu.Lock(); defer f.mu.Unlock(); f.lost = true }

// due reports whether there is something to offer.
func (f *Offers) due() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.lost || len(f.queue) > 0 }

// first returns the oldest offer; nil if there is none.
func (f *Offers) first() *offer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return nil
	}
	return f.queue[0]
}

// takeLost reports whether everything in the pool is to be offered, which the caller then does.
func (f *Offers) takeLost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := f.lost
	f.lost = false
	return lost
}

// end ends the offers that which accepts. Only the loop calls it.
func (f *Offers) end(which func(*offer) bool) {
	f.mu.Lock()
	var ended []*offer
	rest := f.queue[:0]
	for _, o := range f.queue {
		if which(o) {
			ended = append(ended, o)
		} else {
			rest = append(rest, o)
		}
	}
	clear(f.queue[len(rest):])
	f.queue = rest
	f.mu.Unlock()
	for _, o := range ended {
		if o.stored != nil {
			o.stored.Close()
		}
		o.finish(nil)
	}
}

func (o *offer) finish(err error) {
	if o.done != nil {
		o.done(err)
	}
}

// close ends all offers.
func (f *Offers) close() {
	close(f.closed)
	f.end(func(*offer) bool { return true })
}

// Use renews the values of a prefix that a request uses, and queues those that the fabric lacks.
func (s *Stores) Use(ns uint64, tokens []runtime.Token) {
	if s.Remote != nil {
		s.Remote.use(ns, tokens)
	}
}

func (m *Remote) use(ns uint64, tokens []runtime.Token) {
	whole := m.whole(len(tokens))
	if whole == 0 {
		return
	}
	last := m.prologue(ns, tokens[:whole], m.lastPiece(whole))
	if m.Pieces.settled(last.Key()) { // the values of a prefix are renewed together
		return
	}
	m.renew(&offer{ns: ns, tokens: append([]runtime.Token(nil), tokens[:whole]...)})
}

// renew renews the values of the prefix o, and queues o if the fabric lacks some. o is finished when nothing remains to
// be done for it.
func (m *Remote) renew(o *offer) {
	keys := m.Keys(nil, o.ns, o.tokens, 0)
	asked := m.Pieces.ask(keys, o.ns)
	if len(asked) == 0 {
		o.finish(nil)
		return
	}
	answer := func(missing []string, err error) {
		if err != nil {
			m.Pieces.Forget(asked...)
			m.Offers.Lose()
			o.finish(err)
			return
		}
		m.Pieces.Forget(missing...)
		m.Pieces.stored(asked...)
		m.renewed.Add(uint64(len(asked) - len(missing)))
		lacks := make(map[string]bool, len(missing))
		for _, key := range missing {
			lacks[key] = true
		}
		for i, key := range keys {
			if lacks[key] {
				o.missing = append(o.missing, i*m.piece)
			}
		}
		if len(o.missing) == 0 || !m.Offers.put(o) {
			o.finish(nil)
		}
		m.answered()
	}
	if !m.Out.TryRenew(asked, answer) {
		m.Pieces.Forget(asked...)
		m.Offers.Lose()
		o.finish(nil)
	}
}

// OfferSome pushes some of the values that the fabric lacks. The loop calls it while nothing runs; it reports whether
// to call it again at once.
func (s *Stores) OfferSome() (more bool) {
	m := s.Remote
	if m == nil || !m.Offers.due() || m.Out.Stats().QueuedItems > 0 || m.paused() {
		return false // a stored value wakes the loop
	}
	o := m.Offers.first()
	if o == nil {
		if m.Offers.takeLost() {
			s.offerPool()
		}
		return false
	}
	push := s.pushAgain
	if m.seals() {
		push = s.pushSealAgain
	}
	over, waiting := push(o)
	m.flush()
	if over {
		m.Offers.end(func(x *offer) bool { return x == o })
	}
	return !waiting
}

// offerPool renews everything in the pool.
func (s *Stores) offerPool() {
	tree := s.o.Loop.Core().Tree()
	for _, e := range tree.Entries(nil) {
		if tokens, err := tree.Tokens(e.ID); err == nil && !e.Running {
			whole := s.Remote.whole(min(e.Tokens, len(tokens)))
			s.Remote.renew(&offer{ns: e.NS, tokens: append([]runtime.Token(nil), tokens[:whole]...)})
		}
	}
}

// offerBatch is the number of pieces that are pushed before the loop looks for requests: a few milliseconds of copying.
const offerBatch = 8

// pushAgain pushes some of the missing pieces of o. over: nothing remains that can be pushed. waiting: a part is being
// read; the loop is woken when it has come.
func (s *Stores) pushAgain(o *offer) (over, waiting bool) {
	m, tree := s.Remote, s.o.Loop.Core().Tree()
	longer := append(o.tokens[:len(o.tokens):len(o.tokens)], 0) // a match leaves out the last token
	match := tree.Lookup(&kvsnap.Prompt{NS: o.ns, Tokens: longer, NoWait: true})
	for n := 0; len(o.missing) > 0 && o.missing[0]+m.piece <= match.Len; n++ {
		if n == offerBatch {
			return false, false
		}
		p0 := o.missing[0]
		tier := tree.TierAt(match.Source, p0+m.piece-1, blocks.Prefix)
		if err := s.pushPiece(o, match.Source, p0, tier); err != nil {
			return true, false
		}
	}
	if len(o.missing) == 0 {
		return true, false
	}
	return s.pushStored(o)
}

// pushPiece pushes the first missing piece of o, at position p0 of seq.
func (s *Stores) pushPiece(o *offer, seq runtime.Seq, p0 int, tier blocks.Tier) error {
	o.missing = o.missing[1:]
	s.Remote.again.Add(1)
	err := s.Remote.pushPiece(o.ns, o.tokens[:p0+s.Remote.piece], seq, p0, frameTier(tier))
	if err != nil {
		s.o.Log.Debug("fabric", "error", err)
	}
	return err
}

// pushStored pushes the missing pieces in the next part that host memory or disk has of o. The cells are in the pool
// meanwhile, under a scratch sequence.
func (s *Stores) pushStored(o *offer) (over, waiting bool) {
	m, tree := s.Remote, s.o.Loop.Core().Tree()
	if o.stored == nil {
		found, ok := s.Cache.Peek(snapshot.Namespace(o.ns), o.tokens)
		if !ok || found.Tokens < o.missing[0]+m.piece {
			return true, false
		}
		o.matched = found.Tokens
		var err error
		o.stored, err = s.Cache.Fetch(found, s.o.Loop.Offer)
		if err != nil {
			return true, false
		}
	}
	part, status := o.stored.Next()
	switch {
	case status == snapshot.Waiting:
		return false, true
	case status != snapshot.Ready:
		return true, false
	case part.P1 <= o.missing[0]:
		return false, false
	}
	if len(o.begun) == 0 {
		o.begins = part.P0
	}
	if tree.Cells().Free < part.P1-o.begins {
		return true, false
	}
	seq := tree.ScratchSeq(1) // number 0 is for snapshots
	defer s.o.Engine.SeqRemove(seq, 0, -1)
	for _, bytes := range append(o.begun, part.Bytes) {
		if err := s.o.Engine.Restore(bytes, seq, tree.ScratchSeq(0)); err != nil {
			s.o.Log.Debug("fabric", "error", err)
			return true, false
		}
	}
	for end := min(part.P1, o.matched); len(o.missing) > 0 && o.missing[0]+m.piece <= end; {
		if err := s.pushPiece(o, seq, o.missing[0], blocks.Prefix); err != nil {
			return true, false
		}
	}
	// A turn's part ends where the turn does, within a piece.
	switch {
	case len(o.missing) == 0 || o.missing[0] >= part.P1:
		o.begun = nil
	case o.missing[0] >= part.P0:
		o.begun, o.begins = [][]byte{slices.Clone(part.Bytes)}, part.P0
	default:
		o.begun = append(o.begun, slices.Clone(part.Bytes))
	}
	return len(o.missing) == 0 || o.missing[0]+m.piece > o.matched, false
}

// offerStored offers everything in host memory and on disk to the fabric, one prefix after the other, once. It runs on
// its own goroutine after a start. A prefix that the fabric has not answered for is offered again later.
func (s *Stores) offerStored() {
	m := s.Remote
	var all []*offer
	s.Cache.Sequences(func(snapshot.Namespace, snapshot.Key) bool { return true },
		func(ns snapshot.Namespace, tokens []runtime.Token) {
			all = append(all, &offer{ns: uint64(ns), tokens: tokens[:m.whole(len(tokens))]})
		})
	for pause := time.Second; len(all) > 0; {
		done := make(chan error, 1)
		o := all[0]
		o.missing, o.stored, o.done = nil, nil, func(err error) { done <- err }
		m.renew(o)
		select {
		case err := <-done:
			if err == nil {
				all, pause = all[1:], time.Second
				continue
			}
		case <-m.Offers.closed:
			return
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Minute)
		case <-m.Offers.closed:
			return
		}
	}
}
