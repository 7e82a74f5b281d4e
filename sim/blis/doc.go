// Package blis is BLIS, the simulator whose results the parity cases of docs/simulator.md hold: the order of its wait
// queue, how it forms a step's batch (as vLLM does: running requests first, then new ones while the token budget
// lasts), what it preempts, its paged KV cache (package kv), its step times of GPUs (package gpu) and its clusters
// (package cluster).
//
// server.go has no clock, no event and no latency model. Package sim drives it as a sim.Batcher: it adds requests, asks
// for a batch, decides how long the batch takes, and asks which requests left.
package blis
