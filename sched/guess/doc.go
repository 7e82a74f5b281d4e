// Package guess decides how many guessed tokens a step computes.
//
// Something guesses what follows the history of a request: its text, or a draft model. A step may compute some of the
// guessed tokens beside the next one. Those that turn out to be what is sampled save a step each; the others have cost
// their rows. How many rows there are is decided in every step anew, by what they cost and how often they come true:
//
//  1. A guess is worth the chance that it and those before it come true, times what a token of its request is worth.
//  2. Its price is the time of its row by the cost model. Rows are added, the best first, as long as the next one
//     yields more per millisecond than the step with those before it.
//  3. The step stays within its limit, which follows from the ITL targets of its answers, in 95 of 100 cases.
//  4. Prompts that wait take the time instead.
//  5. With Config.Rereads a wrong guess makes its slice be computed again, together with the next token. Its rows are
//     priced with the rows that this is expected to take, and a request has guesses only alone in its step.
//  6. Chances are learned for each request, thinking apart from answering, and for each grade of guesses; a new
//     request begins with those of all requests. Guesses that are not computed are compared with what is sampled all
//     the same, so a request that has begun to repeat itself is noticed without a trial. Only the price of a row needs
//     trials, after trialFirst … trialEvery steps whose good guesses seem not to pay.
//
// # Draft models
//
// A draft model is a small model with the same vocabulary. It guesses the tokens that follow any history, one after the
// other, before Decode. It has a price that other guesses have not: a Decode for each guess in a row, and before the
// first one the tokens of the history that it has not computed (News.Lag). Both are predicted by a second cost model,
// learned from the draft model's steps.
//
//  7. A request's guesses are the draft model's where these yield more tokens per millisecond than those of its text,
//     and than none. One Decode of the draft model guesses a token for each of them (a round). Rounds are added as long
//     as the next one yields more per millisecond than the step without it.
//  8. A draft model that lacks more than the newest tokens of a history catches up once its guesses would have saved
//     as much time as that takes. Nothing is known of how long an answer will be; this way at most twice the time is
//     spent that would have been spent by the better of the two choices (rent or buy). Each time that it has caught up
//     and then made no guess doubles what the next time needs. It doubles the time of a step at most.
//  9. How often its guesses come true is seen only where it makes some, so a request's record of them fades in the
//     steps without. Where they seem not to pay it makes a few after trialFirst … draftTrialEvery steps, if their price
//     is at most draftTrialShare of the time of steps without. The price is what trials have taken, less what their
//     right guesses have saved: steps of another shape need a new graph, which no cost model predicts. A draft model
//     that does not fit costs half a percent of the time.
//
// # Heads
//
// A head (Config.States) is a draft model that reads the states of the model's rows. It knows a history from the first
// row on whose state the caller has kept, and keeping them has a price: the engine computes another graph, and builds
// one each time that this changes. So the caller keeps them only where Choose says so:
//
//  10. as long as guesses of the head would pay for a request of the batch, whether it has its states or not, and for
//     statesHold steps from then on;
//  11. in the draftNewest steps before a trial: so much the head computes with its first guess, and it has to know
//     something of the history for the trial to be worth anything.
//
// Steps without a token that could be guessed, which are those of prompts alone, change nothing.
//
// # Blocks
//
// A head may guess a block of tokens in one Decode (Config.DraftBlock). There is one round then:
//
//  12. a block costs what all its guesses cost the head, and is worth those of them that pay for their rows in the
//     batch. If it is made, its guesses are candidates as those of texts are. The further behind, the fewer come true:
//     chances are learned by place in the block.
package guess
