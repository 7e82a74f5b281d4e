package fake

import (
	"errors"

	"github.com/uma-serve/uma-serve/runtime"
)

var _ runtime.Submitter = (*Engine)(nil)

// flight is the batch between Submit and Wait.
type flight struct {
	on       bool
	injected error
	stops    bool // it can be aborted
	late     bool
}

func (e *Engine) Decode() error {
	if err := e.begin(); err != nil {
		return err
	}
	return e.finish()
}

// Beside implements runtime.Submitter.
func (e *Engine) Beside() bool { return e.caps.Beside && len(e.batch.Images) == 0 }

// Submit implements runtime.Submitter. The cells of the batch are written by Wait.
func (e *Engine) Submit() error {
	if !e.Beside() {
		panic("fake: Submit of a batch that is not computed beside the host")
	}
	err := e.begin()
	if e.flight.on = err == nil; e.flight.on {
		e.cfg.Begin(e.took)
	}
	return err
}

// Wait implements runtime.Submitter.
func (e *Engine) Wait() error {
	if !e.flight.on {
		panic("fake: Wait without a Submit")
	}
	e.flight.on = false
	return e.finish()
}

// begin checks the batch and finds out how long it takes.
func (e *Engine) begin() error {
	e.enter()
	defer e.leave()
	e.decodes++
	e.rows, e.want, e.head.sums = e.rows[:0], e.want[:0], e.head.sums[:0]
	e.took = 0
	e.aborted.Store(false)
	if e.batch.Cancelled != nil && e.batch.Cancelled() {
		return runtime.ErrAborted
	}
	if err := errors.Join(e.checkBatch(), e.checkImages()); err != nil {
		return err
	}
	f := &e.flight
	f.injected = e.injected()
	if errors.Is(f.injected, runtime.ErrKVFull) || e.batch.Len() > len(e.free) && !e.cfg.Encoder {
		return runtime.ErrKVFull
	}
	e.took = e.cost()
	f.stops = !e.shifted // as in llama.cpp
	e.shifted = false
	f.late = f.stops && e.batch.Bound.Decide > 0 && e.took > e.batch.Bound.Limit
	if f.late {
		e.took = e.batch.Bound.Decide
	}
	return nil
}

// finish lets the time pass and computes the batch.
func (e *Engine) finish() error {
	e.enter()
	defer e.leave()
	f := &e.flight
	if e.cfg.Advance != nil {
		e.cfg.Advance(e.took)
	}
	n := e.batch.Len()
	err := f.injected
	if err == nil && f.stops && e.aborted.Load() {
		err = runtime.ErrAborted
	}
	if err == nil && f.late {
		err = runtime.ErrLate
	}
	if err != nil {
		n /= 2
	}
	if e.cfg.Encoder {
		e.encode(n)
	} else {
		for i := range n {
			e.compute(i)
		}
	}
	if err != nil {
		e.rows, e.want, e.head.sums = e.rows[:0], e.want[:0], e.head.sums[:0]
	}
	return err
}
