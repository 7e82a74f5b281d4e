//go:build cgo && (llama_engine || llama_system)

package llama

/*
#include "bridge.h"
*/
import "C"

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
)

var _ runtime.Submitter = (*engine)(nil)

// flight is the Decode that is under way.
type flight struct {
	rowsBegun int // of the batch; of an encoder, those that it computes
	begun     time.Time
	graphProbe
}

func (e *engine) Decode() error {
	if err := e.begin(); err != nil {
		return err
	}
	var rc C.int32_t
	if len(e.batch.Images) == 0 {
		rc = e.compute(e.rowsBegun)
	} else if code, err := e.decodeImages(); err != nil {
		e.setIndexes()
		return err
	} else if rc = code; rc == 1 {
		e.setIndexes()
		e.dropBatch()
	}
	return e.finish(rc)
}

// Beside implements runtime.Submitter: llama_decode returns while the device computes the last of its graphs.
func (e *engine) Beside() bool {
	n := e.batch.Len()
	if !e.caps.Beside || n > e.caps.MaxMicroBatch || len(e.batch.Images) > 0 {
		return false
	}
	if e.mixes.piece != nil {
		for _, mix := range e.batch.Mix {
			if mix != e.batch.Mix[0] {
				return false // one pass for each mix
			}
		}
	}
	return true
}

// Submit implements runtime.Submitter.
func (e *engine) Submit() error {
	if err := e.begin(); err != nil {
		return err
	}
	e.stop.decide = 0
	m := &e.mixes
	m.split, m.kept = false, 0
	if m.piece != nil {
		e.use(e.batch.Mix[0])
	}
	if rc := C.uma_submit(e.ctx, e.cbatch, C.int32_t(e.rowsBegun), e.stop); rc != 0 {
		return e.finish(rc)
	}
	return nil
}

// Wait implements runtime.Submitter.
func (e *engine) Wait() error { return e.finish(C.uma_wait(e.ctx)) }

// begin checks the batch and readies what a decode reads.
func (e *engine) begin() error {
	e.closed.AssertOpen()
	e.rows = 0
	e.beginImages()
	e.aborted.Store(0)
	if e.batch.Cancelled != nil && e.batch.Cancelled() {
		return runtime.ErrAborted
	}
	n := len(e.batch.Token)
	if err := e.checkBatch(); err != nil {
		return err
	}
	e.rowsBegun = n
	if e.encoder {
		if err := e.checkTexts(); err != nil {
			return err
		}
		e.rowsBegun = e.fill(n)
	}
	if err := e.setPositions(); err != nil {
		return err
	}
	b := &e.batch.Bound
	e.stop.decide, e.stop.limit, e.stop.expected = C.int64_t(b.Decide), C.int64_t(b.Limit), C.int64_t(b.Expected)
	if !e.caps.CanAbort || e.oneSequence { // with one graph for each sequence, no share of nodes is known
		e.stop.decide = 0
	}
	e.stop.never = C.bool(e.shifted)
	copy(e.has, e.batch.Logits)
	if e.everyRow {
		for i := range e.batch.Logits {
			e.batch.Logits[i] |= runtime.RowLogits
		}
	}
	e.beginProbe()
	e.begun = time.Now()
	return nil
}

// finish takes what uma_decode returned.
func (e *engine) finish(rc C.int32_t) error {
	e.took = time.Since(e.begun)
	e.setIndexes()
	copy(e.batch.Logits, e.has)
	e.shifted = e.shifted && rc < 0
	switch {
	case rc == 0:
		e.rows = len(e.batch.Token)
		e.hide()
		e.guardBatch()
		return nil
	case rc == 1:
		drainLogs(slog.LevelDebug)
		return runtime.ErrKVFull
	case rc == 2:
		drainLogs(slog.LevelDebug)
		if e.stop.late != 0 {
			return runtime.ErrLate
		}
		return runtime.ErrAborted
	}
	why := drainLogs(slog.LevelError)
	if rc == C.UMA_THREW {
		return fmt.Errorf("%w: %s", runtime.ErrDecode, why)
	}
	return fmt.Errorf("%w: llama_decode returned %d: %s", runtime.ErrDecode, int(rc), why)
}
