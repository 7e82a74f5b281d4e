package sched_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/uma-serve/uma-serve/internal/words"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/trace"
)

// TestScripts runs testdata/*.txt: what the scheduler decides in a course of events. Besides the events of a trace,
// which wait for the next step, the commands are:
//
//	config KEY=VALUE…    a new scheduler; time starts at 0
//	at TIME              moves the clock
//	step                 one Step; prints its plan
//	took TIME [OUTCOME] [stop=ID|cancel=ID|think=ID…]
//	                     the batch was computed; each row brings a token, and a request that has all its tokens
//	                     ends with length, as in the daemon
//	run N took=TIME | cost=FIXED+PER_TOKEN [think=ID…]
//	                     N times step and took, one line each; stops when there is nothing to do. Each Plan.Start is
//	                     answered with "started"
//	unavailable cells=N  with prefix=true: cells that cached prefixes keep from requests. The script's ledger counts
//	                     these and what requests computed, and tells the scheduler before each step
//	shared ID N          with prefix=true: N of a request's own cells are shared by now; its end does not give them up
//	probe ID N           requests a fork with the request's next token, in the next took
//	forced ID N          that many tokens follow the request's next token without a row
//	offer ID N           with each token from now on, N tokens of grade 0 are guessed to follow
//	right ID N           so many guesses come true, from now on, and the next one does not
//	guessing ID          what was decided about its guesses
//	bound                when the newest plan's step is given up
//	stats, guard, why ID, log ID, ended, count REASON, outlook
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scripts found, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			var sc script
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				var out strings.Builder
				for line := range strings.Lines(firstLine(d) + "\n" + d.Input) {
					f := strings.Fields(line)
					if len(f) == 0 || strings.HasPrefix(f[0], "#") {
						continue
					}
					if f[0] != "config" && sc.s == nil {
						t.Fatalf("%q comes before config", line)
					}
					if err := sc.command(&out, f); err != nil {
						t.Fatalf("%q: %v", line, err)
					}
				}
				return out.String()
			})
		})
	}
}

// firstLine returns a directive's first line.
func firstLine(d *datadriven.TestData) string {
	words := []string{d.Cmd}
	for _, a := range d.CmdArgs {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// script is a scheduler with the caller's memory around it.
type script struct {
	s         *sched.Scheduler
	now       sched.Instant
	events    []sched.Event
	plan      sched.Plan
	owed      bool
	max, have map[sched.ReqID]int
	probe     map[sched.ReqID]int
	forced    map[sched.ReqID]int
	offer     map[sched.ReqID]int
	right     map[sched.ReqID]int
	offered   map[sched.ReqID]int

	// The ledger, with Config.Prefix.
	own, shared map[sched.ReqID]int
	unavailable int
}

// cells returns the number of cells that requests can be given.
func (sc *script) cells() int {
	n := sc.s.Config().Cells - sc.unavailable
	for _, own := range sc.own {
		n -= own
	}
	return n
}

func (sc *script) command(out *strings.Builder, f []string) error {
	switch f[0] {
	case "config":
		var c sched.Config
		if err := trace.ReadConfig(&c, f[1:]); err != nil {
			return err
		}
		s, err := sched.New(c)
		if err != nil {
			fmt.Fprintln(out, "error:", err)
			return nil
		}
		*sc = script{s: s, max: map[sched.ReqID]int{}, have: map[sched.ReqID]int{},
			probe: map[sched.ReqID]int{}, forced: map[sched.ReqID]int{},
			offer: map[sched.ReqID]int{}, right: map[sched.ReqID]int{}, offered: map[sched.ReqID]int{},
			own: map[sched.ReqID]int{}, shared: map[sched.ReqID]int{}}
	case "at":
		d, err := time.ParseDuration(f[1])
		if err != nil || sched.Instant(d) < sc.now {
			return fmt.Errorf("%s is no time from %v on (%v)", f[1], time.Duration(sc.now), err)
		}
		sc.now = sched.Instant(d)
	case "step":
		if sc.owed {
			return fmt.Errorf("the batch before still has to be taken")
		}
		sc.step()
		out.Write(trace.AppendPlan(nil, "", &sc.plan))
	case "took":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			return err
		}
		return sc.took(d, f[2:])
	case "run":
		n, err := strconv.Atoi(f[1])
		if err != nil {
			return err
		}
		fixed, each := time.Duration(0), time.Duration(0)
		if v, ok := strings.CutPrefix(f[2], "took="); ok {
			fixed, err = time.ParseDuration(v)
		} else {
			v = strings.TrimPrefix(f[2], "cost=")
			a, b, _ := strings.Cut(v, "+")
			if fixed, err = time.ParseDuration(a); err == nil {
				each, err = time.ParseDuration(b)
			}
		}
		if err != nil {
			return err
		}
		for range n {
			if sc.owed {
				return fmt.Errorf("the batch before still has to be taken")
			}
			start := sc.now
			sc.step()
			for sc.plan.Again {
				for _, st := range sc.plan.Start {
					sc.events = append(sc.events, sched.EvStarted{Req: st.Req})
				}
				sc.step()
			}
			if !sc.owed {
				fmt.Fprintf(out, "%v: nothing to do\n", time.Duration(start))
				break
			}
			d := fixed + time.Duration(sc.plan.Tokens)*each
			sc.summary(out, start, d)
			if err := sc.took(d, f[3:]); err != nil {
				return err
			}
		}
	case "unavailable":
		n, err := strconv.Atoi(strings.TrimPrefix(f[1], "cells="))
		sc.unavailable = n
		return err
	case "stats":
		st := sc.s.Stats()
		fmt.Fprintf(out, "queued %d+%d, prefilling %d, decoding %d, paused %d, %d cells free (%d lost), budget %d "+
			"(alone %d), tick %v, preemptions %d, guard %d, ignored %d\n",
			st.QueuedInteractive, st.QueuedBackground, st.Prefilling, st.Decoding, st.Paused, st.FreeCells,
			st.LostCells, st.BudgetTarget, st.SoloTarget, st.TickEWMA.Round(100*time.Microsecond), st.Preemptions,
			st.GuardSkips, st.Ignored)
	case "why":
		id, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return err
		}
		if state, why, ok := sc.s.Why(sched.ReqID(id)); ok {
			fmt.Fprintf(out, "%s: %s\n", state, why.Explain())
		} else {
			fmt.Fprintln(out, "no such request")
		}
	case "guard":
		st := sc.s.Stats()
		guard := [sched.NumGuardStates]string{"open", "trim", "hold"}[st.Guard]
		fmt.Fprintf(out, "guard %s, target %v, infeasible %v, thinking rows held %d, parked %d, deferred %d, at risk "+
			"%d\n",
			guard, st.ITLTarget, st.TargetInfeasible, st.ThinkHeld, st.Parked, st.Deferred, st.TTFTAtRisk)
	case "bound":
		b := sc.plan.Bound
		fmt.Fprintf(out, "decide at %v, limit %v\n", b.Decide.Round(100*time.Microsecond),
			b.Limit.Round(100*time.Microsecond))
	case "guessing":
		id, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return err
		}
		g, ok := sc.s.Guessing(sched.ReqID(id))
		fmt.Fprintf(out, "%v since %v, chance %.2f, %v\n", g.Why, time.Duration(g.Since), g.Chance, ok)
	case "probe", "forced", "shared", "offer", "right": // the first two of the request's next token
		id, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return err
		}
		of := map[string]map[sched.ReqID]int{"probe": sc.probe, "forced": sc.forced, "shared": sc.shared,
			"offer": sc.offer, "right": sc.right}[f[0]]
		if of[sched.ReqID(id)], err = strconv.Atoi(f[2]); err != nil {
			return err
		}
	case "log":
		id, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return err
		}
		log, ok := sc.s.Decisions(nil, sched.ReqID(id))
		if !ok {
			fmt.Fprintln(out, "no such request")
		}
		for _, d := range log {
			fmt.Fprintf(out, "%v…%v %s ×%d, %d tokens\n", time.Duration(d.First), time.Duration(d.Last), d.Reason,
				d.Times, d.Tokens)
		}
	case "ended":
		for _, e := range sc.s.Finished(nil) {
			fmt.Fprintf(out, "%d %s %s: arrived %v, ended %v, %d + %d tokens\n", e.Req, e.Class, e.Reason,
				time.Duration(e.Arrived), time.Duration(e.Ended), e.Prompt, e.Generated)
		}
	case "outlook":
		o := sc.s.Outlook()
		due := "-"
		if o.Due != 0 {
			due = time.Duration(o.Due).String()
		}
		fmt.Fprintf(out, "due %v after the batch, others %s; answers take %v, at least %v, background %v\n", o.Target,
			due, o.Step.Round(time.Millisecond), o.Least.Round(time.Millisecond), o.Background)
	case "count":
		r, ok := reason.Parse(f[1])
		if !ok {
			return fmt.Errorf("%q is no reason", f[1])
		}
		fmt.Fprintf(out, "%s %d\n", r, sc.s.Count(r))
	default:
		var read sched.Events
		if err := trace.ReadEvent(&read, f); err != nil {
			return err
		}
		for _, e := range read.Arrivals {
			sc.max[e.Req], sc.have[e.Req] = e.MaxTokens, 0
		}
		for _, e := range read.Starts {
			sc.own[e.Req] = e.Cached - e.Shared
		}
		sc.events = append(sc.events, first(&read))
	}
	return nil
}

// first returns the first event of a list.
func first(l *sched.Events) sched.Event {
	at := l.At(0)
	byKind := reflect.ValueOf(l).Elem().Field(1 + int(at.Kind)) // behind their order
	return byKind.Index(int(at.N)).Interface().(sched.Event)
}

func (sc *script) step() {
	events := sched.List(sc.events...)
	if sc.s.Config().Prefix {
		for i := range events.Finishes {
			e := &events.Finishes[i]
			e.Cells = sc.own[e.Req] - sc.shared[e.Req]
		}
		for i := range events.Cancels {
			e := &events.Cancels[i]
			e.Cells = sc.own[e.Req] - sc.shared[e.Req]
		}
		events.Cells(sched.EvCells{Cells: sc.cells()})
	}
	sc.plan = sc.s.Step(sc.now, events)
	sc.events = nil
	for _, r := range sc.plan.Release {
		delete(sc.own, r.Req)
	}
	sc.owed = len(sc.plan.Batch) > 0
	if err := sc.s.Check(); err != nil {
		panic(err)
	}
}

// took answers the plan's batch.
func (sc *script) took(d time.Duration, args []string) error {
	if !sc.owed {
		return fmt.Errorf("the previous plan had no batch")
	}
	sc.owed = false
	sc.now = sc.now.Add(d)
	ev := sched.EvStep{Took: d}
	special := map[sched.ReqID]string{}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			if err := words.Of[sched.EvStep]().Read(&ev, []string{a}); err != nil {
				return err
			}
			continue
		}
		id, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return err
		}
		special[sched.ReqID(id)] = key
	}
	// What happened while the batch ran was put down before its outcome is known; the outcome goes first.
	before := sc.events
	sc.events = []sched.Event{ev}
	for i := range sc.plan.Batch {
		sl := &sc.plan.Batch[i]
		if sl.Kind == sched.SliceProbe || ev.Outcome != sched.StepOK {
			continue
		}
		if sc.own[sl.Req] += sl.N - sl.Guessed; sl.Row < 0 {
			continue
		}
		offered := sc.offered[sl.Req]
		sc.offered[sl.Req] = 0
		sc.have[sl.Req]++
		switch what := special[sl.Req]; {
		case what == "stop":
			sc.events = append(sc.events, sched.EvFinish{Req: sl.Req, Reason: reason.Stop})
		case what == "cancel":
			sc.events = append(sc.events, sched.EvCancel{Req: sl.Req})
		case sc.have[sl.Req] == sc.max[sl.Req]:
			sc.events = append(sc.events, sched.EvFinish{Req: sl.Req, Reason: reason.Length})
		default:
			e := sched.EvToken{Req: sl.Req, Thinking: what == "think", Probe: sc.probe[sl.Req],
				Forced: sc.forced[sl.Req], Offer: sc.offer[sl.Req]}
			e.Right = min(sc.right[sl.Req], offered, sl.Guessed+1)
			e.Wrong = e.Right < offered && e.Right <= sl.Guessed
			e.Accepted = min(e.Right, sl.Guessed)
			sc.own[sl.Req] += e.Accepted
			sc.have[sl.Req] += e.Accepted
			sc.offered[sl.Req] = e.Offer
			sc.events = append(sc.events, e)
			delete(sc.probe, sl.Req)
			delete(sc.forced, sl.Req)
		}
	}
	sc.events = append(sc.events, before...)
	return nil
}

// summary prints a step on one line: "30ms: decode 1,2 prefill 3+12 budget=64 reason".
func (sc *script) summary(out *strings.Builder, at sched.Instant, d time.Duration) {
	fmt.Fprintf(out, "%v +%v:", time.Duration(at), d)
	for i := range sc.plan.Release {
		r := &sc.plan.Release[i]
		fmt.Fprintf(out, " release %d (%s)", r.Req, r.Reason)
	}
	for i := range sc.plan.Reject {
		r := &sc.plan.Reject[i]
		fmt.Fprintf(out, " reject %d (%s)", r.Req, r.Reason)
	}
	sep := " decode "
	for i := range sc.plan.Batch {
		if sl := &sc.plan.Batch[i]; sl.Kind == sched.SliceDecode {
			fmt.Fprintf(out, "%s%d", sep, sl.Req)
			sep = ","
		}
	}
	sep = " prefill "
	for i := range sc.plan.Batch {
		if sl := &sc.plan.Batch[i]; sl.Kind == sched.SlicePrefill {
			fmt.Fprintf(out, "%s%d+%d", sep, sl.Req, sl.N)
			sep = ","
		}
	}
	if n := sc.plan.ProbeTokens; n > 0 {
		fmt.Fprintf(out, " probe %d", n)
	}
	fmt.Fprintf(out, " budget=%d %s", sc.plan.Budget, sc.plan.Reason)
	if sc.plan.PrefillHeld {
		out.WriteString(" held")
	}
	out.WriteByte('\n')
}
