package daemon

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/runtime"
)

// snapshotOrigin is what computed the cells, for every tier outside the pool.
type snapshotOrigin struct {
	build        string
	fingerprint  format.Hash
	typeK, typeV string
}

func (o snapshotOrigin) format() format.Origin {
	return format.Origin{EngineBuild: o.build, Fingerprint: o.fingerprint, KVTypeK: o.typeK, KVTypeV: o.typeV}
}

// remote is the fabric as the decode loop uses it: whole parts go out as MRDN frames, named by what they
// hold, and other machines with the same model ask for them by that name. It never waits for the fabric; a fabric
// that is slow, down or lying costs a miss.
type remote struct {
	guard  *fabric.Guard
	out    *fabric.Offloader
	origin snapshotOrigin
	l      *loop
	part   int                 // tokens
	blocks int                 // of the ledger, in a part
	sent   map[string]struct{} // keys pushed or pulled by this process, so that a prefix goes out once
}

const (
	// pullTimeout bounds how long a request waits for one part from the fabric before the rest of its prompt is computed:
	// so many tokens cost several times that on a CPU.
	pullTimeout = 500 * time.Millisecond
	maxSent     = 1 << 16
)

func newRemote(f fabric.Fabric, origin snapshotOrigin, l *loop, part int) *remote {
	g := fabric.NewGuard(f, fabric.GuardConfig{})
	return &remote{
		guard: g, origin: origin, l: l, part: part, blocks: max(1, part/l.cfg.KVBlockTokens), sent: map[string]struct{}{},
		out: fabric.NewOffloader(g, fabric.OffloadConfig{Threshold: l.cfg.OffloadThresholdBlocks}),
	}
}

// prologue names the part [p0, len(tokens)).
func (m *remote) prologue(ns uint32, tokens []runtime.Token, p0 int) mrdn.Prologue {
	return mrdn.Prologue{
		Model: m.origin.fingerprint, Tokens: mrdn.HashTokens(tokens), First: int32(p0), End: int32(len(tokens)),
		EngineBuild: m.origin.build, TypeK: m.origin.typeK, TypeV: m.origin.typeV, Namespace: "uid:" + strconv.FormatUint(uint64(ns), 10),
	}
}

// push sends a copy of a part on its way.
func (m *remote) push(ns uint32, tokens []runtime.Token, p0 int, kv []byte) {
	p := m.prologue(ns, tokens, p0)
	key := p.Key()
	if _, ok := m.sent[key]; ok {
		return
	}
	p.Encoding, p.KVBytes = mrdn.Raw, int64(len(kv))
	frame, err := mrdn.Begin(make([]byte, 0, len(kv)+1024), &p)
	if err != nil {
		m.l.log.Debug("fabric", "error", err)
		return
	}
	frame = append(frame, kv...)
	ok := m.out.TryPush(fabric.PushJob{
		Key: key, Value: frame, Blocks: m.blocks,
		Prepare: func(v []byte) ([]byte, error) { return v, mrdn.Seal(v, mrdn.ThinkComplete) },
	})
	if ok {
		m.remember(key)
	}
}

// remember notes that the fabric has this part.
func (m *remote) remember(key string) {
	if len(m.sent) >= maxSent {
		clear(m.sent)
	}
	m.sent[key] = struct{}{}
}

func (m *remote) flush() { m.out.Flush() }

func (m *remote) close(ctx context.Context) {
	if err := m.out.Close(ctx); err != nil {
		m.l.log.Warn("fabric", "error", err)
	}
	m.guard.Close()
}

// pull is the source of a restore whose parts lie in the fabric: one after the other, until one is missing.
type pull struct {
	m      *remote
	re     *restore
	notify func()
	cancel context.CancelFunc // of what is asked for
	p0     int                // of the next part

	mu    sync.Mutex
	asked bool
	value []byte
	err   error
	ready bool
}

// fetch asks for the parts of re.tokens from position p0 on, where a part begins.
func (m *remote) fetch(re *restore, p0 int, notify func()) *pull {
	return &pull{m: m, re: re, notify: notify, cancel: func() {}, p0: p0}
}

// Next implements source. The bytes are valid until the Next after.
func (p *pull) Next() (snapshot.Part, snapshot.Status) {
	p1 := p.p0 + p.m.part
	if p1 > len(p.re.tokens) {
		return snapshot.Part{}, snapshot.Done
	}
	want := p.m.prologue(p.re.ns, p.re.tokens[:p1], p.p0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked {
		p.asked = true
		p.cancel()
		var ctx context.Context
		ctx, p.cancel = context.WithTimeout(context.Background(), pullTimeout)
		ok := p.m.out.TryPull(fabric.PullJob{Context: ctx, Key: want.Key(), Dst: p.value[:0], Blocks: p.m.blocks,
			Done: func(value []byte, err error) {
				p.mu.Lock()
				p.value, p.err, p.ready = value, err, true
				p.mu.Unlock()
				p.notify()
			}})
		if !ok {
			return snapshot.Part{}, snapshot.Failed
		}
	}
	if !p.ready {
		return snapshot.Part{}, snapshot.Waiting
	}
	if p.err != nil {
		return snapshot.Part{}, snapshot.Done // a miss ends it; why is in the guard's counters
	}
	got, _, kv, err := mrdn.Open(p.value, len(p.value))
	if err == nil {
		err = got.Matches(&want)
	}
	if err != nil || got.Encoding != mrdn.Raw {
		p.m.l.log.Warn("the fabric holds something else under this name; it is computed here", "error", err)
		return snapshot.Part{}, snapshot.Failed
	}
	p.m.remember(want.Key()) // what came from there need not go there again
	part := snapshot.Part{P0: p.p0, P1: p1, Bytes: kv}
	p.p0, p.asked, p.ready = p1, false, false
	return part, snapshot.Ready
}

// Close implements source.
func (p *pull) Close() { p.cancel() }
