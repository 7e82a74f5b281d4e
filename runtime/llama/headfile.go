//go:build cgo && llama_engine && !llama_no_heads

package llama

// #include <stdlib.h>
// #include "heads.h"
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// A head with a separate file: EAGLE-3, DFlash (dflash.go) or an assistant of Gemma 4 (shared.go). For the first two
// the state of a model's row is what some of its layers read, one behind the other. Before the pass of an EAGLE-3 head
// an encoder fuses them into a state of the head's width; rows that follow the head's own states need no such pass.

// maxBlock is the most tokens that a block guesses here, core's limit on a request's guesses in a step.
const maxBlock = 16

// fuseRows is the most rows of an encoder pass. llama.cpp has room for a row of logits for each of them.
const fuseRows = 32

// headFile is the part of a head with a separate file.
type headFile struct {
	width  int   // of a state of the model's rows
	rows   []int // of the batch: those that follow such a state
	states []float32
	batch  *C.struct_llama_batch // of states: for the encoder fuseRows of them
	shared bool                  // it reads the model's cells, and states as heads in the model's file do
	blocks
}

// openFile opens the head of a file.
func (e *engine) openFile(o runtime.HeadOptions) (runtime.Head, error) {
	file, err := checkFile(o.File.ModelPath)
	if err != nil {
		return nil, err
	}
	model, err := gguf.Brief(e.path)
	if err != nil {
		return nil, err
	}
	if err := file.DraftsFor(&model); err != nil {
		return nil, modelError(file.Path, err.Error())
	}
	if e.layers != nil || e.encoder {
		return nil, errors.New("the model has a head of a file already, or is an encoder")
	}
	path, none := C.CString(file.Path), C.CString("")
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(none))
	C.uma_opening(path)
	defer C.uma_opening(none)
	h := &head{
		// llama.cpp's graph computes all rows, and it takes the first of them for those that were asked for.
		engine: &engine{path: file.Path, stop: new(C.uma_stop), threads: e.threads, everyRow: true},
		width:  int(file.Embedding),
		file:   &headFile{width: len(file.HeadFile.Layers) * int(file.HeadFile.Width)},
	}
	switch {
	case file.Architecture == gguf.ArchAssistant:
		h.width = int(file.HeadFile.Width)
		h.file.shared, h.file.width, h.everyRow = true, h.width, false
	case file.Architecture == gguf.ArchDFlash:
		h.file.size, h.window = int(file.HeadFile.Block)-1, int(file.HeadFile.Window)
		h.file.Most = int(file.HeadFile.Candidates)
		if h.file.first = file.HeadFile.AnchorFirst; h.file.first {
			h.file.size++
		}
		h.file.size = min(h.file.size, maxBlock)
	case h.file.width == h.width: // Follow could not tell them apart
		return nil, modelError(file.Path, fmt.Sprintf("its states and the model's have both %d numbers", h.width))
	}
	if err := h.load(e, o, &file, &model); err != nil {
		h.free()
		return nil, err
	}
	if h.file.shared {
		return h, nil
	}
	if err := e.keepInputs(file.HeadFile.Layers); err != nil {
		h.free()
		return nil, modelError(file.Path, err.Error())
	}
	return h, nil
}

// keepInputs has the rows of the model's Decodes keep what these layers read: for good, whatever KeepStates says, as
// the price of it is a copy, and that of a change a new plan of all buffers. Which architectures have it is llama.cpp's
// to say: their graphs are asked.
func (e *engine) keepInputs(layers []int64) error {
	for _, l := range layers {
		e.layers = append(e.layers, int32(l))
	}
	e.joined = make([]float32, len(layers)*e.info.Embedding)
	e.stop.decide, e.stop.never = 0, true
	if !C.uma_keep_inputs(e.ctx, (*C.int32_t)(unsafe.SliceData(e.layers)), C.int32_t(len(e.layers))) {
		_, why, _ := strings.Cut(drainLogs(slog.LevelError), "GGML_ASSERT") // without the path of a source file
		return fmt.Errorf("this llama.cpp (%s) does not yield the inputs of the layers %d of a model of the "+
			"architecture %q %s", engineBuild(), layers, e.info.Architecture, why)
	}
	return e.warmUp()
}

// load loads the head's file, makes its context and computes with both of its graphs.
func (h *head) load(of *engine, o runtime.HeadOptions, file, model *gguf.Info) (err error) {
	if h.model, err = loadModel(o.File, h.file.shared); err != nil {
		return err
	}
	if h.vocab, err = newVocab(C.llama_model_get_vocab(h.model)); err != nil {
		return modelError(h.path, err.Error())
	}
	h.nVoc = h.vocab.Size()
	f := h.file
	f.causal = file.HeadFile.Causal
	if f.size == 0 && !f.shared {
		f.batch = (*C.struct_llama_batch)(C.calloc(1, C.sizeof_struct_llama_batch))
		f.batch.embd = (*C.float)(C.calloc(C.size_t(fuseRows*f.width), 4))
		f.batch.logits = (*C.int8_t)(C.malloc(fuseRows))
		copy(unsafe.Slice((*int8)(f.batch.logits), fuseRows), slices.Repeat([]int8{1}, fuseRows))
	}
	if err := h.create(of, o); err != nil {
		return modelError(h.path, err.Error())
	}
	h.describeFile(file, model)
	f.rows = make([]int, 0, h.caps.MaxBatch)
	if f.size > 0 {
		f.openBlocks(h, h.caps.MaxBatch)
	} else if !f.shared {
		f.states = make([]float32, h.caps.MaxBatch*f.width)
	}
	// As many rows as a short text has: the first one takes several times as long as later ones.
	rows, zeros := max(1, min(32, h.caps.MaxBatch-f.size, h.caps.ContextTokens-f.size)), make([]float32, f.width)
	if f.shared {
		rows = 1
	}
	for i := range rows + f.size {
		h.batch.Add(0, runtime.Pos(1+i), 0, i >= rows || f.size == 0 && i == rows-1)
	}
	for i := range rows {
		h.Follow(i, zeros)
	}
	if err := h.Decode(); err != nil {
		return modelError(h.path, err.Error())
	}
	h.SeqRemove(0, 0, -1)
	h.batch.Reset()
	return nil
}

// describeFile corrects what create has from the model.
func (h *head) describeFile(file, model *gguf.Info) {
	var desc [256]C.char
	C.llama_model_desc(h.model, &desc[0], C.size_t(len(desc)))
	in := &h.info
	in.Path, in.Name, in.Architecture, in.Description = file.Path, file.Name, file.Architecture, C.GoString(&desc[0])
	if in.Name == "" {
		in.Name = strings.TrimSuffix(filepath.Base(file.Path), ".gguf")
	}
	in.Parameters, in.TrainContext = uint64(C.llama_model_n_params(h.model)), int(file.TrainContext)
	in.Embedding, in.VocabSize, in.Layers, in.SlidingWindow = int(file.Embedding), h.nVoc, int(file.Layers), 0
	in.Experts, in.ExpertsUsed, in.ExpertBytes = 0, 0, 0
	in.Bytes, in.SharedBytes, in.RepackedBytes = uint64(C.llama_model_size(h.model)), 0, h.repackedBytes()
	if !file.HeadFile.Output {
		in.SharedBytes = model.OutputBytes()
		in.Bytes += in.SharedBytes
	}
	h.caps.Placed = placedOf(h.engine)
}

// follow notes the state of a model's row that row i follows.
func (f *headFile) follow(i int, state []float32) {
	copy(f.states[len(f.rows)*f.width:], state)
	f.rows = append(f.rows, i)
}

// fuse has the encoder make states of those that follow has noted.
func (h *head) fuse() error {
	f := h.file
	rows, states := f.rows, f.states
	f.rows = f.rows[:0]
	embd := unsafe.Slice((*float32)(f.batch.embd), fuseRows*f.width)
	for len(rows) > 0 {
		n := min(len(rows), fuseRows, h.caps.MaxMicroBatch)
		copy(embd, states[:n*f.width])
		h.stop.decide, h.stop.never = 0, true
		if rc := C.uma_decode(h.ctx, f.batch, C.int32_t(n), true, h.stop); rc != 0 {
			return fmt.Errorf("%w: the encoder returned %d: %s", runtime.ErrDecode, int(rc), drainLogs(slog.LevelError))
		}
		fused := h.state(0, n*h.width)
		if fused == nil {
			return fmt.Errorf("%w: the encoder left no states", runtime.ErrDecode)
		}
		for k, row := range rows[:n] {
			if invariants.Enabled && row >= h.batch.Len() {
				panic(fmt.Sprintf("llama: row %d of %d follows a state", row, h.batch.Len()))
			}
			copy(h.states[row*h.width:(row+1)*h.width], fused[k*h.width:])
		}
		rows, states = rows[n:], states[n*f.width:]
	}
	return nil
}

// Decode implements runtime.Engine.
func (h *head) Decode() error {
	if h.Block() > 1 {
		return h.decodeBlocks()
	}
	if h.file != nil && len(h.file.rows) > 0 {
		h.rows = 0
		if err := h.fuse(); err != nil {
			return err
		}
	}
	return h.engine.Decode()
}

// free frees what the head of a file has beside its context.
func (f *headFile) free(h *engine) {
	if f == nil {
		return
	}
	freeBatch(f.batch)
	freeBatch(f.noise)
	f.batch, f.noise = nil, nil
	if h.vocab != nil {
		h.vocab.close()
	}
	if h.model != nil {
		C.llama_model_free(h.model)
	}
}

// inputs returns what the layers have read of row i, one behind the other.
func (e *engine) inputs(i int) []float32 {
	w := len(e.joined) / len(e.layers)
	for k, l := range e.layers {
		p := C.uma_inputs(e.ctx, C.int32_t(l))
		if p == nil {
			return nil
		}
		copy(e.joined[k*w:(k+1)*w], unsafe.Slice((*float32)(p), (i+1)*w)[i*w:])
	}
	return e.joined
}
