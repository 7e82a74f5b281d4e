package daemon

import (
	"strings"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/trace"
)

// What --log-level debug (UMA_DEBUG=1) writes of the decode loop: a line for each step with what the scheduler decided
// and why, and lines of requests with the numbers that connect both.

// logPlan writes the decisions of a step: the text of the plan, whose lines are separated by semicolons. A plan that
// only waits is left out.
func (l *loop) logPlan(plan *sched.Plan) {
	if !l.journal.debug || len(plan.Batch)+len(plan.Release)+len(plan.Reject)+len(plan.Start) == 0 {
		return
	}
	l.reused.planText = trace.AppendPlan(l.reused.planText[:0], "", plan)
	text := strings.TrimSuffix(string(l.reused.planText), "\n")
	l.log.Debug("step", "decisions", strings.ReplaceAll(text, "\n", "; "))
}

// logRequest writes a debug line about a request: its client's id and connection, its number in the plans, and its
// sequence in the engine (-1 = none).
func (l *loop) logRequest(r *request, msg string, args ...any) {
	if l.journal.debug {
		l.log.Debug(msg, append([]any{"session", r.conn.ID(), "request", r.wireID, "id", r.ID, "seq", r.Seq()},
			args...)...)
	}
}
