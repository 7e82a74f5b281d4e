package sched_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/trace"
)

// TestRoom: a prompt of n_ctx - 1 tokens may have one token of answer, and the context's end is an end.
func TestRoom(t *testing.T) {
	if got := (&sched.Config{Cells: 100}).Room(99); got != 1 {
		t.Errorf("room beside 99 of 100 is %d", got)
	}
	sc := &script{}
	var out strings.Builder
	for _, line := range []string{"config policy=uma max_running=2 cells=10 max_batch=16", "arrive 1 prompt=9 max=50",
		"arrive 2 prompt=10 max=1", "step"} {
		if err := sc.command(&out, strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	if len(sc.plan.Reject) != 1 ||
		sc.plan.Reject[0] != (sched.Rejection{Req: 2, Reason: reason.PromptTooLong, Need: 11, Have: 10}) {
		t.Errorf("rejects %+v", sc.plan.Reject)
	}
	// A caller that feeds a token beyond the room is answered with the end.
	plan := sc.s.Step(1, sched.List(sched.EvStep{}, sched.EvToken{Req: 1}))
	if want := (sched.Release{Req: 1, Seq: 0, Reason: reason.Length, Final: true}); len(plan.Release) != 1 ||
		plan.Release[0] != want {
		t.Errorf("releases %+v, want %+v", plan.Release, want)
	}
}

// TestThinksOnce: the phases a request goes through, told by its tokens.
func TestThinksOnce(t *testing.T) {
	sc := &script{}
	var out strings.Builder
	for _, line := range []string{"config policy=uma max_running=2 cells=100 max_batch=16", "arrive 1 prompt=3 max=50",
		"step"} {
		if err := sc.command(&out, strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct {
		thinking bool
		want     sched.State
	}{{false, sched.Output}, {true, sched.Think}, {true, sched.Think}, {false, sched.Output}, {true, sched.Output},
		{false, sched.Output}} {
		sc.s.Step(sched.Instant(i+1), sched.List(sched.EvStep{}, sched.EvToken{Req: 1, Thinking: c.thinking}))
		if got, _, _ := sc.s.Why(1); got != c.want {
			t.Errorf("token %d, thinking %v: %v, want %v", i, c.thinking, got, c.want)
		}
	}
}

// TestReplay: a recorded run gives the same plans again; the scripts' traces are recorded and replayed in
// TestRandomWorkloads, this one lies in testdata so that an old trace stays readable.
func TestReplay(t *testing.T) {
	for name, policy := range map[string]string{"storm.trace": "uma", "storm-meridian.trace": "meridian"} {
		t.Run(name, func(t *testing.T) { testReplay(t, filepath.Join("testdata", name), policy) })
	}
}

func testReplay(t *testing.T, file, policy string) {
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(file, recordStorm(t, policy), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := trace.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	if err := tr.Replay(func(_ *trace.Step, p *sched.Plan) { tokens += p.Tokens }); err != nil {
		t.Fatal(err)
	}
	if len(tr.Steps) < 50 || tokens < 500 {
		t.Errorf("the trace has %d steps with %d tokens", len(tr.Steps), tokens)
	}
}

// recordStorm is the daemon's view of two answers and four long prompts, written down.
func recordStorm(t *testing.T, policy string) []byte {
	cfg := sched.Config{Policy: policy, MaxRunning: 4, Cells: 1200, MaxBatch: 128, MaxQueue: 2,
		Guard: 60 * time.Millisecond}
	if policy == "meridian" {
		cfg.ITLTarget = 60 * time.Millisecond
	}
	sc := &script{}
	var out strings.Builder
	if err := sc.command(&out, strings.Fields(string(trace.AppendConfig(nil, &cfg)))); err != nil {
		t.Fatal(err)
	}
	text := []byte("# Two answers run, four owners send prompts of 250 tokens, one is cancelled.\n")
	text = trace.AppendConfig(text, &cfg)
	for i := range 80 {
		line := map[int]string{0: "arrive 1 owner=1 prompt=9 max=60", 1: "arrive 2 owner=2 prompt=7 max=70 think " +
			"itl=40ms",
			5: "arrive 3 class=background owner=3 prompt=250 max=4", 6: "arrive 4 owner=4 prompt=250 max=4",
			7: "arrive 5 owner=5 prompt=250 max=4",
			8: "arrive 6 owner=1 prompt=250 max=4", 9: "arrive 7 owner=1 prompt=250 max=4", 20: "cancel 5",
			40: "pause 1", 50: "resume 1"}[i]
		if line != "" {
			if err := sc.command(&out, strings.Fields(line)); err != nil {
				t.Fatal(err)
			}
		}
		now, events := sc.now, sched.List(sc.events...)
		sc.step()
		text = trace.AppendStep(text, now, events, &sc.plan)
		if sc.owed {
			if err := sc.took(15*time.Millisecond+time.Duration(sc.plan.PrefillTokens)*3250*time.Microsecond,
				nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return text
}

// TestSameEventsSamePlans: a second scheduler that is given the same events gives the same plans, so no map
// order and no clock gets into them. (Replay compares with the first run; this compares two fresh ones.)
func TestSameEventsSamePlans(t *testing.T) {
	var first strings.Builder
	for run := range 5 {
		var sc script
		var out strings.Builder
		if err := sc.command(&out,
			strings.Fields("config policy=uma max_running=8 cells=400 max_batch=32 max_queue=200")); err != nil {
			t.Fatal(err)
		}
		for id := range 150 {
			sc.events = append(sc.events, sched.EvArrive{Req: sched.ReqID(id + 1),
				Spec: &sched.Spec{Owner: uint32(id % 41), Class: sched.Class(id % 2), Prompt: 1 + id%37,
					MaxTokens: 1 + id%11}})
			sc.max[sched.ReqID(id+1)] = 1 + id%11
		}
		if err := sc.command(&out, strings.Fields("run 2000 cost=5ms+1ms")); err != nil {
			t.Fatal(err)
		}
		switch {
		case run == 0:
			first.WriteString(out.String())
			if !strings.Contains(out.String(), "nothing to do") {
				t.Fatal("the run did not end")
			}
		case out.String() != first.String():
			t.Fatal("two runs differ")
		}
	}
}

func init() {
	sched.SetTraced(trace.AppendConfig, trace.AppendStep, func(text []byte) (int, error) {
		tr, err := trace.Read(text)
		if err != nil {
			return 0, err
		}
		return len(tr.Steps), tr.Replay(nil)
	})
}
