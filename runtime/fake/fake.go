// Package fake is a runtime.Engine without a model, for tests and simulation.
//
// It implements the whole contract. It accounts for KV cells: SeqCopy shares them, they are freed with their last
// owner, and ErrKVFull follows when none is free. The logits of a row are a pure function of a seed and of the
// (position, token) pairs that its sequence holds. So an error in the caller's KV bookkeeping (a lost cell, a wrong
// position, a stale prefix) changes the output, as with a model.
//
// It neither sleeps nor reads a clock. Decode computes its modelled duration (Cost), reports it as LastDecode and
// passes it to Config.Advance, which may advance a simulator's clock or be time.Sleep.
//
// It is stricter than llama.cpp about bugs of the caller: two goroutines in the engine at once, copying over existing
// cells, and a second Close panic.
package fake

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/runtime"
)

// Cost is the modelled duration of a Decode in milliseconds: Base + Prefill·prompt rows + Decode·decode rows +
// KV·cells attended to, summed over the rows + Read·cells that any row of a sequence attends to, summed over the
// sequences. A sequence's only row in a batch is a decode row.
type Cost struct {
	BaseMs, PrefillMs, DecodeMs, KVMs, ReadMs float64
}

// Script makes the engine answer: when a sequence ends with After and a beginning of Emit, the next token is the next
// one of Emit, and after all of Emit the end of the turn. The last occurrence of After counts. Markers ("<think>") in
// both are single tokens; one that may not come there is spelled.
type Script struct {
	After string // default "<|im_start|>assistant\n"
	Emit  string
}

// Config describes an engine. The zero value has 4096 cells and one sequence.
type Config struct {
	runtime.Options // ContextTokens, Batch, MicroBatch, Sequences, Threads and KV types are used; ModelPath is the name

	Seed     uint64   // seed of the logits
	Scripts  []Script // the first that matches answers; without a match the text is noise
	EndEvery int      // mean number of noise tokens before an end of generation; 0 = never
	NoRanges bool     // behave like a model that cannot remove parts of a sequence (recurrent)
	Template string   // chat template; "" = ChatML

	NoTemplate  bool     // no chat template, with Template ""
	Markers     []string // more control tokens, each beginning with "<"
	SpelledTags bool     // "<think>" and "</think>" are not single tokens but bytes
	Build       string   // what Capabilities.EngineBuild says; "" = "fake"

	Encoder   bool             // behave like an encoder: no KV memory, each row sees the whole text
	Pooling   runtime.Pooling  // what the model's file says; "" = nothing
	Embedding int              // width of a hidden state; 0 = 16
	Ranking   *runtime.Ranking // how the model ranks; nil: it does not

	Images *Images // nil: the model reads no images
	Head   *Head   // nil: there is no head

	Devices uint32 // what Capabilities.Devices says; 0 = 1

	Cost    Cost
	Advance func(time.Duration) // receives the cost of each Decode before it returns; may be nil
	// Begin makes the engine one that computes beside the host (runtime.Submitter): it receives the cost of each batch
	// when it is submitted, and Advance when it is waited for.
	Begin func(time.Duration)
}

// cell is one cell of the pool.
type cell struct {
	pos    runtime.Pos
	token  runtime.Token
	mix    uint16 // of the adapters that it was computed with, see mixOf; 0 = none
	owners int32  // sequences that hold it; 0 = free
}

// sequence is the record of one sequence.
type sequence struct {
	cells []int32 // Invariant: indices of used cells, positions strictly ascending
	sum   uint64  // Invariant: Σ hash of the cells

	// The rows that the batch of Decode number mark adds: their number, and the last position after them.
	mark, rows int
	end        runtime.Pos
}

// Engine implements runtime.Engine and runtime.RowScanner. Like any engine it belongs to one goroutine, except Abort,
// Vocab and the immutable facts.
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

	adapters []uint64                     // by Adapter: a hash of the file; 0 = unloaded
	mixes    [runtime.MaxMixes + 1]uint16 // what cells of a mix have
	// rows[i] is the index of the logits of row i of the last successful Decode, -1 = none. Logits are computed on
	// request from the content hash (and a script's forced token).
	rows   []int32
	want   []wanted
	logits []float32
	hidden []float32 // of the rows in want, as logits
	probed runtime.ProbedRows

	head headState

	fail    []failure
	decodes int
	took    time.Duration
	aborted atomic.Bool
	shifted bool // by a SeqAdd since the last Decode
	inside  atomic.Bool
	flight  flight
	threads atomic.Int32
	dead    bool
	calls   int // counts calls of enter
}

type wanted struct {
	sum            uint64
	force, spelled runtime.Token // NoToken = noise; see scripted
	done           bool          // the logits are computed
	made           bool          // the hidden state is computed
	bits           int8          // what the row was computed for
}

type failure struct {
	at  int // number of the Decode, from 1
	err error
}

var (
	_ runtime.Engine     = (*Engine)(nil)
	_ runtime.RowScanner = (*Engine)(nil)
	_ runtime.Embedder   = (*Engine)(nil)

	_ runtime.ThreadSetter = (*Engine)(nil)
	_ runtime.RowCounter   = (*Engine)(nil)
)

// New makes an engine. It panics on options out of range, because they come from tests.
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
		Token: make([]runtime.Token, 0, n), Pos: make([]runtime.Pos, 0, n), Seq: make([]runtime.Seq, 0, n),
		Logits: make([]int8, 0, n), Mix: make([]uint8, 0, n),
	}
	e.rows = make([]int32, 0, n)
	for _, s := range cfg.Scripts {
		e.script = append(e.script, newScript(e.vocab, s))
	}
	e.caps = runtime.Capabilities{
		UnifiedKV: true, PagedKV: !cfg.Encoder,
		CanShift: !cfg.NoRanges, Seals: cfg.NoRanges, CanAbort: true, PersistentGraph: true,
		MaxBatch: n, MaxMicroBatch: min(orDefault(cfg.MicroBatch, 512), n), MaxSequences: len(e.seqs),
		ContextTokens: ctx,
		Threads:       orDefault(cfg.Threads, 1), Device: runtime.DeviceFake, DeviceName: "none",
		Devices: cmp.Or(cfg.Devices, 1), EngineBuild: cmp.Or(cfg.Build, "fake"),
		Beside: cfg.Begin != nil && !cfg.Encoder, ProbesRows: cfg.Devices > 1 && !cfg.Encoder,
	}
	e.SetThreads(e.caps.Threads)
	e.caps.MaxEmbeddingRows = e.caps.MaxMicroBatch
	if cfg.Encoder {
		e.caps.CanShift, e.caps.Seals, e.caps.MaxMicroBatch, e.caps.MaxEmbeddingRows = false, false, n, n
	}
	name := cfg.ModelPath
	if name == "" {
		name = "fake"
	}
	e.info = runtime.ModelInfo{
		Path: name, Name: name, Architecture: "fake", Description: "fake model", TrainContext: ctx, Layers: 1,
		Embedding: orDefault(cfg.Embedding, 16), Heads: 1,
		KVHeads: 1, VocabSize: e.vocab.Size(), KVTypeK: "f16", KVTypeV: "f16", KVBytesPerToken: cellBytes,
		Recurrent: cfg.NoRanges,
		Pooling:   cfg.Pooling, Encoder: cfg.Encoder,
	}
	if cfg.Encoder {
		e.info.KVBytesPerToken = 0
	}
	return e
}

func (e *Engine) Capabilities() runtime.Capabilities { return e.caps }
func (e *Engine) Model() runtime.ModelInfo           { return e.info }
func (e *Engine) Vocab() runtime.Vocab               { return e.vocab }
func (e *Engine) Batch() *runtime.Batch              { return &e.batch }
func (e *Engine) LastDecode() time.Duration          { return e.took }
func (e *Engine) Abort()                             { e.aborted.Store(true) }

// ProbedRows implements runtime.RowCounter for an engine with a device. Its logits are there all the same: it is no
// RowProber.
func (e *Engine) ProbedRows() runtime.ProbedRows {
	if !e.caps.ProbesRows {
		return runtime.ProbedRows{}
	}
	return e.probed
}

// SetThreads implements runtime.ThreadSetter.
func (e *Engine) SetThreads(n int) { e.threads.Store(int32(min(max(n, 1), e.caps.Threads))) }

// Threads returns the number of threads that SetThreads set, else Capabilities.Threads. It is safe from any goroutine.
func (e *Engine) Threads() int { return int(e.threads.Load()) }

// ComputeThreads implements runtime.ThreadSetter: there are none.
func (e *Engine) ComputeThreads(dst []int) []int { return dst }

// BarrierSleeps implements runtime.ThreadSetter.
func (e *Engine) BarrierSleeps() uint64 { return 0 }

// FailDecode makes the n-th Decode from now (1 = the next) return err, once. With runtime.ErrKVFull it computes
// nothing; with any other error it computes the first half of the batch, as the contract allows.
func (e *Engine) FailDecode(n int, err error) {
	e.fail = append(e.fail, failure{e.decodes + n, err})
}

// Used returns the number of cells that sequences hold.
func (e *Engine) Used() int { return len(e.cells) - len(e.free) }

// Decodes returns the number of calls of Decode.
func (e *Engine) Decodes() int { return e.decodes }

// Closed reports whether Close was called.
func (e *Engine) Closed() bool { return e.dead }

// Tokens returns the tokens of s, in order of position.
func (e *Engine) Tokens(s runtime.Seq) []runtime.Token {
	out := make([]runtime.Token, 0, len(e.seqs[s].cells))
	for _, c := range e.seqs[s].cells {
		out = append(out, e.cells[c].token)
	}
	return out
}

// enter records that a goroutine is in the engine, leave that it has left.
func (e *Engine) enter() {
	if !e.inside.CompareAndSwap(false, true) {
		panic("fake: two goroutines in the engine at once")
	}
	if e.dead {
		panic("fake: used after Close")
	}
	if e.flight.on {
		panic("fake: used while a submitted batch is computed")
	}
}

func (e *Engine) leave() {
	if invariants.Enabled {
		if e.calls++; e.calls%16 == 0 { // each check reads the whole pool
			e.check()
		}
	}
	e.inside.Store(false)
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
		case !e.vocab.known(t) && !(runtime.IsImage(t) && b.IsImage(i)):
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
		if e.cfg.Encoder && q.rows == 0 && p != 0 {
			return fmt.Errorf("%w: row %d: sequence %d begins at position %d, and an encoder reads whole texts",
				runtime.ErrDecode, i, s, p)
		}
		if q.end >= 0 && p != q.end+1 {
			return fmt.Errorf("%w: row %d: position %d of sequence %d does not continue its last one, %d",
				runtime.ErrDecode, i, p, s, q.end)
		}
		q.end = p
		q.rows++
	}
	return nil
}

// cost returns the modelled duration of the checked batch.
func (e *Engine) cost() time.Duration {
	c := e.cfg.Cost
	ms := c.BaseMs * float64(e.passes())
	attended, read := 0, 0
	for i, s := range e.batch.Seq {
		q := &e.seqs[s]
		if q.rows == 1 {
			ms += c.DecodeMs
		} else {
			ms += c.PrefillMs
		}
		// The row attends to the sequence's cells, the earlier rows of this batch, and itself.
		attended += len(q.cells) + q.rows - int(q.end-e.batch.Pos[i])
		if e.batch.Pos[i] == q.end {
			read += len(q.cells) + q.rows
		}
	}
	return time.Duration((ms + c.KVMs*float64(attended) + c.ReadMs*float64(read)) * float64(time.Millisecond))
}

// compute adds row i to the pool and records the inputs of its logits.
func (e *Engine) compute(i int) {
	t, p, s := e.batch.Token[i], e.batch.Pos[i], e.batch.Seq[i]
	c := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	e.cells[c] = cell{pos: p, token: t, mix: e.mixes[e.batch.Mix[i]], owners: 1}
	q := &e.seqs[s]
	q.cells = append(q.cells, c)
	q.sum += e.cells[c].hash()
	e.output(i, wanted{sum: e.content(i, &e.cells[c], q.sum)})
}

// output records what row i of the batch is computed for, given its content hash.
func (e *Engine) output(i int, w wanted) {
	if w.bits = e.batch.Logits[i]; w.bits == 0 {
		e.rows = append(e.rows, -1)
		return
	}
	if w.bits == runtime.RowProbe {
		e.probed.Rows++
	} else {
		e.probed.Logits += uint64(4 * e.vocab.Size())
	}
	w.force, w.spelled = runtime.NoToken, runtime.NoToken
	if w.bits&(runtime.RowLogits|runtime.RowProbe) != 0 {
		w.force, w.spelled = e.scripted(&e.seqs[e.batch.Seq[i]])
	}
	e.rows = append(e.rows, int32(len(e.want)))
	e.want = append(e.want, w)
}

// hash returns a hash of the cell's content.
func (c *cell) hash() uint64 { return hash(c.pos, c.token) + uint64(c.mix)*0xd1342543de82ef95 }

// hash mixes only a position and a token; the sum over a sequence does not depend on the order of its cells.
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
	forced     = 50 // added to a scripted token: no usual temperature draws another one
	forbidden  = 50 // subtracted from markers, so that noise is text
)

func (e *Engine) Logits(i int) []float32 {
	if e.flight.on {
		panic("fake: logits read while a submitted batch is computed")
	}
	if !e.has(i, runtime.RowLogits|runtime.RowProbe) {
		return nil
	}
	n := e.vocab.Size()
	k := int(e.rows[i])
	if need := len(e.want) * n; cap(e.logits) < need {
		// Slices returned earlier stay valid: they keep the old array.
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
		if w.spelled != runtime.NoToken && w.spelled != w.force {
			row[w.spelled] += forced / 2
		}
	case e.cfg.EndEvery > 0 && mix(h)%uint64(e.cfg.EndEvery) == 0:
		row[tokenIMEnd] += forced + forbidden
	}
}

// Argmax implements runtime.RowScanner.
func (e *Engine) Argmax(i int) (runtime.Token, float32) {
	row := e.Logits(i)
	at := argmax(row)
	if at == runtime.NoToken {
		return at, 0
	}
	return at, row[at]
}

// argmax returns the token with the largest logit, NoToken if there is none above -Inf.
func argmax(row []float32) runtime.Token {
	best, at := float32(math.Inf(-1)), runtime.NoToken
	for t, x := range row {
		if x > best {
			best, at = x, runtime.Token(t)
		}
	}
	return at
}

// Close ends the engine; any use after it panics.
func (e *Engine) Close() error {
	e.closed.Close()
	e.dead = true
	return nil
}
