package format

import (
	"crypto/subtle"
	"fmt"

	"github.com/zeebo/blake3"
)

// Summer computes the file checksum from the bytes in order. Make one with NewSummer.
type Summer struct{ h *blake3.Hasher }

// NewSummer returns a Summer at the beginning of a file.
func NewSummer() Summer { return Summer{blake3.New()} }

// Add takes the next bytes of the file.
func (s Summer) Add(b []byte) { s.h.Write(b) }

// Sum returns the checksum of the bytes so far.
func (s Summer) Sum() (out Hash) {
	s.h.Sum(out[:0])
	return out
}

// Check compares the checksum of the bytes so far with the one read from the file's end.
func (s Summer) Check(stored []byte) error {
	if sum := s.Sum(); subtle.ConstantTimeCompare(sum[:], stored) != 1 {
		return fmt.Errorf("%w: file: %w", ErrFormat, ErrChecksum)
	}
	return nil
}

// Append appends a complete file: header, payload as stored, checksum.
func Append(dst []byte, h *Header, payload []byte) ([]byte, error) {
	if int64(len(payload)) != h.Stored {
		return dst, fmt.Errorf("%w: the payload has %d bytes, the header says %d", ErrFormat, len(payload), h.Stored)
	}
	start := len(dst)
	dst, err := h.Append(dst)
	if err != nil {
		return dst, err
	}
	dst = append(dst, payload...)
	sum := blake3.Sum256(dst[start:])
	return append(dst, sum[:]...), nil
}

// Open parses and verifies a complete file. The payload, as stored, is a subslice of b.
func Open(b []byte) (h Header, payload []byte, err error) {
	h, err = Parse(b, int64(len(b)))
	if err != nil {
		return h, nil, err
	}
	s := NewSummer()
	s.Add(b[:len(b)-ChecksumBytes])
	if err := s.Check(b[len(b)-ChecksumBytes:]); err != nil {
		return Header{}, nil, err
	}
	return h, b[h.Size() : int64(h.Size())+h.Stored], nil
}
