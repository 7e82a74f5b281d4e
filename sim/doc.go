// Package sim predicts what a server will do: a discrete-event simulation of continuous batching. It owns the virtual
// clock, the latency model and the measurements. Package core, which uma-serve runs, decides the content of a batch
// (Config.BatchFormation "uma"), or a [Batcher] does: package sim/blis has the rules of BLIS ("vllm"; docs/simulator.md
// names the build and its oddities), which nothing here imports.
//
// Time is a signed 64-bit count of microsecond ticks that only events move. Events are ordered by (time, kind,
// insertion):
//
//	Arrival      a request reaches the server; Queued follows after the model's enqueue delay
//	Queued       it passes the guards and joins the wait queue; an idle server starts a step
//	Step         one turn of the engine: order the queue, form a batch, compute it, end what is complete
//	Scheduled    marker of an admission
//	RequestLeft  marker of a completion
//	Timeout      a client's deadline
//	Resumed      a client reads again
//
// [Run] simulates one server from its [Config] and a [workload.Source]. An [Engine] executes one event at a time, for
// many instances on one clock (sim/blis/cluster). [RunMachine] simulates servers whose engines compute in turn on
// one device, by the rules of package arbiter. The measurements are a [Report]; [Config.Collect] decides whether it has
// a line per request or only aggregates in constant memory.
//
// stores.go has the tiers below the pool, thoughtstore.go finished thoughts outside of it.
//
// Determinism: nothing here reads a clock, depends on a map's order or uses a global random source. The same
// configuration and workload give the same bytes.
package sim
