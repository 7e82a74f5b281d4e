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

// Report is what one simulation measured.
type Report struct {
	Config   Config
	Metrics  *Metrics
	Requests []Result // in the workload's order; nil when Config.Collect is Aggregate
	Steps    []StepRecord
	Stuck    *Stuck // the livelock that was found, if any
	Arrived  int64
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
	Planned func(now sched.Instant, in []sched.Event, plan *sched.Plan)
	Engine  runtime.Engine
	Row     func(r *workload.Request, history []runtime.Token, logits []float32)
}

// RunModel is Run with the caller's latency model and hooks.
func RunModel(cfg Config, model latency.Model, src workload.Source, opt Options) (*Report, error) {
	rep := &Report{Config: cfg, Metrics: &Metrics{}}
	sink := Sink{Planned: opt.Planned, Engine: opt.Engine, Row: opt.Row}
	var e *Engine
	if cfg.Collect == EveryRequest {
		sink.Done = rep.add
		if l, ok := src.(interface{ Len() int }); ok {
			rep.Requests = make([]Result, 0, l.Len())
		}
	}
	if re, ok := src.(workload.Reactive); ok {
		var next workload.Request
		sink.Ended = func(r *workload.Request, how workload.Outcome, now int64) {
			if re.Ended(r, how, now, &next) && next.Arrival <= e.horizon {
				e.Arrive(&next)
			}
		}
	}
	e, err := NewEngine(cfg, model, rep.Metrics, sink)
	if err != nil {
		return nil, err
	}
	var next workload.Request
	more := src.Next(&next)
	last := int64(-1)
	for {
		at, ok := e.Next()
		if more && (!ok || next.Arrival <= at) {
			at, ok = next.Arrival, true
		} else if !ok {
			break
		}
		if cfg.StrictHorizon && at > e.horizon {
			break
		}
		if more && at == next.Arrival {
			if next.Arrival < last {
				return nil, fmt.Errorf("workload: %s arrives at %d us, after one that arrived at %d us; a source "+
					"must be in order of arrival", next.ID(), next.Arrival, last)
			}
			last = next.Arrival
			e.ArriveNow(&next)
			more = src.Next(&next)
		} else {
			e.Advance()
		}
		if e.clock > e.horizon || e.halts() {
			break
		}
	}
	if f, ok := src.(workload.Fallible); ok && !more {
		if err := f.Err(); err != nil {
			return nil, err
		}
	}
	e.Finish()
	if cfg.Collect == EveryRequest {
		for ; more; more = src.Next(&next) {
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
