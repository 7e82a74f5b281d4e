// Package kvsnap indexes the tokens that the KV pool holds, so that no prompt is computed twice.
//
// A Tree is a radix tree over the sequences in the engine's KV pool: running requests, and cached prefixes that ended
// requests left. Its cells are counted by a blocks.Ledger, which also decides which are evicted first. The tree calls
// no engine and reads no clock: each method returns the engine operations to carry out (Action) and assumes that the
// caller does so.
//
// # What the engine can do
//
// In llama.cpp a sequence can share the cells of another sequence's positions [0, p) without a copy
// (llama_memory_seq_cp: 50 µs for a thousand tokens), even while the other sequence runs. A cell is freed with the last
// sequence that holds it. An engine has at most 256 sequence ids, so the tree manages ids as it manages cells: when
// none is free, the least valuable cached prefix gives up its id.
//
// # The caller's obligations, in the life of one request
//
//  1. Acquire. If the result says Waiting, another request is computing the same prompt: call Acquire again once
//     Progress, Stall, Retain or Release of that request returns this request's id. Otherwise carry out the Actions and
//     compute from position Cached on, in sequence Seq. To look before acquiring, call Lookup, then AcquireMatch.
//  2. When cells run out, EvictCells: copy the victims' cells to the host if they are worth it, then carry out the
//     Actions. EvictCells never takes cells that a running request shares; therefore acquire first and evict
//     afterwards.
//  3. Progress after each successful Decode, for each of its sequences, and EndThought when a think block ends. After a
//     failed Decode the engine rolls the sequence back, and the tree needs no call.
//  4. At the end of a turn, render the history as the next turn's prompt will begin and Retain it: the computed tokens
//     that agree with it stay cached. Templates that drop past thinking keep the prompt; the others keep everything. A
//     failed request may Retain its own tokens, or Release. A preempted one may Park: call Cancel if it ends before it
//     acquires a sequence again.
//  5. Start the woken requests in the order given.
//  6. With Config.Seals end a step at each of Acquired.Stops, and call Seal when Stopped says so.
//
// Tree.Ledger counts the cells that requests can be given. The example shows each call in its place.
//
// # What is kept
//
// A cached prefix stays until its cells or its id are needed. Tails are evicted before heads, so a head that many
// prefixes share goes last. Which tail goes first is the ledger's decision (blocks.Ledger.Compare). A cached prefix
// that is the beginning of another one in its namespace is merged into it, but for a seal.
//
// # Tiers
//
// A running request's prompt is in tier Prefix, its thinking in ThinkActive, then ThinkComplete, its answer in
// OutputCritical. Park keeps the tiers; Retain makes all cells Prefix. So no cell of an answer that a preempted request
// will continue is evicted while idle prefixes or the ends of other requests' thoughts are there, or thoughts that were
// copied out: Offloadable lets EvictCells take the finished thought in the middle of a parked prefix. It is away then
// (Away), and nothing behind it can be shared. Before its request acquires a sequence again, Hold the prefix, make
// room, copy the thought into a scratch sequence, and Ingest it. Else the next Acquire of the request drops the cells
// behind the thought.
//
// # Namespaces
//
// A namespace is the peer's uid, set by the server. One namespace never sees another's cells, and a miss's Reason does
// not reveal them. With Config.ShareSystem, every namespace sees the leading Shareable tokens of all sequences.
//
// # Where things are
//
//	tree_match.go    what a prompt shares; Beyond: what another text has behind a history (speculation)
//	tree_run.go      running sequences: Acquire, Progress, Retain, Park
//	tree_seal.go     models with states: where prompts are sealed, and which seals are dropped again
//	tree_evict.go    what is offered for eviction
//	tree_offload.go  the place of a finished thought that was copied out
//	tree_check.go    the invariants
package kvsnap
