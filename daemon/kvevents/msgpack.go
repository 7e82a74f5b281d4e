package kvevents

import (
	"strconv"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// The encoding is that of vLLM 0.33 (vllm/distributed/kv_events.py): a batch is the array [ts, events, rank], an event
// is a map with its class under "type". Routers want every key of the class's fields without a default.

// appendBatch appends a batch with n events, which the caller appends.
func appendBatch(dst []byte, at time.Time, n int) []byte {
	dst = msgp.AppendArrayHeader(dst, 3)
	dst = msgp.AppendFloat64(dst, float64(at.UnixMicro())/1e6)
	return msgp.AppendArrayHeader(dst, uint32(n))
}

// endBatch appends the rank, the last member of a batch.
func endBatch(dst []byte) []byte { return msgp.AppendInt(dst, 0) }

func appendCleared(dst []byte) []byte {
	dst = msgp.AppendMapHeader(dst, 1)
	return msgp.AppendString(msgp.AppendString(dst, "type"), "AllBlocksCleared")
}

func appendRemoved(dst []byte, tier Tier, hashes []uint64) []byte {
	dst = msgp.AppendMapHeader(dst, 3)
	dst = msgp.AppendString(msgp.AppendString(dst, "type"), "BlockRemoved")
	dst = appendHashes(dst, hashes)
	return appendMedium(dst, tier)
}

func appendMedium(dst []byte, tier Tier) []byte {
	return msgp.AppendString(msgp.AppendString(dst, "medium"), tier.String())
}

func appendHashes(dst []byte, hashes []uint64) []byte {
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "block_hashes"), uint32(len(hashes)))
	for _, h := range hashes {
		dst = msgp.AppendUint64(dst, h)
	}
	return dst
}

// stored is a chain of stored blocks. tokens has those of each block.
type stored struct {
	tier   Tier
	ns     uint64
	first  int
	parent uint64
	hashes []uint64
	tokens [][]int32
}

// appendStored appends a BlockStored. extra_keys has the user's number for each block: users do not share cells.
func appendStored(dst []byte, s *stored) []byte {
	dst = msgp.AppendMapHeader(dst, 9)
	dst = msgp.AppendString(msgp.AppendString(dst, "type"), "BlockStored")
	dst = appendHashes(dst, s.hashes)
	dst = msgp.AppendString(dst, "parent_block_hash")
	if s.first > 0 {
		dst = msgp.AppendUint64(dst, s.parent)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "token_ids"), uint32(len(s.tokens)*BlockTokens))
	for _, block := range s.tokens {
		for _, t := range block {
			dst = msgp.AppendInt32(dst, t)
		}
	}
	dst = msgp.AppendInt(msgp.AppendString(dst, "block_size"), BlockTokens)
	dst = msgp.AppendNil(msgp.AppendString(dst, "lora_id"))
	dst = appendMedium(dst, s.tier)
	dst = msgp.AppendNil(msgp.AppendString(dst, "lora_name"))
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "extra_keys"), uint32(len(s.hashes)))
	key := "user:" + strconv.FormatUint(uint64(s.ns), 10)
	for range s.hashes {
		dst = msgp.AppendString(msgp.AppendArrayHeader(dst, 1), key)
	}
	return dst
}
