package prepare

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
)

// saltOf returns the namespace of an owner's requests with a salt and adapters (adapters.Table.Key); 0 without both.
// Namespaces are numbers of 32 bits: it has the highest bit set, which no user id has, and differs from that of another
// pair but once in two thousand million. Wrong cells of a namespace are shared only where the tokens are equal, so that
// a coincidence of salts tells a client that a prompt was computed before, and nothing else.
func saltOf(owner uint32, salt string, lora []byte) uint32 {
	if salt == "" && len(lora) == 0 {
		return 0
	}
	text := append(binary.LittleEndian.AppendUint32([]byte("cache_salt"), owner), salt...)
	if len(lora) > 0 { // behind 0, which no salt has
		text = append(append(text, 0), lora...)
	}
	sum := blake3.Sum256(text)
	return min(binary.LittleEndian.Uint32(sum[:])|1<<31, 1<<32-2)
}
