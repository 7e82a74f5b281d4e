package valkey

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

// manifest describes a value's pieces. On the server, little-endian:
//
//	offset  size  field
//	0       4     magic, "UVM1"
//	4       4     bytes of a piece (the last may be shorter)
//	8       8     bytes of the value
//	16      16    the first 16 bytes of BLAKE3-256(value)
//
// It is comparable: equal manifests mean equal values with pieces of the same size.
type manifest struct {
	chunk int
	bytes int64
	sum   [16]byte
}

const (
	manifestMagic = "UVM1"
	manifestBytes = 32
)

func manifestOf(value []byte, chunk int) manifest {
	m := manifest{chunk: chunk, bytes: int64(len(value))}
	sum := blake3.Sum256(value)
	copy(m.sum[:], sum[:])
	return m
}

func (m *manifest) encode() []byte {
	b := make([]byte, manifestBytes)
	copy(b, manifestMagic)
	binary.LittleEndian.PutUint32(b[4:], uint32(m.chunk))
	binary.LittleEndian.PutUint64(b[8:], uint64(m.bytes))
	copy(b[16:], m.sum[:])
	return b
}

// parseManifest parses a manifest from a server and checks every field.
func parseManifest(b []byte, maxBytes int64) (m manifest, err error) {
	if len(b) != manifestBytes || string(b[:4]) != manifestMagic {
		return m, fmt.Errorf("%w: not a manifest: %d bytes, % x", fault.ErrCorrupt, len(b), b[:min(len(b), 4)])
	}
	chunk, bytes := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])
	if chunk < minChunk || chunk > maxChunk {
		return m, fmt.Errorf("%w: pieces of %d bytes, want %d to %d", fault.ErrCorrupt, chunk, minChunk, maxChunk)
	}
	if bytes > uint64(maxBytes) {
		return m, fmt.Errorf("%w: %d bytes, the limit (option max) is %d", fault.ErrTooLarge, bytes, maxBytes)
	}
	m.chunk, m.bytes = int(chunk), int64(bytes)
	copy(m.sum[:], b[16:])
	return m, nil
}

// chunks returns the number of pieces.
func (m *manifest) chunks() int { return int((m.bytes + int64(m.chunk) - 1) / int64(m.chunk)) }

// piece returns the range of the i-th piece in the value.
func (m *manifest) piece(value []byte, i int) []byte {
	return value[i*m.chunk : min((i+1)*m.chunk, len(value))]
}

// keys are the server's keys for one value. All names share the hash tag {key}, so a cluster keeps them in one slot,
// and one command may touch several.
type keys struct{ base string }

func (f *Fabric) keys(key string) keys { return keys{f.config.Prefix + ":{" + key + "}"} }

func (k keys) manifest() string { return k.base }

// chunk's key contains the value's hash, so that a piece is never overwritten by a different one.
func (k keys) chunk(m *manifest, i int) string {
	return k.base + ":" + hex.EncodeToString(m.sum[:]) + "." + strconv.Itoa(m.chunk) + ":" + strconv.Itoa(i)
}

func (k keys) chunks(m *manifest) []string {
	names := make([]string, m.chunks())
	for i := range names {
		names[i] = k.chunk(m, i)
	}
	return names
}
