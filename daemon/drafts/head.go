package drafts

import (
	"fmt"
	"log/slog"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/runtime"
)

// headOf is the part of a Model that a head needs.
type headOf struct {
	head   runtime.Head   // nil: it is a draft model
	file   bool           // the head has a separate file
	model  runtime.Headed // the engine whose head it is
	states int            // newest rows of a request whose states are kept
	free   [][]float32    // of States that were dropped
	of     func(core.ID) *States
}

// States are the states of a request's newest rows, a ring by position. The zero value has none.
type States struct{ rows []float32 }

// OpenHead opens the head of eng's model and keeps the states of so many newest rows of each request; nil where the
// model's file has none. The error says why it cannot be used.
func OpenHead(eng runtime.Engine, o runtime.HeadOptions, states int, log *slog.Logger) (*Model, error) {
	of, ok := eng.(runtime.Headed)
	switch {
	case o.File != nil && eng.Model().Encoder:
		return nil, fmt.Errorf("--draft-model: the head %s: the model generates nothing", o.File.ModelPath)
	case o.File != nil && !ok:
		return nil, fmt.Errorf("--draft-model: the head %s: this build has no heads (docs/engines.md)",
			o.File.ModelPath)
	case !ok || eng.Model().Encoder:
		return nil, nil
	}
	head, err := of.OpenHead(o)
	if err != nil && o.File != nil {
		return nil, fmt.Errorf("--draft-model: the head: %w", err)
	}
	if err != nil || head == nil {
		return nil, err
	}
	m := newModel(head, eng.Model().Path, log)
	m.shared, m.cost = eng.Model().VocabSize, relativeCost(head, eng)
	m.headOf = headOf{head: head, model: of, states: states}
	if o.File != nil {
		m.path, m.file = o.File.ModelPath, true
		if err := m.sameVocab(eng, eng.Model().Path); err != nil {
			head.Close()
			return nil, err
		}
	}
	return m, nil
}

// StatesOf sets the function that returns the kept states of a live request.
func (m *Model) StatesOf(of func(core.ID) *States) {
	if m != nil {
		m.of = of
	}
}

// WantStates has the engine keep the states of the batch that it decodes next, if the core wants them.
func (m *Model) WantStates(c *core.Core) {
	if m != nil && m.head != nil {
		m.model.KeepStates(c.KeepsStates())
	}
}

// Keeps reports whether the states of the batch that was decoded are to be kept.
func (m *Model) Keeps(c *core.Core) bool { return m != nil && m.head != nil && c.KeepsStates() }

// Keep keeps the states of n rows of the batch that was decoded, from row on, which a request has at position from and
// behind.
func (m *Model) Keep(s *States, row, from, n int) {
	for i := max(0, n-m.states); i < n; i++ {
		if state := m.model.State(row + i); state != nil {
			copy(m.at(s, from+i), state)
		}
	}
}

// at returns the place of the state of the row at a position.
func (m *Model) at(s *States, pos int) []float32 {
	width := m.head.StateWidth()
	if n := len(m.free); s.rows == nil && n > 0 {
		s.rows, m.free = m.free[n-1], m.free[:n-1]
	} else if s.rows == nil {
		s.rows = make([]float32, m.states*width)
	}
	pos %= m.states
	return s.rows[pos*width : (pos+1)*width]
}

// Drop takes the states of a request that has ended.
func (m *Model) Drop(s *States) {
	if m != nil && s.rows != nil {
		m.free = append(m.free, s.rows)
		s.rows = nil
	}
}

// follow gives the rows of the head's batch the states that they follow.
func (m *Model) follow(c *core.Core) {
	if m.head == nil {
		return
	}
	for i, b := range c.Behind() {
		switch {
		case b.Request != nil:
			m.head.Follow(i, m.at(m.of(b.Request.ID), b.At))
		case b.At >= 0:
			m.head.Follow(i, m.head.State(b.At))
		}
	}
}
