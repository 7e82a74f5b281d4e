package sched

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Visit calls visit with each step and what its plan computes, as recorded: Release's and Batch's requests, the batch's
// slices and the numbers of tokens. A daemon of another version may have planned otherwise than this scheduler would.
// Without recorded plans it is Replay.
func (t *Trace) Visit(visit func(*TraceStep, *Plan)) error {
	recorded := len(t.Steps) > 0
	for i := range t.Steps {
		recorded = recorded && t.Steps[i].Plan != ""
	}
	if !recorded {
		return t.Replay(visit)
	}
	for i := range t.Steps {
		st := &t.Steps[i]
		plan, err := parsePlan(st.Plan)
		if err != nil {
			return fmt.Errorf("sched: trace line %d: its plan: %w", st.Line, err)
		}
		visit(st, &plan)
	}
	return nil
}

// parsePlan reads what Plan.Append writes, as far as Visit says.
func parsePlan(text string) (p Plan, err error) {
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
		request := func() ReqID {
			id, e := strconv.ParseUint(field[1], 10, 64)
			if e != nil {
				err = errors.Join(err, fmt.Errorf("%q is no request", field[1]))
			}
			return ReqID(id)
		}
		switch verb := field[0] + " "; verb {
		case "plan ":
			p.Tokens, p.DecodeTokens, p.PrefillTokens = number("tokens", 0), number("decode", 0), number("prefill", 0)
			p.ProbeTokens, p.GuessedTokens = number("probe", 0), number("guessed", 0)
		case "release ":
			p.Release = append(p.Release, Release{Req: request()})
		case sliceVerbs[SlicePrefill], sliceVerbs[SliceDecode], sliceVerbs[SliceProbe]:
			s := Slice{Req: request(), Start: number("at", -1), Guessed: number("guessed", 0), Row: number("row", -1)}
			for kind, v := range sliceVerbs {
				if v == verb {
					s.Kind = SliceKind(kind)
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
