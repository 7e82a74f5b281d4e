package tiers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/runtime"
)

// pull is the source of a restore from the fabric: piece after piece, until one is missing. After the first piece it
// pulls several ahead.
type pull struct {
	m      *Remote
	ns     uint64
	tokens []runtime.Token // to restore, from position 0
	notify func()
	step   int // tokens of a piece
	cut    int // of a thought: a piece ends here, and the last one may be shorter; 0 = a prefix, in whole pieces
	p0     int // first position of the next piece
	// patience is the longest wait for a piece per token of it, because computing a token takes no longer; 0 = unknown:
	// a pull ends at pullTimeout.
	patience time.Duration
	came     bool   // the first piece has come
	last     []byte // buffer of the Part that Next returned last
	free     [][]byte

	mu    sync.Mutex
	asked []*asked // pieces from p0 on, in order
}

// asked is a piece that is being pulled.
type asked struct {
	want   mrdn.Prologue
	cancel context.CancelFunc

	// Under pull.mu.
	value []byte
	kv    []byte // in value, or unpacked from it
	err   error
	ready bool
}

// fetch starts a pull of the pieces of tokens from p0 on; a piece begins at p0.
func (m *Remote) fetch(ns uint64, tokens []runtime.Token, p0 int, notify func()) *pull {
	return &pull{m: m, ns: ns, tokens: tokens, notify: notify, step: m.piece, p0: p0}
}

// fetchThought starts a pull of frames that offloadBlock has sent, from position p0 on, where one begins, up to the
// end of tokens. The thought ends at position cut, and with it a frame.
func (m *Remote) fetchThought(ns uint64, tokens []runtime.Token, p0, cut int, notify func()) *pull {
	return &pull{m: m, ns: ns, tokens: tokens, notify: notify, cut: cut, p0: p0,
		step: core.PartTokensOf(m.o.Info.KVBytesPerToken, m.o.caps.SnapshotTokens)}
}

// end returns the end of the piece that begins at p0; ok is false when there is none.
func (p *pull) end(p0 int) (p1 int, ok bool) {
	p1 = p0 + p.step
	if p.cut > 0 {
		if p1 = min(p1, len(p.tokens)); p0 < p.cut {
			p1 = min(p1, p.cut)
		}
	}
	return p1, p0 < p1 && p1 <= len(p.tokens)
}

// limit returns the timeout of a pull that ends n tokens ahead: after that time, computing them would have been faster.
func (p *pull) limit(n int) time.Duration {
	if p.patience <= 0 {
		return pullTimeout
	}
	return min(pullTimeout, p.patience*time.Duration(n))
}

// ask queues pulls up to the read-ahead limit. It returns false when no piece is left or queued. Caller holds mu.
func (p *pull) ask() bool {
	ahead := 1
	if p.came {
		ahead = pullAhead
	}
	p0 := p.p0
	if n := len(p.asked); n > 0 {
		p0 = int(p.asked[n-1].want.End)
	}
	for len(p.asked) < ahead {
		p1, more := p.end(p0)
		if !more {
			break
		}
		var dst []byte
		if n := len(p.free); n > 0 {
			dst, p.free = p.free[n-1][:0], p.free[:n-1]
		}
		ctx, cancel := context.WithTimeout(context.Background(), p.limit(p1-p.p0))
		a := &asked{want: p.m.prologue(p.ns, p.tokens[:p1], p0), cancel: cancel}
		key := a.want.Key()
		ok := p.m.Out.TryPull(fabric.PullJob{Context: ctx, Key: key, Dst: dst, Blocks: p.m.blocksOf(p1 - p0),
			Done: func(value []byte, err error) {
				var kv []byte
				kv, err = p.m.pulled(value, &a.want, key, err)
				p.mu.Lock()
				a.value, a.kv, a.err, a.ready = value, kv, err, true
				next := len(p.asked) > 0 && p.asked[0] == a
				p.mu.Unlock()
				if next {
					p.notify()
				}
			}})
		if !ok {
			cancel()
			break
		}
		p.asked = append(p.asked, a)
		p0 = p1
	}
	return len(p.asked) > 0
}

// pulled returns the KV bytes of the value that a pull of key has answered, or the pull's error. It runs on the
// offloader's goroutine.
func (m *Remote) pulled(value []byte, want *mrdn.Prologue, key string, err error) (kv []byte, _ error) {
	if err == nil {
		if kv, err = m.open(value, want); err != nil {
			m.Guard.Report("pull", fmt.Errorf("%w: the value does not match its key: %w", fabric.ErrCorrupt, err))
			err = fabric.ErrCorrupt
		}
	}
	if errors.Is(err, fabric.ErrNotFound) || errors.Is(err, fabric.ErrCorrupt) {
		m.Pieces.missed(key)
	}
	return kv, err
}

// Next implements partSource. The bytes are valid until the next call.
func (p *pull) Next() (snapshot.Part, snapshot.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil {
		p.free, p.last = append(p.free, p.last), nil
	}
	if !p.ask() {
		return snapshot.Part{}, snapshot.Done
	}
	a := p.asked[0]
	switch {
	case !a.ready:
		return snapshot.Part{}, snapshot.Waiting
	case a.err != nil:
		return snapshot.Part{}, snapshot.Done // a miss ends the restore; the guard has counted the error
	}
	p.m.Pieces.pulled(a.want.Key(), p.ns)
	a.cancel()
	p.asked = p.asked[1:]
	part := snapshot.Part{P0: p.p0, P1: int(a.want.End), Bytes: a.kv}
	p.p0, p.last, p.came = part.P1, a.value, true
	p.ask() // to overlap with restoring this piece
	return part, snapshot.Ready
}

// Close implements partSource.
func (p *pull) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.asked {
		a.cancel()
	}
	p.asked = nil
}
