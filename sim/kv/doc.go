// Package kv simulates the block-structured KV cache of a paged inference server: which request owns which block,
// which freed blocks are still findable by their prefix hash, and what a second tier in host memory adds.
//
// No token is ever stored. A prompt is described by an [Identity]: up to PrefixLen its tokens are those of a shared
// stream, behind that those of its own stream, and a token is the pair (stream, position). Two blocks hold the same
// tokens exactly when their streams and positions are the same, so the content of a full block is one 64-bit number
// and the chained hash of a prompt's prefix is one multiplication a block. That is what makes the simulator fast;
// the original hashes the decimal text of every token.
//
// Blocks that nobody else can ever find are entered into the hash index only when their request is preempted: that is
// most blocks of most workloads, and changes no number.
//
// The rules (what is counted, what is evicted in which order, which oddities are kept) are those of the BLIS engine
// at the build called "fixed" in docs/simulator.md. The oddities kept on purpose:
//
//   - A prompt that is cached to its last token is admitted with no new tokens, and then its cached blocks are
//     neither pinned nor counted as hits ([Cache.Allocate] with an empty range does nothing).
//   - Reusing a block deletes its old hash from the index even if the index meanwhile names a newer block with the
//     same hash.
//
// A Cache is not safe for concurrent use. A [Seq] belongs to one request of one Cache.
package kv
