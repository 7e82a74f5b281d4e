package prepare

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
)

// saltBit is set in the namespace of every salt. Those without a salt are user ids, which have 32 bits.
const saltBit = 1 << 63

// saltOf returns the namespace of an owner's requests with a salt and adapters (adapters.Table.Key); 0 without both. It
// is the same in every process, so that cells on disk and on a fabric are found again. Requests share cells by this
// number alone: two pairs of one number would read each other's cells, and with adapters wrong ones. So it has 63 bits
// of a hash: a pair of a certain number takes 2^62 attempts, and among a million pairs the chance of two equal ones is
// 1 in 18 million.
func saltOf(owner uint32, salt string, lora []byte) uint64 {
	if salt == "" && len(lora) == 0 {
		return 0
	}
	text := append(binary.LittleEndian.AppendUint32([]byte("cache_salt"), owner), salt...)
	if len(lora) > 0 { // behind 0, which no salt has
		text = append(append(text, 0), lora...)
	}
	sum := blake3.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:]) | saltBit
}
