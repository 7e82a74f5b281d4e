package meridian

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/runtime"
)

// forcing is what a sequence of forced tokens is for.
type forcing uint8

const (
	nothing forcing = iota
	opening
	closing
	cueing
)

// probeFailures in a row after which a request is no longer probed.
const probeFailures = 3

// Control follows one request: router, signals and forcing. See the package comment for the order of calls.
type Control struct {
	Router
	cfg     *Config
	mode    Mode
	touched int64 // the last Next or OnToken, for Registry

	text textState     // of the current block
	last runtime.Token // the last token of thought

	// Budgets, in tokens of thought over all blocks.
	// Invariant: think ≤ stop ≤ budget, as long as the loop delivers what Next and Admit say.
	budget int
	soft   int
	search int // from here on a close for the budget's sake looks for a boundary
	stop   int // where the pending close must begin, boundary or not; budget while none is pending

	// The close that was decided and has not been seen yet.
	// Invariant: at most one, named by pending.Reason; it is counted once, however often it is forced again.
	pending Force
	undated bool // pending.DecidedAt is the next Next's
	atOnce  bool // it waits for no boundary
	emitted bool // Next has given its first token
	counted bool // and it arrived: ForceBudget was reported
	retryAt int  // it was delivered and did not close: force it again from this many tokens on
	asked   bool // a client said end_think before anything was thought

	// The tokens that come next whatever the rows say. Invariant: pos < len(seq) unless kind is nothing.
	kind     forcing
	seq      []runtime.Token
	pos      int
	begun    int             // how many tokens of the close sequence the model has just written itself
	cue      []runtime.Token // the close sequence, and what is forced after it
	done     Force           // the last forced close that arrived
	since    int64           // when the current block began
	timing   bool            // since is set
	ns       int64           // in the blocks before
	ended    Ended
	degraded bool
	dropped  int

	// EAT.
	probing   bool
	eat       EAT
	warmup    float64
	probe     []runtime.Token // the fork's tokens; [0] is the boundary token
	lastProbe int             // think tokens at the last one
	failed    int             // in a row

	// RPDI or the indicator.
	deviation bool
	rpdi      RPDI
	indicator Indicator
	above     int // boundaries in a row with the index above its threshold
}

// NewControl starts a request whose prompt ends as begin says. cfg and tags are shared, must be valid and outlive it;
// tags may be nil. It is the only call that allocates or tokenizes. Errors are the vocabulary's about the cue.
func NewControl(cfg *Config, tags *Tags, opt Options, begin Begin) (*Control, error) {
	c := &Control{
		Router: NewRouter(tags, cfg.MaxThinkBlocks, begin),
		cfg:    cfg, mode: opt.Mode, budget: cfg.MaxThinkTokens, soft: math.MaxInt,
	}
	if tags == nil {
		return c, nil
	}
	if opt.BudgetTokens >= 0 {
		c.budget = min(c.budget, opt.BudgetTokens)
	}
	if opt.Mode == ModeOff {
		c.budget = 0
	}
	c.stop = c.budget
	// A short budget is searched in its second half only: a cap of 20 should not close at the first full stop.
	c.search = c.budget - min(cfg.ForceGraceTokens, c.budget/2)
	soft := opt.SoftBudgetTokens
	if soft < 0 {
		soft = cfg.SoftThinkTokens
	}
	if !cfg.EntropyEnabled {
		return c, c.setCue(opt.AnswerCue)
	}
	if soft > 0 {
		c.soft = soft
	}
	c.probing = opt.EarlyExit == ExitEAT || opt.EarlyExit == ExitBoth
	c.deviation = opt.EarlyExit == ExitRPDI || opt.EarlyExit == ExitBoth
	if c.deviation && cfg.RPDIForm == RPDIEntropy {
		c.rpdi = NewRPDI(cfg.RPDIWindow)
	}
	if c.warmup = float64(cfg.EATWarmupProbes); c.warmup == 0 {
		c.warmup = 4 / cfg.EMAAlpha
	}
	return c, c.setCue(opt.AnswerCue)
}

// setCue prepares what follows the close tag in probes and, when the request names a cue, after a forced close.
func (c *Control) setCue(cue string) error {
	c.cue = c.tags.closeSeq
	if cue == "" && !c.probing {
		return nil
	}
	seq, err := c.tags.after(c.cfg.EATSuffix, cue)
	if err != nil {
		return fmt.Errorf("think.answer_cue: %w", err)
	}
	if cue != "" {
		c.cue = slices.Concat(c.cue, seq)
	}
	if c.probing {
		c.probe = append(append(make([]runtime.Token, 1, 1+len(c.tags.closeSeq)+len(seq)), c.tags.closeSeq...), seq...)
	}
	return nil
}

// NeedStats reports whether the next row's statistics are wanted: the request thinks, something uses them, and
// the next token is not decided anyway.
func (c *Control) NeedStats() bool {
	return c.phase == ThinkDecode && c.pending.Reason == NoReason && (c.deviation || c.think >= c.soft)
}

// Observe takes the statistics of the row the next token is drawn from, before it is drawn. Without NeedStats it
// does nothing.
func (c *Control) Observe(st *runtime.RowStats) {
	if !c.NeedStats() {
		return
	}
	if c.deviation {
		ok := st.Argmax != runtime.NoToken // else the row held no number at all
		switch {
		case !ok:
		case c.cfg.RPDIForm == RPDIEntropy:
			ok = c.rpdi.Add(st.Entropy)
		default:
			ok = c.indicator.Add(st.Entropy, c.cfg.TransitionEntropyThreshold, c.cfg.RPDIIndicatorAlpha)
		}
		if !ok {
			c.dropped++
		}
	}
	if c.think >= c.soft && st.CloseRank >= 0 && st.CloseRank < c.cfg.SoftCapTopN {
		c.decide(SoftCap)
		c.atOnce = true // the model is about to close just here
	}
}

// StatsMissing says that a wanted row could not be had. From then on what depends on rows is given up (CountOnly).
func (c *Control) StatsMissing() {
	c.degraded, c.deviation, c.soft = true, false, math.MaxInt
}

// CountOnly reports whether a signal the request asked for had to be given up, so that its budget decides instead.
func (c *Control) CountOnly() bool { return c.degraded }

// decide makes reason the pending one, unless there is one.
func (c *Control) decide(reason Reason) {
	if c.pending.Reason != NoReason {
		return
	}
	c.stop = min(c.budget, c.think+max(c.cfg.ForceGraceTokens, int(c.text.need)))
	c.undated = true
	c.pending = Force{
		Reason: reason, Tokens: c.think, Probes: c.eat.N, X: c.eat.X, Mean: c.eat.Mean, Var: c.eat.Var, Index: c.index(),
	}
}

// index is the configured path deviation, 0 when none is followed.
func (c *Control) index() float64 {
	switch {
	case !c.deviation:
		return 0
	case c.cfg.RPDIForm == RPDIEntropy:
		return c.rpdi.Index()
	}
	return c.indicator.Index()
}

// Next is the token that must come now, whatever the row says; false: sample one, then ask Admit.
func (c *Control) Next(now int64) (runtime.Token, bool) {
	c.touched = now
	switch {
	case c.kind != nothing:
		return c.seq[c.pos], true
	case c.phase == ThinkDecode:
		if !c.timing {
			c.timing, c.since = true, now
		}
		return c.close(now)
	case c.phase == Prefill && c.mode == ModeOn && c.tags.Known():
		c.kind, c.seq, c.pos = opening, c.tags.openSeq, 0
		return c.seq[0], true
	}
	return runtime.NoToken, false
}

// close is Next inside a block.
func (c *Control) close(now int64) (runtime.Token, bool) {
	if c.pending.Reason == NoReason {
		switch {
		case c.asked:
			c.decide(User)
			c.atOnce = true
		case c.think >= c.search:
			c.decide(HardCap)
		default:
			return runtime.NoToken, false
		}
	}
	if c.undated {
		c.undated, c.pending.DecidedAt = false, now
	}
	left, need := c.stop-c.think, int(c.text.need)
	switch {
	case c.think < c.retryAt:
	case left <= 0 && need == 0:
		return c.force(now), true
	case left <= 0:
		// Inside a character, which Admit only lets happen to a vocabulary without single bytes, or when a loop went on
		// past the cap. The cap is the promise.
		return c.force(now), true
	case need == 0 && len(c.held) == 0 && !c.header && (c.atOnce || c.text.boundary()):
		return c.force(now), true
	}
	return runtime.NoToken, false
}

// force begins the close and is its first token. What the model has written of the tag itself is not repeated.
func (c *Control) force(now int64) runtime.Token {
	c.kind, c.seq, c.pos = closing, c.tags.closeSeq, 0
	if len(c.held) > 0 || c.between || c.header {
		c.pos = c.begun
	}
	if c.emitted {
		c.pending.Reemitted++
	} else {
		c.emitted, c.pending.ForcedAt = true, now
	}
	return c.seq[c.pos]
}

// Admit is asked about a sampled token before it is accepted. It gives it back, or, where it would leave a character
// that cannot be completed within the budget, the token that must come instead (forced true).
func (c *Control) Admit(tok runtime.Token, piece []byte, eog bool, now int64) (_ runtime.Token, forced bool) {
	left := c.stop - c.think - 1
	if left >= utf8.UTFMax-1 || c.phase != ThinkDecode || eog || c.think < c.retryAt {
		return tok, false
	}
	after := c.text
	after.add(piece)
	if int(after.need) <= left || left < 0 {
		return tok, false
	}
	if c.text.need > 0 {
		if t := c.tags.finisher(c.text.lo); t != runtime.NoToken {
			return t, true
		}
		return tok, false
	}
	c.decide(HardCap)
	if c.undated {
		c.undated, c.pending.DecidedAt = false, now
	}
	return c.force(now), true
}

// OnToken follows one token, sampled or forced.
func (c *Control) OnToken(tok runtime.Token, piece []byte, eog bool, now int64) Step {
	if invariantsEnabled {
		defer c.check()
	}
	c.touched = now
	before := c.phase
	arrived := c.kind != nothing && tok == c.seq[c.pos]
	s := c.Router.OnToken(tok, piece, eog, arrived && c.kind != cueing)
	kind := c.kind
	if kind != nothing {
		if kind == closing && arrived && !c.counted {
			c.counted = true
			s.Event |= ForceBudget
			s.Reason = c.pending.Reason
		}
		if c.pos++; !arrived || c.pos == len(c.seq) {
			c.kind = nothing
		}
		if kind == closing && c.kind == nothing {
			c.atOnce = true // should it not have closed
			if arrived {
				c.retryAt = c.think + c.cfg.ForceRetryTokens
			}
		}
	}
	if s.Event == None && before == ThinkDecode && c.phase == ThinkDecode {
		c.follow(tok, piece)
		return s
	}
	if s.Event.Has(EnterThink) && before != ThinkDecode {
		c.enter(s.Think, now)
	}
	if s.Event.Has(ExitThink) {
		c.exit(kind == closing && arrived, now)
		if c.phase == ThinkDecode { // and a new block within the same token
			c.enter(nil, now)
		}
	}
	if s.Event.Has(Completed) && before == ThinkDecode {
		c.stopClock(now)
		c.ended = EndedEOG
	}
	if c.phase == ThinkDecode {
		c.last = tok
	}
	return s
}

// follow is OnToken for a token of thought.
func (c *Control) follow(tok runtime.Token, piece []byte) {
	c.last = tok
	if !c.header && !c.between {
		c.text.add(piece)
	}
	if seq := c.tags.closeSeq; len(seq) > 1 {
		switch {
		case c.begun < len(seq)-1 && tok == seq[c.begun]:
			c.begun++
		case tok == seq[0]:
			c.begun = 1
		default:
			c.begun = 0
		}
	}
	if !c.deviation || c.think < c.cfg.MinThinkTokens || !c.text.boundary() {
		return
	}
	limit := c.cfg.RPDIThreshold
	if c.cfg.RPDIForm == RPDIIndicator {
		limit = c.cfg.RPDIIndicatorThreshold
	}
	if c.index() <= limit {
		c.above = 0
		return
	}
	if c.above++; c.above >= c.cfg.RPDIBoundaries {
		c.decide(Overthinking)
	}
}

// enter begins a block, of which text is already known.
func (c *Control) enter(text []byte, now int64) {
	c.timing, c.since = true, now
	c.text = textState{}
	c.text.add(text)
	c.begun, c.above, c.lastProbe = 0, 0, c.think
}

// exit ends a block: by force, or by the model itself, in which case a pending force is dropped uncounted.
func (c *Control) exit(forced bool, now int64) {
	c.stopClock(now)
	c.ended = EndedNatural
	rest := len(c.tags.closeSeq)
	if forced && c.kind == closing {
		rest = c.pos // the marker closed before what is forced with it was complete
	}
	c.kind = nothing
	if forced {
		c.ended = Ended(c.pending.Reason)
		c.done = c.pending
		c.done.ClosedAt = now
		if rest < len(c.cue) {
			c.kind, c.seq, c.pos = cueing, c.cue, rest
		}
	}
	c.pending = Force{}
	c.undated, c.atOnce, c.emitted, c.counted, c.asked = false, false, false, false, false
	c.retryAt, c.stop = 0, c.budget
}

func (c *Control) stopClock(now int64) {
	if c.timing {
		c.ns += now - c.since
		c.timing = false
	}
}

// ProbeDue reports, after OnToken, that EAT wants a probe here, and the fork's tokens: the token just followed, the
// close tag, line breaks and cue. The slice is the Control's and valid until the next ProbeDue. The loop forks
// the sequence before that token, decodes the fork with the next batch and calls OnProbe with the entropy of the
// last row, before Next. Nothing is lost if it does not: a later boundary asks again.
func (c *Control) ProbeDue() (tokens []runtime.Token, ok bool) {
	if !c.probing || c.phase != ThinkDecode || c.pending.Reason != NoReason || len(c.held) > 0 || c.header || c.between || c.text.need > 0 {
		return nil, false
	}
	distance := c.think - c.lastProbe
	if distance < c.cfg.EATProbeIntervalTokens {
		return nil, false
	}
	if most := c.cfg.EATProbeMaxIntervalTokens; !c.text.blankLine() && (most == 0 || distance < most || !c.text.boundary()) {
		return nil, false
	}
	c.lastProbe = c.think
	c.probe[0] = c.last
	return c.probe, true
}

// OnProbe takes a probe's entropy, nats.
func (c *Control) OnProbe(entropy float64) {
	c.failed = 0
	if !c.eat.Add(entropy, c.cfg.EMAAlpha) {
		c.dropped++
		return
	}
	if c.phase != ThinkDecode || c.think < c.cfg.MinThinkTokens || !c.eat.Steady(c.warmup, c.cfg.EATVarianceThreshold) {
		return
	}
	if limit := c.cfg.EATStalledEntropy; limit > 0 && entropy >= limit {
		c.decide(Stalled)
	} else {
		c.decide(Converged)
	}
}

// ProbeFailed says that a probe could not be decoded. After three in a row EAT is given up (CountOnly).
func (c *Control) ProbeFailed() {
	if c.failed++; c.failed >= probeFailures {
		c.degraded, c.probing = true, false
	}
}

// EndThink closes the block because a client asked. False: the request does not think (any more). Before the first
// token it holds for the block to come.
func (c *Control) EndThink(now int64) bool {
	switch {
	case c.tags == nil:
		return false
	case c.phase == Prefill:
		c.asked = true
		return true
	case c.phase != ThinkDecode:
		return false
	}
	if c.pending.Reason == NoReason {
		c.decide(User)
		c.undated, c.pending.DecidedAt = false, now
		c.atOnce = c.text.tail == 0 // nothing to finish
	}
	return true
}

// LastForce is the last forced close that arrived. Reason NoReason: there was none.
func (c *Control) LastForce() Force { return c.done }

// Signals are the values as they stand, for traces: EAT, and the path deviation index if one is followed.
func (c *Control) Signals() (EAT, float64) { return c.eat, c.index() }

// Summary is how the thinking went, at the request's end.
func (c *Control) Summary(now int64) Summary {
	s := Summary{Tokens: c.think, Ns: c.ns, Ended: c.ended, Probes: c.eat.N, Dropped: c.dropped, Blocks: c.blocks}
	if c.phase == ThinkDecode {
		s.Ended = EndedLength
		if c.timing {
			s.Ns += now - c.since
		}
	}
	return s
}
