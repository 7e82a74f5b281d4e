package core

import (
	"fmt"
	"strings"
)

// String is the step in a script's output.
func (s *Step) String() string {
	var b strings.Builder
	for i := range s.Ops {
		o := &s.Ops[i]
		switch o.Kind {
		case SeqCopy:
			fmt.Fprintf(&b, "copy seq %d to %d [%d, %d)\n", o.Src, o.Dst, o.From, o.To)
		case SeqRemove:
			fmt.Fprintf(&b, "remove seq %d [%d, %d)\n", o.Dst, o.From, o.To)
		case SeqShift:
			fmt.Fprintf(&b, "shift seq %d [%d, %d) by %d\n", o.Dst, o.From, o.To, o.Delta)
		case CopyOut:
			fmt.Fprintf(&b, "copy out seq %d [%d, %d) of owner %d\n", o.Src, o.From, o.To, o.NS)
		case Fetch:
			fmt.Fprintf(&b, "fetch restore %d: %d tokens from %d on, %v\n", o.Restore, len(o.Tokens), o.From, o.Tier)
		case SkipPart:
			fmt.Fprintf(&b, "skip part of restore %d\n", o.Restore)
		case CopyIn:
			fmt.Fprintf(&b, "copy in restore %d to seq %d [%d, %d)\n", o.Restore, o.Dst, o.From, o.To)
		case CloseFetch:
			fmt.Fprintf(&b, "close restore %d\n", o.Restore)
		case OffloadBlock:
			last := map[bool]string{true: ", last"}[o.Last]
			fmt.Fprintf(&b, "offload request %d, seq %d [%d, %d)%s\n", o.Req, o.Src, o.From, o.To, last)
		case Flush:
			b.WriteString("flush\n")
		case Compute:
			fmt.Fprintf(&b, "compute seq %d [%d, %d)\n", o.Dst, o.From, o.To)
		}
	}
	for i := range s.Notes {
		n := &s.Notes[i]
		switch n.Kind {
		case Started:
			fmt.Fprintf(&b, "request %d started: %d cached, %v (%v)\n", n.Request.ID, n.N, n.Tier, n.Match.Reason)
		case Preempted:
			fmt.Fprintf(&b, "request %d preempted\n", n.Request.ID)
		case Parked:
			fmt.Fprintf(&b, "request %d had parked %d tokens\n", n.Request.ID, n.N)
		case Recomputed:
			fmt.Fprintf(&b, "request %d computes %d tokens again\n", n.Request.ID, n.N)
		case Shifted:
			fmt.Fprintf(&b, "request %d shifted by %d\n", n.Request.ID, n.N)
		case ThoughtDropped:
			fmt.Fprintf(&b, "request %d lost a thought of %d\n", n.Request.ID, n.N)
		case Unpinned:
			fmt.Fprintf(&b, "prefix %d unpinned\n", n.Entry)
		case Ingested:
			fmt.Fprintf(&b, "request %d has %d tokens of its thought again\n", n.Request.ID, n.N)
		case Priced:
			who := "an eviction"
			if n.Request != nil {
				who = fmt.Sprint("request ", n.Request.ID)
			}
			fmt.Fprintf(&b, "%s: %v %d tokens, %v (predicted %v, computing %v)\n", who, n.Price.Way, n.N, n.Tier,
				n.Price.Restore, n.Price.Compute)
		case Verified:
			fmt.Fprintf(&b, "request %d guessed %d tokens (%v), %d right\n", n.Request.ID, n.N, n.Source, n.Accepted)
		case Restored:
			fmt.Fprintf(&b, "%d tokens restored from %v\n", n.N, n.Tier)
		}
	}
	for i := range s.Ends {
		e := &s.Ends[i]
		fmt.Fprintf(&b, "request %d ends: %v, %v\n", e.Request.ID,
			[...]string{"", "stopped", "length", "cancelled", "rejected", "failed"}[e.Kind], e.Reason)
	}
	for _, r := range s.Histories {
		fmt.Fprintf(&b, "render the history of request %d\n", r.ID)
	}
	for i := range s.Plan.Batch {
		sl := &s.Plan.Batch[i]
		fmt.Fprintf(&b, "%s request %d [%d, %d)", [...]string{"prefill", "decode", "probe"}[sl.Kind], sl.Req, sl.Start,
			sl.Start+sl.N)
		if sl.Row >= 0 {
			b.WriteString(" → row")
		}
		if sl.Guessed > 0 {
			fmt.Fprintf(&b, ", the last %d guessed", sl.Guessed)
		}
		b.WriteByte('\n')
	}
	if s.Idle {
		b.WriteString("idle\n")
	}
	return b.String()
}
