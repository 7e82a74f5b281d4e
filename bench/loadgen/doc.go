// Package loadgen is the benchmark's client: it sends a plan's requests over real sockets, notes when each token came,
// and runs in a separate process, so that the server is not measured together with it.
//
// # What is noted
//
// The time at which the bytes of a token were read, by the client's own monotonic clock. Tokens that came with one read
// have one time. Where a server does not report tokens (OpenAI's protocol, the newline protocol), each event counts as
// one.
//
// The tags around a thought are not part of any text, and no server sends them. The close of thinking is therefore the
// last token of thought; what a client sees from there to the first visible text includes the step of the tag itself.
//
// # What it costs
//
// One thread runs Go code, and per token it is one read and one parse; Result.CPU is all of it.
package loadgen
