package daemon

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

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
	kind   mrdn.Kind // of the frames: seals where the model has states (seals.go), else pieces of cells
	piece  int       // tokens of a frame; tokens after the last whole piece are recomputed
	blocks int       // KV blocks in a piece
	// maxSeal is the largest seal that is pushed or taken, in bytes.
	maxSeal int64
	pieces  *pieces
	offers  *offers
	zip     *zipper
	// reoffers: what the store lacks is pushed again; not in memory, where thoughts are of use to one request only.
	reoffers bool

	offloaded, ingested [mrdn.Tiers]atomic.Uint64 // blocks, by the tier on their frames
	again, renewed      atomic.Uint64             // values pushed again because the store lacked them, and renewed
}

const (
	// pullTimeout is the maximum wait for one piece before the rest of the prompt is computed. Computing a piece on a
	// CPU takes several times as long.
	pullTimeout = 500 * time.Millisecond
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
	m := &remote{
		origin: origin, l: l, kind: mrdn.KindCells, maxSeal: maxSeal, piece: piece,
		blocks: max(1, piece/l.cfg.KVBlockTokens),
		pieces: newPieces(f.TTL()), offers: newOffers(), zip: newZipper(),
	}
	if l.caps.Seals {
		m.kind = mrdn.KindSeal
	}
	guard := fabric.GuardConfig{Failed: func(verb string, reason fabric.Reason, err error) {
		l.log.Warn("the fabric failed", "operation", verb, "reason", reason.String(), "error", err)
	}}
	offload := fabric.OffloadConfig{Threshold: l.cfg.OffloadThresholdBlocks}
	m.limits(&guard, &offload)
	m.guard = fabric.NewGuard(f, guard)
	m.out = fabric.NewOffloader(m.guard, offload)
	return m
}

// whole returns how many of n tokens the fabric can have.
func (m *remote) whole(n int) int {
	if m.seals() {
		return n
	}
	return n / m.piece * m.piece
}

// prologue names the piece [p0, len(tokens)), or the seal of tokens, for which p0 is 0.
func (m *remote) prologue(ns uint32, tokens []runtime.Token, p0 int) mrdn.Prologue {
	return mrdn.Prologue{
		Model: m.origin.fingerprint, Tokens: mrdn.HashTokens(tokens),
		Kind: m.kind, First: int32(p0), End: int32(len(tokens)),
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
	if m.pieces.has(key) {
		return nil
	}
	p, frame, at, err := m.frame(ns, tokens, seq, p0)
	if err != nil {
		return err
	}
	m.tryPush(m.job(&p, frame, at, m.blocks, tier), ns)
	return nil
}

// tryPush queues a push of ns's, and reports whether the queue had room. A value that does not get to the fabric is
// offered again when the fabric stores others.
func (m *remote) tryPush(j fabric.PushJob, ns uint32) bool {
	m.pieces.queued(j.Key, ns)
	if !m.out.TryPush(j) {
		m.pieces.forget(j.Key)
		m.offers.lose()
		return false
	}
	return true
}

// job is the push of a frame whose KV bytes begin at index at.
func (m *remote) job(p *mrdn.Prologue, frame []byte, at, blocks int, tier mrdn.Tier) fabric.PushJob {
	key := p.Key()
	return fabric.PushJob{
		Key: key, Value: frame, Blocks: blocks, Prepare: m.sealer(*p, at, tier),
		Done: func(err error) {
			switch {
			case err == nil:
				m.offloaded[tier].Add(uint64(blocks))
				m.pieces.stored(key)
				m.answered()
			case errors.Is(err, fabric.ErrTooLarge): // it would be refused again
				m.pieces.stored(key)
			case !errors.Is(err, fabric.ErrDropped):
				m.pieces.forget(key)
				m.offers.lose()
			}
		},
	}
}

// answered wakes the loop if there is something to offer to the fabric, which has just answered.
func (m *remote) answered() {
	if m.reoffers && m.offers.due() {
		m.l.mail.put(command{kind: cmdOffer})
	}
}

// paused reports whether the fabric has failed lately and is not asked.
func (m *remote) paused() bool { return m.guard.Stats().Breaker == fabric.BreakerOpen }

// keys appends the keys of the pieces of tokens that reach beyond position p0, or of its seal.
func (m *remote) keys(dst []string, ns uint32, tokens []runtime.Token, p0 int) []string {
	if m.seals() {
		if p0 < len(tokens) {
			p := m.prologue(ns, tokens, 0)
			dst = append(dst, p.Key())
		}
		return dst
	}
	p0 = min(p0/m.piece*m.piece, len(tokens))
	var h mrdn.TokenHasher[runtime.Token]
	h.Add(tokens[:p0])
	p := m.prologue(ns, nil, p0)
	for ; p0+m.piece <= len(tokens); p0 += m.piece {
		h.Add(tokens[p0 : p0+m.piece])
		p.Tokens, p.First, p.End = h.Sum(), int32(p0), int32(p0+m.piece)
		dst = append(dst, p.Key())
	}
	return dst
}

func (m *remote) flush() { m.out.Flush() }

func (m *remote) close(ctx context.Context) {
	m.offers.close()
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
