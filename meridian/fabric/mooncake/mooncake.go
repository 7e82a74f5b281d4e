// Package mooncake is the fabric "mooncake-synth": Meridian's envelope for Mooncake around the values of any other
// fabric. The envelope is:
//
//	offset  size  field
//	0       4     magic, "MNCK"
//	4       4     length of the value, little-endian
//	8       …     the value
//
// Meridian invented it; Mooncake's transfer engine does not speak it. Therefore the label says synthetic: measurements
// show the inner fabric plus one copy.
package mooncake

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

// Label is the fabric's name in metrics, for any inner fabric.
const Label = "mooncake-synth"

const (
	magic         = "MNCK"
	envelopeBytes = 8
)

// Inner is a fabric; see fabric.Fabric.
type Inner interface {
	Push(ctx context.Context, key string, value []byte) error
	Pull(ctx context.Context, key string, dst []byte) ([]byte, error)
	Renew(ctx context.Context, key string) error
	TTL() time.Duration
	Delete(ctx context.Context, key string) error
	Close() error
}

// Fabric puts values into envelopes and the envelopes into another fabric.
type Fabric struct{ inner Inner }

// New wraps inner and owns it afterwards.
func New(inner Inner) *Fabric { return &Fabric{inner} }

// Label returns "mooncake-synth".
func (f *Fabric) Label() string { return Label }

// Push copies value into an envelope and pushes the envelope.
func (f *Fabric) Push(ctx context.Context, key string, value []byte) error {
	sealed, err := Seal(value)
	if err != nil {
		return fmt.Errorf("%s: push: %w", Label, err)
	}
	return f.inner.Push(ctx, key, sealed)
}

// Pull pulls an envelope and returns its value, which begins 8 bytes into the storage used.
func (f *Fabric) Pull(ctx context.Context, key string, dst []byte) ([]byte, error) {
	sealed, err := f.inner.Pull(ctx, key, dst)
	if err != nil {
		return nil, err
	}
	value, err := Unseal(sealed)
	if err != nil {
		return nil, fmt.Errorf("%s: pull: %w", Label, err)
	}
	return value, nil
}

// Renew renews the envelope's time to live.
func (f *Fabric) Renew(ctx context.Context, key string) error { return f.inner.Renew(ctx, key) }

// TTL returns the inner fabric's.
func (f *Fabric) TTL() time.Duration { return f.inner.TTL() }

// Delete deletes the envelope.
func (f *Fabric) Delete(ctx context.Context, key string) error { return f.inner.Delete(ctx, key) }

// Close closes the inner fabric.
func (f *Fabric) Close() error { return f.inner.Close() }

// Seal returns an envelope with a copy of value.
func Seal(value []byte) ([]byte, error) {
	if uint64(len(value)) > math.MaxUint32 {
		return nil, fmt.Errorf("%w: %d bytes, the envelope's length field holds at most %d", fault.ErrTooLarge,
			len(value), uint64(math.MaxUint32))
	}
	b := make([]byte, envelopeBytes, envelopeBytes+len(value))
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(value)))
	return append(b, value...), nil
}

// Unseal returns the value in an envelope, as a subslice of it. Unlike meridian-kernels it refuses bytes after the
// value.
func Unseal(b []byte) ([]byte, error) {
	if len(b) < envelopeBytes {
		return nil, fmt.Errorf("%w: %d bytes, the envelope alone takes %d", fault.ErrCorrupt, len(b), envelopeBytes)
	}
	if string(b[:4]) != magic {
		return nil, fmt.Errorf("%w: the envelope begins with % x, want %q", fault.ErrCorrupt, b[:4], magic)
	}
	if n := binary.LittleEndian.Uint32(b[4:]); uint64(n) != uint64(len(b)-envelopeBytes) {
		return nil, fmt.Errorf("%w: the envelope declares %d bytes and has %d", fault.ErrCorrupt, n,
			len(b)-envelopeBytes)
	}
	return b[envelopeBytes:], nil
}
