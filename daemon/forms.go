package daemon

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/gbnf"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// compiled is a grammar that requests may share. Intake makes it; from then on its automaton belongs to the decode loop.
type compiled struct {
	grammar *grammar.Grammar
	vocab   *grammar.Vocabulary
	owner   uint32        // who had it compiled: the user it counts against
	took    time.Duration // to compile
	bytes   atomic.Int64  // what it takes, as the loop last measured it
}

// forms compiles the forms of answers and keeps the grammars for the requests to come. It belongs to the intake goroutine.
type forms struct {
	of    *model // whose vocabulary
	vocab *grammar.Vocabulary
	kept  *simplelru.LRU[[32]byte, *compiled]
	spent map[uint32]*spending
}

// spending is how much compiling a user has had lately.
type spending struct {
	used time.Duration
	at   time.Time
}

const (
	keptForms      = 256       // grammars
	keptBytes      = 256 << 20 // of all of them
	keptOwnerBytes = 64 << 20  // of those of one user

	// A user may spend compileBurst on compiling at once, and compileShare of the time in the long run: all users share the
	// intake goroutine.
	compileBurst = 3 * time.Second
	compileShare = 0.2
)

// formLimits bounds one grammar: about 40 MB at most, a few hundred milliseconds to compile, and a tenth of a second for a mask.
var formLimits = grammar.Limits{Nodes: 100_000, Expressions: 100_000, States: 8_000, Threads: 2_048, MaskBytes: 8 << 20,
	Work: 1_000_000}

func newForms() *forms {
	f := &forms{spent: map[uint32]*spending{}}
	f.kept, _ = simplelru.NewLRU[[32]byte, *compiled](keptForms, nil)
	return f
}

// compile returns the grammar of a form, and how long compiling took; 0 when it was there.
func (f *forms) compile(m *model, owner uint32, w *wire.Format, now func() time.Time) (*compiled, time.Duration, *wire.Error) {
	return f.make(m, owner, formField(w.Kind), formKey(w), func() (*grammar.Grammar, error) { return buildForm(w) }, now)
}

// make is compile for the grammar that build returns and key identifies. field names it in errors.
func (f *forms) make(m *model, owner uint32, field string, key [32]byte, build func() (*grammar.Grammar, error), now func() time.Time) (
	*compiled, time.Duration, *wire.Error) {
	if f.of != m {
		f.of, f.vocab = m, m.grammarVocabulary()
		f.kept.Purge()
	}
	if c, ok := f.kept.Get(key); ok {
		return c, 0, nil
	}
	began := now()
	s := f.spent[owner]
	if s == nil {
		f.forgive(began)
		s = &spending{at: began}
		f.spent[owner] = s
	}
	if s.pay(began); s.used > compileBurst {
		return nil, 0, &wire.Error{Code: wire.QueueLimit, RetryAfter: time.Duration(float64(s.used-compileBurst)/compileShare) + time.Second,
			Message: fmt.Sprintf("%s: this user's forms took %v to compile, more than %v at once; send fewer different ones",
				field, s.used.Round(time.Millisecond), compileBurst)}
	}
	g, err := build()
	took := now().Sub(began)
	s.used += took
	if err != nil {
		return nil, took, &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("%s: %v", field, err)}
	}
	c := &compiled{grammar: g, vocab: f.vocab, owner: owner, took: took}
	c.bytes.Store(int64(g.Bytes()))
	f.kept.Add(key, c)
	f.shrink(owner)
	return c, took, nil
}

// pay lets time forgive what was used.
func (s *spending) pay(now time.Time) {
	s.used = max(0, s.used-time.Duration(float64(now.Sub(s.at))*compileShare))
	s.at = now
}

// forgive forgets users that have nothing left to pay.
func (f *forms) forgive(now time.Time) {
	for owner, s := range f.spent {
		if s.pay(now); s.used == 0 {
			delete(f.spent, owner)
		}
	}
}

// shrink drops the grammars that were used longest ago until all of them, and those of owner, fit.
func (f *forms) shrink(owner uint32) {
	all, own := int64(0), int64(0)
	for _, c := range f.kept.Values() {
		all += c.bytes.Load()
		if c.owner == owner {
			own += c.bytes.Load()
		}
	}
	for _, key := range f.kept.Keys() { // oldest first
		if f.kept.Len() == 1 || all <= keptBytes && own <= keptOwnerBytes {
			return
		}
		c, _ := f.kept.Peek(key)
		if c.owner != owner && all <= keptBytes {
			continue
		}
		n := c.bytes.Load()
		f.kept.Remove(key)
		if all -= n; c.owner == owner {
			own -= n
		}
	}
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

// buildForm compiles a form. Errors name the keyword, construct or limit.
func buildForm(w *wire.Format) (*grammar.Grammar, error) {
	switch limits := (jsonschema.Limits{Grammar: formLimits}); w.Kind {
	case wire.FormatJSON:
		return jsonschema.JSONObject(jsonschema.Options{}, limits)
	case wire.FormatSchema:
		return jsonschema.Compile([]byte(w.Payload), jsonschema.Options{}, limits)
	}
	b := grammar.NewBuilder(formLimits)
	var root grammar.Node
	var err error
	switch w.Kind {
	case wire.FormatGrammar:
		root, err = gbnf.Parse(b, w.Payload)
	case wire.FormatRegex:
		root, err = b.Pattern(w.Payload)
	case wire.FormatChoice:
		root = b.Choice(w.Choices)
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		return nil, err
	}
	return b.Build(root)
}

// grammarVocabulary is the vocabulary as grammars see it: control tokens and the markers of thoughts are no text.
func (m *model) grammarVocabulary() *grammar.Vocabulary {
	pieces := make([][]byte, m.vocab.Size())
	for t := range runtime.Token(len(pieces)) {
		if !m.vocab.IsControl(t) {
			pieces[t] = m.vocab.Piece(t)
		}
	}
	for _, text := range m.tags.Texts() {
		if t := m.vocab.Find(text); t != runtime.NoToken {
			pieces[t] = nil
		}
	}
	if m.calls != nil { // the markers of calls, as grammars of calls have them
		for t := range pieces {
			if p := m.calls.Piece(runtime.Token(t), nil); p != nil {
				pieces[t] = p
			}
		}
	}
	return grammar.NewVocabulary(pieces, m.facts.EOG)
}

// formField is the field by which people know a form.
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

// hold has r's answer held to the form that w asks for.
func (s *Server) hold(r *request, w *wire.Request) *wire.Error {
	if w.Format.Kind == wire.FormatNone || w.FillOnly {
		return nil
	}
	if w.Think.AnswerCue != "" {
		return &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("think.answer_cue cannot be combined with %s: the answer begins as its form says",
			formField(w.Format.Kind))}
	}
	c, took, bad := s.forms.compile(s.model.Load(), r.Owner, &w.Format, time.Now)
	if took > 0 {
		s.metrics.GrammarCompile.Observe(took)
	}
	if bad != nil {
		s.metrics.GrammarRefused.Inc()
		return bad
	}
	r.form = &form{compiled: c, kind: w.Format.Kind, compile: took}
	if n := len(w.Messages); r.continued && n > 0 {
		r.form.prefix = w.Messages[n-1].Content
	}
	return nil
}

// nothingLeft says why no token can be sampled for r although the model has some.
func (l *loop) nothingLeft(r *request) string {
	what := "logit_bias, allowed_token_ids and bad_words"
	if r.form != nil {
		if err := cmp.Or(r.form.err, r.form.limit()); err != nil {
			return fmt.Sprintf("%s: after %d tokens: %v", r.form.field(), r.Generated(), err)
		}
		what = r.form.field() + ", with logit_bias, allowed_token_ids, bad_words, min_tokens and ignore_eos where they are set,"
	}
	return fmt.Sprintf("%s leave no token after %d of the answer", what, r.Generated())
}
