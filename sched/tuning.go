package sched

import "time"

// The numbers that shape a step, each with its unit and the reason for it. docs/lab/scheduler.md varies those of
// meridian one by one in the simulator, and names those that it does not. The cost model's are in cost/cost.go, those
// of guesses in package guess, of shares in package queue, of threads in package threads.

// Defaults that stand where a Config field is 0.
const (
	DefaultTickBudget      = 30 * time.Millisecond
	DefaultGuard           = 100 * time.Millisecond // for command lines; Config.Guard 0 is off
	DefaultStartBudget     = 64                     // tokens
	DefaultFirstPrefill    = 4                      // tokens; for servers. Config.FirstPrefill 0 is StartBudget
	DefaultMinPrefill      = 4                      // tokens
	DefaultMaxHeld         = 3                      // steps
	DefaultDecodeReserve   = 32                     // cells
	DefaultBackgroundEvery = 5 * time.Second
	DefaultPauseGrace      = 2 * time.Second
	DefaultShareGrace      = time.Second // long enough that short answers end by themselves
	DefaultITLTarget       = 100 * time.Millisecond
	DefaultThinkFloor      = 250 * time.Millisecond
	DefaultThinkMultiplier = 2.5
	DefaultDraftCost       = 0.25 // of a step of the model
)

// Every policy.
const (
	// maxPromptRows is the number of logits rows of prompt tokens in a step. Each is as long as the vocabulary, and the
	// caller reads all of it between two steps.
	maxPromptRows = 16
	// maxForced is the longest slice of forced tokens: the others' tokens wait for it.
	maxForced = 16
	// turnEvery: in every so many steps with several prompts the least recently served one goes first.
	turnEvery = 8
	// soloTokens is the chunk of a prompt alone from which on larger ones gain nothing, one micro-batch of llama.cpp.
	// Measured, 2 threads, medians, ms a token: 135 M parameters in Q8_0: 64 tokens 1.34, 128 1.26, 192 1.20, 512 1.14;
	// 1.1 B in Q4_K_M: 16 11.9, 128 11.1, 512 10.6.
	soloTokens = 512
	// aloneGraces × Config.ShareGrace is the time that a user's only running request gets before it is preempted for a
	// share.
	aloneGraces = 8
	// backgroundWorth is the weight of a background request's token for package guess; that of an interactive request
	// is 1.
	backgroundWorth = 0.5
	// learnedSteps is the number of steps after which the cost model decides: before, rows of thinking requests follow
	// Config.ThinkMultiplier, no answer yields, no step is given up and no strict request is refused.
	learnedSteps = 8
	// turnoverWeight makes the mean of about the last 20 gaps between ends of requests: their sum is what a forecast
	// needs, not the newest. tickWeight and overheadWeight are those of a step's duration and of the time between two.
	turnoverWeight = 0.1
	tickWeight     = 0.2
	overheadWeight = 0.1
)

// Policy uma.
const (
	// A step may take so many times as long as one without prompts, whatever was configured, and an answer is late no
	// sooner. On a machine whose plain step takes 150 ms, a goal of 30 ms would slow prompts down and smooth nothing.
	goalSlack  = 1.5
	guardSlack = 2
	// aloneWeight is that of the newest step of answers alone in the mean of such steps.
	aloneWeight = 0.2
)

// Policy meridian; the numbers are those of its rules.
const (
	// thinkShare is the part of the time left under the target that thinking requests may take while prompts wait (2).
	thinkShare = 0.5

	// A step takes at most enoughSteps times what answers alone were measured to take, or enoughShare of the target if
	// that is more: a longer one gains prompts little, and arrivals wait for its end. A step that gives a prompt its
	// first token, or the smallest chunk, may take longer (3).
	enoughSteps = 6
	enoughShare = 0.7
	// floorSlack is the limit on a step with the smallest chunk of a held prompt, relative to the target. The chunk
	// shrinks to meet it, down to one token: behind a long context MinPrefill tokens alone can take twice the target
	// (3).
	floorSlack = 1.1
	// One step in lateEvery may be given up, which costs prompts 5 % of their time at most, lateMost of them in a row,
	// because disturbances seldom come alone. Where the machine has become slower, the next steps teach the cost model.
	// lateSlower is the slowdown assumed for the step of answers alone that follows one that was given up: the cause
	// often lasts (3).
	lateEvery  = 32
	lateMost   = 4
	lateSlower = 1.5

	// restSlack is the limit on a step that completes all prompts, relative to Config.SoloBudget: a few tokens left
	// over would wait beside answers (4).
	restSlack = 1.25

	// The first firstTokens tokens of an answer are waited for: prompts make way for them, in at most maxProtected
	// steps more than there were other steps since. A prompt whose own first token is at most urgentSteps away does
	// not (5).
	firstTokens  = 5
	maxProtected = 12
	urgentSteps  = 2

	// togetherShare is the share of a step that answers must leave to prompts for each to begin on its own,
	// togetherLeast the fewest prompts that wait for each other (6).
	togetherShare = 0.75
	togetherLeast = 4
	// togetherFor limits the wait of a prompt for others, with the time that all of them take by the cost model;
	// togetherSteps × Config.MaxRunning is the same in steps (6).
	togetherFor   = 2500 * time.Millisecond
	togetherSteps = 4

	// infeasibleSlack is the limit on a step, relative to answers alone, when even these miss the target: holding
	// prompts then would stop them and smooth nothing (7).
	infeasibleSlack = 1.5
	// infeasibleClear is the share of the target below which answers alone make it feasible again; below 1, so that
	// times around the target do not switch the state in every step (7).
	infeasibleClear = 0.9
)
