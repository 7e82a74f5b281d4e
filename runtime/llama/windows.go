//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

import "github.com/uma-serve/uma-serve/runtime"

// llama.cpp's cache of sliding-window layers gives a cell to a new token once it lies outside the window of the only
// sequence that owns it. Then the sequence can be continued at its end alone: cut back or shared from the middle, it
// would attend to cells that are gone. A cell with two owners is left alone. So each sequence s of the caller has a
// guard, the sequence s + n of n, that owns the same cells, and windows lose nothing: the caller can remove, share and
// save any range, as with full attention. It costs no memory, because a cache for many sequences has as many cells as
// the other layers (swa_full).
//
// A cell is in danger from the first Decode on that begins with it outside the window. Decode therefore hands over what
// a sequence has computed once it is as long as the window, and no Decode has two passes (batchRows).

// guards reports whether the model's memory has windows and several sequences of one kind of cells.
func (e *engine) guards(o runtime.Options) bool {
	return e.window > 0 && o.Sequences > 1 && !bool(C.llama_model_is_recurrent(e.model)) &&
		!bool(C.llama_model_is_hybrid(e.model))
}

// guardOf returns the sequence that guards s.
func (e *engine) guardOf(s runtime.Seq) C.llama_seq_id {
	return C.llama_seq_id(int(s) + len(e.guarded))
}

// guard makes the guard of s own the cells that s has behind guarded[s]. llama.cpp must not add a cell to a sequence
// twice.
func (e *engine) guard(s runtime.Seq) {
	if e.guarded == nil {
		return
	}
	if _, last := e.SeqRange(s); last >= e.guarded[s] {
		C.llama_memory_seq_cp(e.mem, C.llama_seq_id(s), e.guardOf(s), C.llama_pos(e.guarded[s]), C.llama_pos(last+1))
		e.guarded[s] = last + 1
	}
}

// unguard takes the cells of s at positions [p0, p1), which s has given up, from its guard; negative positions mean
// from the first and to the last.
func (e *engine) unguard(s runtime.Seq, p0, p1 runtime.Pos) {
	if e.guarded == nil || e.guarded[s] <= max(p0, 0) {
		return
	}
	C.llama_memory_seq_rm(e.mem, e.guardOf(s), C.llama_pos(p0), C.llama_pos(p1))
	if p1 < 0 || e.guarded[s] <= p1 {
		e.guarded[s] = max(p0, 0)
	}
}

// shiftGuard records that the cells of s from position p0 on have moved by delta.
func (e *engine) shiftGuard(s runtime.Seq, p0, delta runtime.Pos) {
	if e.guarded != nil && e.guarded[s] > p0 {
		e.guarded[s] += delta
	}
}

// guardBatch follows each Decode.
func (e *engine) guardBatch() {
	if e.guarded == nil {
		return
	}
	w := runtime.Pos(e.window)
	for i, s := range e.batch.Seq {
		// With windows of fixed places (chunked attention) a cell is in danger once its sequence has left its chunk.
		if end, g := e.batch.Pos[i]+1, e.guarded[s]; end-g >= w || end/w*w > g {
			e.guard(s)
		}
	}
}
