// Package kv simulates the block-structured KV cache of BLIS: which request owns which block, which freed blocks are
// still findable by their prefix hash, and what a second tier in host memory adds.
//
// No token is stored. A prompt is described by a [workload.Identity]: up to PrefixLen its tokens are those of a shared
// stream, and then those of a second stream, and a token is the pair (stream, position). Two blocks hold the same
// tokens exactly when their streams and positions are the same, so the content of a full block is one 64-bit number
// and the chained hash of a prompt's prefix is one multiplication a block. That makes the simulator fast; BLIS hashes
// the decimal text of every token.
//
// A block that only its own request can find is entered into the hash index when that request is preempted, not before.
// Most blocks of most workloads are of this kind, and no number changes.
//
// The rules (what is counted, what is evicted in which order, which oddities are kept) are those of the BLIS build
// called "fixed" in docs/simulator.md. The oddities kept on purpose:
//
//   - A prompt that is cached to its last token is admitted with no new tokens, and then its cached blocks are
//     neither pinned nor counted as hits ([Cache.Allocate] with an empty range does nothing).
//   - Reusing a block deletes its old hash from the index even if the index meanwhile names a newer block with the
//     same hash.
//
// A Cache is not safe for concurrent use. A [Seq] belongs to one request of one Cache.
package kv
