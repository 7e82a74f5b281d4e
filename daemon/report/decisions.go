package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/price"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// Compiled is a request's wait for the grammars of its answer. The zero value is none.
type Compiled struct {
	At   time.Time // of its beginning
	Took time.Duration
}

// DeviceWait sums up the times for which a request's steps waited for the device lease while another model held it.
type DeviceWait struct {
	First, Last time.Time
	Took        time.Duration
	Times       int
	Without     int    // steps that were computed without the lease
	Holder      string // the model that was waited for last; "" if it has no name
}

// Price is the newest decision about cells of a request that a tier outside the pool has. The zero value is none.
type Price struct {
	At     time.Time
	Tokens int
	Tier   core.Tier
	Price  price.Price
}

// MalformedCall is a part of an answer that looked like a call and is none.
type MalformedCall struct {
	At     time.Time
	Reason toolcall.Reason
}

// MaxMalformed is the maximum number of malformed calls that why reports of a request.
const MaxMalformed = 16

// decisions returns r's decisions in the order of time: the waits for its grammars and for other models, the decisions
// about its stored cells, the scheduler's, an early end of its thinking, and its malformed calls. The changes to its
// conversation come first.
func (r *Request) decisions(log []sched.Decision, epoch time.Time) []reports.Decision {
	out := []reports.Decision{}
	if !r.Compiled.At.IsZero() {
		out = append(out, r.Compiled.decision(r.Arrived))
	}
	if r.Device.Times > 0 {
		out = append(out, r.Device.decision(r.Arrived))
	}
	if !r.Price.At.IsZero() {
		out = append(out, r.Price.decision(r.Arrived))
	}
	arrived := r.Arrived.Sub(epoch)
	at := func(t sched.Instant) float64 { return wire.Ms(time.Duration(t) - arrived) }
	for _, d := range log {
		out = append(out, reports.Decision{
			AtMs: at(d.First), LastMs: at(d.Last), Times: d.Times, Reason: d.Reason.String(), Text: d.Reason.Explain(),
			Tokens: d.Tokens, Latest: d.Latest,
		})
	}
	if r.Force.Reason != meridian.NoReason {
		out = append(out, forced(&r.Force, arrived))
	}
	for i := range r.Malformed {
		out = append(out, r.Malformed[i].decision(r.Arrived))
	}
	slices.SortStableFunc(out, func(a, b reports.Decision) int { return cmp.Compare(a.AtMs, b.AtMs) })
	var first []reports.Decision
	if r.Note != "" {
		first = append(first, reports.Decision{Times: 1, Reason: "embeddings", Text: r.Note})
	}
	for _, n := range r.Changes {
		first = append(first, reports.Decision{Times: n.Times, Reason: n.Reason, Text: n.Text})
	}
	return append(first, out...)
}

func (w *Compiled) decision(arrived time.Time) reports.Decision {
	at := wire.Ms(w.At.Sub(arrived))
	return reports.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "compiled",
		Text: fmt.Sprintf("It waited %v for the compilation of the grammar of its answer.",
			w.Took.Round(time.Millisecond))}
}

func (w *DeviceWait) decision(arrived time.Time) reports.Decision {
	text := fmt.Sprintf("Its steps have waited %v in all for the device, which other models computed on",
		w.Took.Round(time.Millisecond))
	if w.Holder != "" {
		text += ", the last time " + w.Holder
	}
	if w.Without > 0 {
		text += fmt.Sprintf("; %d of them were computed beside another model, which did not pass the lease on",
			w.Without)
	}
	return reports.Decision{AtMs: wire.Ms(w.First.Sub(arrived)), LastMs: wire.Ms(w.Last.Sub(arrived)), Times: w.Times,
		Reason: "device_wait", Text: text + "."}
}

func (p *Price) decision(arrived time.Time) reports.Decision {
	at := wire.Ms(p.At.Sub(arrived))
	return reports.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "cells_" + p.Price.Way.String(), Text: p.text(),
		Tokens: p.Tokens}
}

func (p *Price) text() string {
	have := fmt.Sprintf("%d tokens of its prompt that the %s tier has", p.Tokens, p.Tier)
	if p.Tier == core.Fabric { // its contents are unknown before a pull
		have = fmt.Sprintf("%d tokens of its prompt that the fabric may have", p.Tokens)
	}
	switch restore, compute := p.Price.Restore, p.Price.Compute; {
	case restore == 0 || compute == 0:
		return "Restores " + have + ": too little was measured to compare with computing them."
	case p.Price.Way == price.WayCompute:
		return fmt.Sprintf("Computes %s: %v are predicted for that, %v for a restore.", have, rounded(compute),
			rounded(restore))
	case p.Price.Way == price.WayTrial:
		return fmt.Sprintf("Restores %s, to measure the tier again: %v are predicted, %v for computing them.", have,
			rounded(restore), rounded(compute))
	default:
		return fmt.Sprintf("Restores %s: %v are predicted, %v for computing them.", have, rounded(restore),
			rounded(compute))
	}
}

// rounded rounds d to three digits, at the finest to a microsecond.
func rounded(d time.Duration) time.Duration {
	unit := time.Microsecond
	for unit*1000 < d {
		unit *= 10
	}
	return d.Round(unit)
}

func (c *MalformedCall) decision(arrived time.Time) reports.Decision {
	at := wire.Ms(c.At.Sub(arrived))
	if c.Reason == toolcall.Unfinished {
		return reports.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "call_" + string(c.Reason),
			Text: "A tool call is incomplete: " + c.Reason.Explain() + "."}
	}
	if c.Reason == toolcall.OwnTool {
		return reports.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "call_" + string(c.Reason),
			Text: "A tool call was left out of the answer: " + c.Reason.Explain() + "."}
	}
	return reports.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "call_" + string(c.Reason),
		Text: "A tool call was malformed and stayed text of the answer: " + c.Reason.Explain() + "."}
}

// forced returns the entry for thinking that was ended early: the reason and the measurements behind it. arrived is the
// scheduler's instant.
func forced(f *meridian.Force, arrived time.Duration) reports.Decision {
	at := wire.Ms(time.Duration(f.DecidedAt) - arrived)
	text := fmt.Sprintf("Its thinking was ended after %d tokens: %s", f.Tokens, f.Reason)
	if f.Probes > 0 {
		text += fmt.Sprintf(" (%d probes, entropy of the newest %.3f nats, EMA variance %.2g nats²)", f.Probes, f.X,
			f.Var)
	}
	return reports.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "forced_" + f.Reason.String(), Text: text + "."}
}

// BrokenTarget returns the message of a strict request that is refused.
func BrokenTarget(end *core.End) string {
	name := map[sched.Reason]string{reason.TTFT: "target_ttft_ms", reason.MissesITL: "target_tbt_ms",
		reason.MissesTTOT: "target_ttot_ms"}[end.Reason]
	switch {
	case end.Predicted == 0 && end.Reason == reason.MissesITL:
		return fmt.Sprintf("a request admitted before, with slo.strict and slo.%s of %v, would miss its target beside "+
			"this one, which has slo.strict too", name, end.Target)
	case end.Predicted == 0:
		return fmt.Sprintf("slo.%s of %v could be met, but then a request admitted before, with slo.strict, would "+
			"miss its target", name, end.Target)
	}
	return fmt.Sprintf("slo.%s is %v, and %v are predicted; slo.strict asks for a refusal then", name, end.Target,
		end.Predicted.Round(time.Millisecond/10))
}

// Texts says how far a request for embeddings is, or with rank one for the scores of documents.
func Texts(rank bool, texts, started int) string {
	form := "It asks for the embeddings of %d texts, and %d of them have started."
	if rank {
		form = "It asks for the scores of %d documents, and %d of them have started."
	}
	return fmt.Sprintf(form, texts, started)
}
