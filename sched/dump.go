package sched

import (
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/internal/words"
	"github.com/uma-serve/uma-serve/sched/reason"
)

var classNames = [NumClasses]string{"interactive", "background"}

// String returns the class's name, as clients and metrics spell it.
func (c Class) String() string {
	if c < NumClasses {
		return classNames[c]
	}
	return "class" + strconv.Itoa(int(c))
}

var stateNames = [...]string{"queued", "prefill", "think", "output", "done", "failed"}

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state" + strconv.Itoa(int(s))
}

var outcomeNames = [...]string{"ok", "aborted", "kvfull", "failed", "late"}

// String returns the outcome's name in a trace.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "outcome" + strconv.Itoa(int(o))
}

var sliceNames = [...]string{"prefill", "decode", "probe"}

// String returns the kind's name in a trace.
func (k SliceKind) String() string {
	if int(k) < len(sliceNames) {
		return sliceNames[k]
	}
	return "slice" + strconv.Itoa(int(k))
}

// String returns the text that Append writes.
func (p *Plan) String() string { return string(p.Append(nil, "")) }

// Append appends the plan as lines of text, each after the prefix: one line for the step, then one for every
// release, rejection, slice and wait, in the order in which they are carried out. Equal plans have equal text;
// it does not allocate when dst has room.
//
//	plan tokens=13 decode=1 prefill=12 budget=64 reason=served
//	release 3 seq=2 reason=stop final
//	reject 9 reason=queue_full retry_after=1.2s
//	start 4 seq=3
//	decode 1 seq=0 at=12 row=0 reason=decode
//	prefill 2 seq=1 at=0 n=12 row=12 reason=prefill_rest
//	waiting interactive reason=wait_sequence
//	wake at=2s
func (p *Plan) Append(dst []byte, prefix string) []byte {
	num := func(key string, v int) {
		dst = append(dst, key...)
		dst = strconv.AppendInt(dst, int64(v), 10)
	}
	why := func(r Reason) {
		dst = append(dst, " reason="...)
		dst = append(dst, r.String()...)
	}
	line := func(verb string, id ReqID) {
		dst = append(dst, prefix...)
		dst = append(dst, verb...)
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	dst = append(dst, prefix...)
	num("plan tokens=", p.Tokens)
	num(" decode=", p.DecodeTokens)
	num(" prefill=", p.PrefillTokens)
	if p.ProbeTokens > 0 {
		num(" probe=", p.ProbeTokens)
	}
	if p.GuessedTokens > 0 {
		num(" guessed=", p.GuessedTokens)
	}
	num(" budget=", p.Budget)
	why(p.Reason)
	if p.PrefillHeld {
		dst = append(dst, " held"...)
	}
	if p.Again {
		dst = append(dst, " again"...)
	}
	if p.Reclaim > 0 {
		num(" reclaim=", p.Reclaim)
	}
	if p.States {
		dst = append(dst, " states"...)
	}
	dst = append(dst, '\n')
	for i := range p.Release {
		r := &p.Release[i]
		line("release ", r.Req)
		num(" seq=", int(r.Seq))
		why(r.Reason)
		if r.Final {
			dst = append(dst, " final"...)
		}
		if r.Phase != Queued {
			dst = append(dst, " phase="...)
			dst = append(dst, r.Phase.String()...)
		}
		dst = append(dst, '\n')
	}
	for i := range p.Reject {
		r := &p.Reject[i]
		line("reject ", r.Req)
		why(r.Reason)
		if r.RetryAfter > 0 {
			dst = append(dst, " retry_after="...)
			dst = words.AppendDuration(dst, r.RetryAfter)
		}
		if r.Need > 0 {
			num(" need=", r.Need)
			num(" have=", r.Have)
		}
		dst = append(dst, '\n')
	}
	for i := range p.Start {
		line("start ", p.Start[i].Req)
		num(" seq=", int(p.Start[i].Seq))
		dst = append(dst, '\n')
	}
	for i := range p.Batch {
		s := &p.Batch[i]
		line(sliceVerbs[s.Kind], s.Req)
		num(" seq=", int(s.Seq))
		num(" at=", s.Start)
		if s.Kind != SliceDecode {
			num(" n=", s.N)
		}
		if s.Guessed > 0 {
			num(" guessed=", s.Guessed)
		}
		if s.Drafted {
			dst = append(dst, " drafted"...)
		}
		if s.Feed > 0 {
			num(" feed=", s.Feed)
		}
		if s.Row >= 0 {
			num(" row=", s.Row)
		}
		why(s.Reason)
		dst = append(dst, '\n')
	}
	for class, r := range p.Waiting {
		if r != reason.None {
			dst = append(dst, prefix...)
			dst = append(dst, "waiting "...)
			dst = append(dst, classNames[class]...)
			why(r)
			dst = append(dst, '\n')
		}
	}
	if p.WakeAt > 0 {
		dst = append(dst, prefix...)
		dst = append(dst, "wake at="...)
		dst = words.AppendDuration(dst, time.Duration(p.WakeAt))
		dst = append(dst, '\n')
	}
	return dst
}

var sliceVerbs = [...]string{"prefill ", "decode ", "probe "}
