// Package reason has the words for why the scheduler decided as it did. Every slice of a batch, release, rejection and
// wait has one reason; so has a step that is not larger, and what became of a request's guesses. A reason has a label
// for metrics and traces and a sentence for people. Its number is in recordings: a new one takes a free number, and
// none changes its own.
//
// Comments name fields of package sched, which decides when a reason holds.
package reason

import "github.com/uma-serve/uma-serve/internal/words"

// Reason says why a decision was made. String returns a metric label, Explain what `uma-cli why` prints.
type Reason uint8

// None is no decision.
const None Reason = iota

// Why a slice of the batch has its size.
const (
	Decode Reason = iota + 1 // one token for a running answer
	// one token; more answers run than the batch has rows, so they take turns
	DecodeTurn
	PrefillRest          // all that was left of the history
	PrefillTick          // cut by the step's token budget
	PrefillBatch         // cut by Config.MaxBatch
	PrefillCells         // cut by the cells that are free
	PrefillRows          // cut by the rows of prompts that a step computes (Spec.PromptRows)
	PrefillFloor         // the smallest chunk, although an answer is late: prompts were held as long as allowed
	PrefillTarget        // cut so that the predicted step meets the ITL target
	PrefillExtrapolation // cut because the cost model has not measured larger chunks
	Think                // one token for a thinking request
	ThinkFloor           // the same, because it had waited Config.ThinkFloor
	Probe                // the rows of a fork (EvToken.Probe)
	PrefillWhole         // all of a prompt that cannot be cut, although the step has less room
	PrefillEmbed         // cut by Config.EveryRows
)

// What else is in a request's log, and counted: nothing was computed for it.
const (
	Arrived      Reason = iota + 16 // it arrived
	Started                         // it was given a sequence
	ThinkHeld                       // answers would have come too late with its row
	PrefillHeld                     // an answer would have come too late even with its smallest chunk
	ProbeSkipped                    // the requested fork had no room, or others went first
)

// Why a step is not larger (Plan.Reason).
const (
	Idle   Reason = iota + 22 // nothing can run
	Served                    // everything that can run got all it can use
	Budget                    // the token budget is spent
	Batch                     // Config.MaxBatch is reached
	Guard                     // an interactive answer is late: prompts are held
	Cells                     // too few KV cells are free
	Target                    // a larger step would miss the ITL target
	Again                     // the caller is asked first (Plan.Again)
)

// What other engines on the device do to a step (EvLimit).
const (
	PrefillOthers Reason = iota + 30 // a chunk is cut so that their answers are in time
	Others                           // Plan.Reason: a larger step would delay their answers
)

// What became of the tokens that the caller could guess for a request (EvToken.Offer).
const (
	Draft         Reason = iota + 32 // rows for some of them are in the step
	DraftNone                        // the caller has no guess
	DraftUnlikely                    // they come true too rarely for the time that their rows take
	DraftTarget                      // their rows would miss the ITL target
	DraftPrompts                     // prompts need the time
	DraftRoom                        // the batch or the KV cells have no room
	DraftTrial                       // a few rows although they seem not to pay, to measure what they cost
)

// PrefillLate: a step with a chunk of the prompt was given up (Plan.Bound).
const PrefillLate Reason = 48

// PrefillSeal: a chunk ends where the caller keeps the computed tokens (EvStarted.Stops).
const PrefillSeal Reason = 49

// PrefillImage: a chunk ends before or behind an image whose rows see each other (Spec.Blocks).
const PrefillImage Reason = 55

// PrefillClass: a chunk is cut by ClassLimits.StepTokens.
const PrefillClass Reason = 56

// PrefillTogether: the last token of a prompt waits for other prompts (together.go).
const PrefillTogether Reason = 39

// What the draft model does for a request (EvToken.Draft).
const (
	DraftModel   Reason = iota + 50 // rows for its guesses are in the step
	DraftCatchUp                    // it computes tokens of the history that it lacks
	// it lacks tokens of the history, and computing them takes longer than its drafts would have saved so far
	DraftBehind
	DraftModelTrial // a few guesses although they seem not to pay, to learn how often they come true
)

// DraftState: with Config.Rereads, others are in the step, or tokens behind a wrong guess are computed again.
const DraftState Reason = 54

// Why the head of a queue waits (Plan.Waiting).
const (
	WaitSequence   Reason = iota + 40 // every sequence is taken
	WaitCells                         // too few KV cells are free
	WaitClass                         // its class runs as many as it may
	WaitPaused                        // its client does not read
	WaitTurn                          // others go first
	Joining                           // another request is computing a prefix that it needs
	Restoring                         // a prefix that it needs is being restored from RAM, disk or fabric
	WaitEndangered                    // it is background work, and an interactive answer would miss its target
)

// Why a request was rejected.
const (
	QueueFull      Reason = iota + 60 // Config.MaxQueue
	ClassQueueFull                    // ClassLimits.MaxQueue
	PromptTooLong                     // it can never fit
	Draining                          // the server is stopping
	TTFT                              // Spec.Strict, and it would miss its TTFT target
	// it waited, and its user had the most waiting requests when the queue was full
	Displaced
	MissesITL  // Spec.Strict, and its tokens would miss its ITL target
	MissesTTOT // Spec.Strict, and its answer's first token would miss its TTOT target
)

// Why a running request was preempted.
const (
	PreemptCells  Reason = iota + 80 // a request before it in rank needed cells
	PreemptFull                      // the engine had no free cell although the ledger had
	PreemptPaused                    // its client did not read and others waited
	PreemptYield                     // a background request made way for an interactive one
	PreemptShare                     // its user ran more than its share and another user's request waited
)

// Why a request is finalised. The first three come from the caller in EvFinish.
const (
	Stop      Reason = iota + 100 // an end of generation or a stop string
	Length                        // its limit, or the end of the context
	Failed                        // the decode failed, or the caller could not go on
	Cancelled                     // the client cancelled or disconnected
	KVFull                        // no other request ran, and the engine had no free cell
	Embedded                      // all of its prompt is computed, and no more was asked for
	Count                         // of the numbers up to the highest one
)

var texts = [Count]struct{ label, explain string }{
	None: {"none", "No decision was made."},

	Decode:       {"decode", "A running answer gets one token per step."},
	DecodeTurn:   {"decode_turn", "More answers run than a batch has rows (--batch-size), so they take turns."},
	PrefillRest:  {"prefill_rest", "The rest of the prompt fitted into this step."},
	PrefillTick:  {"prefill_tick", "The prompt chunk was cut to keep the step within its time budget."},
	PrefillBatch: {"prefill_batch", "The prompt chunk filled the batch (--batch-size)."},
	PrefillRows: {"prefill_rows", "The prompt chunk was cut because the request wants the log-probabilities " +
		"of its prompt: a step computes few such rows."},
	PrefillCells: {"prefill_cells", "The prompt chunk was cut because few KV cells are free."},
	PrefillFloor: {"prefill_floor", "An answer is late, but the prompt had waited as long as allowed: it got " +
		"the smallest chunk."},

	PrefillTarget: {"prefill_target", "The prompt chunk was cut to keep the predicted step within the " +
		"ITL target of running answers (--itl-target-ms)."},
	PrefillExtrapolation: {"prefill_extrapolation", "The prompt chunk was kept small because the cost model " +
		"has not yet measured larger ones on this machine."},
	Think: {"think", "A thinking request got one token."},
	ThinkFloor: {"think_floor", "A thinking request got one token because it had waited as long as allowed " +
		"(--think-floor-ms)."},
	Probe: {"probe", "An EAT probe was computed: a fork that shows whether the answer has converged."},
	PrefillOthers: {"prefill_others", "The prompt chunk was cut so that answers of other models on the device " +
		"meet their ITL target."},
	PrefillTogether: {"prefill_together", "The last token of the prompt waited for the other prompts that " +
		"arrived with it: the answers begin in one step, because each of them would slow the prompts down."},
	PrefillWhole: {"prefill_whole", "The whole text was computed in one step, because the model reads it in " +
		"both directions."},
	PrefillImage: {"prefill_image", "The prompt chunk ended at an image: the model computes the rows of an " +
		"image in one step."},
	PrefillSeal: {"prefill_seal", "The prompt chunk ended where the prefix is kept for later prompts: this " +
		"model's memory can be shared only where a step has ended."},
	PrefillClass: {"prefill_class", "The prompt chunk was cut to what a step may compute of prompts of its " +
		"priority class (--limits)."},
	PrefillEmbed: {"prefill_embed", "The chunk was cut to the rows that a step can keep for embeddings."},

	Arrived:   {"arrived", "The request arrived."},
	Started:   {"started", "The request started: it got a sequence."},
	ThinkHeld: {"think_held", "Its thinking token was skipped to protect the ITL target."},
	PrefillHeld: {"prefill_held", "Its prompt was skipped in this step to protect the ITL target of a running " +
		"answer."},
	ProbeSkipped: {"probe_skipped", "Its EAT probe was skipped: the step had no room, or probes of other " +
		"requests had waited longer."},

	Idle:   {"idle", "There was nothing to compute."},
	Served: {"served", "Every runnable request got all the tokens it could use."},
	Budget: {"budget", "The step's token budget was spent."},
	Batch:  {"batch", "The batch was full (--batch-size)."},
	Guard:  {"guard", "An interactive answer is late, so this step computes no prompt."},
	Cells:  {"cells", "Too few KV cells were free to compute more."},

	Target: {"target", "A larger step would exceed the ITL target of running answers (--itl-target-ms)."},
	Others: {"others", "A larger step would exceed the ITL target of answers of other models on the device."},
	Again: {"again", "The batch is planned after cached prefixes are looked up or preempted requests have " +
		"released their cells."},

	Draft: {"draft", "Rows of drafted tokens were computed with its next token."},
	DraftNone: {"draft_none", "No tokens were drafted, because the newest ones do not occur earlier in its " +
		"text or in a cached text of its user."},
	DraftUnlikely: {"draft_unlikely", "Its drafted tokens were not computed, because they are accepted too " +
		"rarely for the time that their rows take."},
	DraftTarget: {"draft_target", "Its drafted tokens were not computed, because their rows would exceed the " +
		"ITL target of running answers (--itl-target-ms)."},
	DraftPrompts: {"draft_prompts", "Its drafted tokens were not computed, because prompts need the time."},
	DraftRoom: {"draft_room", "Its drafted tokens were not computed, because the batch or the KV cache has no " +
		"room for their rows."},
	DraftTrial: {"draft_trial", "A few drafted tokens were computed to measure what their rows cost."},

	PrefillLate: {"prefill_late", "A step with a chunk of its prompt was given up, because something slowed it " +
		"down and running answers would have missed their ITL target (--itl-target-ms); the chunk is computed again."},

	DraftModel: {"draft_model", "The draft model or the head drafted tokens, and their rows were computed with " +
		"its next token."},
	DraftCatchUp: {"draft_catch_up", "The draft model or the head computed tokens of its text, so that it can " +
		"draft the next ones."},
	DraftBehind: {"draft_behind", "The draft model or the head drafted no tokens: it does not know the " +
		"request's text yet, and to compute it would take longer than its drafts would have saved so far."},
	DraftModelTrial: {"draft_model_trial", "The draft model or the head drafted a few tokens to learn how " +
		"often they are accepted."},

	DraftState: {"draft_state", "Its drafted tokens were not computed: this model keeps a state that cannot " +
		"give up a rejected one, so drafts are for a request that is alone in its step, and not for the step after a " +
		"rejected draft, which computes the accepted tokens again."},

	WaitSequence: {"wait_sequence", "It waits because the maximum number of requests runs (--parallel)."},
	WaitCells: {"wait_cells", "It waits because the KV cache has too few free cells for its prompt " +
		"(--ctx-size)."},
	WaitClass: {"wait_class", "It waits because the maximum number of requests of its priority class runs " +
		"(--max-background)."},
	WaitPaused: {"wait_paused", "It waits because its client does not read."},
	WaitTurn:   {"wait_turn", "It waits because other requests go first."},
	Joining:    {"joining", "It waits because another request is computing a prefix of its prompt."},
	Restoring: {"restoring", "It waits because a prefix of its prompt is being restored from memory, disk or " +
		"fabric."},

	WaitEndangered: {"wait_endangered",
		"It waits because it is a background request, and an interactive one would " +
			"miss its target beside it."},

	QueueFull: {"queue_full", "It was rejected because the queue is full (--max-queue)."},
	ClassQueueFull: {"class_queue_full",
		"It was rejected because the queue of its priority class is full (--limits)."},
	PromptTooLong: {"prompt_too_long", "It was rejected because its prompt does not fit into the context."},
	Draining:      {"draining", "It was rejected because the server is shutting down."},
	TTFT: {"ttft", "It was rejected because its first token would miss its TTFT target, and it asked " +
		"for a strict target."},
	MissesITL: {"itl",
		"It was rejected because its tokens would miss its ITL target, and it asked for a strict " +
			"target."},
	MissesTTOT: {"ttot",
		"It was rejected because the first token of its answer would miss its TTOT target, and " +
			"it asked for a strict target."},
	Displaced: {"displaced", "It was rejected to make room for a request of another user: the queue is full " +
		"(--max-queue), and its user had the most requests waiting."},

	PreemptCells: {"preempt_cells", "It was preempted because a request ranked before it needed KV cells; it " +
		"resumes from the cells still cached."},
	PreemptFull: {"preempt_kv_full", "It was preempted because the engine's KV cache was full; it resumes " +
		"from the cells still cached."},
	PreemptPaused: {"preempt_paused", "It was preempted because its client does not read and other requests " +
		"wait; it resumes from the cells still cached."},
	PreemptYield: {"preempt_yield", "It was preempted because it is a background request and an interactive " +
		"request waited; it resumes from the cells still cached."},
	PreemptShare: {"preempt_share", "It was preempted because its user had more than its share of the " +
		"sequences and a request of another user waited; it resumes from the cells still cached."},

	Stop:      {"stop", "It ended with an end-of-generation token or a stop string."},
	Length:    {"length", "It ended because it reached its token limit or the end of the context."},
	Failed:    {"failed", "It failed because the decode step failed."},
	Cancelled: {"cancelled", "It ended because its client cancelled it or disconnected."},

	KVFull: {"kv_full", "It failed because the KV cache had no free cell although no other request was running."},

	Embedded: {"embedded", "It ended because the embedding of its text was complete."},
}

// String returns the metric label: short, snake_case, stable.
func (r Reason) String() string {
	if r < Count && texts[r].label != "" {
		return texts[r].label
	}
	return "unknown"
}

// Explain returns one English sentence, for `uma-cli why`.
func (r Reason) Explain() string {
	if r < Count && texts[r].explain != "" {
		return texts[r].explain
	}
	return "The reason is unknown."
}

// Final reports whether r finalises a request that was accepted.
func (r Reason) Final() bool { return r >= Stop && r < Count }

// Parse is the inverse of String.
func Parse(s string) (Reason, bool) {
	for r := range Count {
		if l := texts[r].label; l != "" && l == s {
			return r, true
		}
	}
	return None, false
}

// Defers reports whether r can defer a start.
func (r Reason) Defers() bool { return r == Joining || r == Restoring }

// AppendWord and SetWord are a reason's text in a trace.
func (r *Reason) AppendWord(dst []byte) []byte { return append(dst, r.String()...) }
func (r *Reason) SetWord(text string) error {
	known := false
	if *r, known = Parse(text); !known {
		return words.UnknownError(text)
	}
	return nil
}
