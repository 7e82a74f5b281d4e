package daemon

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
)

// form is the constraint of a request's answer. The decode loop owns it, and during a decode the mask worker.
type form struct {
	*compiled
	kind    wire.FormatKind
	calls   bool          // constrains tool calls; kind is FormatNone
	passing bool          // applies from the opening of a call to its end
	headed  bool          // the grammar holds the headers of messages too
	prefix  string        // beginning of the answer that is in the prompt
	compile time.Duration // 0: the grammar was cached

	// orCalls: the answer may be tool calls instead, as long as it is a prefix of both grammars. nil: not, or decided.
	orCalls   *compiled
	undecided bool // the parser of calls does not know the decision yet

	m       *grammar.Matcher // nil before the first prepare
	mc      *grammar.Matcher // of orCalls
	mask    sampler.Mask     // of the next token, if ready
	ready   bool
	queued  bool            // on the mask worker's list
	bound   bool            // the current row is restricted
	openers []runtime.Token // tokens in mask that open a thought
	err     error

	// For why and the metrics.
	work     int           // steps of the newest mask, not charged yet
	maskTook time.Duration // duration of the newest mask; 0 = in the metrics already
	masks    atomic.Int64  // number of masks; the mask worker counts during a decode, when why may read it
	masksNs  atomic.Int64
	forced   int // tokens accepted without a row
}

// prepare computes the mask of the next token. The mask worker calls it during a decode, the loop if a mask is not
// ready.
func (f *form) prepare(openers []runtime.Token) {
	began := time.Now()
	if f.m == nil {
		f.m = grammar.NewMatcher(f.grammar, f.vocab)
		if f.orCalls != nil {
			f.mc = grammar.NewMatcher(f.orCalls.grammar, f.orCalls.vocab)
		}
		if f.prefix != "" {
			if err := f.accept(func(m *grammar.Matcher) error { return m.AcceptBytes([]byte(f.prefix)) }); err != nil {
				f.err = fmt.Errorf("the last message, which the answer continues: %w", err)
			}
		}
	}
	own := false // f.mask is
	f.mask, f.ready = f.maskOf(f.m), true
	if f.mc != nil {
		f.mask, own = slices.Clone(f.mask), true
		for i, w := range f.maskOf(f.mc) {
			f.mask[i] |= w
		}
	}
	if f.openers = openers; len(openers) > 0 {
		if !own {
			f.mask = slices.Clone(f.mask)
		}
		for _, t := range openers {
			f.mask[t>>5] |= 1 << (t & 31)
		}
	}
	f.maskTook = time.Since(began)
}

// maskOf returns m's mask and adds its steps to f.work.
func (f *form) maskOf(m *grammar.Matcher) sampler.Mask {
	before := m.Work()
	mask := m.Mask()
	f.work += m.Work() - before
	return mask
}

// accept calls take for both matchers. A matcher that rejects is dropped while the other one accepts.
func (f *form) accept(take func(*grammar.Matcher) error) error {
	err := take(f.m)
	if f.mc == nil {
		return err
	}
	switch bad := take(f.mc); {
	case bad != nil && err != nil:
		return err
	case bad != nil:
		f.noCalls()
	case err != nil:
		f.onlyCalls()
	}
	return nil
}

// noCalls decides that the answer is text of the form.
func (f *form) noCalls() { f.orCalls, f.mc = nil, nil }

// onlyCalls decides that the answer is tool calls.
func (f *form) onlyCalls() {
	f.compiled, f.m, f.calls, f.ready = f.orCalls, f.mc, true, false
	f.noCalls()
}

// done reports whether the answer is complete and no text may follow.
func (f *form) done() bool { return f.m.Done() && (f.mc == nil || f.mc.Done()) }

// name is the form's name in why.
func (f *form) name() string {
	if f.calls {
		return "tool_calls"
	}
	return f.kind.String()
}

// field is the name of the request's field, for errors.
func (f *form) field() string {
	if f.calls {
		return "tools"
	}
	return formField(f.kind)
}

// why is the form's entry in why; nil without a form.
func (f *form) why() *wire.WhyForm {
	if f == nil {
		return nil
	}
	return &wire.WhyForm{Form: f.name(), CompileMs: wire.Ms(f.compile), Masks: int(f.masks.Load()),
		MaskMs: wire.Ms(time.Duration(f.masksNs.Load())), ForcedTokens: f.forced}
}

// limit returns an error if a limit of the grammar was exceeded.
func (f *form) limit() error {
	if f.m == nil {
		return nil
	}
	return f.m.Err()
}

// maskWorker computes masks while the engine decodes. Between begin and end it owns the forms of its list and the
// automata of all grammars; otherwise the loop owns them. Its goroutine starts with the first form.
type maskWorker struct {
	jobs    []maskJob
	start   chan struct{}
	done    chan struct{}
	running bool
}

type maskJob struct {
	f       *form
	openers []runtime.Token
}

// want has f's mask computed during the next decode; f may be nil.
func (w *maskWorker) want(f *form, openers []runtime.Token) {
	if f == nil {
		return
	}
	if f.queued { // a guessed token came true: the mask is of the token behind it
		for i := range w.jobs {
			if w.jobs[i].f == f {
				w.jobs[i].openers = openers
			}
		}
		return
	}
	f.queued = true
	w.jobs = append(w.jobs, maskJob{f, openers})
}

// begin starts the worker on the list.
func (w *maskWorker) begin() {
	if len(w.jobs) == 0 {
		return
	}
	if w.start == nil {
		w.start, w.done = make(chan struct{}, 1), make(chan struct{}, 1)
		go w.run()
	}
	w.running = true
	w.start <- struct{}{}
}

// end waits for the worker and takes the forms back. The worker has usually finished: a mask takes 1 % of a decode.
func (w *maskWorker) end() {
	if !w.running {
		return
	}
	<-w.done
	w.running = false
	clear(w.jobs)
	w.jobs = w.jobs[:0]
}

func (w *maskWorker) run() {
	for range w.start {
		for _, j := range w.jobs {
			if !j.f.ready {
				j.f.prepare(j.openers)
			}
			j.f.queued = false
		}
		w.done <- struct{}{}
	}
}

// close ends the worker.
func (w *maskWorker) close() {
	w.end()
	if w.start != nil {
		close(w.start)
	}
}

// wantMask has the mask of r's next token computed during the next decode, unless its user's masks have cost too much.
func (l *loop) wantMask(r *request, openers []runtime.Token) {
	if r.form != nil && l.affords(r) {
		l.masks.want(r.form, openers)
	}
}

// affords reports whether the next mask of r may be computed: unless its grammar has costly masks and those of its user
// have cost too much.
func (l *loop) affords(r *request) bool {
	if f := r.form; f.err == nil && f.costly {
		f.err = l.maskCosts.check(r.Owner)
	}
	return r.form.err == nil
}

// restrict sets the mask of r's sampling chain if the row belongs to its answer.
func (l *loop) restrict(r *request) {
	f := r.form
	if f.bound = r.Phases.InAnswer(); f.headed {
		f.bound = !r.Phases.InThought()
	}
	if !f.bound {
		r.Chain.Restrict(l.unbound(r))
		return
	}
	if !f.ready && l.affords(r) {
		f.prepare(l.openers(r))
	}
	if f.maskTook > 0 {
		l.m.GrammarMask.Observe(f.maskTook)
		f.masks.Add(1)
		f.masksNs.Add(int64(f.maskTook))
		f.maskTook = 0
		f.costly = f.costly || f.work > freeMaskSteps
		f.err = cmp.Or(f.err, l.maskCosts.charge(r.Owner, f.work))
		f.work = 0
	}
	if f.err != nil || f.m.Err() != nil {
		r.Chain.Restrict(sampler.Mask{}) // excludes every token: nothingLeft gives the reason
		return
	}
	r.Chain.Restrict(f.mask)
}

// openers are the tokens with which r may open a thought instead of its answer.
func (l *loop) openers(r *request) []runtime.Token {
	if r.form == nil || r.form.prefix != "" {
		return nil
	}
	return r.Phases.Openers()
}

// acceptBound is acceptToken for a request with a form: it advances the grammar by the token, and accepts the tokens
// that must follow, which need no row.
func (l *loop) acceptBound(r *request, choice *sampler.Choice, now time.Time) {
	f, tok := r.form, choice.Token
	r.Last, r.More = false, false
	var forced []int32
	thought := f.headed && r.Phases.InThought()
	switch {
	case !f.bound && !f.headed, thought, l.vocab.IsEOG(tok), slices.Contains(f.openers, tok):
	default:
		err := f.accept(func(m *grammar.Matcher) error { return m.Accept(tok) })
		if err != nil && f.passing && f.headed {
			r.form, r.refused = nil, true // a header that was cut short: its call is read without being held
			l.acceptToken(r, choice, now)
			return
		}
		if err != nil {
			l.formBroken(r, err)
			return
		}
		f.tell(r)
		f.ready = false
		if r.Last = f.done() && !f.passing; !r.Last {
			forced = l.forcedTokens(r)
		}
	}
	bound, opened := f.bound, f.bound && slices.Contains(f.openers, tok)
	r.More = len(forced) > 0
	said, ok := l.acceptToken(r, choice, now)
	if !ok {
		l.formDone(f)
		return
	}
	if opened {
		r.Phases.Opened()
	}
	var err error
	switch {
	case thought && r.Phases.InThought():
	case thought:
		err = l.leaveThought(r, tok)
		f.ready = false
	case !bound && !f.headed && len(said.Released) > 0:
		// The token that ended a thought or a header contains text of the answer too.
		err = f.accept(func(m *grammar.Matcher) error { return m.AcceptBytes(said.Released) })
		if len(bytes.TrimSpace(said.Released)) == 0 {
			err = nil
		}
		f.tell(r)
		f.ready = false
	}
	if err != nil {
		r.failure = formError(r, err) // its token was sent: the request ends in the next step
		l.handle(core.Input{Kind: core.Cancel, Req: r.ID}, now)
		return
	}
	for i, t := range forced {
		if err := f.m.Accept(t); err != nil {
			l.formBroken(r, err)
			return
		}
		f.forced++
		l.m.GrammarForced.Inc()
		r.Last, r.More = f.m.Done() && !f.passing, i+1 < len(forced)
		if _, ok := l.acceptToken(r, &sampler.Choice{Token: t}, now); !ok {
			l.formDone(f)
			return
		}
	}
	if f.ready || r.form != f { // the form of a call has ended with the call
		return
	}
	if openers := l.openers(r); f.m.Ready() && len(openers) == 0 && f.mc == nil {
		f.mask, f.ready, f.openers = f.m.Mask(), true, nil
	} else {
		l.wantMask(r, openers)
	}
}

// tell passes the decision between form and calls on to r's parser of calls, once.
func (f *form) tell(r *request) {
	if !f.undecided || f.mc != nil {
		return
	}
	switch f.undecided = false; {
	case f.calls:
		r.Calls.Stream(r.stream)
	default:
		r.Calls.Plain()
	}
}

// forcedTokens returns the tokens that must follow according to r's grammar, nil if they exceed r's or the context's
// limit. It returns nil with log-probabilities, which need a row for each token.
func (l *loop) forcedTokens(r *request) []int32 {
	room := min(r.MaxTokens-r.Generated(), l.caps.ContextTokens-len(r.Tokens)) - 2
	if r.logprobs || room < 1 || r.form.mc != nil {
		return nil
	}
	forced := r.form.m.ForcedTokens(l.tokenizeForced)
	if len(forced) > room {
		return nil
	}
	return forced
}

// tokenizeForced tokenizes a text in which markers of calls are enclosed in fences.
func (l *loop) tokenizeForced(text []byte) (tokens []int32) {
	for len(text) > 0 {
		fence := 0
		for fence < len(text) && text[fence] != tags.ShownFence && text[fence] != tags.HiddenFence {
			fence++
		}
		if fence > 0 {
			plain, err := l.vocab.Tokenize(nil, string(text[:fence]), false, false)
			if err != nil {
				return nil
			}
			tokens, text = append(tokens, plain...), text[fence:]
			continue
		}
		end := bytes.IndexByte(text, tags.FenceEnd)
		if end < 0 {
			return nil
		}
		marker := l.vocab.Find(string(text[1:end]))
		if marker == runtime.NoToken {
			return nil
		}
		tokens, text = append(tokens, marker), text[end+1:]
	}
	return tokens
}

// formBroken fails r because its answer does not match its grammar. Only a marker of the chat format in the wrong place
// causes that.
func (l *loop) formBroken(r *request, err error) {
	l.core.NoToken(&r.Request, sched.ReasonFailed)
	l.failRequest(r, *formError(r, err))
	l.formDone(r.form)
}

func formError(r *request, err error) *wire.Error {
	if errors.Is(err, grammar.ErrRejected) {
		err = fmt.Errorf("the model wrote text of its answer where its chat format has a marker: %w", err)
	}
	return &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("%s: %v", r.form.field(), err)}
}

// formDone records the memory of the grammar.
func (l *loop) formDone(f *form) {
	f.bytes.Store(int64(f.grammar.Bytes()))
	if c := f.orCalls; c != nil {
		c.bytes.Store(int64(c.grammar.Bytes()))
	}
}
