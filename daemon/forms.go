package daemon

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/gbnf"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/grammar/toolcalls"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
)

// formSource is a constraint of a request's answer before its grammar is compiled: the form that the request asks for,
// or its tool calls.
type formSource struct {
	key     [32]byte // identifies the grammar
	field   string   // the request's field, for errors
	kind    wire.FormatKind
	calls   bool // of tool calls; kind is FormatNone
	must    bool // of tool calls: the answer has no other text
	headed  bool // the grammar is one of the whole turn, with the headers of its messages
	compile func(grammar.Limits) (*grammar.Grammar, error)
	free    []toolcalls.Free // of tool calls, once it was compiled
	// optional: without a grammar the request runs unconstrained; otherwise it is refused.
	optional bool
}

// name returns the form's name in why.
func (b *formSource) name() string {
	if b.calls {
		return "tool_calls"
	}
	return b.kind.String()
}

// compiled is the result of a compilation: a grammar that requests share, or an error. A builder goroutine creates it;
// after that the decode loop owns the grammar's automaton.
type compiled struct {
	key     [32]byte
	grammar *grammar.Grammar
	bad     *wire.Error // not nil: there is no grammar
	free    []toolcalls.Free
	vocab   *grammar.Vocabulary
	owner   uint32        // user whose memory it counts against
	took    time.Duration // of the compilation
	bytes   atomic.Int64  // its memory, as the loop last measured it
	costly  bool          // a mask has taken more than freeMaskSteps; owned by the loop
}

// forms compiles the grammars of answers in builder goroutines (compiling.go) and caches them. Its methods are safe
// from any goroutine.
type forms struct {
	metrics    *metrics.Metrics
	vocabulary func() *grammar.Vocabulary // of the loaded model
	now        func() time.Time
	back       func(jobs []job) // receives one user's requests whose compilation has ended; called without mu

	mu      sync.Mutex
	compile func(*formSource, grammar.Limits) (*grammar.Grammar, error) // set by tests; nil: formSource.compile
	kept    *simplelru.LRU[[32]byte, *compiled]
	spent   map[uint32]*spending
	users   map[uint32]*buildQueue // users with builds
	turns   []*buildQueue          // users with builds that wait and none that runs, in the order of their turns
	running int                    // builds
	parked  int                    // requests that wait for a build
	closed  bool                   // new builds are refused

	builders sync.WaitGroup
}

// spending is a user's recent compilation time.
type spending struct {
	used time.Duration // decreases by compileShare of the time that passes
	at   time.Time
}

const (
	keptForms      = 256       // grammars
	keptBytes      = 256 << 20 // of all of them
	keptOwnerBytes = 64 << 20  // of those of one user

	// A user may compile for compileBurst at once, and for compileShare of the time in the long run: builders compete
	// with the engine for cores.
	compileBurst = 3 * time.Second
	compileShare = 0.2
)

// formLimits bounds one grammar: about 40 MB at most, a few hundred milliseconds to compile, and a tenth of a second
// for a mask.
var formLimits = grammar.Limits{Nodes: 100_000, Expressions: 100_000, States: 8_000, Threads: 2_048, MaskBytes: 8 << 20,
	Work: 1_000_000}

func newForms(m *metrics.Metrics, vocabulary func() *grammar.Vocabulary, back func([]job)) *forms {
	f := &forms{metrics: m, vocabulary: vocabulary, back: back, now: time.Now, spent: map[uint32]*spending{},
		users: map[uint32]*buildQueue{}}
	f.kept, _ = simplelru.NewLRU[[32]byte, *compiled](2*keptForms, nil)
	return f
}

// get returns the result of compiling src. nil: it is not known yet; j is parked, and goes to back when the build ends.
func (f *forms) get(src *formSource, j job) *compiled {
	for _, c := range j.built {
		if c.key == src.key {
			return c
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.known(src, j.r.Owner); c != nil {
		return c
	}
	f.park(src, j)
	return nil
}

// known returns the cached result for src, or the refusal of a build; nil: src must be compiled. The caller holds f.mu.
func (f *forms) known(src *formSource, owner uint32) *compiled {
	if c, ok := f.kept.Get(src.key); ok {
		return c
	}
	if f.closed {
		return &compiled{key: src.key, bad: shuttingDown()}
	}
	s := f.spent[owner]
	if s == nil {
		return nil
	}
	if s.pay(f.now()); s.used <= compileBurst {
		return nil
	}
	return &compiled{key: src.key, bad: &wire.Error{Code: wire.QueueLimit,
		RetryAfter: time.Duration(float64(s.used-compileBurst)/compileShare) + time.Second,
		Message: fmt.Sprintf("%s: this user's forms took %v to compile, more than %v at once; send fewer different "+
			"ones",
			src.field, s.used.Round(time.Millisecond), compileBurst)}}
}

// charge adds a compilation to owner's spending. The caller holds f.mu.
func (f *forms) charge(owner uint32, took time.Duration) {
	now := f.now()
	s := f.spent[owner]
	if s == nil {
		for id, o := range f.spent { // remove users whose spending has decreased to 0
			if o.pay(now); o.used == 0 {
				delete(f.spent, id)
			}
		}
		s = &spending{at: now}
		f.spent[owner] = s
	}
	s.pay(now)
	s.used += took
}

// pay subtracts the time that has passed since at.
func (s *spending) pay(now time.Time) {
	s.used = max(0, s.used-time.Duration(float64(now.Sub(s.at))*compileShare))
	s.at = now
}

// keep caches c and evicts the least recently used grammars until the limits hold: keptBytes of all, keptOwnerBytes of
// c's owner, keptForms of all. For the last one it evicts from the user with the most grammars. The caller holds f.mu.
func (f *forms) keep(c *compiled) {
	f.kept.Add(c.key, c)
	all, own, count, most := int64(0), int64(0), map[uint32]int{}, c.owner
	for _, o := range f.kept.Values() {
		all += o.bytes.Load()
		if o.owner == c.owner {
			own += o.bytes.Load()
		}
		count[o.owner]++
	}
	for owner, n := range count {
		if n > count[most] {
			most = owner
		}
	}
	for _, key := range f.kept.Keys() { // oldest first
		many := f.kept.Len() > keptForms
		if f.kept.Len() == 1 || !many && all <= keptBytes && own <= keptOwnerBytes {
			return
		}
		o, _ := f.kept.Peek(key)
		if all <= keptBytes && !(own > keptOwnerBytes && o.owner == c.owner) && !(many && o.owner == most) {
			continue
		}
		f.kept.Remove(key)
		n := o.bytes.Load()
		if all -= n; o.owner == c.owner {
			own -= n
		}
	}
}

// formSourceOf returns the form that w asks for; nil for none. h are the headers of the model's messages, or nil.
func formSourceOf(w *wire.Request, h *meridian.Headers) *formSource {
	if w.Format.Kind == wire.FormatNone {
		return nil
	}
	format := &w.Format
	return &formSource{key: formKey(format), field: formField(format.Kind), kind: format.Kind, headed: h != nil,
		compile: func(l grammar.Limits) (*grammar.Grammar, error) {
			b := grammar.NewBuilder(l)
			root, err := addForm(b, format, l)
			if err != nil {
				return nil, err
			}
			if h != nil {
				root = headedTurn(b, h, b.Seq(b.Literal(h.Answer), root))
			}
			g, err := b.Build(root)
			if errors.Is(err, grammar.ErrEmpty) &&
				(format.Kind == wire.FormatJSON || format.Kind == wire.FormatSchema) {
				err = &jsonschema.Error{Reason: "no text is left", Kind: jsonschema.ErrUnsatisfiable}
			}
			return g, err
		}}
}

func formKey(w *wire.Format) [32]byte {
	h := blake3.New()
	part := func(s string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.WriteString(s)
	}
	part(w.Kind.String())
	part(w.Payload)
	for _, c := range w.Choices {
		part(c)
	}
	return [32]byte(h.Sum(nil))
}

// addForm compiles a form into b. Errors name the keyword, construct or limit.
func addForm(b *grammar.Builder, w *wire.Format, l grammar.Limits) (grammar.Node, error) {
	limits := jsonschema.Limits{Grammar: l}
	switch w.Kind {
	case wire.FormatJSON:
		return jsonschema.Add(b, []byte(`{"type":"object"}`), jsonschema.Options{}, limits)
	case wire.FormatSchema:
		return jsonschema.Add(b, []byte(w.Payload), jsonschema.Options{}, limits)
	case wire.FormatGrammar:
		return gbnf.Parse(b, w.Payload)
	case wire.FormatRegex:
		return b.Pattern(w.Payload)
	case wire.FormatChoice:
		return b.Choice(w.Choices), nil
	}
	return 0, errors.ErrUnsupported
}

// grammarVocabulary returns the vocabulary of m's grammars: without control tokens and thinking markers, and with the
// markers of tool calls and of messages with headers between fences.
func grammarVocabulary(m *prepare.Model) *grammar.Vocabulary {
	pieces := make([][]byte, m.Vocab.Size())
	for t := range runtime.Token(len(pieces)) {
		if !m.Vocab.IsControl(t) {
			pieces[t] = m.Vocab.Piece(t)
		}
	}
	for _, text := range m.Tags.Texts() {
		if t := m.Vocab.Find(text); t != runtime.NoToken {
			pieces[t] = nil
		}
	}
	if m.Calls != nil {
		for t := range pieces {
			if p := m.Calls.Piece(runtime.Token(t), nil); p != nil {
				pieces[t] = p
			}
		}
	}
	if h := m.Tags.Headers(); h != nil {
		for t := range pieces {
			if p := h.Piece(runtime.Token(t)); p != nil {
				pieces[t] = p
			}
		}
	}
	return grammar.NewVocabulary(pieces, m.Facts.EOG)
}

// formField returns the request field that a form is documented under.
func formField(k wire.FormatKind) string {
	switch k {
	case wire.FormatRegex:
		return "guided_regex"
	case wire.FormatChoice:
		return "guided_choice"
	case wire.FormatGrammar:
		return "grammar"
	}
	return "response_format"
}

// compiledForm is a source with its grammar.
type compiledForm struct {
	*formSource
	*compiled
	took time.Duration // compilation time that the request caused; 0: the grammar was cached
}

// form returns the state of an answer that is constrained by c. prefix is the part of the answer that the prompt has.
func (c *compiledForm) form(prefix string) *form {
	return &form{compiled: c.compiled, kind: c.kind, calls: c.calls, headed: c.headed, compile: c.took, prefix: prefix}
}

// grammarOf returns src with its grammar; nil if src is nil, or optional and without a grammar. parked: j waits for the
// build and comes back to intake.
func (s *Server) grammarOf(src *formSource, j job) (_ *compiledForm, parked bool, bad *wire.Error) {
	if src == nil {
		return nil, false, nil
	}
	c := s.forms.get(src, j)
	switch {
	case c == nil:
		return nil, true, nil
	case c.bad == nil:
		for _, t := range c.free {
			j.w.Notes.Add(wire.Note{Reason: "tool_not_held", Times: 1, Text: fmt.Sprintf(
				"The schema of the tool %q is not enforced, its arguments may be any object: %.200s.", t.Tool, t.Why)})
		}
		out := &compiledForm{formSource: src, compiled: c}
		if slices.Contains(j.built, c) {
			out.took = c.took
		}
		return out, false, nil
	case src.optional:
		j.w.Notes.Add(wire.Note{Reason: "tools_not_held", Times: 1, Text: fmt.Sprintf(
			"Calls are not held to the tools' schemas: %.200s.", c.bad.Message)})
		return nil, false, nil
	}
	s.metrics.GrammarRefused.Inc()
	return nil, false, c.bad
}

// grammars returns the grammars of j's answer: of its form and of its tool calls, nil for none. parked as grammarOf.
func (s *Server) grammars(j job) (format, calls *compiledForm, parked bool, bad *wire.Error) {
	f, c, bad := formSources(s.model.Load(), j.w)
	if bad == nil {
		format, parked, bad = s.grammarOf(f, j)
	}
	if bad == nil && !parked {
		calls, parked, bad = s.grammarOf(c, j)
	}
	return format, calls, parked, bad
}

// nothingLeft explains why r's constraints leave no token of a row that has some.
func (l *loop) nothingLeft(r *request) string {
	what := "logit_bias, allowed_token_ids and bad_words"
	if r.form != nil {
		if err := cmp.Or(r.form.err, r.form.limit()); err != nil {
			return fmt.Sprintf("%s: after %d tokens: %v", r.form.field(), r.Generated(), err)
		}
		what = r.form.field() + ", with logit_bias, allowed_token_ids, bad_words, min_tokens and ignore_eos where " +
			"they are set,"
	}
	return fmt.Sprintf("%s leave no token after %d of the answer", what, r.Generated())
}
