package grammar

import (
	"bytes"
	"fmt"
	"slices"
)

// Matcher follows one text through a grammar.
type Matcher struct {
	a       *automaton
	at      *state
	history []*state // before each step that Rollback can take back
	forced  []byte
}

// NewMatcher returns a Matcher at the start of g's texts.
func NewMatcher(g *Grammar, v *Vocabulary) *Matcher {
	a := g.shared[v]
	if a == nil {
		a = newAutomaton(g, v)
		g.shared[v] = a
	}
	return &Matcher{a: a, at: a.start}
}

// Mask returns the tokens that may come next, one bit a token: token t is bit t%32 of word t/32. An end token's bit says
// that the text may end. The slice is owned by the Matcher's grammar, must not be written, and is valid until the next
// call of any method.
func (m *Matcher) Mask() []uint32 { return m.a.mask(m.at) }

// Ready reports whether Mask answers from memory.
func (m *Matcher) Ready() bool { return m.at.mask != nil }

// Accept takes one token. It returns an error that wraps ErrRejected, and takes nothing, when the token may not come.
// An end token is accepted where MayEnd, and then only Rollback and Reset may follow.
func (m *Matcher) Accept(token int32) error {
	v := m.a.v
	if token < 0 || int(token) >= v.size {
		return fmt.Errorf("%w: token %d of a vocabulary of %d", ErrRejected, token, v.size)
	}
	for _, e := range v.ends {
		if e == token {
			if !m.at.end {
				return fmt.Errorf("%w: the text may not end here", ErrRejected)
			}
			m.move(m.a.ended)
			return nil
		}
	}
	if len(v.piece(token)) == 0 {
		return fmt.Errorf("%w: token %d has no text", ErrRejected, token)
	}
	return m.AcceptBytes(v.piece(token))
}

// AcceptBytes takes text as one step of Rollback, all or nothing; errors as Accept's.
func (m *Matcher) AcceptBytes(text []byte) error {
	s := m.at
	m.a.begun()
	for i, b := range text {
		if s = m.a.follow(s, b); s == m.a.dead {
			if m.a.err != nil {
				return m.a.err
			}
			return fmt.Errorf("%w: byte %d of %q", ErrRejected, i, text)
		}
	}
	m.move(s)
	return nil
}

func (m *Matcher) move(s *state) {
	m.history = append(m.history, m.at)
	m.at = s
	m.a.trim()
}

// Forced returns the bytes that must come next: empty where there is a choice or the text may end. The slice is valid until
// the next call.
func (m *Matcher) Forced() []byte {
	m.forced = m.forced[:0]
	m.a.begun()
	for s := m.at; !s.end && len(m.forced) < maxForced; {
		b, next := m.a.only(s)
		if next == nil {
			break
		}
		m.forced = append(m.forced, b)
		s = next
	}
	return m.forced
}

// maxForced bounds one answer of Forced, in bytes.
const maxForced = 4096

// ForcedTokens returns tokens that must come next, as tokenize cuts the bytes of Forced. The last one is left out unless
// the text is complete with it: where a choice follows, a longer token could begin. The answer is kept for the state, so
// tokenize must always give the same. Take the tokens with Accept.
func (m *Matcher) ForcedTokens(tokenize func(text []byte) []int32) []int32 {
	s := m.at
	if s.forcedKnown {
		return s.forced
	}
	s.forcedKnown = true
	text := m.Forced()
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

// Bytes is an estimate of the memory that the grammar takes, with all that was computed for its Matchers.
func (g *Grammar) Bytes() int {
	n := 160*g.set.Len() + 64*len(g.code)
	for v, a := range g.shared {
		n += 600*len(a.states) + 160*len(a.conts) + 4*v.words*a.masks
	}
	return n
}

// MayEnd reports whether the text so far is complete.
func (m *Matcher) MayEnd() bool { return m.at.end }

// Done reports whether the text is complete and nothing may follow.
func (m *Matcher) Done() bool { return m.at.end && len(m.at.threads) == 0 }

// Err returns the limit that was exceeded while matching, or nil: from then on masks allow nothing. It wraps ErrLimit or
// regex.ErrLimit.
func (m *Matcher) Err() error { return m.a.err }

// Work counts the steps of Limits.Work that the grammar's Matchers have taken so far.
func (m *Matcher) Work() int { return m.a.spent() }

// Clone returns an independent Matcher at the same place, without what was accepted before it.
func (m *Matcher) Clone() *Matcher { return &Matcher{a: m.a, at: m.at} }

// Rollback takes back the last n calls of Accept and AcceptBytes that succeeded. It panics when there were fewer.
func (m *Matcher) Rollback(n int) {
	if n <= 0 {
		return
	}
	at := len(m.history) - n
	m.at = m.history[at]
	m.history = m.history[:at]
}

// Reset goes back to the start.
func (m *Matcher) Reset() { m.at, m.history = m.a.start, m.history[:0] }
