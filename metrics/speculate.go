package metrics

// Metrics of speculation: tokens that were guessed and computed before they were sampled.

// Sources of guesses, in package spec's order, and the decisions about them by the scheduler's reasons.
var (
	guessPhases  = []string{"output", "think"}
	guessSources = []string{"own", "other", "draft-model"}
	guessLabels  = product(guessPhases, guessSources)
	guessReasons = [...]string{"guess", "guess_none", "guess_unlikely", "guess_target", "guess_prompts", "guess_room",
		"guess_trial", "guess_draft", "guess_catch_up", "guess_behind", "guess_draft_trial"}
)

// GuessReasons are the reasons of Scheduler.Guessing, in its order.
func GuessReasons() []string { return guessReasons[:] }

// Guessed counts the guesses of one request in a step: drafted were computed, accepted of them came true.
func (m *Metrics) Guessed(thinking bool, source, drafted, accepted int) {
	i := source
	if thinking {
		i += len(guessSources)
	}
	m.drafted[i].Add(uint64(drafted))
	m.accepted[i].Add(uint64(accepted))
}

// declareSpeculation lists what guessing tokens costs and saves.
func (m *Metrics) declareSpeculation(step, sched string) {
	per := func(c []Counter) func(int) float64 { return func(i int) float64 { return float64(c[i].Value()) } }
	m.vector("drafted_tokens_total", "uma_speculation_drafted_tokens_total", "phase,source", counter, "tokens",
		"Guessed tokens that were computed before they were sampled, by phase and source: own (the request's text), "+
			"other (another text of its user), draft-model (--draft-model)", step, guessLabels, per(m.drafted[:]))
	m.vector("accepted_tokens_total", "uma_speculation_accepted_tokens_total", "phase,source", counter, "tokens",
		"Of drafted_tokens_total: came true, so that each saved a step", step, guessLabels, per(m.accepted[:]))
	m.vector("speculation_decisions_total", "uma_speculation_decisions_total", "reason", counter, "decisions",
		"Decisions about the guessed tokens of a request in a step, by reason: guess (rows were computed), "+
			"guess_none (nothing to guess), guess_unlikely (not worth the rows), guess_target (the ITL target leaves "+
			"no time), guess_prompts (prompts need the time), guess_room (no cells or rows), guess_trial (rows to "+
			"measure their cost), guess_draft (the draft model's were computed), guess_catch_up (it computed text "+
			"that it lacked), guess_behind (it lacks text, and to compute it does not pay yet), guess_draft_trial (a "+
			"few of its guesses, to learn how often they come true)", sched, guessReasons[:], per(m.guessing[:]))
}
