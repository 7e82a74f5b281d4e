// Package mrdn is the MRDN v1 wire format for spans of KV cells between machines.
//
// A frame is a 32-byte header and a body, all integers little-endian:
//
//	offset  size  field
//	0       4     magic, "MRDN"
//	4       4     version, 1
//	8       4     body length in bytes
//	12      1     tier: 0 ThinkComplete, 1 ThinkActive, 2 OutputCritical
//	13      3     zero
//	16      16    the first 16 bytes of BLAKE3-256(body), in digest order
//	32      …     body
//
// Frames follow Meridian's ADR-0006 byte for byte. This reader is stricter than meridian-kernels': an unknown tier,
// padding that is not zero, bytes after the body and bodies above the caller's limit are errors, because the checksum
// covers only the body and a damaged header would go unnoticed.
//
// To MRDN the body is opaque. uma-serve's bodies begin with a [Prologue], which describes the KV bytes after it: a
// llama.cpp snapshot is valid only for one model, engine build, pair of cell types, tokens and positions. To write one
// without copying the KV bytes:
//
//	frame, err := mrdn.Begin(buf[:0], &prologue)   // room for the header, then the prologue
//	frame = append(frame, kv...)                   // or let the engine write there
//	err = mrdn.Seal(frame, mrdn.ThinkComplete)     // header and checksum, in place
//
// To read one, [Open] it and compare its prologue with the wanted one ([Prologue.Matches]).
//
// The checksum detects damage, not forgery: anyone with write access to a fabric can write a frame with a valid
// checksum. Restrict access by the fabric's access control and TLS.
//
// The package is pure. The slices that it returns are subslices of its arguments.
package mrdn

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"
)

const (
	// HeaderBytes is the size of a frame without its body.
	HeaderBytes = 32
	// Version is the only version. A reader refuses any other; there is no negotiation.
	Version = 1
	// MaxBodyBytes is the largest value of the length field.
	MaxBodyBytes = 1<<32 - 1

	magic = "MRDN"
)

// Reasons to refuse a frame. Each error wraps one of these and names the field, its value and the expected one.
var (
	ErrTruncated = errors.New("mrdn: truncated frame")
	ErrMagic     = errors.New("mrdn: not an MRDN frame")
	ErrVersion   = errors.New("mrdn: unknown version")
	ErrTier      = errors.New("mrdn: unknown tier")
	ErrPadding   = errors.New("mrdn: padding is not zero")
	ErrTrailing  = errors.New("mrdn: bytes after the body")
	ErrTooLarge  = errors.New("mrdn: body too large")
	ErrChecksum  = errors.New("mrdn: checksum does not match")
)

// Tier is the producer's label of a span, in order of eviction. It is advice: a consumer may choose another tier.
type Tier uint8

const (
	ThinkComplete Tier = iota
	ThinkActive
	OutputCritical
	// Tiers is the number of tiers.
	Tiers
)

// String returns the tier's name in metrics and messages.
func (t Tier) String() string {
	if t >= Tiers {
		return fmt.Sprintf("tier(%d)", uint8(t))
	}
	return [...]string{"think_complete", "think_active", "output_critical"}[t]
}

// Checksum is the first half of a BLAKE3-256 digest.
type Checksum [16]byte

// Sum returns the checksum of a body.
func Sum(body []byte) (c Checksum) {
	d := blake3.Sum256(body)
	copy(c[:], d[:])
	return c
}

// Seal writes the header of a frame whose body is in frame[HeaderBytes:]. It allocates nothing.
func Seal(frame []byte, tier Tier) error {
	if len(frame) < HeaderBytes {
		return fmt.Errorf("%w: %d bytes, the header alone takes %d", ErrTruncated, len(frame), HeaderBytes)
	}
	body := frame[HeaderBytes:]
	if uint64(len(body)) > MaxBodyBytes {
		return fmt.Errorf("%w: %d bytes, the length field holds at most %d: send a shorter range of positions",
			ErrTooLarge, len(body), uint64(MaxBodyBytes))
	}
	if tier >= Tiers {
		return fmt.Errorf("%w: %d, known are 0 to %d", ErrTier, tier, Tiers-1)
	}
	sum := Sum(body)
	copy(frame, magic)
	binary.LittleEndian.PutUint32(frame[4:], Version)
	binary.LittleEndian.PutUint32(frame[8:], uint32(len(body)))
	frame[12], frame[13], frame[14], frame[15] = byte(tier), 0, 0, 0
	copy(frame[16:], sum[:])
	return nil
}

// Append appends a frame with a copy of body to dst.
func Append(dst []byte, tier Tier, body []byte) ([]byte, error) {
	at := len(dst)
	dst = append(dst, make([]byte, HeaderBytes)...)
	dst = append(dst, body...)
	if err := Seal(dst[at:], tier); err != nil {
		return dst[:at], err
	}
	return dst, nil
}

// Header is a parsed frame header.
type Header struct {
	BodyBytes uint32
	Tier      Tier
	Checksum  Checksum
}

// ParseHeader parses a frame's header and does not look at the body. A reader of a stream learns here how much to read,
// and must compare BodyBytes with its own limit before it allocates.
func ParseHeader(b []byte) (h Header, err error) {
	if len(b) < HeaderBytes {
		return h, fmt.Errorf("%w: %d bytes, the header alone takes %d", ErrTruncated, len(b), HeaderBytes)
	}
	if string(b[:4]) != magic {
		return h, fmt.Errorf("%w: it begins with % x", ErrMagic, b[:4])
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != Version {
		return h, fmt.Errorf("%w: %d, this build reads %d", ErrVersion, v, Version)
	}
	if t := Tier(b[12]); t >= Tiers {
		return h, fmt.Errorf("%w: %d, known are 0 to %d", ErrTier, t, Tiers-1)
	}
	if b[13]|b[14]|b[15] != 0 {
		return h, fmt.Errorf("%w: % x", ErrPadding, b[13:16])
	}
	h.BodyBytes, h.Tier = binary.LittleEndian.Uint32(b[8:]), Tier(b[12])
	copy(h.Checksum[:], b[16:])
	return h, nil
}

// Parse checks a whole frame, including its checksum, and returns its header and its body, a subslice of frame. It
// refuses a body above maxBody bytes before hashing it. It allocates only when it refuses a frame.
func Parse(frame []byte, maxBody int) (h Header, body []byte, err error) {
	if h, err = ParseHeader(frame); err != nil {
		return h, nil, err
	}
	body = frame[HeaderBytes:]
	switch n := uint64(h.BodyBytes); {
	case n > uint64(max(maxBody, 0)):
		return h, nil, fmt.Errorf("%w: %d bytes, the limit here is %d", ErrTooLarge, n, maxBody)
	case n > uint64(len(body)):
		return h, nil, fmt.Errorf("%w: the header declares a body of %d bytes, %d follow", ErrTruncated, n, len(body))
	case n < uint64(len(body)):
		return h, nil, fmt.Errorf("%w: %d more than the %d that the header says", ErrTrailing, uint64(len(body))-n, n)
	}
	if sum := Sum(body); sum != h.Checksum {
		return h, nil, fmt.Errorf("%w: the header says %x, the body has %x", ErrChecksum, h.Checksum, sum)
	}
	return h, body, nil
}
