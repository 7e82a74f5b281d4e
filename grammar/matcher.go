package grammar

import (
	"bytes"
	"fmt"
	"slices"
)

// Matcher follows one text through a grammar.
//
// Matchers of one grammar share what they have computed, and with it the room that Limits gives. Where that is
// exceeded, the grammar forgets what matching has added and each Matcher follows its text again when it is next asked:
// a limit ends a text that needs more than all of it, and no other.
type Matcher struct {
	a      *automaton
	gen    int // of a, when at was found; -1: it is to be found
	at     *state
	text   []byte // that was accepted
	ended  bool   // by an end token
	forced []byte
	again  int // steps that following the text again took
	err    error
}

// NewMatcher returns a Matcher at the start of g's texts.
func NewMatcher(g *Grammar, v *Vocabulary) *Matcher {
	a := g.shared[v]
	if a == nil {
		a = newAutomaton(g, v)
		g.shared[v] = a
	}
	return &Matcher{a: a, gen: -1}
}

// ready finds m's place, if the automaton has begun again since, and reports whether m can continue.
func (m *Matcher) ready() bool {
	for fresh := false; m.err == nil && m.gen != m.a.current(); fresh = true {
		gen, before := m.a.gen, m.a.spent()
		s := m.a.first()
		for i, b := range m.text {
			if i%followed == 0 {
				m.a.begun()
			}
			if s = m.a.follow(s, b); s == m.a.dead {
				break
			}
		}
		m.again += m.a.spent() - before
		if m.exceeded(fresh) {
			continue
		}
		if m.ended {
			s = m.a.ended
		}
		m.gen, m.at = gen, s
	}
	return m.err == nil
}

// followed is the number of bytes after which following an accepted text again gets a new budget of Limits.Work.
const followed = 256

// exceeded reports whether the last question exceeded a limit. If it lacked room, and had not all of it (fresh), it can
// be asked again; otherwise m ends.
func (m *Matcher) exceeded(fresh bool) bool {
	a := m.a
	if a.check(); a.err == nil {
		return false
	}
	if fresh || !a.full {
		m.err = a.err
	}
	if a.spoiled {
		a.g.renew()
	}
	a.err, a.full, a.spoiled = nil, false, false
	return true
}

// Mask returns the tokens that may come next, one bit a token: token t is bit t%32 of word t/32. An end token's bit
// says that the text may end. The slice is owned by the Matcher's grammar, must not be written, and is valid until the
// next call of any method.
func (m *Matcher) Mask() []uint32 {
	for fresh := false; m.ready(); fresh = true {
		if mask := m.a.mask(m.at); !m.exceeded(fresh) {
			return mask
		}
	}
	return make([]uint32, m.a.v.words)
}

// Ready reports whether Mask answers from memory.
func (m *Matcher) Ready() bool { return m.err == nil && m.gen == m.a.current() && m.at.mask != nil }

// Accept takes one token. It returns an error that wraps ErrRejected, and takes nothing, when the token may not come.
// An end token is accepted where MayEnd, and then only Reset may follow.
func (m *Matcher) Accept(token int32) error {
	v := m.a.v
	if token < 0 || int(token) >= v.size {
		return fmt.Errorf("%w: token %d of a vocabulary of %d", ErrRejected, token, v.size)
	}
	for _, e := range v.ends {
		if e == token {
			if !m.MayEnd() {
				return fmt.Errorf("%w: the text may not end here", ErrRejected)
			}
			m.move(m.a.ended, nil)
			m.ended = true
			return nil
		}
	}
	if len(v.piece(token)) == 0 {
		return fmt.Errorf("%w: token %d has no text", ErrRejected, token)
	}
	return m.AcceptBytes(v.piece(token))
}

// AcceptBytes takes text, all or nothing; errors as Accept's.
func (m *Matcher) AcceptBytes(text []byte) error {
	for fresh := false; m.ready(); fresh = true {
		s, at := m.at, 0
		m.a.begun()
		for i, b := range text {
			if s = m.a.follow(s, b); s == m.a.dead {
				at = i
				break
			}
		}
		if m.exceeded(fresh) {
			continue
		}
		if s == m.a.dead {
			return fmt.Errorf("%w: byte %d of %q", ErrRejected, at, text)
		}
		m.move(s, text)
		return nil
	}
	return m.err
}

func (m *Matcher) move(s *state, text []byte) {
	m.at, m.text = s, append(m.text, text...)
	m.a.trim()
}

// Forced returns the bytes that must come next: empty where there is a choice, the text may end, or a limit was
// exceeded. The slice is valid until the next call.
func (m *Matcher) Forced() []byte {
	m.forced = m.forced[:0]
	if !m.ready() {
		return nil
	}
	m.a.begun()
	for s := m.at; !s.end && len(m.forced) < maxForced; {
		b, next := m.a.only(s)
		if next == nil {
			break
		}
		m.forced = append(m.forced, b)
		s = next
	}
	if err := m.err; m.exceeded(false) {
		m.err = err // that nothing is known to be forced ends no text
		return nil
	}
	return m.forced
}

// maxForced bounds one answer of Forced, in bytes.
const maxForced = 4096

// ForcedTokens returns tokens that must come next, as tokenize cuts the bytes of Forced. The last one is left out
// unless the text is complete with it: where a choice follows, a longer token could begin. The answer is kept for the
// state, so tokenize must always give the same. Take the tokens with Accept.
func (m *Matcher) ForcedTokens(tokenize func(text []byte) []int32) []int32 {
	if !m.ready() {
		return nil
	}
	s := m.at
	if s.forcedKnown {
		return s.forced
	}
	text := m.Forced()
	if m.gen != m.a.current() { // there was no room to tell
		return nil
	}
	s.forcedKnown = true
	if len(text) < 2 {
		return nil
	}
	tokens, rest, end := tokenize(text), text, m.at
	for _, t := range tokens {
		if t < 0 || int(t) >= m.a.v.size || len(m.a.v.piece(t)) == 0 || !bytes.HasPrefix(rest, m.a.v.piece(t)) {
			return nil // a tokenizer that changes its text
		}
		rest = rest[len(m.a.v.piece(t)):]
	}
	for _, b := range text {
		end = m.a.step(end, b)
	}
	if len(rest) > 0 {
		return nil
	}
	if !end.end || len(end.threads) > 0 {
		tokens = tokens[:len(tokens)-1]
	}
	s.forced = slices.Clone(tokens)
	return s.forced
}

// Bytes returns an estimate of the memory that the grammar takes, with all that was computed for its Matchers.
func (g *Grammar) Bytes() int {
	n := 160*g.set.Len() + 64*len(g.code)
	for v, a := range g.shared {
		n += 600*len(a.states) + 160*len(a.conts) + 4*v.words*a.masks + 8*len(a.keyBytes) + 120*len(a.takens)
	}
	return n
}

// MayEnd reports whether the text so far is complete.
func (m *Matcher) MayEnd() bool { return m.ready() && m.at.end }

// Done reports whether the text is complete and nothing may follow.
func (m *Matcher) Done() bool { return m.ready() && m.at.end && len(m.at.threads) == 0 }

// Err returns the limit that this text exceeded, or nil: from then on masks allow nothing. It wraps ErrLimit or
// regex.ErrLimit.
func (m *Matcher) Err() error { return m.err }

// Work counts the steps of Limits.Work that the grammar's Matchers have taken so far, without those that m took to
// follow its text again.
func (m *Matcher) Work() int { return m.a.spent() - m.again }

// Clone returns an independent Matcher at the same place.
func (m *Matcher) Clone() *Matcher {
	return &Matcher{a: m.a, gen: m.gen, at: m.at, text: slices.Clone(m.text), ended: m.ended, err: m.err}
}

// Reset goes back to the start.
func (m *Matcher) Reset() {
	m.gen, m.text, m.ended, m.err = -1, m.text[:0], false, nil
}
