package sim

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Report has the measurements of one simulation.
type Report struct {
	Config   Config
	Metrics  *Metrics
	Requests []Result // in the workload's order; nil when Config.Collect is Aggregate
	Steps    []StepRecord
	Stuck    *Stuck // the livelock that was found, if any
	Arrived  int64
	Turns    *Turns // of RunMachine
}

// Run simulates one server until nothing is left to do, the horizon, or a livelock. A livelock without a horizon is
// an error, of type *Stuck; the Report then holds what was measured until then.
func Run(cfg Config, src workload.Source) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	model, err := cfg.Latency()
	if err != nil {
		return nil, err
	}
	return RunModel(cfg, model, src, Options{})
}

// Options are those fields of a Sink that a caller of RunModel may set; all may be nil.
type Options struct {
	Planned func(now sched.Instant, in *sched.Events, plan *sched.Plan)
	// Preempted is called when a request loses its place in the batch and waits again.
	Preempted func(r *workload.Request, now int64)
	Engine    runtime.Engine
	Row       func(r *workload.Request, history []runtime.Token, logits []float32)
	// Done is called with each result, where Config.Collect is Aggregate.
	Done func(Result)
	// Watch is called each WatchUs microseconds of the clock, before the events of that time, while there are events.
	Watch   func(e *Engine, now int64)
	WatchUs int64
}

// RunModel is Run with the caller's latency model and hooks.
func RunModel(cfg Config, model latency.Model, src workload.Source, opt Options) (*Report, error) {
	r, err := newRun(cfg, model, src, opt)
	if err != nil {
		return nil, err
	}
	for {
		if _, ok := r.peek(); !ok {
			return r.finish()
		}
		if err := r.advance(); err != nil {
			return nil, err
		}
	}
}

// run is a simulation that is under way.
type run struct {
	rep  *Report
	e    *Engine
	src  workload.Source
	next workload.Request // of src; valid while more
	more bool
	last int64 // arrival of the newest request
	over bool  // the horizon or a livelock has ended it
	opt  Options
	mark int64 // when Watch is next called
}

func newRun(cfg Config, model latency.Model, src workload.Source, opt Options) (*run, error) {
	r := &run{rep: &Report{Config: cfg, Metrics: &Metrics{}}, src: src, last: -1, opt: opt, mark: opt.WatchUs}
	sink := Sink{Planned: opt.Planned, Preempted: opt.Preempted, Engine: opt.Engine, Row: opt.Row, Done: opt.Done}
	if cfg.Collect == EveryRequest {
		sink.Done = r.rep.add
		if l, ok := src.(interface{ Len() int }); ok {
			r.rep.Requests = make([]Result, 0, l.Len())
		}
	}
	if re, ok := src.(workload.Reactive); ok {
		var next workload.Request
		sink.Ended = func(q *workload.Request, how workload.Outcome, now int64) {
			if re.Ended(q, how, now, &next) && next.Arrival <= r.e.horizon {
				r.e.Arrive(&next)
			}
		}
	}
	var err error
	if r.e, err = NewEngine(cfg, model, r.rep.Metrics, sink); err != nil {
		return nil, err
	}
	r.more = src.Next(&r.next)
	return r, nil
}

// peek returns the time of the next event, false when there is none.
func (r *run) peek() (int64, bool) {
	if r.over {
		return 0, false
	}
	at, ok := r.e.Next()
	if r.more && (!ok || r.next.Arrival <= at) {
		at, ok = r.next.Arrival, true
	}
	if !ok || r.rep.Config.StrictHorizon && at > r.e.horizon {
		return 0, false
	}
	return at, true
}

// advance executes the next event. There must be one.
func (r *run) advance() error {
	for at, _ := r.peek(); r.opt.Watch != nil && r.mark <= at; r.mark += r.opt.WatchUs {
		r.opt.Watch(r.e, r.mark)
		at, _ = r.peek()
	}
	if at, ok := r.e.Next(); r.more && (!ok || r.next.Arrival <= at) {
		if r.next.Arrival < r.last {
			return fmt.Errorf("workload: %s arrives at %d us, after one that arrived at %d us; a source must be in "+
				"order of arrival", r.next.ID(), r.next.Arrival, r.last)
		}
		r.last = r.next.Arrival
		r.e.ArriveNow(&r.next)
		r.more = r.src.Next(&r.next)
	} else {
		r.e.Advance()
	}
	r.over = r.e.clock > r.e.horizon || r.e.halts()
	return nil
}

// finish returns the report. The error is the workload's, or the livelock that ended the simulation.
func (r *run) finish() (*Report, error) {
	rep, e := r.rep, r.e
	if f, ok := r.src.(workload.Fallible); ok && !r.more {
		if err := f.Err(); err != nil {
			return nil, err
		}
	}
	e.Finish()
	if rep.Config.Collect == EveryRequest {
		for next := r.next; r.more; r.more = r.src.Next(&next) {
			rep.add(Result{ID: next.ID(), ArrivalUs: next.Arrival, Input: next.Input, Output: next.Output,
				State: NotArrived.String(), Spec: next})
		}
	}
	rep.Steps, rep.Stuck, rep.Arrived = e.stepLog, e.stuck, e.arrived
	if e.halts() {
		return rep, e.stuck
	}
	return rep, nil
}

// add puts a line at its place in the workload's order.
func (rep *Report) add(r Result) {
	for int64(len(rep.Requests)) <= r.Spec.Index {
		rep.Requests = append(rep.Requests, Result{})
	}
	rep.Requests[r.Spec.Index] = r
}

// WriteJSON writes the golden layout: aggregate, requests, and steps where they were recorded.
func (rep *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(struct {
		Aggregate map[string]any `json:"aggregate"`
		Requests  []Result       `json:"requests"`
		Steps     []StepRecord   `json:"steps,omitempty"`
	}{rep.Metrics.Numbers(&rep.Config), rep.Requests, rep.Steps})
}
