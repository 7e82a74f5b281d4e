// Package trace writes down what a scheduler was given and what it decided, and reads and replays it.
//
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
//
// The lines of a configuration and of events follow from the tags of sched.Config, Spec and the events, so that a
// recording has every field of them. A plan's lines are AppendPlan's.
package trace

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/words"
	"github.com/uma-serve/uma-serve/sched"
)

// planPrefix begins a plan's lines in a trace.
const planPrefix = "> "

var configWords = words.Of[sched.Config]()

// AppendConfig appends a trace's config line, which must come before its first step. Fields that are 0 are left out.
func AppendConfig(dst []byte, c *sched.Config) []byte {
	return append(configWords.Append(append(dst, "config"...), c), '\n')
}

// ReadConfig reads the words of a config line behind its first.
func ReadConfig(c *sched.Config, line []string) error {
	line = slices.DeleteFunc(slices.Clone(line), func(word string) bool {
		return strings.HasPrefix(word, "reading_rate=") // older traces have it
	})
	err := configWords.Read(c, line)
	if unknown := words.UnknownError(""); errors.As(err, &unknown) {
		key, _, _ := strings.Cut(string(unknown), "=")
		return fmt.Errorf("config has no field %q", key)
	}
	return err
}

// AppendStep appends what one Step was given, and its plan. It does not allocate when dst has room.
func AppendStep(dst []byte, now sched.Instant, in *sched.Events, p *sched.Plan) []byte {
	return AppendPlan(AppendEvents(dst, now, in), planPrefix, p)
}

// AppendEvents appends what one Step was given, without a plan to compare on replay.
func AppendEvents(dst []byte, now sched.Instant, in *sched.Events) []byte {
	dst = append(dst, "step "...)
	dst = words.AppendDuration(dst, time.Duration(now))
	dst = append(dst, '\n')
	for i := range in.Len() {
		at := in.At(i)
		k := &kinds[at.Kind]
		dst = append(k.append(append(dst, k.name...), in, int(at.N)), '\n')
	}
	return dst
}

// Step is one recorded Step.
type Step struct {
	Line   int // of its step line, from 1
	Now    sched.Instant
	Events sched.Events
	Plan   string // AppendPlan with an empty prefix; "" = not recorded
}

// Trace is a recorded run from its first Step on.
type Trace struct {
	Config sched.Config
	Steps  []Step
}

// Read parses a trace. An error names the line and what is wrong with it. If the text does not end with a line
// end, writing was cut short, and the last step is left out.
func Read(data []byte) (*Trace, error) {
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
			if err := ReadConfig(&t.Config, f[1:]); err != nil {
				return nil, fail(err)
			}
		case f[0] == "step":
			if !configured {
				return nil, fail(errors.New("a step before the config line"))
			}
			if len(f) != 2 {
				return nil, fail(errors.New("want: step TIME"))
			}
			d, err := time.ParseDuration(f[1])
			if err != nil || d < 0 {
				return nil, fail(fmt.Errorf("step %q must be a duration such as 30ms, not negative", f[1]))
			}
			t.Steps = append(t.Steps, Step{Line: n, Now: sched.Instant(d)})
		default:
			if len(t.Steps) == 0 {
				return nil, fail(errors.New("an event before the first step"))
			}
			if err := ReadEvent(&t.Steps[len(t.Steps)-1].Events, f); err != nil {
				return nil, fail(err)
			}
		}
	}
	if !configured {
		return nil, errors.New("sched: trace has no config line")
	}
	return t, nil
}

// Replay runs the trace through a new scheduler and calls visit (if not nil) with each step's plan. The error names the
// first step whose plan differs from the recorded one, or whose events break the caller's contract.
func (t *Trace) Replay(visit func(*Step, *sched.Plan)) (err error) {
	s, err := sched.New(t.Config)
	if err != nil {
		return err
	}
	var st *Step
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
		plan := s.Step(st.Now, &st.Events)
		if got := string(AppendPlan(nil, "", &plan)); st.Plan != "" && got != st.Plan {
			return fmt.Errorf("sched: trace line %d: the plan differs\nrecorded:\n%sreplayed:\n%s", st.Line, st.Plan,
				got)
		}
		if visit != nil {
			visit(st, &plan)
		}
	}
	return nil
}

// Visit calls visit with each step and what its plan computes, as recorded: Release's and Batch's requests, the batch's
// slices and the numbers of tokens. A daemon of another version may have planned otherwise than this scheduler would.
// Without recorded plans it is Replay.
func (t *Trace) Visit(visit func(*Step, *sched.Plan)) error {
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

func parseInt(key, value string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%s=%q must be a number in %d…%d", key, value, lo, hi)
	}
	return n, nil
}
