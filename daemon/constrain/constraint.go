package constrain

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// State says which grammar constrains an answer. A constraint of the whole answer begins in EitherOr, Bound or
// CallOnly; one of the calls that the model begins by itself in Free or InHeader, and it moves between the states up to
// InCall.
type State uint8

const (
	// Free: no grammar. The model may begin a call.
	Free State = iota
	// InHeader: no grammar. The header of a message is read, which may show that the message is a call.
	InHeader
	// Unconstrained: no grammar. A call is read whose beginning the grammar does not have; it ends in Free.
	Unconstrained
	// InCall: the grammar of calls, from the opening of a call to the end of the last one, which leads to Free.
	InCall
	// EitherOr: the text so far begins both a text of the format and a call; the first that is no longer possible
	// leads to the state of the other.
	EitherOr
	// Bound: the format, to the end of the answer.
	Bound
	// CallOnly: the grammar of calls, to the end of the answer.
	CallOnly
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"free", "in-header", "unconstrained", "in-call", "either-or", "bound", "call-only"}[s]
}

// Constraint is the state of one answer. The decode loop owns it, and between Masks.Begin and Masks.End the mask
// worker.
type Constraint struct {
	masks  *Masks
	owner  uint32
	spec   *toolcall.Spec // nil without tools
	headed bool           // the grammars hold the headers of messages too
	begun  string         // beginning of the answer that is in the prompt, as the grammar reads it
	took   time.Duration  // of the compilation; 0: the grammar was cached

	state   State
	format  side   // in EitherOr and Bound
	calls   side   // in the other states that have a grammar
	decided Calls  // not told to the parser of calls yet
	header  []byte // in InHeader: the header so far, as the grammar reads it

	forced []runtime.Token // tokens that must come next, without a row

	// Of the mask of the next token.
	mask     sampler.Mask
	ready    bool
	openers  []runtime.Token // tokens in mask that open a thought
	work     int             // its steps, not charged yet
	maskTook time.Duration   // its duration; 0 = in the metrics already
	err      error           // no mask can be computed

	row step // the newest token

	// For why and the metrics.
	masked     atomic.Int64 // number of masks
	maskedNs   atomic.Int64
	withoutRow int // tokens accepted without a row
}

// side is one of the grammars of an answer. The zero value is none.
type side struct {
	*compiled
	field, name string           // Source.Field, Source.Name
	m           *grammar.Matcher // nil before the first mask
	over        bool             // it has rejected the text, which the other side of EitherOr accepts
}

// step describes a token between Accept and Follow.
type step struct {
	bound       bool // the token's row was restricted
	constrained bool // a grammar constrained the answer
	forced      bool // the token came without a row
	thought     bool // the token belonged to a thought's text, which the grammar of a turn does not read
}

// Options hold the parts of a request that its constraint depends on, besides its grammars.
type Options struct {
	Owner     uint32
	Spec      *toolcall.Spec // notation of calls in the answer; nil without tools
	Continued string         // the beginning of the answer, where the prompt ends with it
	CallBegun string         // the opening of a call, where the prompt ends with it
	Begin     meridian.Begin // where in a turn the prompt ends
	MayThink  bool           // the first message may be a thought
}

// New returns the constraint of an answer by g; nil for none.
func New(m *Masks, g *Grammars, o Options) *Constraint {
	c := &Constraint{masks: m, owner: o.Owner, spec: o.Spec}
	if g.format != nil {
		c.format = side{compiled: g.format.compiled, field: g.format.Field, name: g.format.Name}
	}
	if g.calls != nil {
		c.calls = side{compiled: g.calls.compiled, field: g.calls.Field, name: g.calls.Name}
	}
	switch h := m.headers; {
	case g.Bound():
		of := g.answer()
		c.headed, c.took = of.headed, of.took
		switch {
		case g.CallsOnly():
			c.state, c.begun, c.decided = CallOnly, o.CallBegun, Stream
		case g.calls != nil:
			c.state, c.begun = EitherOr, o.Continued
		default:
			c.state, c.begun = Bound, o.Continued
		}
		if c.headed {
			c.begun = headedStart(h, o.Begin, o.MayThink, c.begun, c.state == CallOnly)
		}
	case g.calls != nil:
		if c.headed = g.calls.headed; c.headed && o.Begin.Header {
			c.state, c.header = InHeader, []byte(messageEnd(h, false)+h.Turn)
		}
	default:
		return nil
	}
	return c
}

// State returns the state.
func (c *Constraint) State() State { return c.state }

// Applies reports whether a grammar constrains the answer at this place. c may be nil.
func (c *Constraint) Applies() bool { return c != nil && c.state > Unconstrained }

// Field returns the name of the request's field that constrains the answer, for errors.
func (c *Constraint) Field() string { first, _ := c.sides(); return first.field }

// Err returns the reason for which no token may come, nil if there is none.
func (c *Constraint) Err() error {
	switch first, _ := c.sides(); {
	case c.err != nil:
		return c.err
	case first.m != nil:
		return first.m.Err()
	}
	return nil
}

// NothingLeft explains why a row that has tokens has none that the answer may continue with, after so many tokens. c
// may be nil.
func (c *Constraint) NothingLeft(after int) string {
	what := "logit_bias, allowed_token_ids and bad_words"
	if c.Applies() {
		if err := c.Err(); err != nil {
			return fmt.Sprintf("%s: after %d tokens: %v", c.Field(), after, err)
		}
		what = c.Field() + ", with logit_bias, allowed_token_ids, bad_words, min_tokens and ignore_eos where they " +
			"are set,"
	}
	return fmt.Sprintf("%s leave no token after %d of the answer", what, after)
}

// Why returns the entry of why; nil where Applies is false. c may be nil. It may be called while the mask worker runs.
func (c *Constraint) Why() *reports.WhyConstraint {
	if !c.Applies() {
		return nil
	}
	name := c.format.name
	if c.state == InCall || c.state == CallOnly {
		name = c.calls.name
	}
	return &reports.WhyConstraint{Form: name, CompileMs: wire.Ms(c.took), Masks: int(c.masked.Load()),
		MaskMs: wire.Ms(time.Duration(c.maskedNs.Load())), ForcedTokens: c.withoutRow}
}

// Close records the memory of the grammars. c may be nil.
func (c *Constraint) Close() {
	if !c.Applies() {
		return
	}
	first, second := c.sides()
	first.bytes.Store(int64(first.grammar.Bytes()))
	if second != nil {
		second.bytes.Store(int64(second.grammar.Bytes()))
	}
}

// Place says where in a turn the next token is.
type Place struct {
	Answer   bool            // in the answer's text
	Thought  bool            // in a thought's text
	Header   bool            // in the header of a message
	MayThink bool            // the next message may be a thought
	Openers  []runtime.Token // tokens with which it may open a thought
}

// Calls says how the parser of calls is to continue.
type Calls uint8

const (
	AsBefore Calls = iota
	Stream         // what follows are calls that fit their grammar: give them while they are written
	Whole          // give the next call when it is complete
	Plain          // the rest of the answer has no calls
)

// Tell tells the parser of calls, of an answer that is streamed or not.
func (how Calls) Tell(calls *toolcall.Parser, streamed bool) {
	switch how {
	case Stream:
		calls.Stream(streamed)
	case Whole:
		calls.Stream(false)
	case Plain:
		calls.Plain()
	}
}

// Verdict is the outcome of Accept.
type Verdict struct {
	Last   bool  // the answer is complete
	More   bool  // a forced token follows, without a row
	Opened bool  // the token begins to open a thought
	Calls  Calls // for the parser of calls, before it reads the token
}

// Accept takes the token that follows, which was drawn from a row or came from Forced. at is its place. room is the
// number of forced tokens that may follow. An error ends the request: the token does not match the grammar, which only
// a marker of the chat format in the wrong place causes.
func (c *Constraint) Accept(tok runtime.Token, at Place, room int) (v Verdict, bad *wire.Error) {
	first, _ := c.sides()
	c.row = step{bound: c.row.bound, constrained: first != nil}
	if len(c.forced) > 0 {
		return c.acceptForced(tok, first)
	}
	if first == nil {
		return v, nil
	}
	c.row.thought = c.headed && at.Thought
	opener := slices.Contains(c.openers, tok)
	if (c.row.bound || c.headed) && !c.row.thought && !opener && !c.masks.vocab.IsEOG(tok) {
		c.start()
		err := c.feed(func(m *grammar.Matcher) error { return m.Accept(tok) })
		if err != nil && c.state == InCall && c.headed {
			c.leave(Unconstrained) // a header that was cut short: its call is read unconstrained
			return v, nil
		}
		if err != nil {
			return v, c.breach(err)
		}
		if v.Last = c.done() && c.state != InCall; !v.Last {
			c.forced = c.forcedTokens(room)
		}
	}
	v.More = len(c.forced) > 0
	v.Opened = c.row.bound && opener
	v.Calls, c.decided = c.decided, AsBefore
	return v, nil
}

// acceptForced is Accept for a forced token.
func (c *Constraint) acceptForced(tok runtime.Token, of *side) (v Verdict, bad *wire.Error) {
	c.row.forced, c.forced = true, c.forced[1:]
	v.More = len(c.forced) > 0
	if of == nil { // its call has ended
		return v, nil
	}
	if err := of.m.Accept(tok); err != nil {
		return v, c.breach(err)
	}
	c.ready = false
	c.withoutRow++
	c.masks.metrics.GrammarForced.Inc()
	v.Last = of.m.Done() && c.state != InCall
	return v, nil
}

// Forced returns the next token, after a Verdict with More.
func (c *Constraint) Forced() runtime.Token { return c.forced[0] }

// Heard describes an answer after the phase router and the parser of calls have read a token.
type Heard struct {
	At        Place  // of the next token
	Released  []byte // text of the answer in a token that has ended a thought or a header
	Busy      bool   // the answer is within a call
	InSection bool   // the answer is within a call, or behind one where others may follow
	Opening   []byte // the text of the call that is being read, as far as it was given
	Ended     bool   // the request has ended
}

// Follow completes Accept after the phase router and the parser of calls have read the token. It returns how the parser
// is to continue. An error ends the request, as Accept's.
func (c *Constraint) Follow(tok runtime.Token, h Heard) (say Calls, bad *wire.Error) {
	row := c.row
	c.row = step{}
	c.followCalls(tok, &h)
	if h.Ended {
		return c.tell(), nil
	}
	if row.constrained && !row.forced && c.Applies() {
		switch {
		case row.thought && h.At.Thought:
		case row.thought:
			text := leaveText(c.masks.headers, c.piece(tok), h.At.MayThink)
			bad = c.followText(text)
		case !row.bound && !c.headed && len(h.Released) > 0:
			// The token that ended a thought or a header contains text of the answer too.
			if bad = c.followText(h.Released); len(bytes.TrimSpace(h.Released)) == 0 {
				bad = nil
			}
		}
	}
	if bad == nil && len(c.forced) == 0 {
		c.Want(h.At)
	}
	return c.tell(), bad
}

// followText takes text that Accept was not given.
func (c *Constraint) followText(text []byte) *wire.Error {
	c.start()
	if err := c.feed(func(m *grammar.Matcher) error { return m.AcceptBytes(text) }); err != nil {
		return c.breach(err)
	}
	return nil
}

// tell returns what the parser of calls was not told yet.
func (c *Constraint) tell() (say Calls) {
	say, c.decided = c.decided, AsBefore
	return say
}

// sides returns the grammars that constrain the answer: none, one, or two where both are still possible.
func (c *Constraint) sides() (first, second *side) {
	switch {
	case !c.Applies():
		return nil, nil
	case c.state == EitherOr && !c.format.over && !c.calls.over:
		return &c.format, &c.calls
	case c.state == Bound, c.state == EitherOr && c.calls.over:
		return &c.format, nil
	}
	return &c.calls, nil
}

// start makes the matchers and gives them the beginning of the answer, once.
func (c *Constraint) start() {
	first, second := c.sides()
	if first.m != nil {
		return
	}
	first.m = grammar.NewMatcher(first.grammar, first.vocab)
	if second != nil {
		second.m = grammar.NewMatcher(second.grammar, second.vocab)
	}
	if c.begun == "" {
		return
	}
	if err := c.give(func(m *grammar.Matcher) error { return m.AcceptBytes([]byte(c.begun)) }); err != nil {
		c.err = fmt.Errorf("the last message, which the answer continues: %w", err)
	}
}

// feed is give, and the loop's part of it: the mask is another, and the state too where one side is left.
func (c *Constraint) feed(take func(*grammar.Matcher) error) error {
	err := c.give(take)
	c.ready = false
	c.settle()
	return err
}

// give calls take for the matchers. A side that rejects is over while the other one accepts.
func (c *Constraint) give(take func(*grammar.Matcher) error) error {
	first, second := c.sides()
	err := take(first.m)
	if second == nil {
		return err
	}
	switch bad := take(second.m); {
	case bad != nil && err != nil:
		return err
	case bad != nil:
		second.over = true
	case err != nil:
		first.over = true
	}
	return nil
}

// settle leaves EitherOr where one side is over.
func (c *Constraint) settle() {
	switch {
	case c.state != EitherOr:
	case c.calls.over:
		c.state, c.decided = Bound, Plain
	case c.format.over:
		c.state, c.decided = CallOnly, Stream
	}
}

// done reports whether the answer is complete and no text may follow.
func (c *Constraint) done() bool {
	first, second := c.sides()
	return first.m.Done() && (second == nil || second.m.Done())
}

// forcedTokens returns the tokens that must follow according to the grammar, nil if they exceed room or both sides are
// possible.
func (c *Constraint) forcedTokens(room int) []runtime.Token {
	first, second := c.sides()
	if room < 1 || second != nil {
		return nil
	}
	forced := first.m.ForcedTokens(c.masks.tokenize)
	if len(forced) > room {
		return nil
	}
	return forced
}

// breach returns the error of an answer that does not match its grammar.
func (c *Constraint) breach(err error) *wire.Error {
	if errors.Is(err, grammar.ErrRejected) {
		err = fmt.Errorf("the model wrote text of its answer where its chat format has a marker: %w", err)
	}
	return wire.Errorf(wire.BadRequest, "%s: %v", c.Field(), err)
}
