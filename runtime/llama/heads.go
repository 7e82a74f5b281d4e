//go:build cgo && llama_engine && !llama_no_heads

package llama

// #include <stdlib.h>
// #include "heads.h"
// #include "uma_heads.h"
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unsafe"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/runtime"
)

const builtHeads = true

// headed are the architectures whose heads are used where llama.cpp has a graph for them: they have cells and no
// windows, and a test compares their guesses with the model.
var headed = map[string]bool{"glm4moe": true, "qwen35": true, "qwen35moe": true, "qwen3next": true, "deepseek2": true}

// headGraph reports whether this llama.cpp has a graph for the heads of an architecture. Where it has none it computes
// the model's own, and aborts.
func headGraph(arch string) bool {
	return slices.Contains(strings.Fields(C.UMA_ENGINE_HEADS), arch)
}

// head is a runtime.Head. Its engine is a second context on the model's compute threads and weights, but for those of
// a file.
type head struct {
	*engine
	states []float32 // of the batch's rows
	width  int       // of them
	file   *headFile // nil: it is a layer of the model's file
}

var (
	_ runtime.Head         = (*head)(nil)
	_ runtime.RowScanner   = (*head)(nil)
	_ runtime.ThreadSetter = (*head)(nil)
	_ runtime.Headed       = (*engine)(nil)
)

// OpenHead implements runtime.Headed.
func (e *engine) OpenHead(o runtime.HeadOptions) (runtime.Head, error) {
	if o.File != nil {
		return e.openFile(o)
	}
	layers, arch := int(C.llama_model_n_layer_nextn(e.model)), e.info.Architecture
	switch {
	case layers == 0:
		return nil, nil
	case !headed[arch]:
		return nil, fmt.Errorf("heads of the architecture %q are not used", arch)
	case !headGraph(arch):
		return nil, fmt.Errorf("this llama.cpp (%s) computes no heads of the architecture %q", engineBuild(), arch)
	case layers > 1:
		return nil, fmt.Errorf("the file has %d layers that guess, and llama.cpp computes one", layers)
	case e.window > 0:
		return nil, errors.New("the model has sliding windows")
	case arch == "glm4moe" && C.llama_model_rope_type(e.model) == C.LLAMA_ROPE_TYPE_MROPE:
		return nil, errors.New("the model has positions in several dimensions, with which llama.cpp's graph of the " +
			"head fails an assertion")
	case e.headBytes == 0:
		return nil, errors.New("the model was loaded without it")
	}
	h := &head{engine: &engine{
		path: e.path, model: e.model, vocab: e.vocab, nVoc: e.nVoc, hidden: e.hidden, stop: new(C.uma_stop),
		threads: e.threads, positions: e.positions,
	}, width: int(C.llama_model_n_embd_out(e.model))}
	if err := h.create(e, o); err != nil {
		h.free()
		return nil, err
	}
	return h, nil
}

// create makes the context and its batch, and decodes once with it.
func (h *head) create(of *engine, o runtime.HeadOptions) error {
	h.aborted = abortedOf(h.stop)
	h.pin.Pin(h.stop)
	c := (*C.uma_context_options)(C.calloc(1, C.sizeof_uma_context_options))
	defer C.free(unsafe.Pointer(c))
	c.n_ctx, c.n_batch, c.n_seq_max = C.uint32_t(o.ContextTokens), C.uint32_t(o.Batch), C.uint32_t(o.Sequences)
	c.n_ubatch = min(c.n_batch, C.llama_n_ubatch(of.ctx))
	c.n_threads, c.n_threads_batch = C.int32_t(of.threads.most), C.int32_t(of.threads.mostBatch)
	c.flash_attn = C.LLAMA_FLASH_ATTN_TYPE_AUTO
	c.type_k, c.type_v = C.GGML_TYPE_F16, C.GGML_TYPE_F16
	c.offload_kqv = C.bool(of.caps.Device != runtime.DeviceCPU)
	c.pooling = C.LLAMA_POOLING_TYPE_NONE
	c.stop = h.stop
	drainLogs(slog.LevelDebug)
	f := h.file
	switch {
	case f == nil:
		h.ctx = C.uma_head_new(h.model, c)
	case f.shared:
		if err := f.share(of, c); err != nil {
			return err
		}
		h.ctx = C.uma_head_new(h.model, c)
	case f.size > 0: // rows of a block that read one another are computed in one piece
		c.whole_texts = C.bool(!f.causal)
		c.n_ctx, c.n_ubatch = c.n_ctx+c.n_seq_max, c.n_batch
		if h.window > 0 { // all cells are kept, see windows.go
			h.guarded = make([]runtime.Pos, c.n_seq_max)
			c.swa_full, c.n_seq_max = true, 2*c.n_seq_max
		}
		fallthrough
	default:
		c.model = of.ctx
		h.ctx = C.uma_context_new(h.model, c)
	}
	if h.ctx == nil {
		return fmt.Errorf("no context for it: %s", drainLogs(slog.LevelError))
	}
	if h.mem = C.llama_get_memory(h.ctx); h.mem == nil {
		return errors.New("its context has no memory")
	}
	h.ordered = h.knowPositions()
	h.SetThreads(of.threads.most)
	h.caps, h.info = of.caps, of.info
	h.caps.Seals, h.caps.CanShift, h.caps.Beside, h.caps.SnapshotTokens = false, false, false, 0
	h.caps.MaxEmbeddingRows = 0
	h.caps.MaxBatch, h.caps.MaxMicroBatch = int(C.llama_n_batch(h.ctx)), int(C.llama_n_ubatch(h.ctx))
	h.caps.MaxSequences, h.caps.ContextTokens = int(C.llama_n_seq_max(h.ctx)), int(C.llama_n_ctx(h.ctx))
	switch {
	case f == nil:
	case f.shared:
		h.caps.MaxSequences, h.caps.ContextTokens = of.caps.MaxSequences, of.caps.ContextTokens
	case f.size > 0: // a block begins with a second cell for the newest token
		if h.guarded != nil {
			h.caps.MaxSequences = len(h.guarded)
		}
		h.caps.ContextTokens -= h.caps.MaxSequences
	}
	h.info.Recurrent, h.info.StateBytes, h.info.KVBytesPerToken = false, 0, 0
	h.info.Bytes, h.info.SharedBytes, h.info.RepackedBytes, h.info.Layers = of.headBytes, of.headBytes, 0, 1
	h.info.KVTypeK, h.info.KVTypeV = kvTypeName(C.GGML_TYPE_F16), kvTypeName(C.GGML_TYPE_F16)
	h.allocBatch(h.caps.MaxBatch)
	if f == nil || f.size == 0 {
		n := h.caps.MaxBatch * h.width
		h.cbatch.embd = (*C.float)(C.calloc(C.size_t(n), 4))
		h.states = unsafe.Slice((*float32)(h.cbatch.embd), n)
		C.uma_keep_states(h.ctx, true, true)
	}
	return h.warmUp()
}

// Follow implements runtime.Head.
func (h *head) Follow(i int, state []float32) {
	if f := h.file; f != nil && !f.shared && len(state) == f.width {
		f.follow(i, state)
		return
	}
	if invariants.Enabled && (len(state) != h.width || i >= h.batch.Len()) {
		panic(fmt.Sprintf("llama: row %d of %d follows a state of %d numbers, want %d", i, h.batch.Len(), len(state),
			h.width))
	}
	copy(h.states[i*h.width:(i+1)*h.width], state)
}

// State implements runtime.Head.
func (h *head) State(i int) []float32 {
	if !h.hasRow(i, runtime.RowLogits) {
		return nil
	}
	return h.state(i, h.width)
}

// StateWidth implements runtime.Head.
func (h *head) StateWidth() int {
	if h.file != nil {
		return h.file.width
	}
	return h.width
}

// Close frees the context, and the weights of a file. The other weights and the threads are the model's.
func (h *head) Close() error {
	h.closed.Close()
	h.free()
	drainLogs(slog.LevelError)
	return nil
}

func (h *head) free() {
	if h.ctx != nil {
		h.forgetPositions()
		C.llama_detach_threadpool(h.ctx)
		C.llama_free(h.ctx)
	}
	h.file.free(h.engine)
	h.freeBatch()
	h.pin.Unpin()
	h.ctx, h.model, h.mem, h.rows, h.states = nil, nil, nil, 0, nil
}

// KeepStates implements runtime.Headed.
func (e *engine) KeepStates(on bool) {
	if on != e.keepsStates && e.layers == nil { // the inputs of layers are always kept, see openFile
		C.uma_keep_states(e.ctx, C.bool(on), false)
	}
	e.keepsStates = on
}

// State implements runtime.Headed. Of a batch in several passes llama.cpp has those of the last one.
func (e *engine) State(i int) []float32 {
	if !e.keepsStates || i < 0 || i >= e.rows || e.mixes.split || len(e.batch.Images) > 0 {
		return nil
	}
	if e.layers != nil {
		return e.inputs(i)
	}
	return e.state(i, int(C.llama_model_n_embd_out(e.model)))
}

func (e *engine) state(i, width int) []float32 {
	p := C.uma_state(e.ctx, C.int32_t(i))
	if p == nil {
		return nil
	}
	return unsafe.Slice((*float32)(p), width)
}
