// Package meridian treats thinking and answering as different work.
//
// A reasoning model first thinks, between an opening and a closing tag, and then answers. What matters differs:
// nobody reads the thinking token by token, and all of it is only worth its cost until the answer is settled.
// This package follows each request through its phases, measures while it thinks whether more thinking will change
// the answer, and closes the thinking when a budget or a signal says so:
//
//   - [Tags] are a model's boundary markers, resolved from its vocabulary once per model ([Detect], [Resolve]).
//   - [Router] is the phase machine: Prefill → ThinkDecode → OutputDecode → Complete. It also says which bytes of a
//     piece are thinking, answer or tag.
//   - [EAT], [RPDI] and [Indicator] are the signals, each under the name of what it computes.
//   - [Control] joins the three for one request and is what the decode loop talks to.
//   - [Registry] counts the requests that are being followed.
//
// # One row of the decode loop
//
// For every logits row of a request the loop makes these calls, in this order:
//
//	if c.NeedStats() { c.Observe(&stats) }       // the row's statistics, before anything is drawn from it
//	if forked { c.OnProbe(entropy) }             // of the fork in the same batch, or ProbeFailed
//	tok, forced := c.Next(now)                   // a token that must come now, whatever the row says
//	if !forced { tok, forced = c.Admit(sampled, …) } // or the sampled one, unless it must not come
//	step := c.OnToken(tok, piece, eog, now)      // what it meant
//	if tokens, ok := c.ProbeDue(); ok { … }      // a fork to decode with the next batch
//
// The package is pure: token ids, bytes and numbers in, decisions out; no clock, goroutine or logger. Times are
// arguments, monotonic nanoseconds with any zero. One Control belongs to one request and is owned by the decode
// loop. Nothing here allocates per token and every call is O(1).
package meridian
