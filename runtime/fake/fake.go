// Package fake is a runtime.Engine without a model: for tests of what stands on an engine, and for simulation.
//
// It keeps the whole contract. KV cells are really accounted for: shared by SeqCopy, freed with their last owner,
// ErrKVFull when none is left. The logits of a row are a pure function of the (position, token) pairs its sequence
// holds at that moment and of a seed, so that a caller's mistake in its KV bookkeeping (a lost cell, a wrong position,
// a stale prefix) changes the output like it would with a model.
//
// Nothing here sleeps or reads a clock: Decode computes what it would have cost (Cost), reports it as LastDecode and
// hands it to Config.Advance, which may move a simulator's clock, or be time.Sleep.
//
// What it is stricter about than llama.cpp, because each is a mistake of the caller: two goroutines inside the engine
// at once, copying over cells that are held, and a second Close panic.
package fake

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/runtime"
)

// Cost is the modelled duration of a Decode in milliseconds: Base + Prefill·prompt rows + Decode·decode rows +
// KV·cells attended to, summed over the rows. A sequence's only row in a batch is a decode row.
type Cost struct {
	BaseMs, PrefillMs, DecodeMs, KVMs float64
}

// Script makes the engine answer: whenever what a sequence holds is …After + a beginning of Emit, the next token is
// the next of Emit, and after all of it the end of the turn. The last place where After occurs counts. Both are read
// with their markers ("<think>").
type Script struct {
	After string // default "<|im_start|>assistant\n"
	Emit  string
}

// Config describes an engine. The zero value is one of 4096 cells and one sequence.
type Config struct {
	runtime.Options // ContextTokens, Batch, MicroBatch, Sequences, Threads and KV types count; ModelPath names it

	Seed     uint64   // another seed, other logits
	Scripts  []Script // the first that fits answers; without one the text is noise
	EndEvery int      // noise ends a generation about once in so many tokens; 0 = never
	NoRanges bool     // be a model that cannot drop parts of a sequence (recurrent, sliding window)
	Template string   // chat template; "" = ChatML

	NoTemplate  bool     // have none, with Template ""
	Markers     []string // more control tokens, each beginning with "<"
	SpelledTags bool     // "<think>" and "</think>" are no tokens: they are spelled byte by byte

	Cost    Cost
	Advance func(time.Duration) // told what each Decode cost, before its end; nil = nobody
}

// cell is one token's place in the pool.
type cell struct {
	pos    runtime.Pos
	token  runtime.Token
	owners int32 // sequences that hold it; 0 = free
}

// sequence is what one sequence holds.
type sequence struct {
	cells []int32 // Invariant: indices of used cells, positions strictly ascending
	sum   uint64  // Invariant: Σ hash(position, token) of the cells

	// What the batch of Decode number mark adds to it: how many rows, and the last position after them.
	mark, rows int
	end        runtime.Pos
}

// Engine implements runtime.Engine and runtime.RowScanner. Like any engine it belongs to one goroutine, but for Abort,
// Vocab and the facts.
type Engine struct {
	closed invariants.CloseChecker
	cfg    Config
	caps   runtime.Capabilities
	info   runtime.ModelInfo
	vocab  *vocab

	cells []cell
	free  []int32 // Invariant: the indices of all cells without owners
	seqs  []sequence

	batch  runtime.Batch
	script []script
	// rows[i] is where row i of the last successful Decode has its logits, -1 = nowhere; logits are made when asked
	// for, from the content hash (and, scripted, the forced token) kept here.
	rows   []int32
	want   []wanted
	logits []float32

	fail    []failure
	decodes int
	took    time.Duration
	aborted atomic.Bool
	inside  atomic.Bool
	dead    bool
	calls   int // for the checks of invariant builds
}

type wanted struct {
	sum   uint64
	force runtime.Token // NoToken = noise
	done  bool          // its logits are computed
}

type failure struct {
	at  int // decodes, counted from 1
	err error
}

var (
	_ runtime.Engine     = (*Engine)(nil)
	_ runtime.RowScanner = (*Engine)(nil)
)

// New makes an engine. It panics on options out of range: they come from a test.
func New(cfg Config) *Engine {
	orDefault := func(v, d int) int {
		if v < 0 {
			panic(fmt.Sprintf("fake: negative option %d", v))
		}
		if v == 0 {
			return d
		}
		return v
	}
	ctx := orDefault(cfg.ContextTokens, 4096)
	e := &Engine{
		cfg: cfg, vocab: newVocab(&cfg),
		cells: make([]cell, ctx), free: make([]int32, ctx), seqs: make([]sequence, orDefault(cfg.Sequences, 1)),
	}
	for i := range e.free {
		e.free[i] = int32(ctx - 1 - i) // the lowest cell is taken first
	}
	n := min(orDefault(cfg.Batch, 2048), ctx)
	e.batch = runtime.Batch{
		Token: make([]runtime.Token, 0, n), Pos: make([]runtime.Pos, 0, n), Seq: make([]runtime.Seq, 0, n), Logits: make([]int8, 0, n),
	}
	e.rows = make([]int32, 0, n)
	for _, s := range cfg.Scripts {
		e.script = append(e.script, newScript(e.vocab, s))
	}
	e.caps = runtime.Capabilities{
		UnifiedKV: true, CanShift: !cfg.NoRanges, CanRemoveRange: !cfg.NoRanges, CanAbort: true, PersistentGraph: true,
		MaxBatch: n, MaxMicroBatch: min(orDefault(cfg.MicroBatch, 512), n), MaxSequences: len(e.seqs), ContextTokens: ctx,
		Threads: orDefault(cfg.Threads, 1), Device: runtime.DeviceFake, DeviceName: "none", EngineBuild: "fake",
	}
	name := cfg.ModelPath
	if name == "" {
		name = "fake"
	}
	e.info = runtime.ModelInfo{
		Path: name, Name: name, Architecture: "fake", Description: "fake model", TrainContext: ctx, Layers: 1, Embedding: 1, Heads: 1,
		KVHeads: 1, VocabSize: e.vocab.Size(), KVTypeK: "f16", KVTypeV: "f16", KVBytesPerToken: cellBytes, Recurrent: cfg.NoRanges,
	}
	return e
}

func (e *Engine) Capabilities() runtime.Capabilities { return e.caps }
func (e *Engine) Model() runtime.ModelInfo           { return e.info }
func (e *Engine) Vocab() runtime.Vocab               { return e.vocab }
func (e *Engine) Batch() *runtime.Batch              { return &e.batch }
func (e *Engine) LastDecode() time.Duration          { return e.took }
func (e *Engine) Abort()                             { e.aborted.Store(true) }

// FailDecode makes the n-th Decode from now (1 = the next) return err, once. With runtime.ErrKVFull nothing is
// computed; with any other error the first half of the batch is, as the contract allows.
func (e *Engine) FailDecode(n int, err error) {
	e.fail = append(e.fail, failure{e.decodes + n, err})
}

// Used is the cells that some sequence holds.
func (e *Engine) Used() int { return len(e.cells) - len(e.free) }

// Decodes counts the calls of Decode.
func (e *Engine) Decodes() int { return e.decodes }

// Held are the tokens s holds, in order of position.
func (e *Engine) Held(s runtime.Seq) []runtime.Token {
	out := make([]runtime.Token, 0, len(e.seqs[s].cells))
	for _, c := range e.seqs[s].cells {
		out = append(out, e.cells[c].token)
	}
	return out
}

// enter marks that a goroutine is inside; leave takes it back.
func (e *Engine) enter() {
	if !e.inside.CompareAndSwap(false, true) {
		panic("fake: two goroutines in the engine at once")
	}
	if e.dead {
		panic("fake: used after Close")
	}
}

func (e *Engine) leave() {
	if invariants.Enabled {
		if e.calls++; e.calls%16 == 0 { // each is a pass over the whole pool
			e.check()
		}
	}
	e.inside.Store(false)
}

func (e *Engine) Decode() error {
	e.enter()
	defer e.leave()
	e.decodes++
	e.rows, e.want = e.rows[:0], e.want[:0]
	e.took = 0
	e.aborted.Store(false)
	if err := e.checkBatch(); err != nil {
		return err
	}
	injected := e.injected()
	if errors.Is(injected, runtime.ErrKVFull) || e.batch.Len() > len(e.free) {
		return runtime.ErrKVFull
	}
	e.took = e.cost()
	if e.cfg.Advance != nil {
		e.cfg.Advance(e.took)
	}
	n := e.batch.Len()
	err := injected
	if err == nil && e.aborted.Load() {
		err = runtime.ErrAborted
	}
	if err != nil {
		n /= 2
	}
	for i := range n {
		e.compute(i)
	}
	if err != nil {
		e.rows, e.want = e.rows[:0], e.want[:0]
	}
	return err
}

func (e *Engine) injected() error {
	for i, f := range e.fail {
		if f.at == e.decodes {
			e.fail = slices.Delete(e.fail, i, i+1)
			return f.err
		}
	}
	return nil
}

// checkBatch refuses what llama.cpp refuses: unknown ids, and positions that do not continue the sequence.
func (e *Engine) checkBatch() error {
	b := &e.batch
	if b.Len() == 0 {
		return fmt.Errorf("%w: the batch is empty", runtime.ErrDecode)
	}
	for i := range b.Token {
		t, p, s := b.Token[i], b.Pos[i], b.Seq[i]
		switch {
		case !e.vocab.known(t):
			return fmt.Errorf("%w: row %d: token %d is not in the vocabulary", runtime.ErrDecode, i, t)
		case s < 0 || int(s) >= len(e.seqs):
			return fmt.Errorf("%w: row %d: sequence %d is not one of 0 … %d", runtime.ErrDecode, i, s, len(e.seqs)-1)
		case p < 0:
			return fmt.Errorf("%w: row %d: position %d is negative", runtime.ErrDecode, i, p)
		}
		q := &e.seqs[s]
		if q.mark != e.decodes {
			q.mark, q.rows, q.end = e.decodes, 0, e.last(s)
		}
		if q.end >= 0 && p != q.end+1 {
			return fmt.Errorf("%w: row %d: position %d of sequence %d does not continue its last one, %d", runtime.ErrDecode, i, p, s, q.end)
		}
		q.end = p
		q.rows++
	}
	return nil
}

// cost is the modelled duration of the checked batch.
func (e *Engine) cost() time.Duration {
	c, ms := e.cfg.Cost, e.cfg.Cost.BaseMs
	attended := 0
	for i, s := range e.batch.Seq {
		q := &e.seqs[s]
		if q.rows == 1 {
			ms += c.DecodeMs
		} else {
			ms += c.PrefillMs
		}
		// The row sees what the sequence held, the rows of this batch before it, and itself.
		attended += len(q.cells) + q.rows - int(q.end-e.batch.Pos[i])
	}
	return time.Duration((ms + c.KVMs*float64(attended)) * float64(time.Millisecond))
}

// compute puts row i into the pool and notes what its logits follow from.
func (e *Engine) compute(i int) {
	t, p, s := e.batch.Token[i], e.batch.Pos[i], e.batch.Seq[i]
	c := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	e.cells[c] = cell{pos: p, token: t, owners: 1}
	q := &e.seqs[s]
	q.cells = append(q.cells, c)
	q.sum += hash(p, t)
	if e.batch.Logits[i] == 0 {
		e.rows = append(e.rows, -1)
		return
	}
	e.rows = append(e.rows, int32(len(e.want)))
	e.want = append(e.want, wanted{sum: q.sum, force: e.scripted(q)})
}

// hash mixes a position, a token and nothing else; the sum over a sequence does not depend on the order of its cells.
func hash(p runtime.Pos, t runtime.Token) uint64 {
	return mix(uint64(uint32(p))<<32 | uint64(uint32(t)))
}

// mix is the finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

const (
	noiseRange = 8  // logits of noise are uniform in [0, noiseRange)
	forced     = 50 // and this is added to a scripted token: no temperature in use draws another one
	forbidden  = 50 // and this taken from markers, so that noise is text
)

func (e *Engine) Logits(i int) []float32 {
	if i < 0 || i >= len(e.rows) || e.rows[i] < 0 {
		return nil
	}
	n := e.vocab.Size()
	k := int(e.rows[i])
	if need := len(e.want) * n; cap(e.logits) < need {
		// The slices given out before stay valid, with the old array.
		e.logits = make([]float32, need)
		for j := range e.want {
			e.want[j].done = false
		}
	}
	e.logits = e.logits[:cap(e.logits)]
	row := e.logits[k*n : (k+1)*n : (k+1)*n]
	if w := &e.want[k]; !w.done {
		w.done = true
		e.fill(row, w)
	}
	return row
}

func (e *Engine) fill(row []float32, w *wanted) {
	h := w.sum ^ mix(e.cfg.Seed)
	for t := range row {
		row[t] = float32(mix(h+uint64(t))>>40) / (1 << 24) * noiseRange
		if e.vocab.IsControl(runtime.Token(t)) {
			row[t] -= forbidden
		}
	}
	switch {
	case w.force != runtime.NoToken:
		row[w.force] += forced + forbidden
	case e.cfg.EndEvery > 0 && mix(h)%uint64(e.cfg.EndEvery) == 0:
		row[tokenIMEnd] += forced + forbidden
	}
}

// Argmax implements runtime.RowScanner.
func (e *Engine) Argmax(i int) (runtime.Token, float32) {
	best, at := float32(math.Inf(-1)), runtime.NoToken
	for t, x := range e.Logits(i) {
		if x > best {
			best, at = x, runtime.Token(t)
		}
	}
	if at == runtime.NoToken {
		return at, 0
	}
	return at, best
}

// Close ends the engine; any use after it panics.
func (e *Engine) Close() error {
	e.closed.Close()
	e.dead = true
	return nil
}
