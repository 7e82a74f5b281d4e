package sched

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A trace is text, one event or decision a line, so that it can be read, cut and written by hand:
//
//	config policy=uma max_running=4 cells=4096 max_batch=512
//	step 1500us
//	arrive 1 class=interactive owner=1000 prompt=12 max=32 ttft=150ms itl=50ms think
//	> plan tokens=12 decode=0 prefill=12 budget=64 reason=served
//	> prefill 1 seq=0 at=0 n=12 row=11 reason=prefill_rest
//	step 31ms
//	outcome ok took=29ms
//	token 1 think
//
// A step line begins a Step; the events after it are that Step's. Lines that begin with ">" are its plan, and may be
// missing. Empty lines and lines that begin with "#" are skipped. Durations are exact.

// planPrefix begins a plan's lines in a trace.
const planPrefix = "> "

// configField is a field of Config and its name in a trace. One of the pointers is set.
type configField struct {
	name string
	s    *string
	n    *int
	d    *time.Duration
	f    *float64
	b    *bool
	c    *CostState
}

func (c *Config) fields() []configField {
	in, bg := &c.Limits[Interactive], &c.Limits[Background]
	return []configField{
		{name: "policy", s: &c.Policy},
		{name: "max_running", n: &c.MaxRunning},
		{name: "cells", n: &c.Cells},
		{name: "max_batch", n: &c.MaxBatch},
		{name: "every_rows", n: &c.EveryRows},
		{name: "forks", n: &c.Forks},
		{name: "max_queue", n: &c.MaxQueue},
		{name: "interactive_max_running", n: &in.MaxRunning},
		{name: "interactive_max_queue", n: &in.MaxQueue},
		{name: "background_max_running", n: &bg.MaxRunning},
		{name: "background_max_queue", n: &bg.MaxQueue},
		{name: "tick_budget", d: &c.TickBudget},
		{name: "solo_budget", d: &c.SoloBudget},
		{name: "solo_limit", d: &c.SoloLimit},
		{name: "start_budget", n: &c.StartBudget},
		{name: "first_prefill", n: &c.FirstPrefill},
		{name: "min_prefill", n: &c.MinPrefill},
		{name: "guard", d: &c.Guard},
		{name: "max_held", n: &c.MaxHeld},
		{name: "decode_reserve", n: &c.DecodeReserve},
		{name: "background_every", d: &c.BackgroundEvery},
		{name: "pause_grace", d: &c.PauseGrace},
		{name: "share_grace", d: &c.ShareGrace},
		{name: "prefix", b: &c.Prefix},
		{name: "itl_target", d: &c.ITLTarget},
		{name: "think_floor", d: &c.ThinkFloor},
		{name: "think_multiplier", f: &c.ThinkMultiplier},
		{name: "output_slots", n: &c.OutputSlots},
		{name: "reading_rate", f: new(float64)}, // older traces have it: read and ignored
		{name: "draft_batch", n: &c.DraftBatch},
		{name: "draft_cost", f: &c.DraftCost},
		{name: "cost", c: &c.Cost},
	}
}

// AppendConfig appends a trace's config line, which must come before its first step. Fields that are 0 are left out.
func AppendConfig(dst []byte, c *Config) []byte {
	dst = append(dst, "config"...)
	for _, f := range c.fields() {
		switch {
		case f.s != nil:
			dst = append(append(append(append(dst, ' '), f.name...), '='), *f.s...)
		case f.n != nil && *f.n != 0:
			dst = append(append(append(dst, ' '), f.name...), '=')
			dst = strconv.AppendInt(dst, int64(*f.n), 10)
		case f.d != nil && *f.d != 0:
			dst = append(append(append(dst, ' '), f.name...), '=')
			dst = appendDuration(dst, *f.d)
		case f.f != nil && *f.f != 0:
			dst = append(append(append(dst, ' '), f.name...), '=')
			dst = strconv.AppendFloat(dst, *f.f, 'g', -1, 64)
		case f.b != nil && *f.b:
			dst = append(append(append(dst, ' '), f.name...), "=true"...)
		case f.c != nil && *f.c != CostState{}:
			dst = append(append(append(dst, ' '), f.name...), '=')
			for i, v := range f.c.numbers() {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = strconv.AppendFloat(dst, *v, 'g', -1, 64)
			}
			dst = strconv.AppendUint(append(dst, ','), f.c.Steps, 10)
			dst = strconv.AppendUint(append(dst, ','), f.c.Prompts, 10)
		}
	}
	return append(dst, '\n')
}

// AppendEvents appends what one Step was given. Follow it with Plan.Append(dst, "> ") when the plan is to be
// compared on replay. It does not allocate when dst has room.
func AppendEvents(dst []byte, now Instant, in []Event) []byte {
	dst = append(dst, "step "...)
	dst = appendDuration(dst, time.Duration(now))
	dst = append(dst, '\n')
	for i := range in {
		dst = appendEvent(dst, &in[i])
	}
	return dst
}

// TraceStep is one recorded Step.
type TraceStep struct {
	Line   int // of its step line, from 1
	Now    Instant
	Events []Event
	Plan   string // Plan.Append with an empty prefix; "" = not recorded
}

// Trace is a recorded run from its first Step on.
type Trace struct {
	Config Config
	Steps  []TraceStep
}

// ReadTrace parses a trace. An error names the line and what is wrong with it. If the text does not end with a line
// end, writing was cut short, and the last step is left out.
func ReadTrace(data []byte) (*Trace, error) {
	t := &Trace{}
	configured := false
	n := 0
	for len(data) > 0 {
		text, rest, whole := bytes.Cut(data, []byte("\n"))
		data = rest
		n++
		if !whole {
			t.Steps = t.Steps[:max(0, len(t.Steps)-1)]
			break
		}
		line := strings.TrimSuffix(string(text), "\r")
		fail := func(err error) error { return fmt.Errorf("sched: trace line %d: %w", n, err) }
		if plan, ok := strings.CutPrefix(line, planPrefix); ok {
			if len(t.Steps) == 0 {
				return nil, fail(errors.New("a plan before the first step"))
			}
			t.Steps[len(t.Steps)-1].Plan += plan + "\n"
			continue
		}
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || strings.HasPrefix(f[0], "#"):
		case f[0] == "config":
			if configured {
				return nil, fail(errors.New("a second config"))
			}
			configured = true
			if err := t.Config.parse(f[1:]); err != nil {
				return nil, fail(err)
			}
		case f[0] == "step":
			if !configured {
				return nil, fail(errors.New("a step before the config line"))
			}
			if len(f) != 2 {
				return nil, fail(errors.New("want: step TIME"))
			}
			d, err := parseSpan("step", f[1])
			if err != nil {
				return nil, fail(err)
			}
			t.Steps = append(t.Steps, TraceStep{Line: n, Now: Instant(d)})
		default:
			if len(t.Steps) == 0 {
				return nil, fail(errors.New("an event before the first step"))
			}
			e, err := parseEvent(f)
			if err != nil {
				return nil, fail(err)
			}
			st := &t.Steps[len(t.Steps)-1]
			st.Events = append(st.Events, e)
		}
	}
	if !configured {
		return nil, errors.New("sched: trace has no config line")
	}
	return t, nil
}

// Replay runs the trace through a new scheduler and calls visit (if not nil) with each step's plan. The error names the
// first step whose plan differs from the recorded one, or whose events break the caller's contract.
func (t *Trace) Replay(visit func(*TraceStep, *Plan)) (err error) {
	s, err := New(t.Config)
	if err != nil {
		return err
	}
	var st *TraceStep
	defer func() {
		if p := recover(); p != nil {
			msg, ok := p.(string)
			if !ok || !strings.HasPrefix(msg, "sched: ") {
				panic(p)
			}
			err = fmt.Errorf("sched: trace line %d: %s", st.Line, strings.TrimPrefix(msg, "sched: "))
		}
	}()
	for i := range t.Steps {
		st = &t.Steps[i]
		plan := s.Step(st.Now, st.Events)
		if got := plan.String(); st.Plan != "" && got != st.Plan {
			return fmt.Errorf("sched: trace line %d: the plan differs\nrecorded:\n%sreplayed:\n%s", st.Line, st.Plan,
				got)
		}
		if visit != nil {
			visit(st, &plan)
		}
	}
	return nil
}

// parse reads the key=value fields of a config line.
func (c *Config) parse(args []string) error {
	fields := c.fields()
next:
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		for _, f := range fields {
			if f.name != key {
				continue
			}
			var err error
			switch {
			case f.s != nil:
				*f.s = value
			case f.n != nil:
				*f.n, err = parseInt(key, value, -1, math.MaxInt32)
			case f.d != nil:
				*f.d, err = parseSpan(key, value)
			case f.f != nil:
				*f.f, err = parseFloat(key, value)
			case f.b != nil:
				*f.b, err = strconv.ParseBool(value)
			default:
				*f.c, err = parseCost(key, value)
			}
			if err != nil {
				return err
			}
			continue next
		}
		return fmt.Errorf("config has no field %q", key)
	}
	return nil
}

func parseInt(key, value string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%s=%q must be a number in %d…%d", key, value, lo, hi)
	}
	return n, nil
}

func parseFloat(key, value string) (float64, error) {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s=%q must be a finite number", key, value)
	}
	return v, nil
}

// parseCost reads a CostState as AppendConfig writes it: its numbers in order, with commas. One of a model without
// Cost.E, as in traces before version 0.2, is read as none.
func parseCost(key, value string) (c CostState, err error) {
	const withoutE = 20
	part := strings.Split(value, ",")
	numbers := c.numbers()
	if len(part) == withoutE {
		for _, p := range part {
			if _, err = parseFloat(key, p); err != nil {
				return c, err
			}
		}
		return c, nil
	}
	if len(part) != len(numbers)+2 {
		return c, fmt.Errorf("%s has %d numbers; it must have %d", key, len(part), len(numbers)+2)
	}
	for i, p := range numbers {
		if *p, err = parseFloat(key, part[i]); err != nil {
			return CostState{}, err
		}
	}
	for i, p := range []*uint64{&c.Steps, &c.Prompts} {
		if *p, err = strconv.ParseUint(part[len(numbers)+i], 10, 64); err != nil {
			return CostState{}, fmt.Errorf("%s: %q is no count", key, part[len(numbers)+i])
		}
	}
	return c, nil
}

func parseSpan(key, value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s=%q must be a duration such as 30ms, not negative", key, value)
	}
	return d, nil
}
