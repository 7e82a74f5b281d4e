package trace

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/words"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// sliceVerbs begin the lines of slices.
var sliceVerbs = [...]string{sched.SlicePrefill: "prefill ", sched.SliceDecode: "decode ", sched.SliceProbe: "probe "}

// AppendPlan appends a plan as lines of text, each after the prefix: one line for the step, then one for every
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
func AppendPlan(dst []byte, prefix string, p *sched.Plan) []byte {
	num := func(key string, v int) {
		dst = append(dst, key...)
		dst = strconv.AppendInt(dst, int64(v), 10)
	}
	why := func(r reason.Reason) {
		dst = append(dst, " reason="...)
		dst = append(dst, r.String()...)
	}
	line := func(verb string, id sched.ReqID) {
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
		if r.Phase != sched.Queued {
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
		if s.Kind != sched.SliceDecode {
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
			dst = append(dst, sched.Class(class).String()...)
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

// parsePlan reads what AppendPlan writes, as far as Visit says.
func parsePlan(text string) (p sched.Plan, err error) {
	for line := range strings.Lines(text) {
		field := strings.Fields(line)
		if len(field) < 2 {
			return p, fmt.Errorf("%q is no line of a plan", line)
		}
		number := func(key string, otherwise int) int {
			for _, f := range field[1:] {
				if value, ok := strings.CutPrefix(f, key+"="); ok {
					n, e := parseInt(key, value, -1, math.MaxInt32)
					err = errors.Join(err, e)
					return n
				}
			}
			return otherwise
		}
		request := func() sched.ReqID {
			id, e := strconv.ParseUint(field[1], 10, 64)
			if e != nil {
				err = errors.Join(err, fmt.Errorf("%q is no request", field[1]))
			}
			return sched.ReqID(id)
		}
		switch verb := field[0] + " "; verb {
		case "plan ":
			p.Tokens, p.DecodeTokens, p.PrefillTokens = number("tokens", 0), number("decode", 0), number("prefill", 0)
			p.ProbeTokens, p.GuessedTokens = number("probe", 0), number("guessed", 0)
		case "release ":
			p.Release = append(p.Release, sched.Release{Req: request()})
		case sliceVerbs[sched.SlicePrefill], sliceVerbs[sched.SliceDecode], sliceVerbs[sched.SliceProbe]:
			s := sched.Slice{Req: request(), Start: number("at", -1), Guessed: number("guessed", 0),
				Row: number("row", -1)}
			for kind, v := range sliceVerbs {
				if v == verb {
					s.Kind = sched.SliceKind(kind)
				}
			}
			s.N = number("n", 1+s.Guessed)
			if s.Start < 0 || s.N < 1 {
				err = errors.Join(err, fmt.Errorf("%q computes nothing", strings.TrimSpace(line)))
			}
			p.Batch = append(p.Batch, s)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}
