// Package kvsnap knows what the KV pool holds, so that nothing is computed twice.
//
// A Tree is a radix tree over the sequences that are resident in the engine's one pool of KV cells: running requests, and
// cached prefixes that ended ones left. It is a pure index and a ledger. It calls no engine and reads no clock: each
// method returns, as data, what the engine must do (Action), and has already counted on it.
//
// # What the engine can do
//
// llama.cpp lets a sequence share the cells of another one's positions [0, p) (llama_memory_seq_cp: 50 µs for a thousand
// tokens, no copy), also while the other one is still running, and frees a cell with its last sequence. There are at most
// 256 sequence ids, so ids are a resource as cells are: the tree gives them out, and a cached prefix that is worth little
// gives its id up.
//
// # The caller's obligations, in the life of one request
//
//  1. Start. Held means that a running request is computing the same prompt: wait until the tree names this request in
//     what Progress, Stall, Retain or Release of the other one return, and call Start again. Otherwise carry out the
//     Actions and compute from Cached on, in sequence Seq.
//  2. When cells run out, EvictCells: copy the victims' cells to the host if they are worth it, then carry out the
//     Actions. What a running request shares is never among them, so start first and evict then.
//  3. Progress after each successful Decode, for each of its sequences. After a failed one the sequence goes back to where
//     it was, and the tree need not know.
//  4. At the end of the turn, render the history as the next turn's prompt will begin and Retain it: what was computed of
//     exactly these tokens stays. Templates that drop past thinking keep the prompt; those that keep it keep all. A
//     request that is preempted, or fails, may retain its own tokens too, or Release.
//  5. The woken requests are to be started in the order given.
//
// Cells and Pool are what the scheduler and the ledger by tiers (meridian.Blocks) hear of afterwards; the example shows
// each call in its place.
//
// # What is kept
//
// Cached prefixes stay until their cells or their id are needed. Then tails go before heads, so that what many share goes
// last, and least worth goes first: Tree.worth says how that is reckoned. A cached prefix that another one of its namespace
// continues needs no entry of its own.
//
// # How tiers and the tree belong together
//
// meridian.Blocks says what cells are for (a think block, an answer, a prompt), the tree says who shares them. A running
// request's prompt is tier Prefix, then its cells are ThinkActive, at the end of its thinking ThinkComplete, its answer
// OutputCritical. When it ends, what Retain keeps is CacheOwner's, tier Prefix. Eviction begins there: Blocks.EvictOrder
// names CacheOwner first and the daemon asks EvictCells for so many cells; requests follow, thinking ones before answering
// ones. So nothing OutputCritical goes while a lower tier has cells to give.
//
// # Namespaces
//
// A namespace is the peer's uid, set by the server. Namespaces see nothing of each other, neither cells nor, in a miss's
// Reason, that they exist; but with Config.ShareSystem the leading Shareable tokens of everybody's sequences.
package kvsnap
