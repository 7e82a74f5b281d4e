// Package format is the snapshot file: how a range of KV cells lies on disk, byte for byte, and the hashes that name it.
//
// It is pure: bytes in, values and errors out; no file, clock, lock or goroutine. docs/snapshot-format.md describes the
// same bytes for readers of other languages, and a test reads its table and compares.
//
// A file holds one part: the cells of positions [P0, P1) of a token sequence. The sequence before P0 is not in the file;
// its hash is (Header.Prefix), and the part that ends there is another file. Three rules follow.
//
//  1. A part may be restored only behind parts that cover [0, P0) exactly, with the tokens it was computed after.
//  2. The header carries its own checksum, so an index can be built from headers alone and trusted.
//  3. The payload must never reach llama.cpp before the file checksum was verified: a malformed one can abort the process.
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

// Namespace is who may see a part: the user id of the peer whose conversation it is. The server sets it.
type Namespace uint32

// System is the namespace everybody may read: prompts the operator declared shared. It is (uid_t)-1, no user's id.
const System Namespace = 0xFFFF_FFFF

var (
	// ErrFormat is wrapped by every error about bytes that are not a whole, well-formed snapshot; the text names
	// the field and the limit.
	ErrFormat = errors.New("not a valid snapshot")
	// ErrVersion: the magic is right, the version is one this build does not know. Such a file belongs to somebody
	// else and is left alone.
	ErrVersion = errors.New("snapshot of an unknown version")
	// ErrChecksum: the bytes are not those that were written.
	ErrChecksum = errors.New("checksum does not match")
)

// PrefixHash is the hash of tokens as little-endian 32-bit integers; that of no token is PrefixHash(nil). It does not
// depend on how the tokens were cut into parts, so parts cut differently still find each other.
func PrefixHash(tokens []Token) Hash { return Hash(blake3.Sum256(tokenBytes(tokens))) }

// PrefixHashes is PrefixHash(tokens[:p0]) and PrefixHash(tokens) in one pass.
func PrefixHashes(tokens []Token, p0 int) (before, after Hash) {
	h := blake3.New()
	h.Write(tokenBytes(tokens[:p0]))
	h.Sum(before[:0])
	h.Write(tokenBytes(tokens[p0:]))
	h.Sum(after[:0])
	return before, after
}

// tokenBytes is tokens as they lie in a file.
func tokenBytes(tokens []Token) []byte {
	if littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), len(tokens)*4)
	}
	return appendTokens(make([]byte, 0, len(tokens)*4), tokens)
}

var littleEndian = func() bool { x := uint16(1); return *(*byte)(unsafe.Pointer(&x)) == 1 }()
