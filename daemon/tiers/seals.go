package tiers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/runtime"
)

// The fabric of a model with states (recurrent layers). A state cannot be divided by positions, so what goes out is a
// seal: a whole sequence, under a key of all its tokens. A process that looks for a prompt does not know where others
// have sealed it. It asks for the seals at the positions where it would seal the prompt itself (kvsnap.SealPositions),
// the longest first, and restores the first that there is.

const (
	// maxSeal is the largest seal that is pushed or taken, in bytes, and the limit on those that wait to be pushed.
	maxSeal = 512 << 20
	// sealTransfer is the maximum time to push a seal. Pulls have a shorter one, from limit.
	sealTransfer = 20 * time.Second
	// sealTimeout is the maximum wait for a seal while the time to compute its tokens is unknown.
	sealTimeout = time.Second
	// maxSealWait is the maximum wait for a seal whose tokens take longer than that to compute.
	maxSealWait = 5 * time.Second
)

// limits sets what seals need in the configurations of a remote's layers: they are larger than pieces.
func (m *Remote) limits(g *fabric.GuardConfig, o *fabric.OffloadConfig) {
	if m.seals() {
		g.MaxBytes, g.Timeout, o.QueueBytes = maxSeal+1<<20, sealTransfer, maxSeal
	}
}

// seals reports whether the fabric gets seals in place of pieces.
func (m *Remote) seals() bool { return m.kind == mrdn.KindSeal }

// lastPiece returns where the last piece of whole tokens begins.
func (m *Remote) lastPiece(whole int) int {
	if m.seals() {
		return 0
	}
	return whole - m.piece
}

// pushSeal queues the push of the seal of tokens, whose bytes are in buf. It keeps a reference to buf while the push is
// queued, and copies the bytes on the offloader's goroutine only.
func (m *Remote) pushSeal(ns uint64, tokens []runtime.Token, buf *snapshot.Buffer, tier mrdn.Tier) {
	p := m.prologue(ns, tokens, 0)
	key := p.Key()
	size := len(buf.Bytes())
	if int64(size) > m.maxSeal {
		m.o.Log.Debug("fabric: a seal is too large and is not pushed", "tokens", len(tokens), "bytes", size,
			"limit", m.maxSeal)
		return
	}
	if m.Pieces.has(key) {
		return
	}
	p.Encoding, p.KVBytes = mrdn.Raw, int64(size)
	release := sync.OnceFunc(buf.Share().Release)
	j := m.job(&p, nil, 0, m.blocksOf(len(tokens)), tier)
	j.Value = buf.Bytes()
	j.Prepare = func(b []byte) ([]byte, error) {
		defer release()
		return m.sealFrame(p, b, tier)
	}
	done := j.Done
	j.Done = func(err error) {
		release() // Prepare was not called if the push was dropped
		done(err)
	}
	if !m.tryPush(j, ns) {
		release()
	}
}

// sealFrame returns the frame of a seal whose bytes are b, compressed if that saves enough.
func (m *Remote) sealFrame(p mrdn.Prologue, b []byte, tier mrdn.Tier) ([]byte, error) {
	if small := m.zip.compress(b); small != nil {
		p.Encoding, b = mrdn.Zstd, small
		defer func() { m.zip.out = nil }() // as large as the seal
	}
	frame, err := mrdn.Begin(make([]byte, 0, len(b)+1024), &p)
	if err != nil {
		return nil, err
	}
	frame = append(frame, b...)
	return frame, mrdn.Seal(frame, tier)
}

// pushSealAgain pushes the seal of o, which the fabric lacks, from the pool, else from host memory or disk. It is
// pushAgain for seals.
func (s *Stores) pushSealAgain(o *offer) (over, waiting bool) {
	m, tree := s.Remote, s.o.Loop.Core().Tree()
	longer := append(o.tokens[:len(o.tokens):len(o.tokens)], 0) // a match leaves out the last token
	if match := tree.Lookup(&kvsnap.Prompt{NS: o.ns, Tokens: longer, NoWait: true}); match.Len == len(o.tokens) {
		buf, err := s.snapshot(match.Source, 0, match.Len)
		if err != nil {
			s.o.Log.Debug("fabric", "error", err)
			return true, false
		}
		defer buf.Release()
		m.again.Add(1)
		m.pushSeal(o.ns, o.tokens, buf, frameTier(tree.TierAt(match.Source, match.Len-1, blocks.Prefix)))
		return true, false
	}
	if o.stored == nil {
		found, ok := s.Cache.Peek(snapshot.Namespace(o.ns), o.tokens)
		if !ok || found.Tokens != len(o.tokens) {
			return true, false
		}
		var err error
		if o.stored, err = s.Cache.Fetch(found, s.o.Loop.Offer); err != nil {
			return true, false
		}
	}
	switch part, status := o.stored.Next(); {
	case status == snapshot.Waiting:
		return false, true
	case status == snapshot.Ready && part.P0 == 0 && part.P1 == len(o.tokens):
		buf := o.stored.Share()
		defer buf.Release()
		m.again.Add(1)
		m.pushSeal(o.ns, o.tokens, buf, frameTier(blocks.Prefix))
	}
	return true, false
}

// sealPull is the source of a restore of a seal: its one part is the longest seal of a prompt that the fabric has.
type sealPull struct {
	m        *Remote
	ns       uint64
	notify   func()
	from     int           // the pool has the tokens before it
	patience time.Duration // as in pull
	begin    time.Time
	wanted   []mrdn.Prologue // the longest first

	mu     sync.Mutex
	cancel context.CancelFunc // of the running pull
	asked  bool
	closed bool
	ready  bool // the last pull has ended; err is nil if it gave part
	err    error
	part   snapshot.Part
	taken  bool
}

// fetchSeal starts a pull of the longest seal of op.Tokens that is worth more than the op.From tokens in the pool.
func (m *Remote) fetchSeal(op *core.Op, notify func()) *sealPull {
	p := &sealPull{m: m, ns: op.NS, notify: notify, from: op.From, patience: op.Patience, begin: time.Now()}
	ends := kvsnap.SealPositions(nil, len(op.Tokens), op.From+core.RestoreMin-1, op.Seals)
	for i, end := range ends {
		ends[i] = runtime.WholeImages(op.Tokens, end)
	}
	ends = slices.DeleteFunc(slices.Compact(ends), func(end int) bool { return end < op.From+core.RestoreMin })
	var h mrdn.TokenHasher[runtime.Token]
	want := m.prologue(op.NS, nil, 0)
	for i, end := range slices.Backward(ends) {
		before := 0
		if i+1 < len(ends) {
			before = ends[i+1]
		}
		h.Add(op.Tokens[before:end])
		want.Tokens, want.End = h.Sum(), int32(end)
		p.wanted = append(p.wanted, want)
	}
	slices.Reverse(p.wanted)
	return p
}

// limit returns the maximum wait for a seal that ends at position end: after that time, computing its tokens would have
// been faster.
func (p *sealPull) limit(end int) time.Duration {
	if p.patience <= 0 {
		return sealTimeout
	}
	return min(maxSealWait, p.patience*time.Duration(end-p.from))
}

// ask queues the pull of p.wanted[i], and reports whether it has. Caller holds mu.
func (p *sealPull) ask(i int) bool {
	if p.closed || i >= len(p.wanted) {
		return false
	}
	want := &p.wanted[i]
	end := int(want.End)
	deadline := p.begin.Add(p.limit(end))
	if !time.Now().Before(deadline) {
		return false
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	key := want.Key()
	ok := p.m.Out.TryPull(fabric.PullJob{Context: ctx, Key: key, Blocks: p.m.blocksOf(end),
		Done: func(value []byte, err error) {
			cancel()
			kv, err := p.m.pulled(value, want, key, err)
			p.mu.Lock()
			// A value that is missing or damaged says nothing about the next one.
			more := (errors.Is(err, fabric.ErrNotFound) || errors.Is(err, fabric.ErrCorrupt)) && p.ask(i+1)
			if !more {
				p.ready, p.err, p.part = true, err, snapshot.Part{P1: end, Bytes: kv}
			}
			p.mu.Unlock()
			if err == nil {
				p.m.Pieces.pulled(key, p.ns)
			}
			if !more {
				p.notify()
			}
		}})
	if !ok {
		cancel()
		return false
	}
	p.cancel = cancel
	return true
}

// Next implements partSource. The bytes are valid until Close.
func (p *sealPull) Next() (snapshot.Part, snapshot.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.asked:
		p.asked = true
		if p.ask(0) {
			return snapshot.Part{}, snapshot.Waiting
		}
		p.closed = true // nothing will come
	case !p.ready && !p.closed:
		return snapshot.Part{}, snapshot.Waiting
	case p.ready && p.err == nil && !p.taken:
		p.taken = true
		return p.part, snapshot.Ready
	}
	p.part = snapshot.Part{}
	return snapshot.Part{}, snapshot.Done
}

// Close implements partSource.
func (p *sealPull) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.part = true, snapshot.Part{}
	if p.cancel != nil {
		p.cancel()
	}
}
