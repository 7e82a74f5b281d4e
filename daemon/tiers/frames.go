package tiers

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/runtime"
)

// frame takes a snapshot of the cells [p0, len(tokens)) of seq as an MRDN frame that is not sealed yet. The KV bytes
// begin at index at.
func (m *Remote) frame(ns uint64, tokens []runtime.Token, seq runtime.Seq, p0 int) (
	p mrdn.Prologue, frame []byte, at int, err error,
) {
	p = m.prologue(ns, tokens, p0)
	first, end, scratch := runtime.Pos(p0), runtime.Pos(len(tokens)), m.o.Loop.Core().Tree().ScratchSeq(0)
	size, err := m.o.Engine.SnapshotSize(seq, first, end)
	if err != nil {
		return p, nil, 0, err
	}
	p.Encoding, p.KVBytes = mrdn.Raw, int64(size)
	if frame, err = mrdn.Begin(make([]byte, 0, size+1024), &p); err != nil {
		return p, nil, 0, err
	}
	at = len(frame)
	frame = frame[:at+size]
	switch n, err := m.o.Engine.Snapshot(frame[at:], seq, scratch, first, end); {
	case err != nil:
		return p, nil, 0, err
	case n != size:
		return p, nil, 0, fmt.Errorf("the engine announced a snapshot of %d bytes and wrote %d", size, n)
	}
	return p, frame, at, nil
}

// frameTier returns the MRDN tier of a frame. MRDN has no tier for prompts, which are evicted first: they get
// ThinkComplete, the first to be evicted of its tiers.
func frameTier(t blocks.Tier) mrdn.Tier {
	switch t {
	case blocks.ThinkActive:
		return mrdn.ThinkActive
	case blocks.OutputCritical:
		return mrdn.OutputCritical
	}
	return mrdn.ThinkComplete
}

// sealer returns the function that completes a frame on the offloader's goroutine: it compresses the KV bytes if that
// saves enough.
func (m *Remote) sealer(p mrdn.Prologue, at int, tier mrdn.Tier) func([]byte) ([]byte, error) {
	return func(frame []byte) ([]byte, error) {
		if small := m.zip.compress(frame[at:]); small != nil {
			p.Encoding = mrdn.Zstd // a prologue's length does not depend on it
			var err error
			if frame, err = mrdn.Begin(frame[:0], &p); err != nil {
				return nil, err
			}
			frame = append(frame, small...)
		}
		return frame, mrdn.Seal(frame, tier)
	}
}

// zipper compresses and unpacks the KV bytes of frames. Each of its methods belongs to one goroutine of an offloader.
type zipper struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
	out []byte
}

const (
	// zipSample is the size of the sample that decides whether to compress KV bytes.
	zipSample = 64 << 10
	// zipRatio is the largest compression ratio with which zstd is used; docs/snapshot-format.md has the measurement.
	zipRatio = 0.75
)

func newZipper() *zipper {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("daemon: zstd: " + err.Error()) // constant options
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic("daemon: zstd: " + err.Error())
	}
	return &zipper{enc: enc, dec: dec}
}

// compress returns b as one zstd frame, valid until the next call; nil where that saves less than a quarter. A sample
// from the middle decides, because KV bytes begin with positions, which do not represent the cells.
func (z *zipper) compress(b []byte) []byte {
	n := min(len(b), zipSample)
	from := (len(b) - n) / 2
	if z.out = z.enc.EncodeAll(b[from:from+n], z.out[:0]); float64(len(z.out)) > zipRatio*float64(n) {
		return nil
	}
	if n < len(b) {
		z.out = z.enc.EncodeAll(b, z.out[:0])
	}
	if float64(len(z.out)) > zipRatio*float64(len(b)) {
		return nil
	}
	return z.out
}

var errUnpack = errors.New("its compressed bytes are damaged")

// unpack returns the size KV bytes that b holds compressed.
func (z *zipper) unpack(b []byte, size int64) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(b); err != nil || !h.HasFCS || h.FrameContentSize != uint64(size) {
		return nil, fmt.Errorf("%w: the zstd frame does not declare %d bytes", errUnpack, size)
	}
	out, err := z.dec.DecodeAll(b, make([]byte, 0, size))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnpack, err)
	case int64(len(out)) != size:
		return nil, fmt.Errorf("%w: %d bytes, not %d", errUnpack, len(out), size)
	}
	return out, nil
}

// open verifies a frame and returns its KV bytes, unpacked. It runs on the offloader's goroutine.
func (m *Remote) open(frame []byte, want *mrdn.Prologue) ([]byte, error) {
	got, tier, kv, err := mrdn.Open(frame, len(frame))
	if err == nil {
		err = got.Matches(want)
	}
	// A snapshot's bytes are its cells, the state of a seal, and little besides: a frame that says far more is damaged
	// or hostile.
	if most := m.mostBytes(int(want.End - want.First)); err == nil && got.KVBytes > most {
		err = fmt.Errorf("it declares %d KV bytes for %d cells, at most %d are possible", got.KVBytes,
			want.End-want.First, most)
	}
	if err == nil && got.Encoding == mrdn.Zstd {
		kv, err = m.zip.unpack(kv, got.KVBytes)
	}
	if err != nil {
		return nil, err
	}
	m.ingested[tier].Add(uint64(m.blocksOf(int(want.End - want.First))))
	return kv, nil
}

// mostBytes returns the limit on the KV bytes of a frame of n tokens.
func (m *Remote) mostBytes(n int) int64 {
	most := 2*int64(n)*int64(m.o.Info.KVBytesPerToken) + 1<<20
	if m.seals() {
		most = min(most+2*m.o.Info.StateBytes, m.maxSeal)
	}
	return most
}

// blocksOf returns the number of the ledger's blocks that n tokens fill, at least 1.
func (m *Remote) blocksOf(n int) int { return max(1, n/m.o.Config.KVBlockTokens) }
