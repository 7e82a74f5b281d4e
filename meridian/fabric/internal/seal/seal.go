// Package seal encrypts and authenticates a fabric's values with a namespace key, for stores whose clients are not
// authenticated. Machines that share a namespace key read each other's values.
//
// A sealed value is:
//
//	offset  size  field
//	0       4     magic, "UMS1"
//	4       8     length of the value, little-endian
//	12      32    salt: a keyed BLAKE3 hash of the name and the value
//	44      …     AES-256-GCM of the value, then its tag of 16 bytes
//
// Each salt has its own AES key, so the nonce is constant. The salt depends on the value: the same value under the same
// name is sealed to the same bytes, and no two values are encrypted under one key. An observer learns the length, and
// whether a name got the same value again. The tag covers the header and the name, so bytes that belong to another
// name, or to another namespace, do not open.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

const (
	magic = "UMS1"
	// HeaderBytes is the length of what precedes the ciphertext.
	HeaderBytes = 44
	// Overhead is the difference in length between a sealed value and the value, in bytes.
	Overhead = HeaderBytes + 16
	keyBytes = 32
)

// Key is a namespace key.
type Key struct {
	names *blake3.Hasher // of names on the store; Clone before use
	salts *blake3.Hasher
	seed  []byte // the keys of values are derived from it
	peers []byte // the identity is derived from it
}

// ReadKey reads a namespace key from a file that holds 64 hexadecimal digits and that only its owner may read.
func ReadKey(path string) (*Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %#o: other users may read it; chmod 600 it", path, info.Mode().Perm())
	}
	if info.Size() > 1024 {
		return nil, fmt.Errorf("%s is %d bytes long, want 64 hexadecimal digits (openssl rand -hex 32)", path,
			info.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(string(bytes.TrimSpace(b)))
	if err != nil || len(raw) != keyBytes {
		return nil, fmt.Errorf("%s: want 64 hexadecimal digits (openssl rand -hex 32)", path)
	}
	return NewKey(raw)
}

// NewKey returns the namespace key of 32 random bytes.
func NewKey(raw []byte) (*Key, error) {
	if len(raw) != keyBytes {
		return nil, fmt.Errorf("a namespace key of %d bytes, want %d", len(raw), keyBytes)
	}
	keyed := func(purpose string) *blake3.Hasher {
		h, err := blake3.NewKeyed(derive(raw, purpose))
		if err != nil {
			panic(err) // derive returns the length that BLAKE3 wants
		}
		return h
	}
	return &Key{keyed("names"), keyed("salts"), derive(raw, "values"), derive(raw, "peers")}, nil
}

// Identity returns the key pair by which processes that have this namespace key recognize each other.
func (k *Key) Identity() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(k.peers) }

// derive returns 32 bytes for a purpose.
func derive(secret []byte, purpose string) []byte {
	b, err := hkdf.Key(sha256.New, secret, nil, "uma-serve fabric "+purpose, keyBytes)
	if err != nil {
		panic(err) // only for lengths above 255 hashes
	}
	return b
}

// Name returns the name of key on the store: 64 hexadecimal digits that tell nothing about the key.
func (k *Key) Name(key string) string {
	h := k.names.Clone()
	_, _ = h.WriteString(key)
	return hex.EncodeToString(h.Sum(nil))
}

// Header returns the header of the value sealed under name. Equal headers mean equal values.
func (k *Key) Header(name string, value []byte) [HeaderBytes]byte {
	h := k.salts.Clone()
	_, _ = h.WriteString(name) // all names have one length
	_, _ = h.Write(value)
	var b [HeaderBytes]byte
	copy(b[:], magic)
	binary.LittleEndian.PutUint64(b[4:], uint64(len(value)))
	copy(b[12:], h.Sum(nil))
	return b
}

// Seal returns the sealed value in new storage, under a header from [Key.Header].
func (k *Key) Seal(name string, header [HeaderBytes]byte, value []byte) []byte {
	b := make([]byte, HeaderBytes, Overhead+len(value))
	copy(b, header[:])
	return k.aead(header[12:]).Seal(b, make([]byte, 12), value, additional(header[:], name))
}

// Open returns the value of a sealed one, in its storage. After an error the storage may have been written to.
func (k *Key) Open(name string, sealed []byte) ([]byte, error) {
	if len(sealed) < Overhead {
		return nil, fmt.Errorf("%w: %d bytes, a seal alone takes %d", fault.ErrCorrupt, len(sealed), Overhead)
	}
	header, body := sealed[:HeaderBytes], sealed[HeaderBytes:]
	if string(header[:4]) != magic {
		return nil, fmt.Errorf("%w: the value begins with % x, want %q", fault.ErrCorrupt, header[:4], magic)
	}
	if n := binary.LittleEndian.Uint64(header[4:]); n != uint64(len(sealed)-Overhead) {
		return nil, fmt.Errorf("%w: the seal declares %d bytes and has %d", fault.ErrCorrupt, n, len(sealed)-Overhead)
	}
	value, err := k.aead(header[12:]).Open(body[:0], make([]byte, 12), body, additional(header, name))
	if err != nil {
		return nil, fmt.Errorf("%w: the value was not sealed under this name with this namespace key", fault.ErrCorrupt)
	}
	return value, nil
}

func additional(header []byte, name string) []byte {
	return append(append(make([]byte, 0, HeaderBytes+len(name)), header...), name...)
}

func (k *Key) aead(salt []byte) cipher.AEAD {
	key, err := hkdf.Key(sha256.New, k.seed, salt, "uma-serve fabric value", keyBytes)
	if err != nil {
		panic(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only for other key lengths
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return gcm
}
