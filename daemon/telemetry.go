package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/tiers"
)

// trace gives the record of an ended request to the exporter. failure is the message of an error, "" after an eos.
func (l *loop) trace(r *request, ended, failure string, now time.Time) {
	t := r.trace
	if t == nil {
		return
	}
	r.trace = nil
	u := r.usage()
	t.ID, t.Class, t.Ended, t.Error = r.wireID, r.Class.String(), ended, failure
	t.Arrived, t.Started, t.First, t.Last, t.End = r.arrived, r.at.Started, r.at.First, r.at.Last, now
	t.Think, t.Thought, t.Answer = r.at.Opened, r.at.Thought, r.at.Answered
	t.PromptTokens, t.CachedTokens, t.CacheTier = u.PromptTokens, u.CachedTokens, u.CacheTier.String()
	t.ThinkTokens, t.CompletionTokens = u.ThinkTokens, u.CompletionTokens
	l.journal.tel.Ended(t)
}

// metricsTierName returns a tier's name in traces and metrics.
func metricsTierName(t core.Tier) string { return tiers.Wire[t].String() }
