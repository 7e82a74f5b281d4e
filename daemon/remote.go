package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

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

// remote is the decode loop's side of the fabric. It pushes parts in pieces, as MRDN frames whose keys are derived from their
// tokens, so that other machines with the same model find them. It never waits for the fabric: a fabric that is slow, down
// or corrupt costs a miss.
type remote struct {
	guard  *fabric.Guard
	out    *fabric.Offloader
	origin snapshotOrigin
	l      *loop
	piece  int               // tokens of a frame; tokens after the last whole piece are recomputed
	blocks int               // KV blocks in a piece
	sent   map[string]uint32 // owner by key, for keys that this process pushed or pulled: each is pushed once
}

const (
	// pullTimeout is the maximum wait for one piece before the rest of the prompt is computed. Computing a piece on a CPU
	// takes several times as long.
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
		guard: g, origin: origin, l: l, piece: piece, blocks: max(1, piece/l.cfg.KVBlockTokens), sent: map[string]uint32{},
		out: fabric.NewOffloader(g, fabric.OffloadConfig{Threshold: l.cfg.OffloadThresholdBlocks}),
	}
}

// prologue names the piece [p0, len(tokens)).
func (m *remote) prologue(ns uint32, tokens []runtime.Token, p0 int) mrdn.Prologue {
	return mrdn.Prologue{
		Model: m.origin.fingerprint, Tokens: mrdn.HashTokens(tokens), First: int32(p0), End: int32(len(tokens)),
		EngineBuild: m.origin.build, TypeK: m.origin.typeK, TypeV: m.origin.typeV, Namespace: "uid:" + strconv.FormatUint(uint64(ns), 10),
	}
}

// push queues copies of the whole pieces within the part [p0, p1) of seq.
func (m *remote) push(ns uint32, tokens []runtime.Token, seq runtime.Seq, p0, p1 int) {
	for p0 = (p0 + m.piece - 1) / m.piece * m.piece; p0+m.piece <= p1; p0 += m.piece {
		if err := m.pushPiece(ns, tokens[:p0+m.piece], seq, p0); err != nil {
			m.l.log.Debug("fabric", "error", err)
			return
		}
	}
}

func (m *remote) pushPiece(ns uint32, tokens []runtime.Token, seq runtime.Seq, p0 int) error {
	p := m.prologue(ns, tokens, p0)
	key := p.Key()
	if _, ok := m.sent[key]; ok {
		return nil
	}
	first, end, scratch := runtime.Pos(p0), runtime.Pos(len(tokens)), m.l.core.Tree().ScratchSeq(0)
	size, err := m.l.eng.SnapshotSize(seq, first, end)
	if err != nil {
		return err
	}
	p.Encoding, p.KVBytes = mrdn.Raw, int64(size)
	frame, err := mrdn.Begin(make([]byte, 0, size+1024), &p)
	if err != nil {
		return err
	}
	at := len(frame)
	frame = append(frame, make([]byte, size)...)
	switch n, err := m.l.eng.Snapshot(frame[at:], seq, scratch, first, end); {
	case err != nil:
		return err
	case n != size:
		return fmt.Errorf("the engine announced a snapshot of %d bytes and wrote %d", size, n)
	}
	ok := m.out.TryPush(fabric.PushJob{
		Key: key, Value: frame, Blocks: m.blocks,
		Prepare: func(v []byte) ([]byte, error) { return v, mrdn.Seal(v, mrdn.ThinkComplete) },
	})
	if ok {
		m.remember(key, ns)
	}
	return nil
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

var errEncoding = errors.New("a frame that this server does not write")

// pull is the source of a restore from the fabric: piece after piece, until one is missing. After the first piece it asks
// for several ahead.
type pull struct {
	m      *remote
	ns     uint32
	tokens []runtime.Token // to restore, from position 0
	notify func()
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
	err   error
	ready bool
}

// fetch starts a pull of the pieces of tokens from p0 on; a piece begins at p0.
func (m *remote) fetch(ns uint32, tokens []runtime.Token, p0 int, notify func()) *pull {
	return &pull{m: m, ns: ns, tokens: tokens, notify: notify, p0: p0}
}

// ask queues pulls up to the read-ahead limit. It returns false when no piece is left or queued. Caller holds mu.
func (p *pull) ask() bool {
	ahead := 1
	if p.came {
		ahead = pullAhead
	}
	for len(p.asked) < ahead {
		p0 := p.p0 + len(p.asked)*p.m.piece
		p1 := p0 + p.m.piece
		if p1 > len(p.tokens) {
			break
		}
		var dst []byte
		if n := len(p.free); n > 0 {
			dst, p.free = p.free[n-1][:0], p.free[:n-1]
		}
		ctx, cancel := context.WithTimeout(context.Background(), pullTimeout)
		a := &asked{want: p.m.prologue(p.ns, p.tokens[:p1], p0), cancel: cancel}
		ok := p.m.out.TryPull(fabric.PullJob{Context: ctx, Key: a.want.Key(), Dst: dst, Blocks: p.m.blocks,
			Done: func(value []byte, err error) {
				p.mu.Lock()
				a.value, a.err, a.ready = value, err, true
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
	got, _, kv, err := mrdn.Open(a.value, len(a.value))
	if err == nil {
		err = got.Matches(&a.want)
	}
	if err != nil || got.Encoding != mrdn.Raw {
		p.m.guard.Report("pull", fmt.Errorf("%w: the value does not match its key: %w", fabric.ErrCorrupt, cmp.Or(err, errEncoding)))
		return snapshot.Part{}, snapshot.Failed
	}
	p.m.remember(a.want.Key(), p.ns) // not pushed again
	a.cancel()
	p.asked = p.asked[1:]
	part := snapshot.Part{P0: p.p0, P1: p.p0 + p.m.piece, Bytes: kv}
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
