package meridian

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/runtime"
)

// forcing is the purpose of a sequence of forced tokens.
type forcing uint8

const (
	nothing forcing = iota
	opening
	closing
	cueing
)

// closeState is the stage of a forced close of the current think block. It only moves down this list, and returns to
// closeNone when the block ends.
type closeState uint8

const (
	closeNone      closeState = iota
	closeRequested            // a client said end_think before the block began
	closeDecided              // pending: waits for a boundary, or for Control.stop
	closeDue                  // pending: no longer waits for a boundary
	closeForced               // Next has returned its first token; if that was lost, Next returns it again at once
	closeDelivered            // its first token arrived and ForceBudget was reported
)

// noTime is a time that is not known yet.
const noTime = math.MinInt64

// Control follows one request: its phase, its signals and its forced tokens. See the package comment for the order of
// calls.
type Control struct {
	Router
	cfg  *Config
	mode Mode
	acts EarlyExit // the signals that may end a thought; others are only watched
	owed bool      // Options.Bound
	// free: a forced close only ends the thought's message, and the model writes the header of the next one.
	free    bool
	touched int64 // time of the last Next or OnToken, for Registry

	text textState     // of the current block
	last runtime.Token // the last token of thought

	// Budgets, in tokens of thought over all blocks.
	// Invariant: think ≤ stop ≤ budget, as long as the loop delivers what Next and Admit say.
	budget int
	soft   int
	search int // from here on a close by the hard cap looks for a boundary
	stop   int // where the pending close must begin, boundary or not; budget while none is pending

	state   closeState
	pending Force // the close in states closeDecided … closeDelivered; else its Reason is NoReason
	retryAt int   // after a delivered close without effect: force it again from this many think tokens on
	// closedAt is the think tokens at the delivered close.
	closedAt int

	forced forcedTokens

	since    int64 // when the current block began, or noTime
	ns       int64 // duration of the earlier blocks
	ended    Ended
	degraded bool // a wanted signal was given up
	signals  Signals
	dropped  int

	fork  eatWatch
	drift driftWatch
}

// driftWatch is the state of RPDI or of the indicator: a thought ends when it drifts.
type driftWatch struct {
	deviation bool
	rpdi      RPDI
	indicator Indicator
	above     int // boundaries in a row with the index above its threshold
}

// eatWatch is the state of EAT: a thought ends when the answer behind it has converged.
type eatWatch struct {
	probing   bool
	eat       EAT
	warmup    float64
	probe     []runtime.Token // the fork's tokens; [0] is the boundary token
	lastProbe int             // think tokens at the last probe
	failed    int             // failed probes in a row
}

// forcedTokens come next whatever the rows say. Invariant: pos < len(seq) unless kind is nothing.
type forcedTokens struct {
	kind  forcing
	seq   []runtime.Token
	pos   int
	shut  []runtime.Token // the close sequence that is forced
	begun int             // how many tokens of it the model has just written itself
	cue   []runtime.Token // the close sequence and the tokens forced after it
	done  Force           // the last forced close that arrived
}

// NewControl starts a request whose prompt ends as begin says. cfg and tags are shared, must be valid and outlive the
// Control; tags may be nil. It is the only call that allocates or tokenizes. It fails when the vocabulary cannot
// tokenize the cue.
func NewControl(cfg *Config, tags *Tags, opt Options, begin Begin) (*Control, error) {
	c := &Control{
		Router: NewRouter(tags, cfg.MaxThinkBlocks, begin),
		cfg:    cfg, mode: opt.Mode, acts: opt.EarlyExit, budget: cfg.MaxThinkTokens, soft: math.MaxInt, since: noTime,
	}
	c.owed, c.given.headed = opt.Bound, opt.Headed
	c.given.bound = opt.Bound && !opt.Headed
	c.Router.given.calls, c.Router.given.marked = opt.Calls, opt.CallsInThought
	if tags == nil {
		return c, nil
	}
	switch c.forced.shut = tags.closeSeq; {
	case opt.Headed:
		c.forced.shut = tags.endSeq
	case opt.CallsOnly:
		c.forced.shut = tags.callSeq
	case opt.Calls && !opt.Bound && opt.AnswerCue == "" && tags.headers != nil && tags.nextSeq != nil:
		c.forced.shut, c.free = tags.nextSeq, true
	}
	if opt.BudgetTokens >= 0 {
		c.budget = min(c.budget, opt.BudgetTokens)
	}
	if opt.Mode == ModeOff {
		c.budget = 0
	}
	c.stop = c.budget
	// Search a short budget in its second half only: a cap of 20 should not close at the first full stop.
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
	c.fork.probing = opt.EarlyExit.eat() || cfg.WatchSignals.eat()
	c.drift.deviation = opt.EarlyExit.rpdi() || cfg.WatchSignals.rpdi()
	c.signals.EAT, c.signals.RPDI = c.fork.probing, c.drift.deviation
	if c.drift.deviation && cfg.RPDIForm == RPDIEntropy {
		c.drift.rpdi = NewRPDI(cfg.RPDIWindow)
	}
	if c.fork.warmup = float64(cfg.EATWarmupProbes); c.fork.warmup == 0 {
		c.fork.warmup = 4 / cfg.EMAAlpha
	}
	return c, c.setCue(opt.AnswerCue)
}

// setCue prepares the tokens after the close tag: in probes and, when the request names a cue, after a forced close.
func (c *Control) setCue(cue string) error {
	c.forced.cue = c.forced.shut
	if cue == "" && !c.fork.probing {
		return nil
	}
	seq, err := c.tags.after(c.cfg.EATSuffix, cue)
	if err != nil {
		return fmt.Errorf("think.answer_cue: %w", err)
	}
	if cue != "" {
		c.forced.cue = slices.Concat(c.forced.cue, seq)
	}
	if c.fork.probing {
		c.fork.probe = make([]runtime.Token, 1, 1+len(c.tags.closeSeq)+len(seq))
		c.fork.probe = append(append(c.fork.probe, c.tags.closeSeq...), seq...)
	}
	return nil
}

// InAnswer reports whether the next token is part of the answer's text: not of a thought, a header or a marker.
func (c *Control) InAnswer() bool {
	if c.header.section != inText || c.header.aside || c.header.call || c.forced.kind == opening {
		return false
	}
	return c.phase == OutputDecode || c.phase == Prefill && c.header.recipe == nil
}

// Openers returns the tokens with which the model may open a thought at the next token, where an answer could begin
// too. Where the marker is several tokens it is the first of them, if that is a marker's: see Opened.
func (c *Control) Openers() []runtime.Token {
	if c.phase != Prefill || c.budget == 0 || c.forced.kind == opening || !c.tags.Known() || c.header.recipe != nil {
		return nil
	}
	if seq := c.tags.openSeq; len(c.tags.open) == 0 && (len(seq) == 1 || c.tags.special(seq[0])) {
		return seq[:1]
	}
	return c.tags.open
}

// Opened says that the token before, one of Openers, has begun to open a thought: the rest of the marker must come.
func (c *Control) Opened() {
	if len(c.tags.open) == 0 && len(c.tags.openSeq) > 1 && c.forced.kind == nothing {
		c.forced.kind, c.forced.seq, c.forced.pos = opening, c.tags.openSeq, 1
	}
}

// NeedStats reports whether the next row's statistics are wanted: the request thinks, a signal uses them, and no close
// is pending.
func (c *Control) NeedStats() bool {
	return c.phase == ThinkDecode && c.state < closeDecided && (c.drift.deviation || c.think >= c.soft)
}

// Observe takes the statistics of the row from which the next token is drawn, before it is drawn. It does nothing when
// NeedStats is false.
func (c *Control) Observe(st *runtime.RowStats) {
	if !c.NeedStats() {
		return
	}
	if c.drift.deviation {
		ok := st.Argmax != runtime.NoToken // false: every logit was NaN or infinite
		switch {
		case !ok:
		case c.cfg.RPDIForm == RPDIEntropy:
			ok = c.drift.rpdi.Add(st.Entropy)
		default:
			ok = c.drift.indicator.Add(st.Entropy, c.cfg.TransitionEntropyThreshold, c.cfg.RPDIIndicatorAlpha)
		}
		if !ok {
			c.dropped++
		}
	}
	if c.think >= c.soft && st.CloseRank >= 0 && st.CloseRank < c.cfg.SoftCapTopN {
		c.decide(SoftCap, closeDue) // the model is about to close at this very token
	}
}

// StatsMissing reports that the engine could not provide a wanted row. The request gives up the signals that need rows
// (CountOnly).
func (c *Control) StatsMissing() {
	c.degraded = c.degraded || c.acts.rpdi() || c.soft < math.MaxInt
	c.drift.deviation, c.soft = false, math.MaxInt
}

// CountOnly reports whether the request gave up a signal it asked for, so that only its budget closes its thinking.
func (c *Control) CountOnly() bool { return c.degraded }

// decide makes a close for reason pending, in state closeDecided or closeDue, unless one is pending.
func (c *Control) decide(reason Reason, state closeState) {
	if c.state >= closeDecided {
		return
	}
	c.state = state
	c.stop = min(c.budget, c.think+max(c.cfg.ForceGraceTokens, int(c.text.need)))
	c.pending = Force{
		Reason: reason, Tokens: c.think, Probes: c.fork.eat.N, X: c.fork.eat.X, Mean: c.fork.eat.Mean,
		Var:       c.fork.eat.Var,
		Index:     c.index(),
		DecidedAt: noTime,
	}
}

// date sets the time of the pending close's decision, if it is not known yet: signals decide without a clock.
func (c *Control) date(now int64) {
	if c.pending.DecidedAt == noTime {
		c.pending.DecidedAt = now
	}
}

// index returns the configured path deviation index, 0 when none is configured.
func (c *Control) index() float64 {
	switch {
	case !c.drift.deviation:
		return 0
	case c.cfg.RPDIForm == RPDIEntropy:
		return c.drift.rpdi.Index()
	}
	return c.drift.indicator.Index()
}

// Admit checks a sampled token before it is accepted. It returns the token, or the one that must come instead (forced
// true): where the token would begin a character that cannot be completed within the budget, and where it would end
// the turn although an answer is still to come: a bound one, or one whose header the model may choose.
func (c *Control) Admit(tok runtime.Token, piece []byte, eog bool, now int64) (_ runtime.Token, forced bool) {
	if eog && c.free && c.state == closeDelivered && c.phase == ThinkDecode && !c.endsMessage(tok) {
		return c.insist(now), true
	}
	if eog && c.phase == ThinkDecode && c.owed && !c.endsMessage(tok) &&
		!(c.given.headed && c.header.section != inText) {
		c.decide(EOG, closeDue)
		c.date(now)
		if c.text.need > 0 {
			if t := c.tags.finisher(c.text.lo); t != runtime.NoToken {
				return t, true
			}
		}
		return c.force(now), true
	}
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
	c.decide(HardCap, closeDecided)
	c.date(now)
	return c.force(now), true
}

// OnToken follows one token, sampled or forced.
func (c *Control) OnToken(tok runtime.Token, piece []byte, eog bool, now int64) Step {
	if invariants.Enabled {
		defer c.check()
	}
	c.touched = now
	before, kind := c.phase, c.forced.kind
	arrived := kind != nothing && tok == c.forced.seq[c.forced.pos]
	s := c.Router.OnToken(tok, piece, eog, arrived && kind != cueing)
	if kind != nothing {
		c.advance(arrived, &s)
	}
	if s.Event == None && before == ThinkDecode && c.phase == ThinkDecode {
		c.follow(tok, piece)
		return s
	}
	if s.Event.Has(EnterThink) && before != ThinkDecode {
		c.enter(s.Think, now)
	}
	if s.Event.Has(ExitThink) {
		// The header that follows a forced end of the thought's message ends the thought.
		named := (c.given.headed || c.free) && c.state == closeDelivered && c.think == c.closedAt
		c.exit(kind == closing && arrived || named, now)
		if c.phase == ThinkDecode { // the same token opened a new block
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

// advance moves on in the forced sequence. arrived says that the token was the one forced.
func (c *Control) advance(arrived bool, s *Step) {
	kind := c.forced.kind
	if kind == closing && arrived && c.state < closeDelivered {
		c.state, c.closedAt = closeDelivered, c.think
		s.Event |= ForceBudget
		s.Reason = c.pending.Reason
	}
	if c.forced.pos++; arrived && c.forced.pos < len(c.forced.seq) {
		return
	}
	c.forced.kind = nothing
	if kind == closing && arrived {
		c.retryAt = c.think + c.cfg.ForceRetryTokens // unless the Router sees a close now
	}
}

// follow is OnToken for a token of thought.
func (c *Control) follow(tok runtime.Token, piece []byte) {
	c.last = tok
	if c.header.section == inText {
		c.text.add(piece)
	}
	if seq := c.forced.shut; len(seq) > 1 {
		switch {
		case c.forced.begun < len(seq)-1 && tok == seq[c.forced.begun]:
			c.forced.begun++
		case tok == seq[0]:
			c.forced.begun = 1
		default:
			c.forced.begun = 0
		}
	}
	if !c.drift.deviation || c.think < c.cfg.MinThinkTokens || !c.text.boundary() {
		return
	}
	limit := c.cfg.RPDIThreshold
	if c.cfg.RPDIForm == RPDIIndicator {
		limit = c.cfg.RPDIIndicatorThreshold
	}
	if c.index() <= limit {
		c.drift.above = 0
		return
	}
	if c.drift.above++; c.drift.above >= c.cfg.RPDIBoundaries {
		c.signal(Overthinking, &c.signals.Overthinking, c.acts.rpdi())
	}
}

// enter begins a block that begins with text.
func (c *Control) enter(text []byte, now int64) {
	c.since = now
	c.text = textState{}
	c.text.add(text)
	c.forced.begun, c.drift.above, c.fork.lastProbe = 0, 0, c.think
}

// exit ends a block: by force, or by the model itself; then a pending close is dropped and not counted.
func (c *Control) exit(forced bool, now int64) {
	c.stopClock(now)
	c.ended = EndedNatural
	rest := len(c.forced.shut)
	if forced && c.forced.kind == closing {
		rest = c.forced.pos // the marker took effect before the whole sequence was forced
	}
	c.forced.kind = nothing
	if forced {
		c.ended = Ended(c.pending.Reason)
		c.forced.done = c.pending
		c.forced.done.ClosedAt = now
		if rest < len(c.forced.cue) {
			c.forced.kind, c.forced.seq, c.forced.pos = cueing, c.forced.cue, rest
		}
	}
	c.state, c.pending = closeNone, Force{}
	c.retryAt, c.stop = 0, c.budget
}

func (c *Control) stopClock(now int64) {
	if c.since != noTime {
		c.ns += now - c.since
		c.since = noTime
	}
}

// Summary summarises the thinking at the request's end.
func (c *Control) Summary(now int64) Summary {
	s := Summary{Tokens: c.think, Ns: c.ns, Ended: c.ended, Probes: c.fork.eat.N, Dropped: c.dropped, Blocks: c.blocks,
		Signals: c.Signals()}
	if c.phase == ThinkDecode {
		s.Ended = EndedLength
		if c.since != noTime {
			s.Ns += now - c.since
		}
	}
	return s
}
