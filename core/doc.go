// Package core decides what each step of a server does: which requests run, which cells of the KV pool they share, what
// is copied, restored and evicted, what the engine computes next, when a thought ends and when a request ends.
//
// It is pure. Inputs and outputs are values and time is an argument; it has no goroutine, socket, clock, logger or
// engine. Two shells drive it: daemon, around a real engine, and sim, around a virtual clock and a latency model. A
// rule that both follow is written here once.
//
// # The caller's obligations, in this order
//
//  1. Handle each Input as it comes: arrivals, cancels, pauses, ready parts of a restore.
//  2. Call Next(now). Carry out Step.Ops in order, tell the clients of Step.Ends, render Step.Histories.
//  3. If Step.Plan.Batch is not empty: FillBatch, then Engine.Decode. With a draft model, before FillBatch: FillDraft,
//     decode the draft model's batch, Drafted (or DraftFailed), until FillDraft returns false.
//  4. Done(Result): the engine's outcome and time, and the results of the copies. It follows every Next.
//  5. After a successful batch, for each of its slices, in order: Probed for a SliceProbe; Token, NoToken or
//     Handle(Cancel) for a slice with a logits row. Ask Request.Control before a token is drawn (NeedStats, Observe,
//     Next, Admit). Of a request of kind Embed, read the embedding rows of each slice, and answer the last one by
//     Embedded or Handle(Cancel).
//  6. Repeat from Next until Step.Idle. Then wait for an Input, or until Step.WakeAt. At the end, Shutdown.
//
// Between two steps CopyAll plans the copies of cached prefixes, at a client's request; at the end Shutdown does.
//
// A Step and its slices are valid until the second Next after it.
//
// # Who owns a Request
//
// The caller makes it and fills the first group of its fields. From Handle(Arrive) until its end core owns it, and the
// caller only reads. A request ends exactly once: by the result of Token, by NoToken, or by an entry of Step.Ends.
//
// # Where things are
//
//	core.go      Core, Handle, Next, Done: the order of a step
//	request.go   Request, Input, Step, Op, Result: the values
//	start.go     a request starts: share, wait for another's prompt, restore
//	release.go   a sequence ends or is preempted: what stays cached
//	pool.go      cells: room for a batch, evictions, what the scheduler hears of the ledger (meridian/blocks)
//	restore.go   cells that are restored from memory, disk or a fabric
//	ahead.go     cells that are read while their request is queued
//	copy.go      cells that are copied out, and how much between two steps (2 ms while answers run)
//	offload.go   finished thoughts that leave the pool and come back
//	price.go     whether cells are restored and copied, or computed again
//	row.go       a token: the thought, the text, the end
//	guess.go     guessed tokens (speculation) and how they are verified
//	draft.go     the draft model's sequences and cells
//	embed.go     texts to embed
//	cut.go       tokens that are removed from a running sequence: context shift, dropped thoughts
//	trace.go     the record of inputs and steps, and its replay
package core
