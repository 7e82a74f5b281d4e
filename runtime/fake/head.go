package fake

import (
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/runtime"
)

// Head is the configuration of a fake model's head.
type Head struct {
	// Seed of its guesses: with the model's they are what the model says, if each row follows the right state. Texts of
	// scripts are not guessed.
	Seed    uint64
	Refused string // why OpenHead opens none; "" = it does
	Cost    Cost
}

// stateWidth is the length of a state: the content hash up to a row, 16 bits a number.
const stateWidth = 4

var (
	_ runtime.Headed = (*Engine)(nil)
	_ runtime.Head   = (*headEngine)(nil)
)

// headState is the part of an engine that its head, or it as a head, needs.
type headState struct {
	keepsStates bool
	sums        []uint64  // by row of the last Decode: its content hash, where states are kept
	states      []float32 // of sums
	follow      []uint64  // of a head: by row, the content hash that it follows; nil: it is a model
}

// headEngine is a runtime.Head.
type headEngine struct {
	*Engine
}

// OpenHead implements runtime.Headed.
func (e *Engine) OpenHead(o runtime.HeadOptions) (runtime.Head, error) {
	h := e.cfg.Head
	switch {
	case h == nil:
		return nil, nil
	case h.Refused != "":
		return nil, errors.New(h.Refused)
	case !e.cfg.Options.Head:
		return nil, errors.New("the model was loaded without it")
	}
	cfg := Config{Seed: h.Seed, Cost: h.Cost, Advance: e.cfg.Advance, Markers: e.cfg.Markers,
		SpelledTags: e.cfg.SpelledTags}
	cfg.ModelPath, cfg.ContextTokens, cfg.Batch, cfg.Sequences = e.info.Path, o.ContextTokens, o.Batch, o.Sequences
	out := New(cfg)
	out.follow = make([]uint64, cap(out.batch.Token))
	return &headEngine{out}, nil
}

// KeepStates implements runtime.Headed.
func (e *Engine) KeepStates(on bool) { e.keepsStates = on }

// State implements runtime.Headed.
func (e *Engine) State(i int) []float32 {
	if i < 0 || i >= len(e.sums) {
		return nil
	}
	if need := (i + 1) * stateWidth; len(e.states) < need {
		e.states = make([]float32, cap(e.batch.Token)*stateWidth)
	}
	row := e.states[i*stateWidth : (i+1)*stateWidth : (i+1)*stateWidth]
	for k := range row {
		row[k] = float32(e.sums[i] >> (16 * k) & 0xffff)
	}
	return row
}

// Follow implements runtime.Head.
func (h *headEngine) Follow(i int, state []float32) {
	if len(state) != stateWidth || i >= h.batch.Len() {
		panic(fmt.Sprintf("fake: row %d of %d follows a state of %d numbers, want %d", i, h.batch.Len(), len(state),
			stateWidth))
	}
	h.follow[i] = 0
	for k, x := range state {
		h.follow[i] |= uint64(x) << (16 * k)
	}
}

// State implements runtime.Head.
func (h *headEngine) State(i int) []float32 {
	if !h.has(i, runtime.RowLogits) {
		return nil
	}
	return h.Engine.State(i)
}

// StateWidth implements runtime.Head.
func (h *headEngine) StateWidth() int { return stateWidth }

// content returns the content hash of row i, whose sequence has that of sum with it.
func (e *Engine) content(i int, c *cell, sum uint64) uint64 {
	if e.follow != nil {
		sum = e.follow[i] + c.hash()
	}
	if e.keepsStates || e.follow != nil {
		e.sums = append(e.sums, sum)
	}
	return sum
}
