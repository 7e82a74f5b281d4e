package constrain

import (
	"bytes"
	"slices"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// Masks are shared by the constraints of a decode loop. Their worker computes masks while the engine decodes: between
// Begin and End it owns the constraints that want one and the automata of all grammars; otherwise the loop owns them.
// The worker's goroutine starts with the first constraint.
type Masks struct {
	vocab   runtime.Vocab
	headers *meridian.Headers // nil: the model's messages have none
	metrics *metrics.Metrics
	budget  budget
	all     sampler.Mask // all tokens but ends of generation; nil: not needed yet

	wanted  []*Constraint
	start   chan struct{}
	done    chan struct{}
	running bool
}

// NewMasks returns the masks of a model. h may be nil.
func NewMasks(v runtime.Vocab, h *meridian.Headers, m *metrics.Metrics) *Masks {
	return &Masks{vocab: v, headers: h, metrics: m}
}

// want has c's mask computed during the next decode.
func (m *Masks) want(c *Constraint) {
	if !slices.Contains(m.wanted, c) { // else a guessed token came true: the mask is of the token behind it
		m.wanted = append(m.wanted, c)
	}
}

// Begin starts the worker on the masks that are wanted.
func (m *Masks) Begin() {
	if len(m.wanted) == 0 {
		return
	}
	if m.start == nil {
		m.start, m.done = make(chan struct{}, 1), make(chan struct{}, 1)
		go m.run()
	}
	m.running = true
	m.start <- struct{}{}
}

// End waits for the worker and takes the constraints back. The worker has usually finished: a mask takes 1 % of a
// decode.
func (m *Masks) End() {
	if !m.running {
		return
	}
	<-m.done
	m.running = false
	clear(m.wanted)
	m.wanted = m.wanted[:0]
}

func (m *Masks) run() {
	for range m.start {
		for _, c := range m.wanted {
			if c.Applies() && !c.ready {
				c.prepare()
			}
		}
		m.done <- struct{}{}
	}
}

// Close ends the worker.
func (m *Masks) Close() {
	m.End()
	if m.start != nil {
		close(m.start)
	}
}

// notEnd returns the mask of all tokens but ends of generation.
func (m *Masks) notEnd() sampler.Mask {
	if m.all == nil {
		m.all = make(sampler.Mask, (m.vocab.Size()+31)/32)
		for t := range runtime.Token(m.vocab.Size()) {
			if !m.vocab.IsEOG(t) {
				m.all[t>>5] |= 1 << (t & 31)
			}
		}
	}
	return m.all
}

// tokenize returns the tokens of a text in which markers of calls are enclosed in fences; nil where that fails.
func (m *Masks) tokenize(text []byte) (tokens []runtime.Token) {
	for len(text) > 0 {
		fence := 0
		for fence < len(text) && text[fence] != tags.ShownFence && text[fence] != tags.HiddenFence {
			fence++
		}
		if fence > 0 {
			plain, err := m.vocab.Tokenize(nil, string(text[:fence]), false, false)
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
		marker := m.vocab.Find(string(text[1:end]))
		if marker == runtime.NoToken {
			return nil
		}
		tokens, text = append(tokens, marker), text[end+1:]
	}
	return tokens
}
