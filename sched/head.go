package sched

// A head (Config.DraftStates) is a draft model that reads the states of the model's rows. It knows a history from the
// first row on whose state the caller has kept, and keeping them has a price: the engine computes another graph, and
// builds one each time that this changes. So the caller keeps them only where Plan.States says so:
//
//   - as long as guesses of the head would pay for a request of the batch, whether it has its states or not, and for
//     statesHold steps from then on;
//   - in the draftNewest steps before a trial: so much the head computes with its first guess, and it has to know
//     something of the history for the trial to be worth anything.
//
// Steps without a token that could be guessed, which are those of prompts alone, change nothing.

const (
	statesHold = 32
	headMost   = 4 // guesses by which a head is judged that has no states
	// trialDoubt is the share of the price of a trial for which there must be time when states are first kept for it.
	trialDoubt = 1.1
)

// chooseStates decides Plan.States.
func (s *Scheduler) chooseStates(b *batcher, p *guessStep) {
	d := &s.drafts
	if s.guesses.guessable > 0 {
		d.hold = max(0, d.hold-1)
	}
	pays, near := s.judgeHead(b, p)
	if pays {
		d.hold = statesHold
	}
	s.plan.States = s.cfg.AllGuesses || d.hold > 0 || d.trial.waits || near
}

// judgeHead reports whether guesses of the head would pay for a request of the batch, and whether one of its requests
// may have a trial within draftNewest steps: it is due by then, and there is time for it now.
func (s *Scheduler) judgeHead(b *batcher, p *guessStep) (pays, near bool) {
	d := &s.drafts
	if s.cfg.Rereads && len(s.plan.Batch) > 1 {
		return false, false // there are no guesses
	}
	due := d.since+draftNewest >= d.every
	for i := range s.plan.Batch {
		sl, r := &s.plan.Batch[i], s.batch[i]
		if r == nil || sl.Kind != SliceDecode || sl.Row < 0 || !r.guesses {
			continue
		}
		chance := s.sureChance(r, r.grade)
		c := guessRow{i: i, chance: chance, value: mul(r.worth(), chance)}
		_, _, yes := s.draftPays(b, p, &c, s.guesses.guessable, headMost)
		pays = pays || yes
		near = near || due && mul(trialDoubt, s.trialPrice(b, &c)) <= d.spare
	}
	return pays, near
}
