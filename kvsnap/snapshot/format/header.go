package format

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"github.com/zeebo/blake3"
)

// Magic begins every file. Its first byte is not text, and its line ends change in transfers that convert text.
const Magic = "\x89UMAKV\r\n"

// Version is the only version that this package reads and writes.
const Version = 1

// FlagZstd in Header.Flags: the payload is stored as one zstd frame.
const FlagZstd = 1 << 0

const (
	fixedBytes = 152 // up to the engine build's length byte

	// ChecksumBytes follow the header and, again, the payload.
	ChecksumBytes = 32
	// MaxString is the longest engine build and KV type name, in bytes.
	MaxString = 255
	// MaxPartTokens is the most tokens one part may hold.
	MaxPartTokens = 1 << 22
	// MaxHeaderBytes is the largest header: a reader needs no larger buffer before it verifies the checksum.
	MaxHeaderBytes = fixedBytes + 3*(1+MaxString) + 3 + 4*MaxPartTokens + ChecksumBytes
	// MaxPayloadBytes is the largest payload, raw or stored: 1 TiB.
	MaxPayloadBytes = 1 << 40
)

// Origin identifies what computed the cells. Cells can be restored only where all fields are equal.
type Origin struct {
	EngineBuild string // the llama.cpp build, runtime.Capabilities.EngineBuild; at most MaxString bytes
	Fingerprint Hash   // of the model's weights and of every option that changes a cell's value
	KVTypeK     string // "f16", "q8_0", …
	KVTypeV     string
}

// Header describes the payload of a file.
type Header struct {
	Origin
	Flags     uint16
	Namespace Namespace
	P0, P1    int     // positions [P0, P1), 0 ≤ P0 < P1 ≤ MaxInt32
	Prefix    Hash    // PrefixHash of the tokens at [0, P0)
	Through   Hash    // PrefixHash of the tokens at [0, P1): the Prefix of the part that follows
	Tokens    []Token // those at [P0, P1)
	Created   int64   // seconds since 1970 UTC; informational
	Stored    int64   // payload bytes in the file
	Raw       int64   // payload bytes after decompression; = Stored without FlagZstd
}

// Key returns the part's name: a hash of the fields that identify it. Two parts with the same key hold cells computed
// from the same tokens by the same model for the same namespace.
func (h *Header) Key() Hash {
	d := blake3.New()
	b := make([]byte, 0, 256)
	if h.Namespace <= math.MaxUint32 {
		b = append(b, "uma-serve KV part 1\n"...)
		b = binary.LittleEndian.AppendUint32(b, uint32(h.Namespace))
	} else {
		b = append(b, "uma-serve KV part 2\n"...)
		b = binary.LittleEndian.AppendUint64(b, uint64(h.Namespace))
	}
	b = append(b, h.Fingerprint[:]...)
	for _, s := range []string{h.EngineBuild, h.KVTypeK, h.KVTypeV} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(h.P0))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.P1))
	b = append(b, h.Prefix[:]...)
	d.Write(b)
	d.Write(tokenBytes(h.Tokens))
	return Hash(d.Sum(b[:0]))
}

// Name returns the file name of the part with a key.
func Name(key Hash) string { return hex.EncodeToString(key[:]) + Suffix }

// KeyOf returns the key in a file name; zero when Name does not make such a name.
func KeyOf(name string) (key Hash) {
	b, err := hex.DecodeString(strings.TrimSuffix(name, Suffix))
	if err != nil || len(b) != len(key) {
		return Hash{}
	}
	return Hash(b)
}

// Suffix ends the name of every snapshot file.
const Suffix = ".kvsnap"

// Size returns the length of the header in bytes, including its checksum: the offset of the payload.
func (h *Header) Size() int {
	n := fixedBytes + 3 + len(h.EngineBuild) + len(h.KVTypeK) + len(h.KVTypeV)
	return (n+3)&^3 + 4*len(h.Tokens) + ChecksumBytes
}

// FileSize returns the length of the whole file in bytes.
func (h *Header) FileSize() int64 { return int64(h.Size()) + h.Stored + ChecksumBytes }

// Validate reports the first field outside its limits. Append writes and Parse reads every header that it accepts.
func (h *Header) Validate() error {
	for _, s := range []struct{ name, v string }{{"engine build", h.EngineBuild}, {"KV type K", h.KVTypeK},
		{"KV type V", h.KVTypeV}} {
		if len(s.v) > MaxString {
			return fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrFormat, s.name, len(s.v), MaxString)
		}
	}
	switch {
	case h.Flags&^FlagZstd != 0:
		return fmt.Errorf("%w: flags %#x: only bit 0 is known", ErrFormat, h.Flags)
	case h.P0 < 0 || h.P1 <= h.P0 || h.P1 > math.MaxInt32:
		return fmt.Errorf("%w: positions [%d, %d): need 0 ≤ first < end ≤ %d", ErrFormat, h.P0, h.P1, math.MaxInt32)
	case h.P1-h.P0 > MaxPartTokens:
		return fmt.Errorf("%w: %d tokens, the limit is %d", ErrFormat, h.P1-h.P0, MaxPartTokens)
	case len(h.Tokens) != h.P1-h.P0:
		return fmt.Errorf("%w: %d tokens for positions [%d, %d)", ErrFormat, len(h.Tokens), h.P0, h.P1)
	case h.Stored <= 0 || h.Stored > MaxPayloadBytes:
		return fmt.Errorf("%w: stored payload of %d bytes: need 1 … %d", ErrFormat, h.Stored, int64(MaxPayloadBytes))
	case h.Raw <= 0 || h.Raw > MaxPayloadBytes:
		return fmt.Errorf("%w: raw payload of %d bytes: need 1 … %d", ErrFormat, h.Raw, int64(MaxPayloadBytes))
	case h.Flags&FlagZstd == 0 && h.Raw != h.Stored:
		return fmt.Errorf("%w: an uncompressed payload of %d bytes claims %d after decompression", ErrFormat, h.Stored,
			h.Raw)
	case h.P0 == 0 && h.Prefix != emptyPrefix:
		return fmt.Errorf("%w: prefix hash of a part that begins at 0 is not the hash of no tokens", ErrFormat)
	case h.P0 == 0 && h.Through != PrefixHash(h.Tokens):
		return fmt.Errorf("%w: hash through the end of a part that begins at 0 is not that of its tokens", ErrFormat)
	}
	return nil
}

var emptyPrefix = PrefixHash(nil)

// Append appends the header, its checksum included. The caller writes the payload and then the file checksum
// (BLAKE3-256 of all bytes before it).
func (h *Header) Append(dst []byte) ([]byte, error) {
	if err := h.Validate(); err != nil {
		return dst, err
	}
	start := len(dst)
	le := binary.LittleEndian
	dst = append(dst, Magic...)
	dst = le.AppendUint16(dst, Version)
	dst = le.AppendUint16(dst, h.Flags)
	dst = le.AppendUint32(dst, uint32(h.Size()))
	dst = le.AppendUint64(dst, uint64(h.Stored))
	dst = le.AppendUint64(dst, uint64(h.Raw))
	dst = le.AppendUint32(dst, uint32(h.Namespace))
	dst = le.AppendUint32(dst, uint32(h.P0))
	dst = le.AppendUint32(dst, uint32(h.P1))
	dst = le.AppendUint32(dst, uint32(h.Namespace>>32))
	dst = le.AppendUint64(dst, uint64(h.Created))
	dst = append(dst, h.Fingerprint[:]...)
	dst = append(dst, h.Prefix[:]...)
	dst = append(dst, h.Through[:]...)
	for _, s := range []string{h.EngineBuild, h.KVTypeK, h.KVTypeV} {
		dst = append(dst, byte(len(s)))
		dst = append(dst, s...)
	}
	for (len(dst)-start)%4 != 0 {
		dst = append(dst, 0)
	}
	dst = appendTokens(dst, h.Tokens)
	sum := blake3.Sum256(dst[start:])
	return append(dst, sum[:]...), nil
}

func appendTokens(dst []byte, tokens []Token) []byte {
	for _, t := range tokens {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
	}
	return dst
}

// LeadBytes is the number of bytes that HeaderSize needs.
const LeadBytes = 16

// HeaderSize returns the length of the header from the first LeadBytes of a file of fileSize bytes. It is at most
// MaxHeaderBytes and at most fileSize. The error is ErrVersion for a file of another version.
func HeaderSize(b []byte, fileSize int64) (int, error) {
	if len(b) < LeadBytes {
		return 0, fmt.Errorf("%w: %d bytes, a header begins with %d", ErrFormat, len(b), LeadBytes)
	}
	if string(b[:8]) != Magic {
		return 0, fmt.Errorf("%w: magic %q, want %q", ErrFormat, b[:8], Magic)
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != Version {
		return 0, fmt.Errorf("%w: version %d, this build reads %d", ErrVersion, v, Version)
	}
	n := int64(binary.LittleEndian.Uint32(b[12:]))
	if n%4 != 0 {
		return 0, fmt.Errorf("%w: header length %d is not a multiple of 4", ErrFormat, n)
	}
	if n < fixedBytes+3+ChecksumBytes || n > MaxHeaderBytes || n > fileSize-ChecksumBytes {
		return 0, fmt.Errorf("%w: header length %d in a file of %d bytes: need %d … %d", ErrFormat, n, fileSize,
			fixedBytes+3+ChecksumBytes, min(MaxHeaderBytes, fileSize-ChecksumBytes))
	}
	return int(n), nil
}

// Parse reads a header: b is the first HeaderSize bytes of a file of fileSize bytes (more are ignored). Everything is
// verified except the payload. It allocates no more than len(b) bytes and does not keep b.
func Parse(b []byte, fileSize int64) (Header, error) {
	var h Header
	size, err := HeaderSize(b, fileSize)
	if err != nil {
		return h, err
	}
	if len(b) < size {
		return h, fmt.Errorf("%w: %d bytes of a header of %d bytes", ErrFormat, len(b), size)
	}
	b = b[:size]
	body := b[:size-ChecksumBytes]
	sum := blake3.Sum256(body)
	if subtle.ConstantTimeCompare(sum[:], b[len(body):]) != 1 {
		return h, fmt.Errorf("%w: header: %w", ErrFormat, ErrChecksum)
	}
	le := binary.LittleEndian
	stored, raw := le.Uint64(b[16:]), le.Uint64(b[24:])
	p0, p1 := le.Uint32(b[36:]), le.Uint32(b[40:])
	if stored > MaxPayloadBytes || raw > MaxPayloadBytes {
		return h, fmt.Errorf("%w: payload of %d stored, %d raw bytes, the limit is %d", ErrFormat, stored, raw,
			int64(MaxPayloadBytes))
	}
	if want := int64(size) + int64(stored) + ChecksumBytes; want != fileSize {
		return h, fmt.Errorf("%w: header %d + payload %d + checksum %d = %d bytes, the file has %d", ErrFormat, size,
			stored, ChecksumBytes, want, fileSize)
	}
	if p0 > math.MaxInt32 || p1 > math.MaxInt32 || p1 <= p0 || p1-p0 > MaxPartTokens {
		return h, fmt.Errorf("%w: positions [%d, %d): need 0 ≤ first < end ≤ %d, at most %d of them", ErrFormat, p0, p1,
			math.MaxInt32, MaxPartTokens)
	}
	h = Header{
		Flags: le.Uint16(b[10:]), P0: int(p0), P1: int(p1),
		Namespace: Namespace(le.Uint32(b[32:])) | Namespace(le.Uint32(b[44:]))<<32,
		Created:   int64(le.Uint64(b[48:])), Stored: int64(stored), Raw: int64(raw),
	}
	copy(h.Fingerprint[:], b[56:])
	copy(h.Prefix[:], b[88:])
	copy(h.Through[:], b[120:])
	rest := body[fixedBytes:]
	for _, s := range []struct {
		name string
		dst  *string
	}{{"engine build", &h.EngineBuild}, {"KV type K", &h.KVTypeK}, {"KV type V", &h.KVTypeV}} {
		if len(rest) == 0 || len(rest)-1 < int(rest[0]) {
			return Header{}, fmt.Errorf("%w: %s runs past the header's end", ErrFormat, s.name)
		}
		*s.dst = string(rest[1 : 1+int(rest[0])])
		rest = rest[1+int(rest[0]):]
	}
	pad := len(rest) % 4
	if !bytes.Equal(rest[:pad], make([]byte, pad)) {
		return Header{}, fmt.Errorf("%w: padding before the tokens is not zero", ErrFormat)
	}
	rest = rest[pad:]
	if n := int(p1 - p0); len(rest) != 4*n {
		return Header{}, fmt.Errorf("%w: %d bytes of tokens for the %d positions [%d, %d)", ErrFormat, len(rest), n, p0,
			p1)
	}
	h.Tokens = make([]Token, len(rest)/4)
	for i := range h.Tokens {
		h.Tokens[i] = Token(le.Uint32(rest[4*i:]))
	}
	if err := h.Validate(); err != nil {
		return Header{}, err
	}
	return h, nil
}
