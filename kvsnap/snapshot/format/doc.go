// Package format is the format of snapshot files: the bytes of a range of KV cells on disk, and the hashes that name
// it.
//
// It is pure: it has no file, clock, lock or goroutine. docs/snapshot-format.md describes the format for other readers;
// a test compares its table with this package.
//
// A file holds one part: the cells of positions [P0, P1) of a token sequence. The sequence before P0 is not in the
// file; its hash is (Header.Prefix), and the part that ends there is another file. Three rules follow:
//
//  1. A part may be restored only behind parts that cover [0, P0) exactly, with the tokens it was computed after.
//  2. The header carries its own checksum, so an index can be built from headers alone and trusted.
//  3. Verify the file checksum before passing the payload to llama.cpp: a malformed payload can abort the process.
package format

import (
	"errors"
	"unsafe"

	"github.com/zeebo/blake3"
)

// Hash is a BLAKE3-256 digest.
type Hash [32]byte

// Token is an id in the model's vocabulary.
type Token = int32

// Namespace says who may see a part: the user id of the conversation's peer, or a number above 32 bits for some of
// that user's prompts. The server sets it.
type Namespace uint64

// System is the namespace that every user may read, for prompts that the operator declared shared. It is (uid_t)-1,
// which is not a user's id.
const System Namespace = 0xFFFF_FFFF

var (
	// ErrFormat is wrapped by every error about bytes that are not a whole, well-formed snapshot; the text names
	// the field and the limit.
	ErrFormat = errors.New("not a valid snapshot")
	// ErrVersion: the magic is right but this build does not know the version. Leave such a file alone.
	ErrVersion = errors.New("snapshot of an unknown version")
	// ErrChecksum: the bytes differ from those that were written.
	ErrChecksum = errors.New("checksum does not match")
)

// PrefixHash returns the hash of tokens as little-endian 32-bit integers. It does not depend on the division into
// parts, so parts of different lengths find each other.
func PrefixHash(tokens []Token) Hash { return Hash(blake3.Sum256(tokenBytes(tokens))) }

// PrefixHashes returns PrefixHash(tokens[:p0]) and PrefixHash(tokens), in one pass.
func PrefixHashes(tokens []Token, p0 int) (before, after Hash) {
	h := blake3.New()
	h.Write(tokenBytes(tokens[:p0]))
	h.Sum(before[:0])
	h.Write(tokenBytes(tokens[p0:]))
	h.Sum(after[:0])
	return before, after
}

// tokenBytes returns tokens in the file's encoding.
func tokenBytes(tokens []Token) []byte {
	if littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), len(tokens)*4)
	}
	return appendTokens(make([]byte, 0, len(tokens)*4), tokens)
}

var littleEndian = func() bool { x := uint16(1); return *(*byte)(unsafe.Pointer(&x)) == 1 }()
