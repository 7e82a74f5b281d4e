//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// llama.cpp applies one set of adapters to all rows of a batch. So a batch with several mixes is computed in as many
// passes, one after the other. A pass overwrites the rows of the one before: what the caller wants of them is copied,
// except that of the last pass, which has the most rows of those that may be the last.

// mixes are the adapters of an engine, and how its last batch was computed.
type mixes struct {
	loaded  []*C.struct_llama_adapter_lora // by Adapter
	sets    [runtime.MaxMixes + 1]mixSet
	context contextMixes
	newest  int
	grown   bool // the context's graphs have no room yet for the adapter newest

	piece  *C.struct_llama_batch // of one pass; nil: no mix was set yet
	counts [runtime.MaxMixes + 1]int32
	order  []uint8 // of the passes
	split  bool    // the last batch had several passes
	at     []int32 // by row of the batch: its row in its pass, or of the copied ones: -1 - its place there
	logits []float32
	hidden []float32
	kept   int
}

type mixSet struct {
	adapters []*C.struct_llama_adapter_lora
	scales   []C.float
}

var _ runtime.Adapters = (*engine)(nil)

// LoadAdapter implements runtime.Adapters.
func (e *engine) LoadAdapter(f *os.File) (runtime.Adapter, runtime.AdapterInfo, error) {
	fail := func(why string) (runtime.Adapter, runtime.AdapterInfo, error) {
		return 0, runtime.AdapterInfo{}, fmt.Errorf("%w: %s", runtime.ErrAdapter, why)
	}
	if e.encoder {
		return fail("the model is an encoder")
	}
	if strings.Contains(e.info.Description, "NVFP4") {
		return fail("its weights are NVFP4, to which llama.cpp adds no adapters")
	}
	st, err := f.Stat()
	if err != nil {
		return fail(err.Error())
	}
	if err := gguf.CheckAdapter(f, st.Size(), e.path); err != nil {
		return fail(err.Error())
	}
	drainLogs(slog.LevelError)
	a := C.uma_adapter_load(e.model, C.int32_t(f.Fd()))
	if a == nil {
		return fail(drainLogs(slog.LevelError))
	}
	info := runtime.AdapterInfo{Bytes: st.Size()}
	if n := int(C.llama_adapter_get_alora_n_invocation_tokens(a)); n > 0 {
		tokens := (*runtime.Token)(C.llama_adapter_get_alora_invocation_tokens(a))
		info.Invocation = slices.Clone(unsafe.Slice(tokens, n))
	}
	m := &e.mixes
	id := slices.Index(m.loaded, nil)
	if id < 0 {
		id = len(m.loaded)
		m.loaded = append(m.loaded, nil)
	}
	m.loaded[id] = a
	m.newest, m.grown = id, true
	return runtime.Adapter(id), info, nil
}

// UnloadAdapter implements runtime.Adapters.
func (e *engine) UnloadAdapter(id runtime.Adapter) {
	m := &e.mixes
	for i := range m.sets {
		if slices.Contains(m.sets[i].adapters, m.loaded[id]) {
			panic(fmt.Sprintf("llama: mix %d has the adapter %d that is unloaded", i, id))
		}
	}
	e.use(0)
	C.llama_adapter_lora_free(m.loaded[id])
	m.loaded[id] = nil
}

// SetMix implements runtime.Adapters.
func (e *engine) SetMix(n uint8, parts []runtime.Scaled) {
	if n == 0 {
		panic("llama: mix 0 is that without adapters")
	}
	m := &e.mixes
	s := &m.sets[n]
	s.adapters, s.scales = s.adapters[:0], s.scales[:0]
	for _, p := range parts {
		s.adapters, s.scales = append(s.adapters, m.loaded[p.Adapter]), append(s.scales, C.float(p.Scale))
	}
	e.changed(n)
	if m.piece == nil {
		m.piece, _ = newBatch(int(C.llama_n_batch(e.ctx)))
		m.at = make([]int32, cap(e.batch.Token))
	}
}

// compute decodes the first rows of the batch and returns what uma_decode does.
func (e *engine) compute(rows int) C.int32_t {
	m := &e.mixes
	m.split, m.kept = false, 0
	if m.piece == nil { // never any mix
		return C.uma_decode(e.ctx, e.cbatch, C.int32_t(rows), C.bool(e.encoder), e.stop)
	}
	m.plan(e.batch.Mix)
	if len(m.order) == 1 {
		e.use(m.order[0])
		return C.uma_decode(e.ctx, e.cbatch, C.int32_t(rows), C.bool(e.encoder), e.stop)
	}
	m.split = true
	e.stop.decide = 0 // the share of one pass's nodes says nothing about the others
	for i, mix := range m.order {
		n := e.gather(mix)
		e.use(mix)
		if rc := C.uma_decode(e.ctx, m.piece, n, C.bool(false), e.stop); rc != 0 {
			if rc == 1 && i > 0 {
				return 2 // the passes before have written cells: an abort, after which the caller removes them
			}
			return rc
		}
		if i < len(m.order)-1 {
			e.keep(mix)
		}
	}
	return 0
}

// plan sets the order of the passes. Rows of mix 0 come first, because rows of their sequences may follow in another
// mix; of the others that with the most rows comes last.
func (m *mixes) plan(rows []uint8) {
	m.order = m.order[:0]
	for _, mix := range rows {
		if m.counts[mix]++; m.counts[mix] == 1 {
			m.order = append(m.order, mix)
		}
	}
	slices.SortFunc(m.order, func(a, b uint8) int {
		switch {
		case a == 0:
			return -1
		case b == 0:
			return 1
		case m.counts[a] != m.counts[b]:
			return int(m.counts[a] - m.counts[b])
		}
		return int(a) - int(b)
	})
	for _, mix := range m.order {
		m.counts[mix] = 0
	}
}

// gather copies the rows of a mix into the batch of a pass and returns their number.
func (e *engine) gather(mix uint8) C.int32_t {
	m, b := &e.mixes, &e.batch
	n := cap(b.Token)
	token := unsafe.Slice((*runtime.Token)(m.piece.token), n)
	pos := unsafe.Slice((*runtime.Pos)(m.piece.pos), n)
	logits := unsafe.Slice((*int8)(m.piece.logits), n)
	seqs := unsafe.Slice((*runtime.Seq)(*m.piece.seq_id), n)
	k := 0
	for i, of := range b.Mix {
		if of == mix {
			token[k], pos[k], seqs[k], logits[k] = b.Token[i], b.Pos[i], b.Seq[i], b.Logits[i]
			m.at[i] = int32(k)
			k++
		}
	}
	return C.int32_t(k)
}

// keep copies what the caller wants of the rows of the last pass.
func (e *engine) keep(mix uint8) {
	m := &e.mixes
	for i, of := range e.batch.Mix {
		if of != mix || e.has[i] == 0 {
			continue
		}
		row := C.int32_t(m.at[i])
		if e.has[i]&(runtime.RowLogits|runtime.RowProbe) != 0 {
			from := unsafe.Slice((*float32)(C.llama_get_logits_ith(e.ctx, row)), e.nVoc)
			m.logits = put(m.logits, m.kept, from)
		}
		if e.has[i]&runtime.RowEmbedding != 0 {
			from := unsafe.Slice((*float32)(C.llama_get_embeddings_ith(e.ctx, row)), e.info.Embedding)
			m.hidden = put(m.hidden, m.kept, from)
		}
		m.at[i] = int32(-1 - m.kept)
		m.kept++
	}
}

// put copies row to place k of rows, which grows as needed.
func put(rows []float32, k int, row []float32) []float32 {
	if need := (k + 1) * len(row); len(rows) < need {
		rows = slices.Grow(rows, need-len(rows))[:need]
	}
	copy(rows[k*len(row):], row)
	return rows
}

// row returns the row of the last pass that is row i of the batch.
func (e *engine) row(i int) C.int32_t {
	if i = e.place(i); e.mixes.split {
		return C.int32_t(e.mixes.at[i])
	}
	return C.int32_t(i)
}

// keptLogits returns the logits of row i if they were copied.
func (e *engine) keptLogits(i int) []float32 {
	return e.mixes.keptRow(e.mixes.logits, e.place(i), e.nVoc)
}

// keptHidden returns the hidden state of row i if it was copied.
func (e *engine) keptHidden(i int) []float32 {
	return e.mixes.keptRow(e.mixes.hidden, e.place(i), e.info.Embedding)
}

func (m *mixes) keptRow(rows []float32, i, n int) []float32 {
	if !m.split || m.at[i] >= 0 {
		return nil
	}
	k := int(-1 - m.at[i])
	return rows[k*n : (k+1)*n : (k+1)*n]
}
