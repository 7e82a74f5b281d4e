package metrics

// Metrics of speculation: tokens that were guessed and computed before they were sampled.

// Sources of guesses, in package spec's order, and the decisions about them by the scheduler's reasons.
var (
	guessPhases  = []string{"output", "think"}
	guessSources = []string{"own", "other", "draft-model", "head"}
	guessLabels  = product(guessPhases, guessSources)
	guessReasons = [...]string{"draft", "draft_none", "draft_unlikely", "draft_target", "draft_prompts", "draft_room",
		"draft_trial", "draft_model", "draft_catch_up", "draft_behind", "draft_model_trial", "draft_state"}
)

// GuessReasons returns the reasons of Scheduler.Guessing, in its order.
func GuessReasons() []string { return guessReasons[:] }

// Guessed counts the guesses of one request in a step: drafted were computed, accepted of them came true.
func (m *Metrics) Guessed(thinking bool, source, drafted, accepted int) {
	i := source
	if thinking {
		i += len(guessSources)
	}
	m.drafts.Add(1)
	m.drafted[i].Add(uint64(drafted))
	m.accepted[i].Add(uint64(accepted))
}

// declareSpeculation lists what guessing tokens costs and saves.
func (m *Metrics) declareSpeculation(step, sched string) {
	per := func(c []Counter) func(int) float64 { return func(i int) float64 { return float64(c[i].Value()) } }
	m.vector("drafted_tokens_total", "uma_speculation_drafted_tokens_total", "phase,source", counter, "tokens",
		"Drafted tokens that were computed before they were sampled, by phase and source: own (the request's text), "+
			"other (another text of its user), draft-model (--draft-model), head (the head of the model's "+
			"file, or of a separate one)", step, guessLabels, per(m.drafted[:]))
	m.vector("accepted_tokens_total", "uma_speculation_accepted_tokens_total", "phase,source", counter, "tokens",
		"Of drafted_tokens_total: accepted, so that each saved a step", step, guessLabels, per(m.accepted[:]))
	m.vector("speculation_decisions_total", "uma_speculation_decisions_total", "reason", counter, "decisions",
		"Decisions about the drafted tokens of a request in a step, by reason: draft (rows were computed), "+
			"draft_none (nothing to draft), draft_unlikely (not worth the rows), draft_target (the ITL target leaves "+
			"no time), draft_prompts (prompts need the time), draft_room (no cells or rows), draft_trial (rows to "+
			"measure their cost), draft_model (the draft model's or the head's were computed), draft_catch_up (it "+
			"computed text that it lacked), draft_behind (it lacks text, and to compute it does not pay yet), "+
			"draft_model_trial (a few of its drafts, to learn how often they are accepted), draft_state (the model "+
			"keeps a state, and others are in the step or accepted tokens are computed again)", sched,
		guessReasons[:], per(m.guessing[:]))
}
