package prepare

import (
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
)

// The targets and limits of an answer are decided here, once. Each has the first value that is named:
//
//  1. by the request, in a field below; APIs with other names map theirs to it (daemon/api/*/body.go)
//  2. by a router's header, over HTTP: X-Uma-Deadline is slo.target_ttft_ms. X-Uma-Priority: background overrides 1
//     (daemon/http/routed.go)
//  3. by the recipe of the model, or else --defaults: both are values of the same fields (recipe.go)
//  4. by the server's option, or that of the model in [models.NAME] (daemon/config)
//
// The last column says what obeys it. No target is of the whole answer: t_max_predict_ms ends it.
//
//	fields of a request                     wire.Request   option, its default     obeyed by
//	priority, service_tier                  Priority       –, interactive          sched.Spec.Class
//	slo.target_ttft_ms                      TargetTTFT     –, none                 sched/promise.go
//	slo.target_tbt_ms                       TargetITL      --itl-target-ms, 100;   slo.Targets.Next
//	                                                       background: none
//	slo.target_ttot_ms                      TargetTTOT     –, none                 slo.Targets.Next
//	slo.strict                              Strict         –, false                sched/promise.go
//	max_tokens and its other names          MaxTokens      --max-tokens, context   core; a request can only lower it
//	n_indent, t_max_predict_ms              Indent,        –, none                 sampler.Lines
//	                                        MaxTime
//	speculate                               Speculate      --speculate, auto       core; a request can only lower it
//	think.mode, enable_thinking, …          Think.Mode     --think, auto           meridian.Control, the template
//	think.budget_tokens, reasoning_effort,  Think.Budget   --think-budget, 32768   meridian.Control; a request can
//	thinking.budget_tokens, …                                                      only lower it
//	think.soft_budget_tokens                SoftBudget     soft_think_tokens, none meridian.Control
//	think.early_exit                        EarlyExit      --early-exit, off       meridian.Control
//	–                                       –              --think-floor-ms, 250   sched, of thoughts and of
//	                                                                               background answers
//
// All names of a field are in ipc/wire/fields.go, those about thinking in ipc/wire/think.go. The scheduler reads
// targets and class in place, in sched.Spec; package sched/slo says which target holds for a token, and sched/doc.go
// what it changes. An ITL target counts from one token to the next, the others from the request's arrival (TTFT) or the
// end of its thought (TTOT).

// setTargets sets by when w wants its tokens, and beside what it runs.
func (m *Model) setTargets(out *Prepared, w *wire.Request) {
	out.Targets = w.Targets
	out.Class = Class(w)
	out.Lines = sampler.Lines{Indent: w.Indent, MaxTime: w.MaxTime}
	out.Speculate = m.cfg.SpeculationLimit()
	if w.SpeculateSet {
		out.Speculate = min(out.Speculate, w.Speculate)
	}
}

// Class returns the scheduling class of w.
func Class(w *wire.Request) sched.Class {
	if w.Priority == wire.PriorityBackground {
		return sched.Background
	}
	return sched.Interactive
}

// maxShifted is the maximum length of an answer whose context shifts, in tokens: it ends a model that repeats itself.
const maxShifted = 1 << 20

// maxTokens returns the maximum length of the answer, in tokens. room is what the context has left for it.
func (m *Model) maxTokens(w *wire.Request, room int, images bool) int {
	if w.FillOnly {
		return 1 // the scheduler computes the prompt's last row; the loop does not sample it
	}
	if m.cfg.ContextShift && m.Caps.CanShift && !images { // images keep their places
		room = maxShifted
	}
	for _, limit := range []int{w.MaxTokens, m.cfg.MaxTokens} {
		if limit > 0 {
			room = min(room, limit)
		}
	}
	return room
}

// setThinking creates the control of the thinking.
func (m *Model) setThinking(out *Prepared, w *wire.Request, by Constrained) *wire.Error {
	opt := m.thinkOptions(w, out.MaxTokens, out.Continued)
	opt.Calls, opt.Bound = out.Calls != nil, by.Bound
	opt.CallsInThought = out.Thinks != nil
	opt.Headed, opt.CallsOnly = by.Headed, by.CallsOnly
	var err error
	if out.Phases, err = meridian.NewControl(m.think, m.Tags, opt, out.Begin); err != nil {
		return &wire.Error{Code: wire.BadRequest, Message: err.Error()}
	}
	out.Control = out.Phases
	return nil
}

// thinkMode returns the request's thinking mode, else the server's default.
func (m *Model) thinkMode(w *wire.Request) meridian.Mode {
	switch w.Think.Mode {
	case wire.ThinkAuto:
		return meridian.ModeAuto
	case wire.ThinkOff:
		return meridian.ModeOff
	case wire.ThinkOn:
		return meridian.ModeOn
	}
	return m.think.ThinkMode
}

// thinkOptions returns the server's thinking defaults, overridden by the request's fields. maxTokens is the answer's
// maximum length.
func (m *Model) thinkOptions(w *wire.Request, maxTokens int, continued bool) meridian.Options {
	o := m.think.Options()
	o.Mode = m.thinkMode(w)
	switch w.Think.EarlyExit {
	case wire.ExitOff:
		o.EarlyExit = meridian.ExitOff
	case wire.ExitEAT:
		o.EarlyExit = meridian.ExitEAT
	case wire.ExitRPDI:
		o.EarlyExit = meridian.ExitRPDI
	case wire.ExitBoth:
		o.EarlyExit = meridian.ExitBoth
	}
	if b := w.Think.Budget(maxTokens); b != wire.NoBudget {
		o.BudgetTokens = b
	}
	if b := w.Think.SoftBudget(); b != wire.NoBudget {
		o.SoftBudgetTokens = b
		if o.BudgetTokens >= 0 {
			o.SoftBudgetTokens = min(b, o.BudgetTokens)
		}
	}
	o.AnswerCue = w.Think.AnswerCue
	if continued && o.Mode == meridian.ModeOn {
		o.Mode = meridian.ModeAuto // a continued answer cannot open a thought
	}
	return o
}
