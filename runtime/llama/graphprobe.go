//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_probe

package llama

// The linker redirects two calls of llama.cpp's to graphprobe.cpp.

// #cgo LDFLAGS: -Wl,--wrap=_ZNK17llm_graph_context14build_samplingEv -Wl,--wrap=ggml_backend_tensor_get_async
// #cgo noescape uma_graph_probe_read
// #cgo nocallback uma_graph_probe_read
// #include <stdlib.h>
// #include "bridge.h"
// #include "graphprobe.h"
import "C"

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
)

const builtProbe = true

// graphProbe probes rows in the graph of the context.
type graphProbe struct {
	c      *C.struct_uma_graph_probe // nil: rows are probed on the host
	rows   []C.uma_wanted_row        // c.rows
	wanted []int32                   // by row of the batch: 1 + its place in rows, 0 = it has none
}

// openProbe has the context's graphs probe rows where that is asked for and possible. It precedes the context, whose
// first graphs plan its memory.
func (e *engine) openProbe(o runtime.Options) {
	if o.ProbeRows == "never" || e.encoder || e.everyRow || e.hidden[1] > 0 ||
		!bool(C.uma_graph_probe_fits(e.model, C.bool(o.ProbeRows != "always"))) {
		return
	}
	if why := e.tryProbe(); why != "" {
		slog.Warn("rows are not probed on the device of the output layer: "+why+
			"; their logits are copied to the host", "error", drainLogs(slog.LevelError))
		return
	}
	e.graphProbe.c = (*C.struct_uma_graph_probe)(C.calloc(1, C.sizeof_struct_uma_graph_probe))
	e.stop.probe = e.graphProbe.c
}

// tryProbe has the device probe a row, and returns an error if the result is wrong.
func (e *engine) tryProbe() string {
	row := make([]float32, e.nVoc)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range row {
		row[i] = float32(4 * rnd.NormFloat64())
	}
	row[len(row)/2] = 20 // half of the mass
	got, ok := e.probeOnDevice(row)
	want := probeF32(row, nil)
	switch {
	case !ok:
		return "it computed nothing"
	case got.Argmax != want.Argmax || got.Max != want.Max ||
		!(math.Abs(got.LogSumExp-want.LogSumExp) <= runtime.LogSumExpError) ||
		!(math.Abs(got.Entropy-want.Entropy) <= runtime.EntropyError):
		return "its results differ from the processor's"
	}
	return ""
}

// probeOnDevice probes a row of as many logits as the vocabulary has tokens.
func (e *engine) probeOnDevice(row []float32) (runtime.RowStats, bool) {
	var s C.uma_row_stats
	ok := C.uma_graph_probe_try(e.model, (*C.float)(unsafe.SliceData(row)), C.int32_t(len(row)), &s)
	return rowStats(s), bool(ok)
}

// readyProbe makes room for a batch of n rows, once the context has built its first graphs. llama.cpp may not call what
// it called when this was written.
func (e *engine) readyProbe(n int) {
	p := &e.graphProbe
	if p.c == nil {
		return
	}
	if !bool(p.c.called) {
		slog.Warn("rows are not probed on the device of the output layer: this llama.cpp builds its graphs in " +
			"another way; their logits are copied to the host")
		e.freeProbe()
		return
	}
	p.c.rows = (*C.uma_wanted_row)(C.calloc(C.size_t(n), C.sizeof_uma_wanted_row))
	p.rows, p.wanted = unsafe.Slice(p.c.rows, n), make([]int32, n)
}

// probesRows is Capabilities.ProbesRows.
func (e *engine) probesRows() bool { return e.graphProbe.c != nil }

func (e *engine) freeProbe() {
	p := &e.graphProbe
	if p.c == nil {
		return
	}
	e.stop.probe = nil
	C.free(unsafe.Pointer(p.c.rows))
	C.free(unsafe.Pointer(p.c))
	*p = graphProbe{}
}

// beginProbe names the rows of the batch that only the probe needs.
func (e *engine) beginProbe() {
	p := &e.graphProbe
	if p.c == nil {
		return
	}
	n := 0
	for i, what := range e.batch.Logits {
		p.wanted[i] = 0
		if what == runtime.RowProbe {
			p.rows[n] = C.uma_wanted_row{seq: C.int32_t(e.batch.Seq[i]), pos: C.int32_t(e.batch.Pos[i])}
			n++
			p.wanted[i] = int32(n)
		}
	}
	p.c.n_rows = C.int32_t(n)
}

// probedRow returns the statistics of row i of the last decode if the graph has probed it. ok is false where they are
// no numbers.
func (e *engine) probedRow(i int) (s runtime.RowStats, ok, probed bool) {
	p := &e.graphProbe
	if p.c == nil || p.wanted[i] == 0 || p.rows[p.wanted[i]-1].done == 0 {
		return s, false, false
	}
	row := (*C.float)(unsafe.SliceData(e.keptLogits(i)))
	if row == nil {
		row = C.llama_get_logits_ith(e.ctx, e.row(i))
	}
	var c C.uma_row_stats
	ok = bool(C.uma_graph_probe_read(row, &c))
	return rowStats(c), ok, true
}

// ProbedRows implements runtime.RowCounter.
func (e *engine) ProbedRows() runtime.ProbedRows {
	if c := e.graphProbe.c; c != nil {
		return runtime.ProbedRows{Logits: uint64(c.logits), Rows: uint64(c.probed)}
	}
	return runtime.ProbedRows{}
}
