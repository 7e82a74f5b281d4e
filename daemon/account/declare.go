package account

import (
	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/threads"
)

// Declare declares the values of labels that requests have, so that metrics show a value of 0 of each.
func Declare(m *metrics.Metrics) {
	for _, r := range wire.Reasons {
		m.FinishReasons.Declare(string(r))
	}
	for _, r := range threads.Reasons() {
		m.ThreadChanges.Declare(r.String())
	}
	for _, why := range admission.RefusedEarly {
		m.Refusals.Declare(why)
	}
	m.ToolCalls.Declare("derived")
	for i := range toolcall.Syntaxes {
		m.ToolCalls.Declare(toolcall.Syntaxes[i].Name)
	}
	for _, r := range toolcall.Reasons {
		m.MalformedCalls.Declare(string(r))
	}
	for _, r := range []reason.Reason{reason.QueueFull, reason.ClassQueueFull, reason.Displaced, reason.Draining,
		reason.TTFT, reason.MissesITL, reason.MissesTTOT} {
		m.Refusals.Declare(r.String())
	}
	for r := range kvsnap.NumReasons {
		if r != kvsnap.ReasonFull { // ReasonFull is no miss
			m.CacheMisses.Declare(r.String())
		}
	}
}
