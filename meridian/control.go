package meridian

import "github.com/uma-serve/uma-serve/runtime"

// Reason is why a block was closed by force.
type Reason uint8

const (
	NoReason     Reason = iota
	Converged           // EAT is steady and low: the answer is settled
	Stalled             // EAT is steady and high: more thinking does not settle it
	Overthinking        // RPDI: the path deviates
	HardCap             // the budget is used up
	SoftCap             // past the soft budget, and the model itself was about to close
	User                // a client said end_think
)

var reasonNames = [...]string{"", "converged", "stalled", "overthinking", "hard_cap", "soft_cap", "user"}

// String is the reason as metrics and traces spell it.
func (r Reason) String() string { return reasonNames[r] }

// Ended is how a request's thinking ended, as its eos says.
type Ended uint8

const (
	NeverThought Ended = iota
	EndedConverged
	EndedStalled
	EndedOverthinking
	EndedHardCap
	EndedSoftCap
	EndedUser
	EndedNatural // the model closed the block itself
	EndedEOG     // the generation ended inside the block
	EndedLength  // max_tokens (or a cancel) came inside the block
)

var endedNames = [...]string{"", "converged", "stalled", "overthinking", "hard_cap", "soft_cap", "user", "natural", "eog", "length"}

// String is "" for a request that never thought.
func (e Ended) String() string { return endedNames[e] }

// Force is the last forced close of a request, for the log: what was known when it was decided and how long it
// took to arrive. Times are nanoseconds of the caller's clock.
type Force struct {
	Reason    Reason
	Tokens    int // think tokens when it was decided
	Probes    int
	X         float64 // last probe, nats
	Mean, Var float64 // EAT's, nats and nats²
	Index     float64 // RPDI or indicator, as configured
	DecidedAt int64   // when the reason held
	ForcedAt  int64   // when the first forced token was due: the wait for a boundary is over
	ClosedAt  int64   // when the close was seen; 0 = not yet
	Reemitted int     // how often it had to be forced again because it did not arrive
}

// Step is what a token meant.
type Step struct {
	Event  Event
	Reason Reason // with Force
	// Think and Answer are the bytes that became certain with this token: thinking and visible text, without tags. They
	// may be parts of UTF-8 characters. Valid until the next call; not to be written.
	Think, Answer []byte
}

// Summary is the "think" object of a request's eos.
type Summary struct {
	Tokens  int   // think tokens of the turn, without tags
	Ns      int64 // from the opening to the closing tag, over all blocks
	Ended   Ended
	Probes  int // EAT probes taken
	Dropped int // rows and probes whose entropy was not finite
	Blocks  int // blocks opened
}

// Control follows one request: router, signals and forcing. See the package comment for the order of calls.
type Control struct {
	Router
	touched int64
}

// NewControl starts a request whose rendered prompt is given. cfg and tags are shared, must be valid and outlive it.
func NewControl(cfg *Config, tags *Tags, opt Options, prompt []runtime.Token) *Control {
	return &Control{Router: NewRouter(tags, cfg.MaxThinkBlocks, prompt)}
}

// NeedStats reports whether the next row's statistics are wanted: the request thinks, something uses them, and
// the next token is not forced anyway.
func (c *Control) NeedStats() bool { return false }

// Observe takes the statistics of the row the next token is drawn from, before it is drawn.
func (c *Control) Observe(st *runtime.RowStats) {}

// StatsMissing says that a wanted row could not be had. From then on the request is only counted (CountOnly).
func (c *Control) StatsMissing() {}

// CountOnly reports whether the request fell back to counting although it asked for signals.
func (c *Control) CountOnly() bool { return false }

// Next is the token that must come now, whatever the row says; false: sample one, then ask Admit.
func (c *Control) Next(now int64) (runtime.Token, bool) { return runtime.NoToken, false }

// Admit is asked about a sampled token before it is accepted. It gives it back, or, where it would carry a budget past
// its end inside a character, the token that must come instead (forced true).
func (c *Control) Admit(tok runtime.Token, piece []byte, now int64) (_ runtime.Token, forced bool) {
	return tok, false
}

// OnToken follows one token, sampled or forced.
func (c *Control) OnToken(tok runtime.Token, piece []byte, eog bool, now int64) Step {
	return c.Router.OnToken(tok, piece, eog, false)
}

// ProbeDue reports, after OnToken, that EAT wants a probe here, and the fork's tokens: the token just followed, the
// close tag, line breaks and cue. The slice is the Control's and valid until the next ProbeDue. The loop forks
// the sequence before that token, decodes the fork with the next batch and calls OnProbe with the entropy of the
// last row, before Next. Nothing is lost if it does not: the next boundary asks again.
func (c *Control) ProbeDue() (tokens []runtime.Token, ok bool) { return nil, false }

// OnProbe takes a probe's entropy, nats.
func (c *Control) OnProbe(entropy float64) {}

// ProbeFailed says that a probe could not be decoded. After three in a row the request is only counted.
func (c *Control) ProbeFailed() {}

// EndThink closes the block because a client asked. False: the request does not think (any more). Before the first
// token it holds for the block to come.
func (c *Control) EndThink(now int64) bool { return false }

// Force is the last forced close. Reason NoReason: there was none.
func (c *Control) Force() Force { return Force{} }

// Summary is how the thinking went, at the request's end.
func (c *Control) Summary(now int64) Summary { return Summary{} }
