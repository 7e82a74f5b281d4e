// Package kvevents publishes which blocks of tokens the KV cache holds, so that a router can send a prompt to the
// daemon that has most of it: vLLM's KV events, over ZeroMQ.
//
// A [Tracker] compares what a cache holds with what it held before, and makes events of the difference. The [Hub] gives
// them sequence numbers, and keeps the newest batches for replay and the blocks of every model for subscribers that
// come later. The [Server] sends batches to subscribers (ZeroMQ's PUB) and answers replay requests (ROUTER).
//
//	decode loop ── Tracker ──► engine process's sender ── link ──► Hub ──► one bounded queue for each subscriber
//
// Nothing waits for a subscriber: a batch that does not fit into its queue is dropped for it, and it finds the gap by
// the sequence number.
//
// Where things are:
//
//	track.go   blocks, their hashes, and what has changed
//	codec.go   events between an engine process and its front
//	msgpack.go events as vLLM encodes them
//	hub.go     sequence numbers, replay, the blocks of every model
//	zmtp.go    ZeroMQ's protocol, as far as PUB and ROUTER need it
//	server.go  listeners and connections
package kvevents
