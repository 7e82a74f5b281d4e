package meridian

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
	Reason Reason // with ForceBudget
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
