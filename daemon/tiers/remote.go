package tiers

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/runtime"
)

// Remote is the decode loop's side of the fabric. It pushes parts in pieces, as MRDN frames whose keys are derived
// from their tokens, so that other machines with the same model find them. It never waits for the fabric: a fabric
// that is slow, down or corrupt costs a miss.
type Remote struct {
	Guard  *fabric.Guard
	Out    *fabric.Offloader
	o      *Options
	kind   mrdn.Kind // of the frames: seals where the model has states (seals.go), else pieces of cells
	piece  int       // tokens of a frame; tokens after the last whole piece are recomputed
	blocks int       // KV blocks in a piece
	// maxSeal is the largest seal that is pushed or taken, in bytes.
	maxSeal int64
	Pieces  *Pieces
	Offers  *Offers
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

func newRemote(f fabric.Fabric, o *Options) *Remote {
	piece := pieceOf(o.part())
	m := &Remote{
		o: o, kind: mrdn.KindCells, maxSeal: maxSeal, piece: piece,
		blocks: max(1, piece/o.Config.KVBlockTokens),
		Pieces: newPieces(f.TTL()), Offers: newOffers(), zip: newZipper(),
	}
	if o.caps.Seals {
		m.kind = mrdn.KindSeal
	}
	guard := fabric.GuardConfig{Failed: func(verb string, reason fabric.Reason, err error) {
		o.Log.Warn("the fabric failed", "operation", verb, "reason", reason.String(), "error", err)
	}}
	offload := fabric.OffloadConfig{Threshold: o.Config.OffloadThresholdBlocks}
	m.limits(&guard, &offload)
	m.Guard = fabric.NewGuard(f, guard)
	m.Out = fabric.NewOffloader(m.Guard, offload)
	return m
}

// whole returns how many of n tokens the fabric can have.
func (m *Remote) whole(n int) int {
	if m.seals() {
		return n
	}
	return n / m.piece * m.piece
}

// prologue names the piece [p0, len(tokens)), or the seal of tokens, for which p0 is 0.
func (m *Remote) prologue(ns uint64, tokens []runtime.Token, p0 int) mrdn.Prologue {
	return mrdn.Prologue{
		Model: m.o.Origin.Fingerprint, Tokens: mrdn.HashTokens(tokens),
		Kind: m.kind, First: int32(p0), End: int32(len(tokens)),
		EngineBuild: m.o.Origin.EngineBuild, TypeK: m.o.Origin.KVTypeK, TypeV: m.o.Origin.KVTypeV,
		Namespace: "uid:" + strconv.FormatUint(uint64(ns), 10),
	}
}

// push queues copies of the whole pieces that end within the part [p0, p1) of seq, whose cells have this tier. One may
// begin before it: parts end where a turn does.
func (m *Remote) push(ns uint64, tokens []runtime.Token, seq runtime.Seq, p0, p1 int, tier mrdn.Tier) {
	for p0 = p0 / m.piece * m.piece; p0+m.piece <= p1; p0 += m.piece {
		if err := m.pushPiece(ns, tokens[:p0+m.piece], seq, p0, tier); err != nil {
			m.o.Log.Debug("fabric", "error", err)
			return
		}
	}
}

func (m *Remote) pushPiece(ns uint64, tokens []runtime.Token, seq runtime.Seq, p0 int, tier mrdn.Tier) error {
	want := m.prologue(ns, tokens, p0)
	key := want.Key()
	if m.Pieces.has(key) {
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
func (m *Remote) tryPush(j fabric.PushJob, ns uint64) bool {
	m.Pieces.queued(j.Key, ns)
	if !m.Out.TryPush(j) {
		m.Pieces.Forget(j.Key)
		m.Offers.Lose()
		return false
	}
	return true
}

// job returns the push of a frame whose KV bytes begin at index at.
func (m *Remote) job(p *mrdn.Prologue, frame []byte, at, blocks int, tier mrdn.Tier) fabric.PushJob {
	key := p.Key()
	return fabric.PushJob{
		Key: key, Value: frame, Blocks: blocks, Prepare: m.sealer(*p, at, tier),
		Done: func(err error) {
			switch {
			case err == nil:
				m.offloaded[tier].Add(uint64(blocks))
				m.Pieces.stored(key)
				m.answered()
			case errors.Is(err, fabric.ErrTooLarge): // it would be refused again
				m.Pieces.stored(key)
			case !errors.Is(err, fabric.ErrDropped):
				m.Pieces.Forget(key)
				m.Offers.Lose()
			}
		},
	}
}

// Moved returns how many blocks of a tier were pushed and pulled. Safe from any goroutine.
func (m *Remote) Moved(t mrdn.Tier) (pushed, pulled uint64) {
	return m.offloaded[t].Load(), m.ingested[t].Load()
}

// answered wakes the loop if there is something to offer to the fabric, which has just answered.
func (m *Remote) answered() {
	if m.reoffers && m.Offers.due() {
		m.o.Loop.Offer()
	}
}

// paused reports whether the fabric has failed lately and is not asked.
func (m *Remote) paused() bool { return m.Guard.Stats().Breaker == fabric.BreakerOpen }

// Keys appends the keys of the pieces of tokens that reach beyond position p0, or of its seal.
func (m *Remote) Keys(dst []string, ns uint64, tokens []runtime.Token, p0 int) []string {
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

func (m *Remote) flush() { m.Out.Flush() }

func (m *Remote) close(ctx context.Context) {
	m.Offers.close()
	if err := m.Out.Close(ctx); err != nil {
		m.o.Log.Warn("not every prefix reached the fabric", "error", err)
	}
	closed := make(chan struct{})
	go func() { m.Guard.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(closeGrace): // the connections are closed; the client library's goroutines end with the process
	}
}

// closeGrace is the time for closing the fabric's client after its operations have ended.
const closeGrace = 250 * time.Millisecond
