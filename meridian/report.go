package meridian

// Reason says why a block was closed by force.
type Reason uint8

const (
	NoReason     Reason = iota
	Converged           // EAT is steady and low: the answer is settled
	Stalled             // EAT is steady and high: more thinking does not settle the answer
	Overthinking        // RPDI: the path deviates
	HardCap             // the budget is used up
	SoftCap             // past the soft budget, and the close tag was among the most probable tokens
	User                // the client sent end_think
	EOG                 // the model ended its turn in the block, before the answer that Options.Bound says is owed
)

var reasonNames = [...]string{"", "converged", "stalled", "overthinking", "hard_cap", "soft_cap", "user", "eog"}

// String returns the reason's name in metrics and traces.
func (r Reason) String() string { return reasonNames[r] }

// Ended says how a request's thinking ended.
type Ended uint8

const (
	NeverThought Ended = iota
	EndedConverged
	EndedStalled
	EndedOverthinking
	EndedHardCap
	EndedSoftCap
	EndedUser
	EndedEOG     // the model ended its turn inside the block
	EndedNatural // the model closed the block
	EndedLength  // max_tokens or a cancel ended the generation inside the block
)

var endedNames = [...]string{"", "converged", "stalled", "overthinking", "hard_cap", "soft_cap", "user", "eog",
	"natural", "length"}

// String returns the name in the eos frame and in metrics; "" for a request that never thought.
func (e Ended) String() string { return endedNames[e] }

// Force describes a forced close, for the log: the signals when it was decided, and its times in nanoseconds of the
// caller's clock.
type Force struct {
	Reason    Reason
	Tokens    int // think tokens at the decision
	Probes    int
	X         float64 // last probe, nats
	Mean, Var float64 // EAT's, nats and nats²
	Index     float64 // RPDI or indicator, as configured
	DecidedAt int64   // time of the decision
	ForcedAt  int64   // time of the first forced token, after the wait for a boundary
	ClosedAt  int64   // time at which the block closed; 0 = not yet
	Reemitted int     // how often it was forced again because it did not arrive
}

// Step is the effect of one token.
type Step struct {
	Event  Event
	Reason Reason // with ForceBudget
	// Think and Answer are the bytes that this token releases: thinking and visible text, without tags. They may be
	// parts of UTF-8 characters. They are read-only and valid until the next call.
	Think, Answer []byte
	// Plain: Answer is text of a message to the user. It holds no calls where messages have recipients.
	Plain bool
	// Other: a message to a tool of the model's own began, which no request offers. Its text is left out.
	Other bool
}

// Summary is the "think" object of a request's eos frame.
type Summary struct {
	Tokens  int   // think tokens of the turn, without tags
	Ns      int64 // time from the opening to the closing tag, summed over all blocks
	Ended   Ended
	Probes  int // EAT probes taken
	Dropped int // rows and probes that were ignored because their entropy was not finite
	Blocks  int // blocks opened
	Signals Signals
}

// Signals has the measurements of the early-exit signals in a request's thinking, and the effect that each would have
// had.
type Signals struct {
	EAT, RPDI bool    // measured: by Options.EarlyExit or Config.WatchSignals
	Probes    int     // EAT probes
	X         float64 // of the newest probe, nats
	Mean, Var float64 // EAT's, nats and nats²
	Index     float64 // the newest of RPDI or the indicator, as configured

	// Think tokens at which a signal first asked for the end of the thinking; 0 = it never did. A signal that may act
	// ends the thinking there, so the others can have no later value.
	Converged, Stalled, Overthinking int
}

// First returns the signal that asked first for the end of the thinking, and at how many tokens; NoReason: none did.
func (s *Signals) First() (why Reason, tokens int) {
	for reason, at := range [...]int{Converged: s.Converged, Stalled: s.Stalled, Overthinking: s.Overthinking} {
		if at > 0 && (tokens == 0 || at < tokens) {
			why, tokens = Reason(reason), at
		}
	}
	return why, tokens
}
