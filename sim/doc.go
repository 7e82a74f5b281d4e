// Package sim predicts what a server will do: a discrete-event simulation of continuous batching over a paged KV
// cache, with the rules of the BLIS engine (see docs/simulator.md for which build and which oddities) and, as a second
// way to form batches, uma-serve's own scheduler.
//
// Time is a signed 64-bit count of microsecond ticks that only events move. Events are ordered by (time, kind,
// insertion):
//
//	Arrival      a request reaches the server; Queued follows after the model's enqueue delay
//	Queued       it passes the guards and joins the wait queue; an idle server is woken
//	Step         one turn of the engine: order the queue, form a batch, compute it, finish what is finished
//	Scheduled    marker of an admission
//	RequestLeft  marker of a completion
//	Timeout      a client's deadline
//
// [Run] simulates one server from its [Config] and a [workload.Source]. An [Engine] is the same thing taken one event
// at a time, for many instances on one clock (package sim/cluster). What is measured comes out as a [Report];
// [Config.Collect] decides whether it has a line per request or only aggregates in constant memory.
//
// Determinism: nothing here reads a clock, a map's order or a global random source. The same configuration and
// workload give the same bytes.
package sim
