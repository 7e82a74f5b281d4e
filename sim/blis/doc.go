// Package blis holds the rules of BLIS, the simulator whose results the parity cases of docs/simulator.md hold: the
// order of its wait queue, how it forms a step's batch (as vLLM does: running requests first, then new ones while the
// token budget lasts), what it preempts, and its paged KV cache (package kv).
//
// It has no clock, no event and no latency model. Package sim drives it as it drives uma-serve's core: it adds
// requests, asks for a batch, decides how long the batch takes, and reads which requests left.
package blis
