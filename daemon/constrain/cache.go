package constrain

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/toolcalls"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
)

// Cache compiles the grammars of answers in builder goroutines (builds.go) and caches them. Its methods are safe from
// any goroutine.
type Cache struct {
	metrics    *metrics.Metrics
	vocabulary func() *grammar.Vocabulary // of the loaded model
	now        func() time.Time
	back       func([]*Waiter) // receives one user's requests whose compilation has ended; called without mu

	mu      sync.Mutex
	before  func(key [32]byte, stop func() bool) // set by tests
	kept    *simplelru.LRU[[32]byte, *compiled]
	spent   map[uint32]*spending
	users   map[uint32]*buildQueue // users with builds
	turns   []*buildQueue          // users with builds that wait and none that runs, in the order of their turns
	running int                    // builds
	waiting int                    // requests
	shut    *wire.Error            // the error of new requests; nil while open

	builders sync.WaitGroup
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

// spending is a user's recent compilation time.
type spending struct {
	used time.Duration // decreases by compileShare of the time that passes
	at   time.Time
}

const (
	keptGrammars   = 256
	keptBytes      = 256 << 20 // of all of them
	keptOwnerBytes = 64 << 20  // of those of one user

	// A user may compile for compileBurst at once, and for compileShare of the time in the long run: builders compete
	// with the engine for cores.
	compileBurst = 3 * time.Second
	compileShare = 0.2
)

// limits bounds one grammar: about 40 MB at most, a few hundred milliseconds to compile, and a tenth of a second for a
// mask.
var limits = grammar.Limits{Nodes: 100_000, Expressions: 100_000, States: 8_000, Threads: 2_048, MaskBytes: 8 << 20,
	Work: 1_000_000}

// NewCache returns an empty cache. vocabulary returns that of the loaded model. back receives one user's requests, in
// the order of their Get, when what they waited for is compiled or refused; the caller then calls Get again.
func NewCache(m *metrics.Metrics, vocabulary func() *grammar.Vocabulary, back func([]*Waiter)) *Cache {
	c := &Cache{metrics: m, vocabulary: vocabulary, back: back, now: time.Now, spent: map[uint32]*spending{},
		users: map[uint32]*buildQueue{}}
	c.kept, _ = simplelru.NewLRU[[32]byte, *compiled](2*keptGrammars, nil)
	return c
}

// Grammars are the grammars of an answer's format and of its tool calls. The zero value is for an answer without
// constraints.
type Grammars struct{ format, calls *compiledSource }

// compiledSource is a source with its grammar.
type compiledSource struct {
	*Source
	*compiled
	took time.Duration // compilation time that the request caused; 0: the grammar was cached
}

// answer returns the source of a grammar that constrains the whole answer; nil if there is none.
func (g *Grammars) answer() *compiledSource {
	if g.format == nil && g.calls != nil && g.calls.must {
		return g.calls
	}
	return g.format
}

// Bound reports whether the whole answer is constrained.
func (g *Grammars) Bound() bool { return g.answer() != nil }

// Headed reports whether the whole answer is constrained, and with it the headers of its messages.
func (g *Grammars) Headed() bool { return g.Bound() && g.answer().headed }

// CallsOnly reports whether the answer consists of tool calls.
func (g *Grammars) CallsOnly() bool { return g.format == nil && g.calls != nil && g.calls.must }

// HasFormat reports whether the answer, or its text where it may be calls too, has a format.
func (g *Grammars) HasFormat() bool { return g.format != nil }

// Begins reports whether an answer that has a format may begin with text and continue; h are the headers of its
// messages. It uses the grammars' automata, which the decode loop owns.
func (g *Grammars) Begins(text string, h *meridian.Headers) bool {
	for _, of := range []*compiledSource{g.format, g.calls} {
		if of == nil {
			continue
		}
		m, begin := grammar.NewMatcher(of.grammar, of.vocab), text
		if of.headed {
			begin = messageEnd(h, false) + h.Turn + h.Answer + text
		}
		if m.AcceptBytes([]byte(begin)) == nil && !m.Done() {
			return true
		}
	}
	return false
}

// Get returns the grammars of format and calls, each of which may be nil, or the error with which to refuse the
// request. It adds a note for each keyword that is not enforced. waits: w waits for a build, and comes back when it
// ends.
func (c *Cache) Get(format, calls *Source, w *Waiter, notes *wire.Notes) (g Grammars, waits bool, bad *wire.Error) {
	if g.format, waits, bad = c.one(format, w, notes); bad == nil && !waits {
		g.calls, waits, bad = c.one(calls, w, notes)
	}
	if !waits {
		w.built, w.Job = nil, nil
	}
	return g, waits, bad
}

// one is Get for one source. Its grammar is nil if src is nil, or optional and without a grammar.
func (c *Cache) one(src *Source, w *Waiter, notes *wire.Notes) (_ *compiledSource, waits bool, bad *wire.Error) {
	if src == nil {
		return nil, false, nil
	}
	of := c.find(src, w)
	switch {
	case of == nil:
		return nil, true, nil
	case of.bad == nil:
		for _, t := range of.free {
			notes.Add(wire.Note{Reason: "tool_not_held", Times: 1, Text: fmt.Sprintf(
				"The schema of the tool %q is not enforced, its arguments may be any object: %.200s.", t.Tool, t.Why)})
		}
		out := &compiledSource{Source: src, compiled: of}
		if slices.Contains(w.built, of) {
			out.took = of.took
		}
		return out, false, nil
	case src.optional:
		notes.Add(wire.Note{Reason: "tools_not_held", Times: 1, Text: fmt.Sprintf(
			"Calls are not constrained by the tools' schemas: %.200s.", of.bad.Message)})
		return nil, false, nil
	}
	c.metrics.GrammarRefused.Inc()
	return nil, false, of.bad
}

// find returns the result of compiling src. nil: it is not known yet, and w waits for it.
func (c *Cache) find(src *Source, w *Waiter) *compiled {
	for _, of := range w.built {
		if of.key == src.Key {
			return of
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.known(src, w.Owner); of != nil {
		return of
	}
	c.enqueue(src, w)
	return nil
}

// known returns the cached result for src, or the refusal of a build; nil: src must be compiled. The caller holds c.mu.
func (c *Cache) known(src *Source, owner uint32) *compiled {
	if of, ok := c.kept.Get(src.Key); ok {
		return of
	}
	if c.shut != nil {
		e := *c.shut
		return &compiled{key: src.Key, bad: &e}
	}
	s := c.spent[owner]
	if s == nil {
		return nil
	}
	if s.pay(c.now()); s.used <= compileBurst {
		return nil
	}
	return &compiled{key: src.Key, bad: &wire.Error{Code: wire.QueueLimit,
		RetryAfter: time.Duration(float64(s.used-compileBurst)/compileShare) + time.Second,
		Message: fmt.Sprintf("%s: this user's grammars took %v to compile, more than %v at once; send fewer different "+
			"ones",
			src.Field, s.used.Round(time.Millisecond), compileBurst)}}
}

// charge adds a compilation to owner's spending. The caller holds c.mu.
func (c *Cache) charge(owner uint32, took time.Duration) {
	now := c.now()
	s := c.spent[owner]
	if s == nil {
		for id, o := range c.spent { // remove users whose spending has decreased to 0
			if o.pay(now); o.used == 0 {
				delete(c.spent, id)
			}
		}
		s = &spending{at: now}
		c.spent[owner] = s
	}
	s.pay(now)
	s.used += took
}

// pay subtracts the time that has passed since at.
func (s *spending) pay(now time.Time) {
	s.used = max(0, s.used-time.Duration(float64(now.Sub(s.at))*compileShare))
	s.at = now
}

// keep caches of and evicts the least recently used grammars until the limits hold: keptBytes of all, keptOwnerBytes of
// its owner, keptGrammars of all. For the last one it evicts from the user with the most grammars. The caller holds
// c.mu.
func (c *Cache) keep(of *compiled) {
	c.kept.Add(of.key, of)
	all, own, count, most := int64(0), int64(0), map[uint32]int{}, of.owner
	for _, o := range c.kept.Values() {
		all += o.bytes.Load()
		if o.owner == of.owner {
			own += o.bytes.Load()
		}
		count[o.owner]++
	}
	for owner, n := range count {
		if n > count[most] {
			most = owner
		}
	}
	for _, key := range c.kept.Keys() { // oldest first
		many := c.kept.Len() > keptGrammars
		if c.kept.Len() == 1 || !many && all <= keptBytes && own <= keptOwnerBytes {
			return
		}
		o, _ := c.kept.Peek(key)
		if all <= keptBytes && !(own > keptOwnerBytes && o.owner == of.owner) && !(many && o.owner == most) {
			continue
		}
		c.kept.Remove(key)
		n := o.bytes.Load()
		if all -= n; o.owner == of.owner {
			own -= n
		}
	}
}
