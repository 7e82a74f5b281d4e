package fake

import (
	"errors"
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/runtime"
)

// Head is the configuration of a fake model's head.
type Head struct {
	// Seed of its guesses: with the model's they are what the model says, if each row follows the right state. Texts of
	// scripts are not guessed.
	Seed    uint64
	Refused string // why OpenHead opens none; "" = it does
	Cost    Cost
	// File is the path of a file that has the head; "" = the model's file has it. With a Block that many tokens are
	// guessed at once (DFlash).
	File  string
	Block int
	// Shared: the head of the file reads the model's cells.
	Shared bool
	// Other: the head of the file has another vocabulary.
	Other bool
}

// stateWidth is the length of a state: the content hash up to a row, 16 bits a number. A model whose head has a file
// has it once for each layer that the head reads, with other bits turned round.
const (
	stateWidth = 4
	layersRead = 3
)

var (
	_ runtime.Headed = (*Engine)(nil)
	_ runtime.Head   = (*headEngine)(nil)
)

// headState is the part of an engine that its head, or it as a head, needs.
type headState struct {
	keepsStates bool
	layers      int       // that a state has; of a head, that of its model's rows
	sums        []uint64  // by row of the last Decode: its content hash, where states are kept
	states      []float32 // of sums
	follow      []uint64  // of a head: by row, the content hash that it follows; nil: it is a model
	block       int       // of a head: tokens that a Decode guesses
	guessed     []float32 // scratch of best
	// depth is, by row of a head that reads the model's cells, the number of own rows that it follows, one behind the
	// other: so far is it behind its position. nil: the head has cells.
	depth []int
}

// headEngine is a runtime.Head.
type headEngine struct {
	*Engine
	of *Engine // whose cells it reads; nil: it has its own
}

// OpenHead implements runtime.Headed.
func (e *Engine) OpenHead(o runtime.HeadOptions) (runtime.Head, error) {
	h := e.cfg.Head
	switch {
	case o.File != nil && (h == nil || o.File.ModelPath != h.File):
		return nil, fmt.Errorf("%w: %s: it is no head", runtime.ErrModel, o.File.ModelPath)
	case o.File != nil && e.decodes > 0:
		panic("fake: OpenHead with a file behind a Decode")
	case h == nil, o.File == nil && h.File != "":
		return nil, nil
	case h.Refused != "":
		return nil, errors.New(h.Refused)
	case o.File == nil && !e.cfg.Options.Head:
		return nil, errors.New("the model was loaded without it")
	}
	cfg := Config{Seed: h.Seed, Cost: h.Cost, Advance: e.cfg.Advance, Markers: e.cfg.Markers,
		SpelledTags: e.cfg.SpelledTags != h.Other}
	cfg.ModelPath, cfg.ContextTokens, cfg.Batch, cfg.Sequences = e.info.Path, o.ContextTokens, o.Batch, o.Sequences
	e.head.layers = 1
	if h.Shared {
		cfg.ContextTokens, cfg.Sequences = e.caps.ContextTokens, e.caps.MaxSequences
	}
	if o.File != nil && !h.Shared {
		e.head.layers = layersRead
	}
	if o.File != nil {
		cfg.ModelPath = h.File
	}
	out := New(cfg)
	out.head.layers, out.head.block = e.head.layers, max(1, h.Block)
	if o.File != nil {
		out.info.Architecture = map[bool]string{false: "eagle3", true: "dflash"}[h.Block > 1]
	}
	out.head.follow = make([]uint64, cap(out.batch.Token))
	if h.Shared {
		out.head.depth = make([]int, cap(out.batch.Token))
		out.info.Architecture = "gemma4-assistant"
		return &headEngine{out, e}, nil
	}
	return &headEngine{out, nil}, nil
}

// Shared implements runtime.Head.
func (h *headEngine) Shared() bool { return h.of != nil }

// Decode implements runtime.Engine.
func (h *headEngine) Decode() error {
	if h.of == nil {
		return h.Engine.Decode()
	}
	for i, s := range h.batch.Seq {
		if _, last := h.of.SeqRange(s); h.batch.Pos[i] != last+1 {
			panic(fmt.Sprintf("fake: row %d of the head is at position %d of sequence %d, which ends at %d", i,
				h.batch.Pos[i], s, last))
		}
	}
	if h.batch.Len() > len(h.of.free) {
		return runtime.ErrKVFull
	}
	if err := h.Engine.Decode(); err != nil {
		return err
	}
	for _, s := range h.batch.Seq {
		h.Engine.SeqRemove(s, 0, -1)
	}
	return nil
}

// SeqRange implements runtime.Engine.
func (h *headEngine) SeqRange(s runtime.Seq) (first, last runtime.Pos) {
	if h.of != nil {
		return h.of.SeqRange(s)
	}
	return h.Engine.SeqRange(s)
}

// SeqRemove implements runtime.Engine.
func (h *headEngine) SeqRemove(s runtime.Seq, p0, p1 runtime.Pos) bool {
	return h.of != nil || h.Engine.SeqRemove(s, p0, p1)
}

// KeepStates implements runtime.Headed.
func (e *Engine) KeepStates(on bool) { e.head.keepsStates = on }

// State implements runtime.Headed.
func (e *Engine) State(i int) []float32 { return e.state(i, max(1, e.head.layers)) }

func (e *Engine) state(i, layers int) []float32 {
	if i < 0 || i >= len(e.head.sums) {
		return nil
	}
	width := layers * stateWidth
	if need := (i + 1) * width; len(e.head.states) < need {
		e.head.states = make([]float32, cap(e.batch.Token)*width)
	}
	row := e.head.states[i*width : (i+1)*width : (i+1)*width]
	for k := range row {
		row[k] = float32((e.head.sums[i]>>(16*(k%stateWidth)) ^ turned(k/stateWidth)) & 0xffff)
	}
	return row
}

// turned returns the bits of a state's numbers that are turned round in its part of a layer.
func turned(layer int) uint64 { return uint64(layer) * 0x5a3c }

// Follow implements runtime.Head.
func (h *headEngine) Follow(i int, state []float32) {
	if len(state) != stateWidth && len(state) != h.StateWidth() || i >= h.batch.Len() {
		panic(fmt.Sprintf("fake: row %d of %d follows a state of %d numbers, want %d or %d", i, h.batch.Len(),
			len(state), stateWidth, h.StateWidth()))
	}
	if h.head.depth != nil {
		state = slices.Clone(state)
		h.head.depth[i], state[0] = int(state[0])>>16, float32(int(state[0])&0xffff)
	}
	var sums [layersRead]uint64
	for k, x := range state {
		sums[k/stateWidth] |= (uint64(x) ^ turned(k/stateWidth)) << (16 * (k % stateWidth))
	}
	for _, sum := range sums[:len(state)/stateWidth] {
		if sum != sums[0] {
			panic(fmt.Sprintf("fake: row %d follows a state of several rows", i))
		}
	}
	h.head.follow[i] = sums[0]
}

// State implements runtime.Head.
func (h *headEngine) State(i int) []float32 {
	if !h.has(i, runtime.RowLogits) {
		return nil
	}
	state := h.state(i, 1)
	if h.head.depth != nil {
		state[0] += float32((h.head.depth[i] + 1) << 16) // it is told from one of the model
	}
	return state
}

// StateWidth implements runtime.Head.
func (h *headEngine) StateWidth() int { return h.head.layers * stateWidth }

// Block implements runtime.Head.
func (h *headEngine) Block() int { return h.head.block }

// content returns the content hash of row i, whose sequence has that of sum with it.
func (e *Engine) content(i int, c *cell, sum uint64) uint64 {
	switch {
	case e.head.block > 1 && e.batch.Logits[i] != 0:
		sum = e.guesses(i)
	case e.head.depth != nil:
		at := *c
		at.pos += runtime.Pos(e.head.depth[i])
		sum = e.head.follow[i] + at.hash()
	case e.head.follow != nil:
		sum = e.head.follow[i] + c.hash()
	}
	if e.head.keepsStates || e.head.follow != nil {
		e.head.sums = append(e.head.sums, sum)
	}
	return sum
}

// guesses returns the content hash behind which row i of a block guesses: that of the row before it and, where that is
// of the block, of its guess.
func (e *Engine) guesses(i int) uint64 {
	if i == 0 || e.batch.Seq[i-1] != e.batch.Seq[i] || e.batch.Pos[i-1]+1 != e.batch.Pos[i] {
		panic(fmt.Sprintf("fake: row %d of a block is behind no row of its sequence", i))
	}
	sum := e.head.sums[i-1]
	if e.batch.Logits[i-1] == 0 {
		return sum
	}
	if e.head.guessed == nil {
		e.head.guessed = make([]float32, e.vocab.Size())
	}
	e.fill(e.head.guessed, &wanted{sum: sum, force: runtime.NoToken})
	c := cell{pos: e.batch.Pos[i-1], token: argmax(e.head.guessed)}
	return sum + c.hash()
}
