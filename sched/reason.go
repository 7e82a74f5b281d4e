package sched

// Reason says why a decision was made. String returns a metric label, Explain what `uma-cli why` prints. Every slice,
// release, rejection and wait has exactly one.
type Reason uint8

// ReasonNone is no decision.
const ReasonNone Reason = iota

// Why a slice of the batch has its size.
const (
	ReasonDecode Reason = iota + 1 // one token for a running answer
	// one token; more answers run than the batch has rows, so they take turns
	ReasonDecodeTurn
	ReasonPrefillRest          // all that was left of the history
	ReasonPrefillTick          // cut by the step's token budget
	ReasonPrefillBatch         // cut by Config.MaxBatch
	ReasonPrefillCells         // cut by the cells that are free
	ReasonPrefillRows          // cut by the rows of prompts that a step computes (Spec.PromptRows)
	ReasonPrefillFloor         // the smallest chunk, although an answer is late: prompts were held as long as allowed
	ReasonPrefillTarget        // cut so that the predicted step meets the ITL target
	ReasonPrefillExtrapolation // cut because the cost model has not measured larger chunks
	ReasonThink                // one token for a thinking request
	ReasonThinkFloor           // the same, because it had waited Config.ThinkFloor
	ReasonProbe                // the rows of a fork (EvToken.Probe)
	ReasonPrefillWhole         // all of a prompt that cannot be cut, although the step has less room
	ReasonPrefillEmbed         // cut by Config.EveryRows
)

// What else is in a request's log, and counted: nothing was computed for it.
const (
	ReasonArrived      Reason = iota + 16 // it arrived
	ReasonStarted                         // it was given a sequence
	ReasonThinkHeld                       // answers would have come too late with its row
	ReasonPrefillHeld                     // an answer would have come too late even with its smallest chunk
	ReasonProbeSkipped                    // the requested fork had no room, or others went first
)

// Why a step is not larger (Plan.Reason).
const (
	ReasonIdle   Reason = iota + 22 // nothing can run
	ReasonServed                    // everything that can run got all it can use
	ReasonBudget                    // the token budget is spent
	ReasonBatch                     // Config.MaxBatch is reached
	ReasonGuard                     // an interactive answer is late: prompts are held
	ReasonCells                     // too few KV cells are free
	ReasonTarget                    // a larger step would miss the ITL target
	ReasonAgain                     // the caller is asked first (Plan.Again)
)

// What other engines on the device do to a step (EvLimit).
const (
	ReasonPrefillOthers Reason = iota + 30 // a chunk is cut so that their answers are in time
	ReasonOthers                           // Plan.Reason: a larger step would delay their answers
)

// What became of the tokens that the caller could guess for a request (EvToken.Offer).
const (
	ReasonDraft         Reason = iota + 32 // rows for some of them are in the step
	ReasonDraftNone                        // the caller has no guess
	ReasonDraftUnlikely                    // they come true too rarely for the time that their rows take
	ReasonDraftTarget                      // their rows would miss the ITL target
	ReasonDraftPrompts                     // prompts need the time
	ReasonDraftRoom                        // the batch or the KV cells have no room
	ReasonDraftTrial                       // a few rows although they seem not to pay, to measure what they cost
)

// ReasonPrefillLate: a step with a chunk of the prompt was given up (Plan.Bound).
const ReasonPrefillLate Reason = 48

// ReasonPrefillSeal: a chunk ends where the caller keeps what is computed (EvStarted.Stops).
const ReasonPrefillSeal Reason = 49

// ReasonPrefillImage: a chunk ends before or behind an image whose rows see each other (Spec.Blocks).
const ReasonPrefillImage Reason = 55

// ReasonPrefillClass: a chunk is cut by ClassLimits.StepTokens.
const ReasonPrefillClass Reason = 56

// ReasonPrefillTogether: the last token of a prompt waits for other prompts (together.go).
const ReasonPrefillTogether Reason = 39

// What the draft model does for a request (EvToken.Draft).
const (
	ReasonDraftModel   Reason = iota + 50 // rows for its guesses are in the step
	ReasonDraftCatchUp                    // it computes tokens of the history that it lacks
	// it lacks tokens of the history, and computing them takes longer than its drafts would have saved so far
	ReasonDraftBehind
	ReasonDraftModelTrial // a few guesses although they seem not to pay, to learn how often they come true
)

// ReasonDraftState: with Config.Rereads, others are in the step, or tokens behind a wrong guess are computed again.
const ReasonDraftState Reason = 54

// Why the head of a queue waits (Plan.Waiting).
const (
	ReasonWaitSequence   Reason = iota + 40 // every sequence is taken
	ReasonWaitCells                         // too few KV cells are free
	ReasonWaitClass                         // its class runs as many as it may
	ReasonWaitPaused                        // its client does not read
	ReasonWaitTurn                          // others go first
	ReasonJoining                           // another request is computing a prefix that it needs
	ReasonRestoring                         // a prefix that it needs is being restored from RAM, disk or fabric
	ReasonWaitEndangered                    // it is background work, and an interactive answer would miss its target
)

// Why a request was rejected.
const (
	ReasonQueueFull      Reason = iota + 60 // Config.MaxQueue
	ReasonClassQueueFull                    // ClassLimits.MaxQueue
	ReasonPromptTooLong                     // it can never fit
	ReasonDraining                          // the server is stopping
	ReasonTTFT                              // Spec.Strict, and it would miss its TTFT target
	// it waited, and its user had the most waiting requests when the queue was full
	ReasonDisplaced
	ReasonMissesITL  // Spec.Strict, and its tokens would miss its ITL target
	ReasonMissesTTOT // Spec.Strict, and its answer's first token would miss its TTOT target
)

// Why a running request was preempted.
const (
	ReasonPreemptCells  Reason = iota + 80 // a request before it in rank needed cells
	ReasonPreemptFull                      // the engine had no free cell although the ledger had
	ReasonPreemptPaused                    // its client did not read and others waited
	ReasonPreemptYield                     // a background request made way for an interactive one
	ReasonPreemptShare                     // its user ran more than its share and another user's request waited
)

// Why a request is finalised. The first three come from the caller in EvFinish.
const (
	ReasonStop      Reason = iota + 100 // an end of generation or a stop string
	ReasonLength                        // its limit, or the end of the context
	ReasonFailed                        // the decode failed, or the caller could not go on
	ReasonCancelled                     // the client cancelled or disconnected
	ReasonKVFull                        // no other request ran, and the engine had no free cell
	ReasonEmbedded                      // all of its prompt is computed, and no more was asked for
	numReasons
)

var reasonText = [numReasons]struct{ label, explain string }{
	ReasonNone: {"none", "No decision was made."},

	ReasonDecode:       {"decode", "A running answer gets one token per step."},
	ReasonDecodeTurn:   {"decode_turn", "More answers run than a batch has rows (--batch-size), so they take turns."},
	ReasonPrefillRest:  {"prefill_rest", "The rest of the prompt fitted into this step."},
	ReasonPrefillTick:  {"prefill_tick", "The prompt chunk was cut to keep the step within its time budget."},
	ReasonPrefillBatch: {"prefill_batch", "The prompt chunk filled the batch (--batch-size)."},
	ReasonPrefillRows: {"prefill_rows", "The prompt chunk was cut because the request wants the log-probabilities " +
		"of its prompt: a step computes few such rows."},
	ReasonPrefillCells: {"prefill_cells", "The prompt chunk was cut because few KV cells are free."},
	ReasonPrefillFloor: {"prefill_floor", "An answer is late, but the prompt had waited as long as allowed: it got " +
		"the smallest chunk."},

	ReasonPrefillTarget: {"prefill_target", "The prompt chunk was cut to keep the predicted step within the " +
		"ITL target of running answers (--itl-target-ms)."},
	ReasonPrefillExtrapolation: {"prefill_extrapolation", "The prompt chunk was kept small because the cost model " +
		"has not yet measured larger ones on this machine."},
	ReasonThink: {"think", "A thinking request got one token."},
	ReasonThinkFloor: {"think_floor", "A thinking request got one token because it had waited as long as allowed " +
		"(--think-floor-ms)."},
	ReasonProbe: {"probe", "An EAT probe was computed: a fork that shows whether the answer has converged."},
	ReasonPrefillOthers: {"prefill_others", "The prompt chunk was cut so that answers of other models on the device " +
		"meet their ITL target."},
	ReasonPrefillTogether: {"prefill_together", "The last token of the prompt waited for the other prompts that " +
		"arrived with it: the answers begin in one step, because each of them would slow the prompts down."},
	ReasonPrefillWhole: {"prefill_whole", "The whole text was computed in one step, because the model reads it in " +
		"both directions."},
	ReasonPrefillImage: {"prefill_image", "The prompt chunk ended at an image: the model computes the rows of an " +
		"image in one step."},
	ReasonPrefillSeal: {"prefill_seal", "The prompt chunk ended where the prefix is kept for later prompts: this " +
		"model's memory can be shared only where a step has ended."},
	ReasonPrefillClass: {"prefill_class", "The prompt chunk was cut to what a step may compute of prompts of its " +
		"priority class (--limits)."},
	ReasonPrefillEmbed: {"prefill_embed", "The chunk was cut to the rows that a step can keep for embeddings."},

	ReasonArrived:   {"arrived", "The request arrived."},
	ReasonStarted:   {"started", "The request started: it got a sequence."},
	ReasonThinkHeld: {"think_held", "Its thinking token was skipped to protect the ITL target."},
	ReasonPrefillHeld: {"prefill_held", "Its prompt was skipped in this step to protect the ITL target of a running " +
		"answer."},
	ReasonProbeSkipped: {"probe_skipped", "Its EAT probe was skipped: the step had no room, or probes of other " +
		"requests had waited longer."},

	ReasonIdle:   {"idle", "There was nothing to compute."},
	ReasonServed: {"served", "Every runnable request got all the tokens it could use."},
	ReasonBudget: {"budget", "The step's token budget was spent."},
	ReasonBatch:  {"batch", "The batch was full (--batch-size)."},
	ReasonGuard:  {"guard", "An interactive answer is late, so this step computes no prompt."},
	ReasonCells:  {"cells", "Too few KV cells were free to compute more."},

	ReasonTarget: {"target", "A larger step would exceed the ITL target of running answers (--itl-target-ms)."},
	ReasonOthers: {"others", "A larger step would exceed the ITL target of answers of other models on the device."},
	ReasonAgain: {"again", "The batch is planned after cached prefixes are looked up or preempted requests have " +
		"released their cells."},

	ReasonDraft: {"draft", "Rows of drafted tokens were computed with its next token."},
	ReasonDraftNone: {"draft_none", "No tokens were drafted, because the newest ones do not occur earlier in its " +
		"text or in a cached text of its user."},
	ReasonDraftUnlikely: {"draft_unlikely", "Its drafted tokens were not computed, because they are accepted too " +
		"rarely for the time that their rows take."},
	ReasonDraftTarget: {"draft_target", "Its drafted tokens were not computed, because their rows would exceed the " +
		"ITL target of running answers (--itl-target-ms)."},
	ReasonDraftPrompts: {"draft_prompts", "Its drafted tokens were not computed, because prompts need the time."},
	ReasonDraftRoom: {"draft_room", "Its drafted tokens were not computed, because the batch or the KV cache has no " +
		"room for their rows."},
	ReasonDraftTrial: {"draft_trial", "A few drafted tokens were computed to measure what their rows cost."},

	ReasonPrefillLate: {"prefill_late", "A step with a chunk of its prompt was given up, because something slowed it " +
		"down and running answers would have missed their ITL target (--itl-target-ms); the chunk is computed again."},

	ReasonDraftModel: {"draft_model", "The draft model or the head drafted tokens, and their rows were computed with " +
		"its next token."},
	ReasonDraftCatchUp: {"draft_catch_up", "The draft model or the head computed tokens of its text, so that it can " +
		"draft the next ones."},
	ReasonDraftBehind: {"draft_behind", "The draft model or the head drafted no tokens: it does not know the " +
		"request's text yet, and to compute it would take longer than its drafts would have saved so far."},
	ReasonDraftModelTrial: {"draft_model_trial", "The draft model or the head drafted a few tokens to learn how " +
		"often they are accepted."},

	ReasonDraftState: {"draft_state", "Its drafted tokens were not computed: this model keeps a state that cannot " +
		"give up a rejected one, so drafts are for a request that is alone in its step, and not for the step after a " +
		"rejected draft, which computes the accepted tokens again."},

	ReasonWaitSequence: {"wait_sequence", "It waits because the maximum number of requests runs (--parallel)."},
	ReasonWaitCells: {"wait_cells", "It waits because the KV cache has too few free cells for its prompt " +
		"(--ctx-size)."},
	ReasonWaitClass: {"wait_class", "It waits because the maximum number of requests of its priority class runs " +
		"(--max-background)."},
	ReasonWaitPaused: {"wait_paused", "It waits because its client does not read."},
	ReasonWaitTurn:   {"wait_turn", "It waits because other requests go first."},
	ReasonJoining:    {"joining", "It waits because another request is computing a prefix of its prompt."},
	ReasonRestoring: {"restoring", "It waits because a prefix of its prompt is being restored from memory, disk or " +
		"fabric."},

	ReasonWaitEndangered: {"wait_endangered",
		"It waits because it is a background request, and an interactive one would " +
			"miss its target beside it."},

	ReasonQueueFull: {"queue_full", "It was rejected because the queue is full (--max-queue)."},
	ReasonClassQueueFull: {"class_queue_full",
		"It was rejected because the queue of its priority class is full (--limits)."},
	ReasonPromptTooLong: {"prompt_too_long", "It was rejected because its prompt does not fit into the context."},
	ReasonDraining:      {"draining", "It was rejected because the server is shutting down."},
	ReasonTTFT: {"ttft", "It was rejected because its first token would miss its TTFT target, and it asked " +
		"for a strict target."},
	ReasonMissesITL: {"itl",
		"It was rejected because its tokens would miss its ITL target, and it asked for a strict " +
			"target."},
	ReasonMissesTTOT: {"ttot",
		"It was rejected because the first token of its answer would miss its TTOT target, and " +
			"it asked for a strict target."},
	ReasonDisplaced: {"displaced", "It was rejected to make room for a request of another user: the queue is full " +
		"(--max-queue), and its user had the most requests waiting."},

	ReasonPreemptCells: {"preempt_cells", "It was preempted because a request ranked before it needed KV cells; it " +
		"resumes from the cells still cached."},
	ReasonPreemptFull: {"preempt_kv_full", "It was preempted because the engine's KV cache was full; it resumes " +
		"from the cells still cached."},
	ReasonPreemptPaused: {"preempt_paused", "It was preempted because its client does not read and other requests " +
		"wait; it resumes from the cells still cached."},
	ReasonPreemptYield: {"preempt_yield", "It was preempted because it is a background request and an interactive " +
		"request waited; it resumes from the cells still cached."},
	ReasonPreemptShare: {"preempt_share", "It was preempted because its user had more than its share of the " +
		"sequences and a request of another user waited; it resumes from the cells still cached."},

	ReasonStop:      {"stop", "It ended with an end-of-generation token or a stop string."},
	ReasonLength:    {"length", "It ended because it reached its token limit or the end of the context."},
	ReasonFailed:    {"failed", "It failed because the decode step failed."},
	ReasonCancelled: {"cancelled", "It ended because its client cancelled it or disconnected."},

	ReasonKVFull: {"kv_full", "It failed because the KV cache had no free cell although no other request was running."},

	ReasonEmbedded: {"embedded", "It ended because the embedding of its text was complete."},
}

// String returns the metric label: short, snake_case, stable.
func (r Reason) String() string {
	if r < numReasons && reasonText[r].label != "" {
		return reasonText[r].label
	}
	return "unknown"
}

// Explain returns one English sentence, for `uma-cli why`.
func (r Reason) Explain() string {
	if r < numReasons && reasonText[r].explain != "" {
		return reasonText[r].explain
	}
	return "The reason is unknown."
}

// Final reports whether r finalises a request that was accepted.
func (r Reason) Final() bool { return r >= ReasonStop && r < numReasons }

// parseReason is the inverse of String.
func parseReason(s string) (Reason, bool) {
	for r := range numReasons {
		if l := reasonText[r].label; l != "" && l == s {
			return r, true
		}
	}
	return ReasonNone, false
}
