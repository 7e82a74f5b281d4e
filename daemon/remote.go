package daemon

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/runtime"
)

// snapshotOrigin identifies engine, model and KV types, for every tier outside the pool.
type snapshotOrigin struct {
	build        string
	fingerprint  format.Hash
	typeK, typeV string
}

func (o snapshotOrigin) format() format.Origin {
	return format.Origin{EngineBuild: o.build, Fingerprint: o.fingerprint, KVTypeK: o.typeK, KVTypeV: o.typeV}
}

// remote is the decode loop's side of the fabric. It pushes parts in pieces, as MRDN frames whose keys are derived
// from their tokens, so that other machines with the same model find them. It never waits for the fabric: a fabric
// that is slow, down or corrupt costs a miss.
type remote struct {
	guard  *fabric.Guard
	out    *fabric.Offloader
	origin snapshotOrigin
	l      *loop
	piece  int               // tokens of a frame; tokens after the last whole piece are recomputed
	blocks int               // KV blocks in a piece
	sent   map[string]uint32 // owner by key, for keys that this process pushed or pulled: each is pushed once
	zip    *zipper

	offloaded, ingested [mrdn.Tiers]atomic.Uint64 // blocks, by the tier on their frames
}

const (
	// pullTimeout is the maximum wait for one piece before the rest of the prompt is computed. Computing a piece on a
	// CPU takes several times as long.
	pullTimeout = 500 * time.Millisecond
	maxSent     = 1 << 16
	pullAhead   = 8 // pieces
)

// pieceOf returns the number of tokens per frame; a part's length is a multiple of it.
func pieceOf(part int) int {
	if part%32 == 0 {
		return 32
	}
	return 16
}

func newRemote(f fabric.Fabric, origin snapshotOrigin, l *loop, part int) *remote {
	piece := pieceOf(part)
	g := fabric.NewGuard(f, fabric.GuardConfig{Failed: func(verb string, reason fabric.Reason, err error) {
		l.log.Warn("the fabric failed", "operation", verb, "reason", reason.String(), "error", err)
	}})
	return &remote{
		guard: g, origin: origin, l: l, piece: piece, blocks: max(1, piece/l.cfg.KVBlockTokens),
		sent: map[string]uint32{},
		zip:  newZipper(),
		out:  fabric.NewOffloader(g, fabric.OffloadConfig{Threshold: l.cfg.OffloadThresholdBlocks}),
	}
}

// prologue names the piece [p0, len(tokens)).
func (m *remote) prologue(ns uint32, tokens []runtime.Token, p0 int) mrdn.Prologue {
	return mrdn.Prologue{
		Model: m.origin.fingerprint, Tokens: mrdn.HashTokens(tokens), First: int32(p0), End: int32(len(tokens)),
		EngineBuild: m.origin.build, TypeK: m.origin.typeK, TypeV: m.origin.typeV,
		Namespace: "uid:" + strconv.FormatUint(uint64(ns), 10),
	}
}

// push queues copies of the whole pieces within the part [p0, p1) of seq, whose cells have this tier.
func (m *remote) push(ns uint32, tokens []runtime.Token, seq runtime.Seq, p0, p1 int, tier mrdn.Tier) {
	for p0 = (p0 + m.piece - 1) / m.piece * m.piece; p0+m.piece <= p1; p0 += m.piece {
		if err := m.pushPiece(ns, tokens[:p0+m.piece], seq, p0, tier); err != nil {
			m.l.log.Debug("fabric", "error", err)
			return
		}
	}
}

func (m *remote) pushPiece(ns uint32, tokens []runtime.Token, seq runtime.Seq, p0 int, tier mrdn.Tier) error {
	want := m.prologue(ns, tokens, p0)
	key := want.Key()
	if _, ok := m.sent[key]; ok {
		return nil
	}
	p, frame, at, err := m.frame(ns, tokens, seq, p0)
	if err != nil {
		return err
	}
	if m.out.TryPush(m.job(&p, frame, at, m.blocks, tier)) {
		m.remember(key, ns)
	}
	return nil
}

// job is the push of a frame whose KV bytes begin at index at.
func (m *remote) job(p *mrdn.Prologue, frame []byte, at, blocks int, tier mrdn.Tier) fabric.PushJob {
	return fabric.PushJob{
		Key: p.Key(), Value: frame, Blocks: blocks, Prepare: m.sealer(*p, at, tier),
		Done: func(err error) {
			if err == nil {
				m.offloaded[tier].Add(uint64(blocks))
			}
		},
	}
}

// remember records that the fabric has a piece.
func (m *remote) remember(key string, ns uint32) {
	if len(m.sent) >= maxSent {
		clear(m.sent)
	}
	m.sent[key] = ns
}

// keys appends the keys of the pieces of tokens that reach beyond position p0.
func (m *remote) keys(dst []string, ns uint32, tokens []runtime.Token, p0 int) []string {
	for p0 = p0 / m.piece * m.piece; p0+m.piece <= len(tokens); p0 += m.piece {
		p := m.prologue(ns, tokens[:p0+m.piece], p0)
		dst = append(dst, p.Key())
	}
	return dst
}

func (m *remote) flush() { m.out.Flush() }

func (m *remote) close(ctx context.Context) {
	if err := m.out.Close(ctx); err != nil {
		m.l.log.Warn("not every prefix reached the fabric", "error", err)
	}
	closed := make(chan struct{})
	go func() { m.guard.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(closeGrace): // the connections are closed; the client library's goroutines end with the process
	}
}

// closeGrace is the time for closing the fabric's client after its operations have ended.
const closeGrace = 250 * time.Millisecond

// pull is the source of a restore from the fabric: piece after piece, until one is missing. After the first piece it
// asks for several ahead.
type pull struct {
	m      *remote
	ns     uint32
	tokens []runtime.Token // to restore, from position 0
	notify func()
	step   int    // tokens of a piece
	cut    int    // of a thought: a piece ends here, and the last one may be shorter; 0 = a prefix, in whole pieces
	p0     int    // first position of the next piece
	came   bool   // the first piece has come
	last   []byte // buffer of the Part that Next returned last
	free   [][]byte

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
func (m *remote) fetch(ns uint32, tokens []runtime.Token, p0 int, notify func()) *pull {
	return &pull{m: m, ns: ns, tokens: tokens, notify: notify, step: m.piece, p0: p0}
}

// fetchThought starts a pull of frames that offloadBlock has sent, from position p0 on, where one begins, up to the
// end of tokens. The thought ends at position cut, and with it a frame.
func (m *remote) fetchThought(ns uint32, tokens []runtime.Token, p0, cut int, notify func()) *pull {
	return &pull{m: m, ns: ns, tokens: tokens, notify: notify, step: core.PartTokensOf(m.l.cellBytes), cut: cut, p0: p0}
}

// end is the end of the piece that begins at p0; ok is false when there is none.
func (p *pull) end(p0 int) (p1 int, ok bool) {
	p1 = p0 + p.step
	if p.cut > 0 {
		if p1 = min(p1, len(p.tokens)); p0 < p.cut {
			p1 = min(p1, p.cut)
		}
	}
	return p1, p0 < p1 && p1 <= len(p.tokens)
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
		ctx, cancel := context.WithTimeout(context.Background(), pullTimeout)
		a := &asked{want: p.m.prologue(p.ns, p.tokens[:p1], p0), cancel: cancel}
		ok := p.m.out.TryPull(fabric.PullJob{Context: ctx, Key: a.want.Key(), Dst: dst, Blocks: p.m.blocksOf(p1 - p0),
			Done: func(value []byte, err error) {
				var kv []byte
				if err == nil {
					if kv, err = p.m.open(value, &a.want); err != nil {
						p.m.guard.Report("pull", fmt.Errorf("%w: the value does not match its key: %w",
							fabric.ErrCorrupt, err))
					}
				}
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
	p.m.remember(a.want.Key(), p.ns) // not pushed again
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
