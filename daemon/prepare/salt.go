package prepare

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
)

// saltOf returns the namespace of an owner's requests with a salt; 0 without one. Namespaces are numbers of 32 bits: it
// has the highest bit set, which no user id has, and differs from that of another pair but once in two thousand
// million. The cells of a wrong namespace are shared only where the tokens are equal, so that a coincidence tells a
// client that a prompt was computed before, and nothing else.
func saltOf(owner uint32, salt string) uint32 {
	if salt == "" {
		return 0
	}
	sum := blake3.Sum256(append(binary.LittleEndian.AppendUint32([]byte("cache_salt"), owner), salt...))
	return min(binary.LittleEndian.Uint32(sum[:])|1<<31, 1<<32-2)
}
