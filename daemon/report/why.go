package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/spec"
)

// Request is one request as why reports it. The decode loop makes one when it answers a question, and when a request
// ends; it does not change after that.
type Request struct {
	ID     sched.ReqID
	WireID string // the client's id; "" on the newline protocol
	Owner  uint32
	Class  sched.Class
	State  string // queued, prefill, think, output, parked, done
	Ended  string // reason of its end; "" while it lives

	Arrived    time.Time
	Took       time.Duration // from its arrival to its end; 0 while it lives
	TTFT       time.Duration // 0 before the first token
	Usage      reports.WhyUsage
	Constraint *reports.WhyConstraint // nil: its answer is not constrained
	Guesses    *reports.WhyDrafts     // nil: none are made for it
	Signals    meridian.Signals
	Force      meridian.Force // Reason is NoReason if its thinking was not ended early

	// Decisions beside the scheduler's.
	Compiled  Compiled
	Device    DeviceWait
	Price     Price
	Malformed []MalformedCall
	Changes   []wire.Note // to its conversation

	// Of a request for embeddings: the text whose decisions are reported, and a sentence about the choice.
	About sched.ReqID
	Note  string
}

// Why collects the answer to a why question: the asking user's requests, or those of all users for an operator.
type Why struct {
	question wire.WhyQuestion
	user     uint32
	operator bool
	now      time.Time
	epoch    time.Time // the scheduler's instant 0

	number   uint64 // of the request that is asked about
	byNumber bool
	list     []reports.WhyRequest
	arriving []reports.WhyRequest // newest first
}

// NewWhy begins the answer to user's question.
func NewWhy(q wire.WhyQuestion, user uint32, operator bool, now, epoch time.Time) *Why {
	w := &Why{question: q, user: user, operator: operator, now: now, epoch: epoch, list: []reports.WhyRequest{}}
	if rest, ok := strings.CutPrefix(q.Request, "#"); ok {
		var err error
		w.number, err = strconv.ParseUint(rest, 10, 64)
		w.byNumber = err == nil
	}
	return w
}

// Wants reports whether the question is about the request with these ids. id is 0 before the decode loop has it.
func (w *Why) Wants(id sched.ReqID, wireID string, owner uint32) bool {
	switch {
	case owner != w.user && !w.operator:
		return false
	case w.byNumber:
		return id != 0 && uint64(id) == w.number
	}
	return w.question.Request == "" || wireID == w.question.Request
}

// Add adds a request with the scheduler's decisions about it, or about r.About.
func (w *Why) Add(r *Request, decisions []sched.Decision) {
	out := reports.WhyRequest{
		Request: r.WireID, Number: uint64(r.ID), UID: r.Owner, Class: r.Class.String(), State: r.State,
		Ended: r.Ended, AgeMs: wire.Ms(w.now.Sub(r.Arrived)), TookMs: wire.Ms(r.Took), TTFTMs: wire.Ms(r.TTFT),
		Usage: r.Usage, Form: r.Constraint, Signals: signals(&r.Signals, r.Usage.ThinkTokens), Drafts: r.Guesses,
		Decisions: r.decisions(decisions, w.epoch),
	}
	w.list = append(w.list, out)
}

// AddArriving adds a request that the decode loop has not taken yet.
func (w *Why) AddArriving(wireID string, owner uint32, class sched.Class, arrived time.Time) {
	age := wire.Ms(w.now.Sub(arrived))
	w.arriving = slices.Insert(w.arriving, 0, reports.WhyRequest{Request: wireID, UID: owner, Class: class.String(),
		State: "queued", AgeMs: age,
		Decisions: []reports.Decision{{LastMs: age, Times: 1, Reason: "step_running",
			Text: "It waits for the end of the step that is being computed."}}})
}

// Report returns the answer, the newest request first.
func (w *Why) Report() *reports.WhyReport {
	slices.SortFunc(w.list, func(a, b reports.WhyRequest) int { return cmp.Compare(b.Number, a.Number) })
	list := append(w.arriving, w.list...)
	if list == nil {
		list = []reports.WhyRequest{} // an array, not null
	}
	return &reports.WhyReport{Requests: list[:min(len(list), cmp.Or(w.question.Last, wire.MaxLast))]}
}

// signals returns the early-exit signals of a thought; nil if none was measured.
func signals(s *meridian.Signals, tokens int) *reports.WhySignals {
	if tokens == 0 || !s.EAT && !s.RPDI {
		return nil
	}
	w := &reports.WhySignals{Probes: s.Probes, Converged: s.Converged, Stalled: s.Stalled, Overthinking: s.Overthinking}
	if s.Probes > 0 {
		w.Entropy, w.Mean, w.Variance = s.X, s.Mean, s.Var
	}
	w.Index = s.Index
	return w
}

// phases are the names of the phases in core.Guesses.
var phases = [2]string{"output", "think"}

// Guesses returns the guesses for a request that arrived at an instant. A step computes at most most of them. newest is
// the scheduler's newest decision about them; its Why is reason.None if there was none yet.
func Guesses(most int, newest sched.Guessing, arrived sched.Instant, counts core.Guesses) *reports.WhyDrafts {
	w := &reports.WhyDrafts{Most: most, Counts: []reports.WhyDraftCount{}}
	if newest.Why != reason.None {
		w.Reason, w.Text = newest.Why.String(), newest.Why.Explain()
		w.SinceMs = max(0, wire.Ms(newest.Since.Sub(arrived)))
		w.Chance = newest.Chance
	}
	for phase, name := range phases {
		for source := range counts.Drafted[phase] {
			if n := counts.Drafted[phase][source]; n > 0 {
				w.Counts = append(w.Counts, reports.WhyDraftCount{Phase: name, Source: spec.Source(source).String(),
					Drafted: n, Accepted: counts.Accepted[phase][source]})
			}
		}
	}
	return w
}

// Waiting returns the entry of a request that waits since some time for something before the decode loop has it.
func Waiting(state, text string, arrived, since, now time.Time) reports.WhyRequest {
	return reports.WhyRequest{State: state, AgeMs: wire.Ms(now.Sub(arrived)),
		Decisions: []reports.Decision{{AtMs: wire.Ms(since.Sub(arrived)), LastMs: wire.Ms(now.Sub(arrived)), Times: 1,
			Reason: state, Text: text}}}
}
