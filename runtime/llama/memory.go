//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/grid"
)

// seqOK guards every call below: llama.cpp aborts the process on a sequence id it does not know.
func (e *engine) seqOK(s runtime.Seq) bool { return s >= 0 && int(s) < e.caps.MaxSequences }

func (e *engine) SeqRange(s runtime.Seq) (first, last runtime.Pos) {
	if !e.seqOK(s) || e.encoder {
		return -1, -1
	}
	if e.hasGrids(s) {
		return e.endOf(s, false), e.endOf(s, true)
	}
	first = runtime.Pos(C.llama_memory_seq_pos_min(e.mem, C.llama_seq_id(s)))
	last = runtime.Pos(C.llama_memory_seq_pos_max(e.mem, C.llama_seq_id(s)))
	if e.info.Recurrent && e.caps.Seals {
		first = min(first, 0) // llama.cpp says how far back a state can go: not at all
	}
	return first, last
}

func (e *engine) SeqRemove(s runtime.Seq, p0, p1 runtime.Pos) bool {
	if !e.seqOK(s) || !e.remove(s, p0, p1) {
		return false
	}
	e.trimGrids(s)
	return true
}

func (e *engine) remove(s runtime.Seq, p0, p1 runtime.Pos) bool {
	first, last := e.SeqRange(s)
	p0 = max(p0, 0)
	if p1 < 0 || p1 > last {
		p1 = last + 1
	}
	switch {
	case last < 0:
		return true
	case p0 <= first && p1 > last:
		p0, p1 = -1, -1 // the whole sequence: every memory can
	case p0 > last || p1 <= first && e.window == 0:
		return true // nothing there
	case e.guarded == nil && e.window > 0 && (p1 <= last || first > 0 && first > p0-runtime.Pos(e.window)):
		// The remaining cells would attend to cells that the sliding window has dropped.
		return false
	}
	if !e.removeRange(s, p0, p1) {
		return false
	}
	e.unguard(s, p0, p1)
	return true
}

func (e *engine) SeqCopy(src, dst runtime.Seq, p0, p1 runtime.Pos) {
	if e.seqOK(src) && e.seqOK(dst) && src != dst && !e.encoder {
		if e.caps.Seals {
			p0, p1 = -1, -1 // the whole, as the contract asks; DeepSeek 4's memory asserts that it is asked for so
		}
		e.copyRange(src, dst, p0, p1)
		e.guard(dst)
	}
}

func (e *engine) SeqAdd(s runtime.Seq, p0, p1, delta runtime.Pos) error {
	if !e.caps.CanShift {
		return fmt.Errorf("shift positions: %w", runtime.ErrUnsupported)
	}
	if !e.seqOK(s) {
		return fmt.Errorf("shift positions: sequence %d is not one of 0 … %d", s, e.caps.MaxSequences-1)
	}
	C.llama_memory_seq_add(e.mem, C.llama_seq_id(s), C.llama_pos(p0), C.llama_pos(p1), C.llama_pos(delta))
	e.shiftGuard(s, p0, delta) // its cells are those of s
	e.shifted = true
	return nil
}

// withRange calls f with a sequence that holds exactly the cells of s at [p0, p1): s itself when that is all it holds,
// else the scratch sequence, which is emptied afterwards.
func (e *engine) withRange(s, scratch runtime.Seq, p0, p1 runtime.Pos, f func(runtime.Seq) error) error {
	if !e.seqOK(s) {
		return fmt.Errorf("sequence %d is not one of 0 … %d", s, e.caps.MaxSequences-1)
	}
	first, last := e.SeqRange(s)
	p0 = max(p0, 0)
	if p1 < 0 || p1 > last {
		p1 = last + 1
	}
	if last < 0 || p0 >= p1 || p1 <= first {
		return fmt.Errorf("sequence %d holds nothing at [%d, %d)", s, p0, p1)
	}
	whole := p0 <= first && p1 > last || e.window > 0 && p0 == 0 && p1 > last
	if e.guarded != nil && int(p1-p0) > e.window {
		// llama.cpp leaves out what lies outside the window of the last position.
		return fmt.Errorf("%d positions, and the window has %d: %w", p1-p0, e.window, runtime.ErrUnsupported)
	}
	if whole {
		return f(s)
	}
	if e.caps.Seals {
		return fmt.Errorf("a part of a sequence: %w", runtime.ErrUnsupported)
	}
	if err := e.scratchOK(s, scratch); err != nil {
		return err
	}
	e.SeqCopy(s, scratch, p0, p1)
	defer e.SeqRemove(scratch, 0, -1)
	return f(scratch)
}

func (e *engine) scratchOK(s, scratch runtime.Seq) error {
	if !e.seqOK(scratch) || scratch == s {
		return fmt.Errorf("sequence %d cannot be the scratch for %d", scratch, s)
	}
	if _, last := e.SeqRange(scratch); last >= 0 {
		return fmt.Errorf("scratch sequence %d is in use", scratch)
	}
	return nil
}

func (e *engine) SnapshotSize(s runtime.Seq, p0, p1 runtime.Pos) (n int, err error) {
	err = e.withRange(s, e.emptySeq(), p0, p1, func(q runtime.Seq) error {
		n = e.grids.Of(q).Size() + int(C.llama_state_seq_get_size(e.ctx, C.llama_seq_id(q)))
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("size of a snapshot: %w", err)
	}
	return n, nil
}

// emptySeq returns an empty sequence, -1 when there is none.
func (e *engine) emptySeq() runtime.Seq {
	for s := runtime.Seq(e.caps.MaxSequences) - 1; s >= 0; s-- {
		if _, last := e.SeqRange(s); last < 0 {
			return s
		}
	}
	return -1
}

func (e *engine) Snapshot(dst []byte, s, scratch runtime.Seq, p0, p1 runtime.Pos) (n int, err error) {
	err = e.withRange(s, scratch, p0, p1, func(q runtime.Seq) error {
		list := e.grids.Of(q)
		need := list.Size() + int(C.llama_state_seq_get_size(e.ctx, C.llama_seq_id(q)))
		if len(dst) < need {
			return fmt.Errorf("needs %d bytes, the buffer has %d", need, len(dst))
		}
		state := dst[len(list.Append(dst[:0])):]
		n = int(C.llama_state_seq_get_data(e.ctx, (*C.uint8_t)(unsafe.SliceData(state)), C.size_t(len(state)),
			C.llama_seq_id(q)))
		if n == 0 {
			return fmt.Errorf("llama.cpp: %s", drainLogs(slog.LevelError))
		}
		n += list.Size()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	return n, nil
}

func (e *engine) Restore(src []byte, s, scratch runtime.Seq) error {
	if !e.seqOK(s) {
		return fmt.Errorf("%w: sequence %d is not one of 0 … %d", runtime.ErrSnapshot, s, e.caps.MaxSequences-1)
	}
	if len(src) == 0 {
		return fmt.Errorf("%w: it is empty", runtime.ErrSnapshot)
	}
	if e.encoder {
		return fmt.Errorf("%w: an encoder has no KV memory", runtime.ErrSnapshot)
	}
	list, src, err := grid.Parse(src)
	switch {
	case err == nil && list != nil && e.grids == nil:
		err = errors.New("it has images in several dimensions, and this model reads none")
	case err == nil && len(src) == 0:
		err = errors.New("it has no cells")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrSnapshot, err)
	}
	first, last := e.SeqRange(s)
	into := s
	if last >= 0 {
		if e.caps.Seals {
			return fmt.Errorf("%w: sequence %d is in use: %w", runtime.ErrSnapshot, s, runtime.ErrUnsupported)
		}
		if err := e.scratchOK(s, scratch); err != nil {
			return fmt.Errorf("%w: %w", runtime.ErrSnapshot, err)
		}
		into = scratch
	}
	n := C.uma_restore(e.ctx, (*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)), C.llama_seq_id(into))
	if n == 0 {
		C.llama_memory_seq_rm(e.mem, C.llama_seq_id(into), -1, -1) // it may have got half way
		why := drainLogs(slog.LevelDebug)
		if strings.Contains(why, "available cells") || strings.Contains(why, "not enough cells") {
			return fmt.Errorf("restore: %w", runtime.ErrKVFull)
		}
		return fmt.Errorf("%w: %s", runtime.ErrSnapshot, why)
	}
	if err = e.restored(into, list); err != nil {
		e.SeqRemove(into, 0, -1)
		return err
	}
	if into == s {
		e.guard(s)
		return nil
	}
	defer e.SeqRemove(scratch, 0, -1)
	if q0, q1 := e.SeqRange(scratch); q0 <= last && first <= q1 {
		return fmt.Errorf("%w: sequence %d already holds [%d, %d], the snapshot [%d, %d]", runtime.ErrSnapshot, s,
			first, last, q0, q1)
	}
	if !e.joins(scratch, s) {
		return fmt.Errorf("%w: its images are not those of sequence %d", runtime.ErrSnapshot, s)
	}
	e.SeqCopy(scratch, s, -1, -1)
	return nil
}
