// Package meridian manages the thinking of reasoning models.
//
// A reasoning model thinks between an opening and a closing tag, and then answers. Thinking tokens are not urgent, and
// they are worth their cost only until the answer is settled. This package follows each request through its phases,
// measures while it thinks whether more thinking would change the answer, and closes the thinking when a budget or a
// signal says so:
//
//   - [Tags] are a model's boundary markers, resolved from its vocabulary once per model ([Detect], [Resolve]).
//   - [Router] is the phase machine: Prefill → ThinkDecode → OutputDecode → Complete. It also divides the text into
//     thinking, answer and tags.
//   - [EAT], [RPDI] and [Indicator] are the signals.
//   - [Control] combines router, signals and forced tokens for one request. The decode loop calls it.
//   - [Registry] counts the requests that are being followed.
//   - [Config] has the server's defaults; ipc/wire/think.go what a request may set.
//
// Package blocks, below, is the block manager: the ledger of KV cells and the order in which they are evicted.
//
// # One row of the decode loop
//
// For every logits row of a request the loop makes these calls, in this order:
//
//	if c.NeedStats() { c.Observe(&stats) }           // the row's statistics, before a token is drawn from it
//	if forked { c.OnProbe(entropy) }                 // of the fork in the same batch, or ProbeFailed
//	tok, forced := c.Next(now)                       // a token that must come now, whatever the row says
//	if !forced { tok, forced = c.Admit(sampled, …) } // the sampled token, or the one that must replace it
//	step := c.OnToken(tok, piece, eog, now)          // its phase, its bytes, and the events
//	if tokens, ok := c.ProbeDue(); ok { … }          // a fork to decode with the next batch
//
// The package is pure: it has no clock, goroutine or logger. Times are arguments, monotonic nanoseconds with any zero.
// A Control belongs to one request and to the decode loop's goroutine. No call allocates per token, and every call of
// Control is O(1) in the number of tokens.
package meridian
