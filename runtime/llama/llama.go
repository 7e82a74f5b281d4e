//go:build cgo && (llama_engine || llama_system)

package llama

/*
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	goruntime "runtime"
	"runtime/cgo"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama/known"
)

const (
	defaultBatch      = 2048
	defaultMicroBatch = 512
	allLayers         = 9999 // more than any model has
	// sealsApart is the most sequences for seals where sequences share nothing: each step copies the states of all.
	sealsApart = 16

	// pollLevel is the time that compute threads spin after a decode before they sleep, in ggml's unit of 131,072
	// rounds of its spin loop (3.4 ms each on an EPYC; ggml's own default is 50, which burns 170 ms of a core after
	// every answer). 0: not at all. Waking a thread costs each step some microseconds. But where the engine uses all
	// cores, a client can read its token on a free core before the next step begins, instead of taking one during it:
	// served inter-token p95 over the bare loop's was 1.02 … 1.13 with 0 and 1.09 … 1.34 with 4, one stream of a 135 M
	// model on 2 cores (uma-bench overhead).
	pollLevel = 0
)

// engine is a runtime.Engine. Everything is owned by the goroutine that decodes, except where said otherwise.
type engine struct {
	closed invariants.CloseChecker

	path    string // of the model's file, the first of several
	model   *C.struct_llama_model
	ctx     *C.struct_llama_context
	mem     C.llama_memory_t
	threads threads

	cbatch *C.struct_llama_batch
	batch  runtime.Batch
	mixes  mixes
	// rows and has (as Batch.Logits) are the last successful Decode's, copied from the batch: llama.cpp aborts the
	// process when it is asked for the logits of a row that has none.
	rows int
	has  []int8
	took time.Duration
	flight

	// stop is read by llama.cpp's compute threads; its abort (aborted) is written from any goroutine. Pinned while ctx
	// lives. It is Go memory, so that an Abort after Close writes to valid memory.
	stop    *C.uma_stop
	aborted *atomic.Int32
	pin     goruntime.Pinner
	// shifted: the next decode first rotates cells in place. Stopped halfway, that would be done again, so the decode
	// is not stopped.
	shifted bool

	vocab      *vocab
	caps       runtime.Capabilities
	info       runtime.ModelInfo
	nVoc       int
	stateBytes int64 // runtime.ModelInfo.StateBytes
	// window is the sliding window in tokens, 0 = none.
	window int
	// guarded has for each sequence the position below which its cells have a second owner (windows.go); nil: the
	// memory has no window, or the engine one sequence.
	guarded               []runtime.Pos
	everyRow, oneSequence bool   // see known.NeedsEveryRow, known.OneSequence
	hidden                [2]int // see known.HiddenTokens
	// ordered: attention knows the positions of the cells.
	ordered bool
	// positions are the rows of the table of learned positions, 0 = none. llama.cpp looks a position up without a
	// check: one behind the table ends the process.
	positions int

	embeds  bool          // the context keeps hidden states of output rows
	encoder bool          // mem is nil: every text is computed whole
	longest int           // of an encoder: tokens of a text
	next    []runtime.Pos // of an encoder: by sequence, scratch of checkTexts
	headState
	rankState
	imageState
}

// headState is the state of the model's head, see heads.go.
type headState struct {
	headBytes   uint64 // of its weights; 0: the model was loaded without it
	flash       int32  // of Options.FlashAttn, the enum llama_flash_attn_type
	keepsStates bool   // the rows of a Decode do
	// layers are those whose inputs are the state of a row, joined the scratch for one; nil: a row's state is that
	// before the last norm.
	layers []int32
	joined []float32
}

// rankState has the template and the classifier of a model that ranks; nil: noRanking is the reason.
type rankState struct {
	ranking   *runtime.Ranking
	noRanking error
}

var (
	_ runtime.Engine       = (*engine)(nil)
	_ runtime.RowScanner   = (*engine)(nil)
	_ runtime.Embedder     = (*engine)(nil)
	_ runtime.Ranker       = (*engine)(nil)
	_ runtime.ThreadSetter = (*engine)(nil)
	_ runtime.RowCounter   = (*engine)(nil)
)

// Open loads a model and makes its KV pool. Options that are 0 are chosen for this machine; Capabilities reports
// them. Errors wrap runtime.ErrModel and name the file, the reason, and an option that would help; a
// load that Options.Progress stopped returns ErrStopped.
func Open(o runtime.Options) (runtime.Engine, error) {
	typeK, errK := kvType("KV type for K", o.KVTypeK)
	typeV, errV := kvType("KV type for V", o.KVTypeV)
	flash, errF := flashAttn(o.FlashAttn)
	file, errFile := checkFile(o.ModelPath)
	if err := errors.Join(errK, errV, errF, known.CheckOptions(o), errFile); err != nil {
		return nil, err
	}
	if lacks := C.uma_processor_lacks(); lacks != nil {
		return nil, fmt.Errorf("this uma-serve was compiled for processors with %s, which this one lacks: build it on "+
			"this machine with make", C.GoString(lacks))
	}
	start()
	if o.Kernels != "" {
		if err := UseKernels(o.Kernels); err != nil {
			return nil, err
		}
	}
	path := C.CString(o.ModelPath)
	defer C.free(unsafe.Pointer(path))
	C.uma_opening(path)
	none := C.CString("")
	defer C.free(unsafe.Pointer(none))
	defer C.uma_opening(none)

	e := &engine{path: o.ModelPath, stop: new(C.uma_stop), positions: int(file.Positions)}
	e.aborted = abortedOf(e.stop)
	if e.flash = flash; o.Head && builtHeads && file.HeadLayers > 0 {
		e.headBytes = file.HeadBytes
	}
	if err := e.load(o); err != nil {
		e.free()
		return nil, err
	}
	if err := e.createContext(o, typeK, typeV, flash); err != nil {
		e.free()
		return nil, err
	}
	if err := e.warmUp(); err != nil {
		e.free()
		return nil, err
	}
	if err := e.openImages(o); err != nil && o.ProjectorFound {
		slog.Warn("the model reads no images: the projector beside it does not fit", "error", err)
	} else if err != nil {
		e.free()
		return nil, err
	}
	e.info.Experts, e.info.ExpertsUsed, e.info.ExpertBytes = int(file.Experts), int(file.ExpertsUsed), file.ExpertBytes
	drainLogs(slog.LevelError)
	return e, nil
}

func abortedOf(s *C.uma_stop) *atomic.Int32 { return (*atomic.Int32)(unsafe.Pointer(&s.abort)) }

// ErrStopped is returned by Open when Options.Progress returns false.
var ErrStopped = errors.New("model load stopped")

//export umaProgress
func umaProgress(fraction C.float, handle C.uintptr_t) C.bool {
	p := cgo.Handle(handle).Value().(*progress)
	if !p.f(float32(fraction)) {
		p.stopped = true
	}
	return C.bool(!p.stopped)
}

type progress struct {
	f       runtime.Progress
	stopped bool
}

// loadModel loads the weights of a file; with head, those of the layers that guess tokens too.
func loadModel(o *runtime.Options, head bool) (*C.struct_llama_model, error) {
	drainLogs(slog.LevelError) // what lies there is not about this load
	path := C.CString(o.ModelPath)
	defer C.free(unsafe.Pointer(path))
	p := &progress{f: o.Progress}
	var handle cgo.Handle
	if p.f != nil {
		handle = cgo.NewHandle(p)
		defer handle.Delete()
	}
	layers := o.GPULayers
	if layers < 0 {
		layers = allLayers
	}
	devices, split, err := placedOn(o.Placed)
	if err != nil {
		return nil, modelError(o.ModelPath, err.Error())
	}
	var inHost *C.char
	if text := runtime.ExpertsPattern(o.CPUMoE); text != "" && layers > 0 {
		inHost = C.CString(text)
		defer C.free(unsafe.Pointer(inHost))
	}
	model := C.uma_model_load(path, C.int32_t(layers), unsafe.SliceData(devices), unsafe.SliceData(split),
		C.bool(!o.NoMMap), C.bool(o.MLock), C.bool(!o.NoRepack), C.bool(head), inHost, C.uintptr_t(handle))
	if model == nil {
		why := drainLogs(slog.LevelError)
		if p.stopped {
			return nil, ErrStopped
		}
		if strings.Contains(why, "unknown model architecture") {
			why += "; this uma-serve has " + engineBuild() + ", and a newer one may know it: make " +
				"ENGINE=/path/to/llama.cpp (docs/engines.md)"
		}
		return nil, modelError(o.ModelPath, why)
	}
	return model, nil
}

func (e *engine) load(o runtime.Options) (err error) {
	if e.model, err = loadModel(&o, e.headBytes > 0); err != nil {
		return err
	}
	if !C.llama_model_has_decoder(e.model) || C.llama_model_has_encoder(e.model) ||
		C.llama_model_is_diffusion(e.model) {
		return modelError(o.ModelPath, fmt.Sprintf("architecture %q does not generate text token by token",
			e.meta("general.architecture")))
	}
	if C.llama_vocab_type(C.llama_model_get_vocab(e.model)) == C.LLAMA_VOCAB_TYPE_NONE {
		return modelError(o.ModelPath, "the file holds no vocabulary (tokenizer.ggml.model is missing)")
	}
	v, err := newVocab(C.llama_model_get_vocab(e.model))
	if err != nil {
		return modelError(o.ModelPath, err.Error())
	}
	if t := C.llama_model_chat_template(e.model, nil); t != nil {
		v.template = C.GoString(t)
	}
	e.vocab, e.nVoc = v, v.Size()
	if err := v.check(); err != nil {
		return modelError(o.ModelPath, err.Error())
	}
	arch := e.meta("general.architecture")
	e.everyRow, e.oneSequence, e.hidden = known.NeedsEveryRow[arch], known.OneSequence[arch], known.HiddenTokens[arch]
	if e.hidden[1] > e.nVoc {
		return modelError(o.ModelPath, fmt.Sprintf("architecture %q has at least %d tokens, and its vocabulary %d",
			arch, e.hidden[1], e.nVoc))
	}
	if e.encoder = gguf.IsEncoder(arch); !e.encoder {
		e.window = int(C.llama_model_n_swa(e.model))
	}
	return nil
}

func (e *engine) createContext(o runtime.Options, typeK, typeV, flash int32) error {
	threads := o.Threads
	if threads == 0 {
		threads = defaultThreads()
	}
	threadsBatch := o.ThreadsBatch
	if threadsBatch == 0 {
		threadsBatch = threads
	}
	e.pin.Pin(e.stop)
	c := (*C.uma_context_options)(C.calloc(1, C.sizeof_uma_context_options))
	defer C.free(unsafe.Pointer(c))
	c.n_ctx = C.uint32_t(o.ContextTokens)
	if e.positions > 0 && o.ContextTokens > e.positions {
		c.n_ctx = C.uint32_t(e.positions)
	}
	c.n_batch = C.uint32_t(orDefault(o.Batch, defaultBatch))
	c.n_ubatch = C.uint32_t(orDefault(o.MicroBatch, defaultMicroBatch))
	c.n_seq_max = C.uint32_t(orDefault(o.Sequences, 1))
	if e.guards(o) {
		c.n_seq_max = min(2*c.n_seq_max, known.MaxSequences)
		c.n_ubatch = max(c.n_ubatch, 2) // the rows of a Decode (batchRows): a prompt progresses beside an answer
	}
	c.n_threads, c.n_threads_batch = C.int32_t(threads), C.int32_t(threadsBatch)
	c.flash_attn = C.int32_t(flash)
	c.type_k, c.type_v = C.int32_t(typeK), C.int32_t(typeV)
	// Each cell of a sliding-window layer is kept (windows.go), so these layers have as many as the others.
	c.swa_full = C.bool(o.Sequences > 1)
	c.offload_kqv = C.bool(!o.NoKVOffload)
	c.pooling = C.LLAMA_POOLING_TYPE_NONE // the caller pools rows, which may be computed in several steps
	c.stop = e.stop
	if o.Sequences > 1 && (C.llama_model_is_recurrent(e.model) || C.llama_model_is_hybrid(e.model)) {
		var each C.size_t
		e.stateBytes = int64(C.uma_state_bytes(e.model, c, &each))
		seals := int64(known.MaxSequences - o.Sequences)
		if e.caps.CopiesBytes = each > 0; each > 0 {
			c.swa_full = false // a sequence's cells are its own, and it is copied at its end
			seals = min(seals, sealsApart)
		}
		if per := max(e.stateBytes, int64(each)); per > 0 {
			c.n_seq_max += C.uint32_t(min(o.SealBytes/per, seals))
		}
	}
	if e.encoder {
		if err := e.encoderContext(c); err != nil {
			return modelError(o.ModelPath, err.Error())
		}
	}
	e.openProbe(o)
	e.ctx = C.uma_context_new(e.model, c)
	if e.ctx == nil {
		return modelError(o.ModelPath, "no context for it: "+drainLogs(slog.LevelError)+
			"; a smaller context needs less memory")
	}
	if e.encoder {
		e.mem = nil // see known.UnusedMemory
	} else if e.mem = C.llama_get_memory(e.ctx); e.mem == nil {
		return modelError(o.ModelPath,
			fmt.Sprintf("architecture %q: it neither generates text token by token nor is a "+
				"known encoder", e.meta("general.architecture")))
	}
	if e.guards(o) {
		e.guarded = make([]runtime.Pos, C.llama_n_seq_max(e.ctx)/2)
	}
	e.ordered = e.knowPositions()
	if err := e.makeThreads(threads, threadsBatch); err != nil {
		return err
	}
	e.allocBatch(int(C.llama_n_batch(e.ctx)))
	e.readyProbe(e.batchRows())
	return e.describe(o, threads, typeK, typeV)
}

func (e *engine) Capabilities() runtime.Capabilities { return e.caps }
func (e *engine) Model() runtime.ModelInfo           { return e.info }
func (e *engine) Vocab() runtime.Vocab               { return e.vocab }
func (e *engine) Batch() *runtime.Batch              { return &e.batch }
func (e *engine) LastDecode() time.Duration          { return e.took }

// checkBatch refuses a batch on which llama.cpp would abort the process, or that it would misread.
func (e *engine) checkBatch() error {
	b := &e.batch
	if len(b.Token) == 0 {
		return fmt.Errorf("%w: the batch is empty", runtime.ErrDecode)
	}
	var wanted int8
	for i, t := range b.Token {
		wanted |= b.Logits[i]
		switch {
		case uint32(t) >= uint32(e.nVoc) && !(runtime.IsImage(t) && b.IsImage(i)):
			return fmt.Errorf("%w: row %d: token %d is not in the vocabulary (0 … %d)", runtime.ErrDecode, i, t,
				e.nVoc-1)
		case uint32(b.Seq[i]) >= uint32(e.caps.MaxSequences):
			return fmt.Errorf("%w: row %d: sequence %d is not one of 0 … %d", runtime.ErrDecode, i, b.Seq[i],
				e.caps.MaxSequences-1)
		case b.Logits[i]&runtime.RowEmbedding != 0 && e.caps.MaxEmbeddingRows == 0:
			return fmt.Errorf("%w: row %d: this model makes no embeddings", runtime.ErrDecode, i)
		case b.Pos[i] < 0:
			return fmt.Errorf("%w: row %d: position %d is negative", runtime.ErrDecode, i, b.Pos[i])
		case e.positions > 0 && int(b.Pos[i]) >= e.positions:
			return fmt.Errorf("%w: row %d: position %d is behind the model's %d learned positions", runtime.ErrDecode,
				i, b.Pos[i], e.positions)
		}
	}
	e.wantEmbeddings(wanted&runtime.RowEmbedding != 0 || e.oneSequence)
	return nil
}

// hasRow reports whether row i of the last Decode was computed for what one of the bits says.
func (e *engine) hasRow(i int, bits int8) bool {
	return i >= 0 && i < e.rows && e.has[i]&bits != 0 && !(e.encoder && bits&runtime.RowLogits != 0)
}

// hide makes the hidden tokens impossible in the rows that the caller reads.
func (e *engine) hide() {
	if e.hidden[1] == 0 {
		return
	}
	for i := range e.rows {
		if row := e.anyLogits(i); row != nil {
			for t := e.hidden[0]; t < e.hidden[1]; t++ {
				row[t] = -math.MaxFloat32
			}
		}
	}
}

func (e *engine) Logits(i int) []float32 {
	if !e.hasRow(i, runtime.RowLogits) {
		return nil
	}
	return e.anyLogits(i)
}

// anyLogits returns the logits of a row that only the probe needs, too.
func (e *engine) anyLogits(i int) []float32 {
	if !e.hasRow(i, runtime.RowLogits|runtime.RowProbe) {
		return nil
	}
	if row := e.keptLogits(i); row != nil {
		return row
	}
	return unsafe.Slice((*float32)(C.llama_get_logits_ith(e.ctx, e.row(i))), e.nVoc)
}

// Argmax implements runtime.RowScanner.
func (e *engine) Argmax(i int) (runtime.Token, float32) {
	if !e.hasRow(i, runtime.RowLogits) {
		return runtime.NoToken, 0
	}
	if row := e.keptLogits(i); row != nil {
		return ArgMax(row)
	}
	m := C.uma_argmax_row(e.ctx, e.row(i), C.int32_t(e.nVoc))
	return runtime.Token(m.token), float32(m.max)
}

// ArgMax returns the first index of the largest of logits, and that value: -1 when none is above -Inf. NaN never wins.
func ArgMax(logits []float32) (runtime.Token, float32) {
	m := C.uma_argmax((*C.float)(unsafe.SliceData(logits)), C.int32_t(len(logits)))
	return runtime.Token(m.token), float32(m.max)
}

func (e *engine) Abort() { e.aborted.Store(1) }

// Close frees the model, its memory and the compute threads. Tokenize returns an error from then on; slices and strings
// from Vocab stay valid.
func (e *engine) Close() error {
	e.closed.Close()
	e.free()
	drainLogs(slog.LevelError)
	return nil
}

// free releases what Open has acquired, in the order that llama.cpp needs: the context uses the threads and the model.
func (e *engine) free() {
	if e.vocab != nil {
		e.vocab.close()
	}
	e.closeImages()
	if e.ctx != nil {
		e.forgetPositions()
		e.freeMixes()
		C.llama_detach_threadpool(e.ctx)
		C.llama_free(e.ctx)
	}
	e.freeProbe()
	e.freeThreads()
	if e.model != nil {
		C.llama_model_free(e.model)
	}
	e.freeBatch()
	e.pin.Unpin()
	e.ctx, e.model, e.mem, e.rows = nil, nil, nil, 0
}
