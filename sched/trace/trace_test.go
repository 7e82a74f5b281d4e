package trace

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/cost/costtest"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/slo"
)

func TestTraceRoundTrip(t *testing.T) {
	cfg := sched.Config{
		Policy: "uma", MaxRunning: 4, Cells: 100, MaxBatch: 16, EveryRows: 9, Forks: 2, MaxQueue: 4,
		Limits: [sched.NumClasses]sched.ClassLimits{{MaxRunning: 1, MaxQueue: 2, StepTokens: 3},
			{MaxRunning: 4, MaxQueue: 5, StepTokens: 6}},
		TickBudget: 33333333, SoloBudget: time.Second, SoloLimit: 2 * time.Second, StartBudget: 7, FirstPrefill: 5,
		MinPrefill: 3, Guard: 100 * time.Millisecond,
		MaxHeld: 2, DecodeReserve: -1, BackgroundEvery: time.Minute, PauseGrace: 1500 * time.Microsecond,
		Prefix: true, ITLTarget: 50 * time.Millisecond, ThinkFloor: time.Second, ThinkMultiplier: 3.25, OutputSlots: 3,
	}
	m := cost.New(&cost.State{})
	for i := range 20 {
		m.Observe(costtest.Mixed(i%3, 7*i, 11*i, i), time.Duration(1+i)*3456789, i%2 == 0)
	}
	cfg.Cost = m.State()
	events := []sched.Event{
		sched.EvStep{Outcome: sched.StepKVFull, Took: 29123457},
		sched.EvArrive{Req: 18446744073709551615,
			Spec: &sched.Spec{Class: sched.Background, Owner: 4294967295, Prompt: 5, MaxTokens: 6,
				Targets: slo.Targets{TargetTTFT: 7, TargetITL: time.Hour}},
			QueuedFor: 3 * time.Microsecond, Thinking: true},
		sched.EvArrive{Req: 2, Spec: &sched.Spec{Prompt: 5, MaxTokens: 6}},
		sched.EvCancel{Req: 2}, sched.EvCancel{Req: 12, Cells: 3},
		sched.EvFinish{Req: 13, Reason: reason.Stop, Cells: 4},
		sched.EvStep{Took: 5, Resident: 77}, sched.EvToken{Req: 3}, sched.EvToken{Req: 4, Thinking: true},
		sched.EvFinish{Req: 5, Reason: reason.Length}, sched.EvPause{Req: 6}, sched.EvResume{Req: 7},
		sched.EvDrain{},
		sched.EvArrive{Req: 8, Spec: &sched.Spec{Prompt: 5, MaxTokens: 6,
			Targets: slo.Targets{TargetTTFT: 7, Strict: true}},
			Shared: 3},
		sched.EvToken{Req: 3, Thinking: true, Probe: 4},
		sched.EvArrive{Req: 12, Spec: &sched.Spec{Prompt: 5, MaxTokens: 1, Whole: true}},
		sched.EvArrive{Req: 13, Spec: &sched.Spec{Prompt: 5, MaxTokens: 1, EveryRow: true}},
		sched.EvStarted{Req: 8}, sched.EvStarted{Req: 9, Cached: 100, Shared: 64},
		sched.EvDefer{Req: 10, Reason: reason.Joining},
		sched.EvDefer{Req: 11, Reason: reason.Restoring}, sched.EvReady{Req: 10, Shared: 12},
		sched.EvReady{Req: 11}, sched.EvCells{Cells: 99}, sched.EvCells{},
		sched.EvLimit{}, sched.EvLimit{Limit: 63 * time.Millisecond, Waited: 1234567},
	}
	text := AppendConfig(nil, &cfg)
	text = AppendEvents(text, 123456789, sched.List(events...))
	text = append(text, "\n# a remark\n> plan line\n> another\n"...)
	text = AppendEvents(text, 3e9, sched.List())
	tr, err := Read(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if tr.Config != cfg {
		t.Errorf("config is %+v\nwant %+v\n%s", tr.Config, cfg, text)
	}
	if len(tr.Steps) != 2 || tr.Steps[0].Now != 123456789 || tr.Steps[1].Now != 3e9 ||
		!reflect.DeepEqual(&tr.Steps[0].Events, sched.List(events...)) || tr.Steps[0].Plan != "plan line\nanother\n" {
		t.Errorf("steps are %+v\nof\n%s", tr.Steps, text)
	}
	// Cut in the middle of a line, the last step is left out.
	if tr, err = Read(append(text, "token 9"...)); err != nil || len(tr.Steps) != 1 {
		t.Errorf("cut short: %+v, %v", tr, err)
	}
}

func TestTraceErrors(t *testing.T) {
	const head = "config policy=uma max_running=2 cells=50 max_batch=8\n"
	for text, want := range map[string]string{
		"":                                                  "no config line",
		"step 1s\n":                                         "line 1: a step before the config line",
		head + head:                                         "line 2: a second config",
		head + "token 1\n":                                  "line 2: an event before the first step",
		head + "> plan\n":                                   "line 2: a plan before the first step",
		head + "step\n":                                     "want: step TIME",
		head + "step 1 2\n":                                 "want: step TIME",
		head + "step -1s\n":                                 "not negative",
		head + "step 0s\njump 1\n":                          `"jump" is no event`,
		head + "step 0s\ntoken\n":                           "the request id is missing",
		head + "step 0s\ntoken 0\n":                         `"0" is no request id`,
		head + "step 0s\ntoken x\n":                         `"x" is no request id`,
		head + "step 0s\ncancel 1 now\n":                    `"now" is not understood`,
		head + "step 0s\nfinish 1\n":                        "the reason is missing",
		head + "step 0s\nfinish 1 decode\n":                 `"decode" ends no request`,
		head + "step 0s\narrive 1 prompt=5\n":               "prompt= and max= are needed",
		head + "step 0s\narrive 1 prompt=0\n":               `prompt="0" must be a number in 1…`,
		head + "step 0s\narrive 1 class=other\n":            `"other" is no class`,
		head + "step 0s\narrive 1 owner=-3\n":               `owner="-3" must be a number in 0…`,
		head + "step 0s\narrive 1 itl=fast\n":               `itl="fast" must be a duration`,
		head + "step 0s\noutcome great\n":                   `"great" is not understood`,
		head + "step 0s\ndefer 1\n":                         "the reason is missing",
		head + "step 0s\ndefer 1 stop\n":                    `"stop" defers no request`,
		head + "step 0s\ncells 7\n":                         `"7" is not understood`,
		head + "step 0s\ncells room=-1\n":                   `room="-1" must be a number in 0…`,
		head + "step 0s\ntoken 1 probe=x\n":                 `probe="x" must be a number`,
		head + "step 0s\ntoken 1 shared=2\n":                `"shared=2" is not understood`,
		"config draft_cost=NaN\n":                           `draft_cost="NaN" must be a finite number`,
		"config prefix=maybe\n":                             `"maybe"`,
		"config cost=1,2\n":                                 "cost has 2 numbers; it must have 26",
		"config cost=" + strings.Repeat("1,", 24) + "x,1\n": `"x" is no count`,
		"config speed=3\n":                                  `no field "speed"`,
		"config cells=many\n":                               `cells="many" must be a number`,
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		head + "step 0s\noutcome ok\n":                       "line 2: EvStep, but the previous plan had no batch",
		head + "step 0s\narrive 1 prompt=5 max=2\nstep 1s\n": "line 4: no EvStep",

		head + "step 0s\narrive 1 prompt=5 max=2\n> plan tokens=4\n": "line 2: the plan differs",

		"config policy=uma max_running=2 cells=50 max_batch=8 max_queue=16777217\nstep 0s\n": "MaxQueue is 16777217",
	} {
		tr, err := Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Replay(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// TestVisit: the recorded plans say of each step what a replay does, and one that this scheduler would not make is
// visited all the same.
func TestVisit(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "storm-meridian.trace"))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	type step struct {
		batch    []sched.Slice
		released []sched.ReqID
		tokens   [4]int
	}
	steps := func(each func(func(*Step, *sched.Plan)) error) (out []step) {
		if err := each(func(_ *Step, p *sched.Plan) {
			var s step
			for _, sl := range p.Batch {
				s.batch = append(s.batch, sched.Slice{Req: sl.Req, Start: sl.Start, N: sl.N, Row: sl.Row, Kind: sl.Kind,
					Guessed: sl.Guessed})
			}
			for _, r := range p.Release {
				s.released = append(s.released, r.Req)
			}
			s.tokens = [4]int{p.PrefillTokens, p.DecodeTokens, p.ProbeTokens, p.GuessedTokens}
			out = append(out, s)
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	visited, replayed := steps(tr.Visit), steps(tr.Replay)
	if !reflect.DeepEqual(visited, replayed) || len(visited) < 50 {
		t.Errorf("%d steps visited, %d replayed", len(visited), len(replayed))
	}
	last := &tr.Steps[len(tr.Steps)-1]
	last.Plan = "plan tokens=3 decode=3 prefill=0 guessed=2\ndecode 99 seq=0 at=7 guessed=2 row=0 reason=decode\n"
	if got := steps(tr.Visit); got[len(got)-1].batch[0].N != 3 {
		t.Errorf("%+v", got[len(got)-1])
	}
	for _, bad := range []string{"plan\n", "decode x at=1\n", "prefill 1 seq=0\n", "prefill 1 at=1 n=x\n",
		"prefill 1 at=1 n=0\n", "release -1\n"} {
		last.Plan = bad
		if err := tr.Visit(func(*Step, *sched.Plan) {}); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestTraceOfFourCoefficients: a trace from before Cost.E is read, without what its cost model had learned.
func TestTraceOfFourCoefficients(t *testing.T) {
	head := "config policy=uma max_running=2 cells=50 max_batch=8 max_queue=1 cost=" + strings.Repeat("1,", 19)
	tr, err := Read([]byte(head + "1\nstep 0s\n"))
	if err != nil || tr.Config.Cost != (sched.CostState{}) {
		t.Errorf("%v, %+v", err, tr)
	}
	if _, err := Read([]byte(head + "x\n")); err == nil {
		t.Error("x is taken for a number")
	}
}

// FuzzRead: no input panics, and what is read is written and read back the same.
func FuzzRead(f *testing.F) {
	f.Add([]byte("config policy=uma max_running=2 cells=50 max_batch=8\nstep 0s\narrive 1 prompt=5 max=2\nstep 1s\n" +
		"outcome ok took=3ms\ntoken 1 think\n"))
	f.Add([]byte("config policy=stock max_running=2 cells=50 max_batch=8 guard=1ms\nstep 5ns\ndrain\ncancel 4\n" +
		"step 6ns\nfinish 9 stop\n> x\n"))
	if data, err := os.ReadFile(filepath.Join("..", "testdata", "storm.trace")); err == nil {
		f.Add(data[:2000])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := Read(data)
		if err != nil {
			return
		}
		text := AppendConfig(nil, &tr.Config)
		for _, s := range tr.Steps {
			text = AppendEvents(text, s.Now, &s.Events)
		}
		again, err := Read(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again.Config != tr.Config || len(again.Steps) != len(tr.Steps) {
			t.Fatalf("config or steps changed\n%s", text)
		}
		for i, s := range again.Steps {
			if s.Now != tr.Steps[i].Now || !reflect.DeepEqual(s.Events, tr.Steps[i].Events) {
				t.Fatalf("step %d changed\n%s", i, text)
			}
		}
		if tr.Config.MaxRunning <= 64 {
			_ = tr.Replay(nil) // an error is fine, a panic is not
		}
	})
}

func TestThreadsOutOfRange(t *testing.T) {
	for _, line := range []string{"threads", "threads n=0", "threads n=65537", "threads 3", "threads n=1 calm"} {
		text := "config policy=meridian running=1 cells=9 batch=9\nstep 1ms\n" + line + "\n"
		if _, err := Read([]byte(text)); err == nil {
			t.Errorf("%q is read", line)
		}
	}
}
