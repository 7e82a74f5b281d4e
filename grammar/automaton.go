package grammar

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// cont is a continuation after a terminal: the stacks of places at which the program continues, as a tree whose
// branches share their lower parts. Equal conts are one pointer.
type cont struct {
	id     uint32
	end    bool    // the text may end here
	frames []frame // sorted by place and argument, one of each
	reads  bool    // a frame is behind a key, whose text it has
	state  *state  // where a text is that has just come here, once computed
}

// frame is one place to continue at.
type frame struct {
	pc, arg int32
	up      *cont
}

// thread is one way to read the text so far: the expression that the text is inside of, and what follows it.
type thread struct {
	expr regex.Expr
	k    *cont
}

// state is every way to read the text so far. Equal states are one pointer, until the automaton forgets.
type state struct {
	id      uint32
	threads []thread // sorted by expression, one of each
	end     bool     // the text may end here
	class   *[256]byte
	next    []*state // by class; nil is not computed yet
	mask    []uint32 // nil until asked for
	// The tokens of ForcedTokens, once asked for.
	forced      []int32
	forcedKnown bool
}

// automaton computes the states of a grammar over a vocabulary as they are reached and keeps them, States at most.
type automaton struct {
	g   *Grammar
	set *regex.Set
	v   *Vocabulary
	gen int // of g

	// The limit that the current question has exceeded; the Matcher that asked takes it. full: it is a limit of memory,
	// so the question may succeed in a renewed grammar. spoiled: the grammar must be renewed in any case.
	err           error
	full, spoiled bool

	steps int // threads, frames and places that were looked at, ever
	until int // the limit of spent in this call

	alone bool // compute asks for one derivative of each expression

	conts   map[string]*cont
	states  map[string]*state
	vectors map[string]int32 // what Unordered has seen, by its counts
	counts  [][]int32        // by vector: the members' counts, then their sum
	lastID  uint32
	masks   int // of states

	bottom *cont
	dead   *state // nothing may come; one for good
	ended  *state // the text has ended
	start  *state // nil: see first

	scratch

	keyed

	inside map[regex.Expr]uint16 // see contained
	walk   []*state
}

// keyed holds the keys of Unordered with keys (distinct.go).
type keyed struct {
	keyBytes []keyByte
	takens   []taken
	takenIDs map[taken]int32
	without  map[takenKey]regex.Expr
}

// scratch is reused by closures and steps.
type scratch struct {
	key     []byte
	work    []todo
	visited map[todo]struct{}
	joins   map[[2]uint32]*cont // what union has made since begin, by the conts' ids
	out     []thread
	outEnd  bool
	frames  []frame
	vector  []int32
}

// todo is a place to continue at with a stack.
type todo struct {
	pc, arg int32
	k       *cont
}

var identity = func() *[256]byte {
	var c [256]byte
	for i := range c {
		c[i] = byte(i)
	}
	return &c
}()

func newAutomaton(g *Grammar, v *Vocabulary) *automaton {
	a := &automaton{g: g, set: g.set, v: v,
		scratch: scratch{visited: map[todo]struct{}{}, joins: map[[2]uint32]*cont{}}}
	a.restart()
	return a
}

// restart begins again, with nothing of what was computed before.
func (a *automaton) restart() {
	a.gen, a.vectors, a.counts, a.inside = a.g.gen, map[string]int32{}, nil, map[regex.Expr]uint16{}
	a.bottom, a.dead, a.ended = &cont{id: 1, end: true}, &state{id: 2}, &state{id: 3, end: true}
	a.lastID, a.masks = 3, 0
	a.setKeys()
	a.forget()
}

// current returns the generation of the grammar, after beginning again if it is another one.
func (a *automaton) current() int {
	if a.gen != a.g.gen {
		a.restart()
	}
	return a.gen
}

// forget drops every state. Those that matchers still hold go on with empty transitions.
func (a *automaton) forget() {
	for _, s := range a.states {
		s.next, s.mask, s.class = nil, nil, nil
	}
	a.conts, a.states = map[string]*cont{"\x01": a.bottom}, map[string]*state{"": a.dead, "\x01": a.ended}
	a.start = nil
}

// first returns the state before any text.
func (a *automaton) first() *state {
	if a.start != nil {
		return a.start
	}
	a.begun()
	s := a.enter(a.g.start, a.bottom)
	if a.err == nil {
		a.start = s
	}
	return s
}

func (a *automaton) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%w: "+format, append([]any{ErrLimit}, args...)...)
	}
}

// check notes a limit of the expressions.
func (a *automaton) check() {
	err := a.set.Err()
	if err == nil {
		return
	}
	a.spoiled = true
	switch {
	case a.err != nil:
	case errors.Is(err, regex.ErrWork):
		a.failWork()
	default:
		a.err, a.full = err, true
	}
}

// begun starts the count of Limits.Work, for one mask, one text accepted, one question about forced bytes or the first
// state.
func (a *automaton) begun() {
	a.until = a.spent() + a.g.limits.Work
	a.set.WorkUntil(a.set.Work() + a.g.limits.Work)
}

func (a *automaton) spent() int { return a.steps + a.set.Work() }

// over reports whether the count has exceeded Limits.Work.
func (a *automaton) over() bool {
	if a.spent() <= a.until {
		return false
	}
	a.failWork()
	return true
}

func (a *automaton) failWork() {
	a.fail("what may come next takes more than %d steps to tell (Limits.Work)", a.g.limits.Work)
}

func compareFrames(f, g frame) int {
	if c := cmp.Compare(f.pc, g.pc); c != 0 {
		return c
	}
	return cmp.Compare(f.arg, g.arg)
}

func (a *automaton) intern(threads []thread, end bool) *state {
	key := a.key[:0]
	if end {
		key = append(key, 1)
	}
	for _, t := range threads {
		key = binary.LittleEndian.AppendUint32(key, uint32(t.expr))
		key = binary.LittleEndian.AppendUint32(key, t.k.id)
	}
	a.key = key
	if s, ok := a.states[string(key)]; ok {
		return s
	}
	a.lastID++
	s := &state{id: a.lastID, threads: slices.Clone(threads), end: end}
	a.states[string(key)] = s
	return s
}

// step returns the state after b: dead when b may not come.
func (a *automaton) step(s *state, b byte) *state {
	if s.next == nil {
		a.prepare(s)
	}
	c := s.class[b]
	if t := s.next[c]; t != nil {
		return t
	}
	t := a.compute(s, b)
	if a.err == nil {
		s.next[c] = t
	}
	return t
}

// follow is step for a text that is accepted. A state that only counts differently from one with the same mask is not
// likely to come again: none of its other transitions are computed.
func (a *automaton) follow(s *state, b byte) *state {
	if s.next != nil || !s.readsKeys() && a.saturated(s) == s {
		return a.step(s, b)
	}
	a.alone = true
	next := a.compute(s, b)
	a.alone = false
	return next
}

// prepare makes room for a state's transitions. Many threads have no classes in common, and a class a byte is cheaper
// than to find them.
func (a *automaton) prepare(s *state) {
	if len(s.threads) == 1 && !s.threads[0].k.reads {
		class, next := a.set.Row(s.threads[0].expr)
		s.class, s.next = class, make([]*state, len(next))
		return
	}
	s.class, s.next = identity, make([]*state, 256)
}

func (a *automaton) compute(s *state, b byte) *state {
	a.out, a.outEnd = a.out[:0], false
	if a.steps += len(s.threads); a.over() {
		return a.dead
	}
	for _, t := range s.threads {
		if !a.set.First(t.expr).Has(b) {
			continue
		}
		var e regex.Expr
		if a.alone {
			e = a.set.DeriveAlone(t.expr, b)
		} else {
			e = a.set.Derive(t.expr, b)
		}
		if e == 0 {
			continue
		}
		k := a.read(t.k, b)
		if e != a.set.Empty() {
			a.out = append(a.out, thread{e, k})
		}
		if a.set.Nullable(e) {
			n := a.after(k)
			a.out = append(a.out, n.threads...)
			a.outEnd = a.outEnd || n.end
		}
	}
	if len(a.out) == 0 && !a.outEnd {
		a.check()
		return a.dead
	}
	return a.finish()
}

// trim forgets when there are too many states. It is called between tokens, where no walk holds any.
func (a *automaton) trim() {
	if len(a.states) > a.g.limits.States || len(a.conts) > 4*a.g.limits.States {
		a.forget()
	}
}

// only returns the byte that must come in s, and the state after it; nil when there are several or none.
func (a *automaton) only(s *state) (byte, *state) {
	var may regex.ByteSet
	for _, t := range s.threads {
		may = may.Union(a.set.First(t.expr))
	}
	if may.Len() > maxTried {
		return 0, nil
	}
	var at byte
	var next *state
	for b := range 256 {
		if !may.Has(byte(b)) {
			continue
		}
		n := a.step(s, byte(b))
		if n == a.dead {
			continue
		}
		if next != nil {
			return 0, nil
		}
		at, next = byte(b), n
	}
	return at, next
}

// maxTried bounds the bytes that are tried one by one to find the only one that continues a text.
const maxTried = 8
