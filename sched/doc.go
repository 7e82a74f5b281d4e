// Package sched decides what each decode step computes: which answers get their next token, how much of which
// prompt goes in beside them, who may start, who must wait, who makes way, who is refused.
//
// It is a pure core. A Scheduler is a state machine without a clock, a goroutine or any I/O: what happened goes
// in as events with the time they are told at, and one Plan comes out, a value that can be printed, compared,
// recorded and replayed. The daemon, the tests and the simulator run the same code.
//
//	s, err := sched.New(sched.Config{Policy: "uma", MaxRunning: 16, Cells: 4096, MaxBatch: 2048, MaxQueue: 512, Guard: sched.DefaultGuard})
//	for {
//		plan := s.Step(now, events)
//		// release, reject, decode plan.Batch, sample its rows: each becomes one of the next events
//	}
//
// # The caller's obligations, in order
//
//  1. One goroutine owns a Scheduler. Step is called with a time that does not go back; an earlier one is read
//     as the same.
//  2. Carry a plan out in the order of its fields: remove the cells of every Release, tell the clients of every
//     Rejection, answer every Start, then compute Batch. A sequence that a Release gave back can be in the same
//     plan's Start or Batch. The plan's slices are valid until the next Step.
//  3. A plan with a Batch is answered by exactly one EvStep in the events of the next Step, with the Outcome.
//     If it is not StepOK nothing of the batch counts: remove the sequences' cells from each Slice.Start on.
//  4. After StepOK, every slice with Row ≥ 0 has logits at that batch index. Each is answered in the same list
//     of events, after the EvStep, by one EvToken (a token was sampled; it is the next of the history), EvFinish
//     (the request ended) or EvCancel. A SliceProbe is not answered.
//  5. A request ends exactly once: by a Release with Final set, or by a Rejection. Until then its id is live and
//     must not arrive again. EvFinish and EvCancel are answered by such a Release in the next plan.
//  6. A Release without Final means that the request was preempted: its sequence is taken away. Without
//     Config.Prefix its history (prompt and generated tokens) will be computed again from index 0; with it, what the
//     caller kept of it is the answer to its next Start. The caller keeps the tokens.
//  7. Finish a request with ReasonLength when it has generated its MaxTokens, at most Config.Room(prompt). The
//     scheduler does it if the caller does not.
//  8. When a plan has no Batch, call Step at WakeAt (if it is not 0) or when something happened; at once when Again is
//     set.
//
// Breaking 3, 4 or 5, and events that name no kind, class, outcome or size that exists, panics with a message
// that begins "sched: " and names the request. EvCancel, EvToken, EvFinish, EvPause and EvResume for a request
// that has ended are normal, because they cross its end on the way; they are counted in Stats.Ignored.
//
// # Cached prefixes
//
// With Config.Prefix the caller owns a cache of computed prefixes, and letting a request in takes two Steps: the plan
// has Start instead of a Batch, the caller looks up what is there, and the next Step, called at once, has the answers
// and decides the batch. EvStarted says how much of the history is in the sequence already. EvHold says that it is
// worth waiting: another request is computing the prefix, or it is being read back; the request gives its sequence
// back, others pass it, and after EvReady it is the first of its queue again. It counts against Config.MaxQueue like
// every request that waits, so it can still be rejected.
//
// A preemption is told in such a plan too, so that the caller can put the victim away, and say what of its cells
// others still share, before the batch is decided.
//
// Every cell is counted once: as a running request's own, in EvPool, or free. Free is also what the caller can evict
// when a cell is wanted. EvStarted's Shared are cells counted elsewhere: when their owner ends or is preempted while
// others share them, tell EvPool with the EvFinish, or in the Step after the Release, before somebody else is given
// them. When EvPool's cells are in the way of the one request that is left, the plan says how many (Reclaim).
//
// # States
//
//	         start              all computed, a token came
//	Queued ─────────► Prefill ───────────────────────────► Think / Output ──► Done, Failed
//	  ▲                  │                                       │
//	  └──────────────────┴────────────── preempted ──────────────┘
//
// State's comment says what a request owns in each. A paused request keeps what it owns and gets nothing
// computed. Queues are per class and owner; see policy.lane and the comment at the top of flow.go for the order.
//
// # Users
//
// The queue, the sequences and the cells are shared by users (Event.Owner) when several want more than there is: share.go
// has the rules. So a Rejection can name a request that has waited for a while, and a Release with ReasonPreemptShare one
// that runs.
//
// # Memory
//
// Cells are counted in tokens. A request is let in when its history and a little growth fit beside those of the
// running ones (Config.DecodeReserve): optimistic, because most answers end long before their limit. When the
// pool is full nevertheless, the running request of lowest rank makes way until each of the others has a cell
// for its next token. Rank is paused last, then class, then arrival, and is for life; so the first in rank
// always goes on, and a request is never preempted for one that was preempted for it. A pause costs the request
// its rank. Preempted requests come back before new ones of their class.
//
// With Config.Prefix what is seen goes before what is not: whoever has not begun its answer makes way before anybody
// who has, background before interactive, then by rank, which is the order of starting. So nobody makes way for a
// request that started later or that made way for it, except that one that thinks makes way for an answer, and goes
// behind it.
//
// StepKVFull says that the pool is smaller than the ledger believes: half of what was tried is what the ledger then
// believes in, and it forgets the loss in 64-step half-lives.
//
// # Time
//
// A cost model (Cost) learns from each EvStep what a Decode takes; it runs under every policy, its state can be kept
// (Scheduler.Cost, Config.Cost), and what it predicts is in the plan. The policies that promise milliseconds size a
// step by it: see policy_meridian.go. It is floating-point arithmetic in which every product is rounded before it is
// added (mul), so that a trace replays to the same plans on every architecture.
//
// # Why
//
// Each decision has a Reason. Scheduler.Decisions tells the newest ones about a request, for some time after its end
// too; Scheduler.Finished lists who ended lately.
//
// # Adding a policy
//
// Write policy_NAME.go with a type that implements policy: where requests queue (lane), what a batch is made of
// (fill, through a builder, which keeps the limits and the rows right), what is learned from a step (observe). One
// that plans in milliseconds builds on predictive. Begin it with what the policy optimises, what it gives up, when not to use it, and the bounds it promises;
// name it in policyNames and newPolicy. The random workloads of the tests run every policy; write its bounds
// into engine.bounds, and its behaviour as scripts in testdata (go test ./sched -rewrite prints the plans).
package sched
