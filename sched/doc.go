// Package sched decides what each decode step computes: which answers get their next token, how much of which prompt is
// computed beside them, and which requests start, wait, are preempted or are rejected.
//
// It is pure. A Scheduler is a state machine without a clock, a goroutine or any I/O: events go in with the time at
// which they are told, and one Plan comes out, a value that can be printed, compared, recorded and replayed. The
// daemon, the tests and the simulator run the same code.
//
//	s, err := sched.New(sched.Config{
//		Policy: "uma", MaxRunning: 16, Cells: 4096, MaxBatch: 2048, MaxQueue: 512, Guard: sched.DefaultGuard,
//	})
//	for {
//		plan := s.Step(now, events)
//		// release, reject, decode plan.Batch, sample its rows: each becomes one of the next events
//	}
//
// # The caller's obligations, in order
//
//  1. One goroutine owns a Scheduler. It calls Step with a time that does not go back; an earlier one is read as the
//     same.
//  2. Carry out a plan in the order of its fields: remove or cache the cells of every Release, tell the clients of
//     every Rejection, answer every Start, then compute Batch. A sequence that a Release gave back can be in the same
//     plan's Start or Batch. The plan's slices are valid until the next Step.
//  3. Answer a plan with a Batch by exactly one EvStep in the events of the next Step, with the Outcome. If it is not
//     StepOK, nothing of the batch counts: remove the sequences' cells from each Slice.Start on. StepLate answers
//     a plan with a Bound only.
//  4. After StepOK, every slice with Row ≥ 0 has logits at that batch index. Answer each in the same list of events,
//     after the EvStep, by one EvToken (a token was sampled; it is the next of the history), EvFinish (the request
//     ended) or EvCancel. A SliceProbe is not answered.
//  5. A request ends exactly once: by a Release with Final set, or by a Rejection. Until then its id is live and must
//     not arrive again. The next plan answers EvFinish and EvCancel by such a Release.
//  6. A Release without Final is a preemption: keep the request's tokens (prompt and generated). Without Config.Prefix
//     they will be computed again from index 0; with it, EvStarted says how many of them are cached at its next start.
//  7. Finish a request with reason.Length when it has generated its MaxTokens, at most Config.Room(prompt). Otherwise
//     the scheduler does.
//  8. When a plan has no Batch, call Step at WakeAt (if it is not 0), at the next event, or at once if Again is set.
//
// Breaking 3, 4 or 5, and events with an unknown kind, class or outcome or an impossible size, panic with a message
// that begins "sched: " and names the request. EvCancel, EvToken, EvFinish, EvPause and EvResume of a request that
// has ended are normal and are counted in Stats.Ignored.
//
// # Cached prefixes
//
// With Config.Prefix the caller owns a cache of computed prefixes, and a start takes two Steps: the plan has Start
// instead of a Batch, the caller looks up the cached prefixes, and the next Step, called at once, has the answers and
// decides the batch. EvStarted says how much of the history is in the sequence already. EvDefer says that waiting pays:
// another request is computing the prefix, or it is being restored. The request then gives its sequence back, other
// requests overtake it, and after EvReady it queues again. A deferred request that has never run counts against
// Config.MaxQueue, and can still be rejected.
//
// A plan with a preemption is such a plan too: the caller caches what the request has computed before the batch is
// decided.
//
// # Cells
//
// The caller's ledger counts the cells. EvCells tells how many requests can have: free cells, and cached ones that
// the caller can evict. Within a Step the scheduler adds the cells that ending requests give up. EvFinish and
// EvCancel name them, because only the ledger knows which of them other requests share by then. What a preempted
// request gives up is an estimate (EvStarted's Shared), so no batch is decided before the next EvCells. When cached
// prefixes keep the only request that could run from its cells, the plan says how many it lacks (Reclaim). Without
// Config.Prefix nothing but running requests holds cells, and EvCells is not used.
//
// A request starts when its history and a little growth fit beside those of the running requests
// (Config.DecodeReserve): optimistic, because most answers end long before their limit. When cells run out
// nevertheless, the running request of lowest rank is preempted until each other one has a cell for its next token.
// Paused requests have the lowest rank, then background ones, then later arrivals. Ranks do not change, so the first
// in rank always progresses, and a request is never preempted for one that was preempted for it. A pause costs a
// request its rank. Preempted requests start before new ones of their class.
//
// With Config.Prefix the block manager (blocks.Claim) decides first: a request that has not begun its answer is
// preempted before one that has, background before interactive, a prompt before a thought. Among equal claims a later
// start goes before an earlier one. So a request is not preempted for one that started later or that was preempted
// for it, with one exception: a prompt that is preempted for a thought, and either for an answer, then ranks behind
// it.
//
// After StepKVFull the scheduler assumes that only half of what was tried fits. It forgets the difference with a
// half-life of 64 steps.
//
// # States
//
//	         start              all computed, a token came
//	Queued ─────────► Prefill ───────────────────────────► Think / Output ──► Done, Failed
//	  ▲                  │                                       │
//	  └──────────────────┴────────────── preempted ──────────────┘
//
// State's comment says what a request owns in each. A paused request keeps what it owns, and nothing is computed for
// it. Queues are per class and owner; policy.lane and package queue describe the order.
//
// # Users
//
// Users (Spec.Owner) share the queue, the sequences and the cells; queue/share.go and share.go have the rules. So a
// Rejection can name a request that has waited, and a Release with reason.PreemptShare one that runs.
//
// # Targets
//
// Targets order the queue, within a flow and between flows that are level, and the prompts of a step (earliest deadline
// first); a request with a target ranks before the running ones of its class that are due later, so these are preempted
// first. While an interactive request with a TTFT target waits, or will miss it, no background request starts beside
// it, for up to Config.BackgroundEvery, and its step is not filled with background prompts. Under meridian, background
// answers yield their rows to an ITL target (policy_meridian.go). A strict request (Spec.Strict) is rejected at once,
// with the prediction, unless all of its targets will be met and the promises given before hold beside it. promise.go
// has the rules; stock and meridian_static serve first come, first served.
//
// # Time
//
// A cost model (package cost) learns from each EvStep how long a Decode takes. It runs under every policy, its state
// can be saved (Scheduler.Cost, Config.Cost), and the plan has its prediction. meridian sizes a step by it: see
// policy_meridian.go. EvThreads tells of another number of compute threads, for which the model keeps other
// coefficients: they need not be learned again. Every product is rounded before it is added (mul), so that a trace
// replays to the same plans on every architecture.
//
// # Other engines
//
// Engines that share a device compute one after the other (package arbiter). Outlook tells the others when this
// engine's answers are due and how long a step of them takes; EvLimit tells this one how long its next batch may take
// for theirs. Prompts and thinking rows obey it as they obey the ITL target of answers of the same engine, under every
// policy but `stock` and `meridian_static`, which have no time bounds.
//
// # Why
//
// Each decision has a Reason. Scheduler.Decisions returns the newest ones about a request, for some time after its end
// too; Scheduler.Finished lists requests that ended lately.
//
// # Adding a policy
//
// Write policy_NAME.go with a type that implements policy: where requests queue (lane), what a batch consists of
// (fill, through a batcher, which keeps limits and rows right), what is learned from a step (observe). A policy with
// a target in milliseconds builds on predictive. Its comment says what it optimises, what it gives up, when not to
// use it, and its bounds. Add its name to policyNames and newPolicy. The random workloads of the tests run every
// policy; write its bounds into engine.bounds, and its behaviour as scripts in testdata (go test ./sched -rewrite
// prints the plans).
//
// # Where things are
//
//	scheduler.go     Step: the order of its decisions
//	spec.go          what a request asks, slo/ its targets; events.go the events, event.go what each of them changes
//	queue/           which waiting request is next and which is rejected: fairness, shares and deadlines
//	share.go         which running request is preempted for a user's share
//	admit.go         which request starts, and which one is preempted when cells run out
//	promise.go       targets, strict requests, background requests beside targets, the pace of prompts
//	forecast/        when an arrival would give its first token, and which promise would be broken
//	policy_NAME.go   a policy: which tokens are in the next batch
//	target.go        the deadline of a step, which rows, chunks and guesses keep
//	prompts.go       how many prompt tokens a step computes, beside answers and alone
//	together.go      when prompts that arrived together wait for each other's first token
//	guess/           how many guessed tokens a step computes; speculate.go tells it of the step
//	cost/            how long a step takes, also after a change of the number of threads
//	tuning.go        the numbers of all these rules
//	mix.go           how many passes a step with several mixes of adapters takes
//	price/           whether stored cells are restored or computed, evicted ones copied or discarded
//	outlook.go       what other engines on the device hear
//	reason/          the words for why
//	trace/           recordings: their lines follow from the tags of Spec, Config and the events
//	threads/         how many compute threads a step uses
package sched
