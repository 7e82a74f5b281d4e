// Package apikeys reads a file of API keys and says which owner a key belongs to.
//
// A line is KEY OWNER [COMMENT], separated by blanks; empty lines and lines that begin with # are skipped. A key has 1
// to 512 printable ASCII characters, an owner 1 to 64 letters, digits and . _ @ -. Several keys may have the same
// owner; a key is in one line only.
//
// An owner is a cache namespace and a party of the fair shares, as a user of the machine is. Its number has the highest
// bit set, which no user id that the daemon serves beside has: see FirstID.
package apikeys

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"strings"
)

// FirstID is the smallest number of an owner. A daemon with keys refuses users whose id is as large, so that an owner
// and a user never share a namespace.
const FirstID uint32 = 1 << 31

// Limits of a file.
const (
	MaxFileBytes  = 1 << 20
	MaxKeys       = 10_000
	MaxKeyBytes   = 512
	MaxOwnerBytes = 64
	// ShortKeyBytes is the length below which a key is so short that it may be guessed.
	ShortKeyBytes = 16
)

// Owner identifies the owner of a key.
type Owner struct {
	ID   uint32 // FirstID or more
	Name string
}

// Keys are the keys of a file, as SHA-256 digests. The zero value holds none.
type Keys struct {
	entries []entry
	names   map[uint32]string
	short   int // keys of fewer than ShortKeyBytes
}

type entry struct {
	digest [sha256.Size]byte
	owner  Owner
}

// Len returns the number of keys, Owners of their owners, Short of keys below ShortKeyBytes.
func (k *Keys) Len() int    { return len(k.entries) }
func (k *Keys) Owners() int { return len(k.names) }
func (k *Keys) Short() int  { return k.short }

// Name returns the name of the owner with this number, "" if no key has it.
func (k *Keys) Name(id uint32) string { return k.names[id] }

// Find returns the owner of a key. Its time depends on the number of keys and on the length of key alone: digests are
// compared, in constant time, with every entry.
func (k *Keys) Find(key string) (owner Owner, ok bool) {
	if len(key) > MaxKeyBytes {
		return Owner{}, false
	}
	digest := sha256.Sum256([]byte(key))
	found := -1
	for i := range k.entries {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(digest[:], k.entries[i].digest[:]), i, found)
	}
	if found < 0 {
		return Owner{}, false
	}
	return k.entries[found].owner, true
}

// OwnerID returns the number of an owner: the first four bytes of its name's SHA-256, with the highest bit set. It is
// the same on every machine and after every restart, because cached prefixes on disk are stored under it. 2³²−1 is left
// out: it is the namespace of shared system prompts.
func OwnerID(name string) uint32 {
	digest := sha256.Sum256([]byte(name))
	return min(binary.BigEndian.Uint32(digest[:])|FirstID, 1<<32-2)
}

// Parse reads a file. Errors name the line, and no part of a key.
func Parse(b []byte) (*Keys, error) {
	k := &Keys{names: map[uint32]string{}}
	if len(b) > MaxFileBytes {
		return nil, fmt.Errorf("it has more than %d bytes", MaxFileBytes)
	}
	lines := map[[sha256.Size]byte]int{}
	n := 0
	for line := range bytes.Lines(b) {
		n++
		fields := bytes.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("line %d has a key without an owner; a line is KEY OWNER [COMMENT]", n)
		}
		key, name := fields[0], string(fields[1])
		if len(key) > MaxKeyBytes {
			return nil, fmt.Errorf("line %d: the key has %d bytes; the maximum is %d", n, len(key), MaxKeyBytes)
		}
		for _, c := range key {
			if c <= ' ' || c >= 0x7f {
				return nil, fmt.Errorf("line %d: the key holds a byte that is no printable ASCII character", n)
			}
		}
		if err := checkOwner(name); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(k.entries) == MaxKeys {
			return nil, fmt.Errorf("line %d: there are more than %d keys", n, MaxKeys)
		}
		e := entry{digest: sha256.Sum256(key), owner: Owner{OwnerID(name), name}}
		if first, twice := lines[e.digest]; twice {
			return nil, fmt.Errorf("lines %d and %d have the same key", first, n)
		}
		if other, taken := k.names[e.owner.ID]; taken && other != name {
			return nil, fmt.Errorf("line %d: the owners %q and %q get the same number by chance; rename one", n, other,
				name)
		}
		if len(key) < ShortKeyBytes {
			k.short++
		}
		lines[e.digest] = n
		k.names[e.owner.ID] = name
		k.entries = append(k.entries, e)
	}
	return k, nil
}

func checkOwner(name string) error {
	if len(name) > MaxOwnerBytes {
		return fmt.Errorf("the owner's name has %d bytes; the maximum is %d", len(name), MaxOwnerBytes)
	}
	for _, c := range name {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("._@-", c)) {
			return fmt.Errorf("the owner %q holds %q; letters, digits and . _ @ - are allowed", name, c)
		}
	}
	return nil
}
