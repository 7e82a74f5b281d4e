package sched

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/slo"
)

var valid = Config{Policy: "uma", MaxRunning: 4, Cells: 100, MaxBatch: 16, MaxQueue: 4}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string // in the error; "" = valid
	}{
		{func(c *Config) {}, ""},
		{func(c *Config) { c.Policy = "stock" }, ""},
		{func(c *Config) { c.MaxQueue = 0 }, ""},
		{func(c *Config) { c.DecodeReserve = -1 }, ""},
		{func(c *Config) { c.MaxRunning, c.MaxBatch = 1, 1 }, ""},
		{func(c *Config) { c.Policy = "fastest" }, `Policy is "fastest"; it must be one of ["uma" "stock"`},
		{func(c *Config) { c.MaxRunning = 0 }, "MaxRunning is 0; it must be 1…4096"},
		{func(c *Config) { c.MaxRunning = 5000 }, "MaxRunning is 5000"},
		{func(c *Config) { c.Cells = 1 }, "Cells is 1; it must be 2…"},
		{func(c *Config) { c.MaxBatch = 1 }, "MaxBatch is 1; it must be 2…"},
		{func(c *Config) { c.Forks = -1 }, "Forks is -1; it must be 0…4096"},
		{func(c *Config) { c.MaxQueue = -1 }, "MaxQueue is -1"},
		{func(c *Config) { c.Limits[Background].MaxRunning = -1 }, "Limits[Background].MaxRunning is -1"},
		{func(c *Config) { c.Limits[Interactive].MaxQueue = -1 }, "Limits[Interactive].MaxQueue is -1"},
		{func(c *Config) { c.Limits[Background].StepTokens = -1 }, "Limits[Background].StepTokens is -1"},
		{func(c *Config) { c.StartBudget = -1 }, "StartBudget is -1"},
		{func(c *Config) { c.MinPrefill = -1 }, "MinPrefill is -1"},
		{func(c *Config) { c.MaxHeld = -1 }, "MaxHeld is -1"},
		{func(c *Config) { c.DecodeReserve = -2 }, "DecodeReserve is -2; it must be -1…"},
		{func(c *Config) { c.TickBudget = -1 }, "TickBudget is -1ns; it must be 0…1h"},
		{func(c *Config) { c.Guard = 2 * time.Hour }, "Guard is 2h0m0s"},
		{func(c *Config) { c.ITLTarget = -1 }, "ITLTarget is -1ns"},
		{func(c *Config) { c.ThinkFloor = 2 * time.Hour }, "ThinkFloor is 2h0m0s"},
		{func(c *Config) { c.ThinkMultiplier = 0.5 }, "ThinkMultiplier is 0.5; it must be 1…"},
		{func(c *Config) { c.DraftCost = math.NaN() }, "DraftCost is NaN"},
		{func(c *Config) { c.OutputSlots = -1 }, "OutputSlots is -1"},
		{func(c *Config) { c.Policy, c.Prefix = "meridian", true }, ""},
		{func(c *Config) { c.Policy, c.Limits[Background].MaxRunning = "meridian_static", 3 },
			"policy meridian_static knows no classes"},
		{func(c *Config) { c.Policy, c.Limits[Background].MaxQueue = "stock", 3 }, "policy stock knows no classes"},
	} {
		cfg := valid
		c.change(&cfg)
		s, err := New(cfg)
		switch {
		case c.want == "" && (err != nil || s == nil):
			t.Errorf("%+v: %v", cfg, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: error %v, want %q", cfg, err, c.want)
		}
	}
}

// TestBrokenContract: what only a broken caller can do panics with the request's number.
func TestBrokenContract(t *testing.T) {
	arrive := EvArrive{Req: 7, Spec: &Spec{Prompt: 4, MaxTokens: 9}}
	ok := EvStep{Outcome: StepOK, Took: 1}
	long := EvArrive{Req: 7, Spec: &Spec{Prompt: 60, MaxTokens: 9}}
	for name, c := range map[string]struct {
		steps [][]Event
		want  string
	}{
		"no outcome":        {[][]Event{{arrive}, {}}, "no EvStep for the batch"},
		"two outcomes":      {[][]Event{{arrive}, {ok, ok}}, "came already"},
		"outcome of none":   {[][]Event{{ok}}, "had no batch"},
		"row unanswered":    {[][]Event{{arrive}, {ok}}, "row of request 7"},
		"token without row": {[][]Event{{long}, {ok, EvToken{Req: 7}}}, "request 7, which has no row"},
		"two tokens": {[][]Event{{arrive}, {ok, EvToken{Req: 7}, EvToken{Req: 7}}},
			"request 7, which has no row"},
		"token too early":   {[][]Event{{arrive}, {EvToken{Req: 7}, ok}}, "request 7, which has no row"},
		"live id again":     {[][]Event{{arrive, arrive}}, "request 7, which is live"},
		"id 0":              {[][]Event{{EvArrive{Spec: &Spec{Prompt: 1, MaxTokens: 1}}}}, "request id 0"},
		"no prompt":         {[][]Event{{EvArrive{Req: 7, Spec: &Spec{MaxTokens: 1}}}}, "Prompt 0"},
		"no class":          {[][]Event{{EvArrive{Req: 7, Spec: &Spec{Prompt: 1, MaxTokens: 1, Class: 9}}}}, "class 9"},
		"end without cause": {[][]Event{{arrive}, {ok, EvFinish{Req: 7}}}, "ends nothing"},
		"unknown outcome":   {[][]Event{{arrive}, {EvStep{Outcome: 9}}}, "outcome 9"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if msg, _ := recover().(string); !strings.HasPrefix(msg, "sched: ") || !strings.Contains(msg, c.want) {
					t.Errorf("panic is %q, want %q", msg, c.want)
				}
			}()
			s, err := New(valid)
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range c.steps {
				s.Step(0, List(in...))
			}
		})
	}
}

// TestRoom: a prompt of n_ctx - 1 tokens may have one token of answer, and the context's end is an end.
func TestRoom(t *testing.T) {
	if got := valid.Room(99); got != 1 {
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
		sc.plan.Reject[0] != (Rejection{Req: 2, Reason: reason.PromptTooLong, Need: 11, Have: 10}) {
		t.Errorf("rejects %+v", sc.plan.Reject)
	}
	// A caller that feeds a token beyond the room is answered with the end.
	plan := sc.s.Step(1, List(EvStep{}, EvToken{Req: 1}))
	if want := (Release{Req: 1, Seq: 0, Reason: reason.Length, Final: true}); len(plan.Release) != 1 ||
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
		want     State
	}{{false, Output}, {true, Think}, {true, Think}, {false, Output}, {true, Output}, {false, Output}} {
		sc.s.Step(Instant(i+1), List(EvStep{}, EvToken{Req: 1, Thinking: c.thinking}))
		if got, _, _ := sc.s.Why(1); got != c.want {
			t.Errorf("token %d, thinking %v: %v, want %v", i, c.thinking, got, c.want)
		}
	}
}

// TestRecordReusedInOneStep: a record that was reused in the same Step is not mistaken for the one before it.
func TestRecordReusedInOneStep(t *testing.T) {
	cfg := valid
	cfg.MaxRunning, cfg.MaxQueue = 1, 1
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plan := s.Step(0, List(
		EvArrive{Req: 1, Spec: &Spec{Prompt: 5, MaxTokens: 5}},
		EvArrive{Req: 2, Spec: &Spec{Prompt: 5, MaxTokens: 5}}, EvCancel{Req: 2},
		EvArrive{Req: 3, Spec: &Spec{Prompt: 5, MaxTokens: 5}},
		EvArrive{Req: 4, Spec: &Spec{Prompt: 5, MaxTokens: 5}},
	))
	if len(plan.Reject) != 1 || plan.Reject[0].Req != 4 || len(plan.Release) != 1 || plan.Release[0].Req != 2 {
		t.Errorf("plan is\n%s", &plan)
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
}

// TestFlowsAreForgotten: a million owners who come once leave nothing behind.
func TestFlowsAreForgotten(t *testing.T) {
	s, err := New(valid)
	if err != nil {
		t.Fatal(err)
	}
	// One request stays, so that its class never falls idle.
	s.Step(0, List(EvArrive{Req: 1, Spec: &Spec{Prompt: 4, MaxTokens: 90}}, EvPause{Req: 1}))
	for id := ReqID(2); id < 5000; id++ {
		s.Step(0, List(EvArrive{Req: id, Spec: &Spec{Owner: uint32(id), Prompt: 4, MaxTokens: 9}}))
		s.Step(0, List(EvStep{Took: 1}, EvFinish{Req: id, Reason: reason.Stop}))
	}
	if n := len(s.flowOf); n > 100 {
		t.Errorf("%d flows are remembered", n)
	}
	if n := len(s.free); n > 4 {
		t.Errorf("%d records lie in the free list", n)
	}
}

// TestPaceSettles: from either side the budget comes to a size whose steps take about the goal.
func TestPaceSettles(t *testing.T) {
	cost := func(n int) time.Duration { return 5*time.Millisecond + time.Duration(n)*500*time.Microsecond }
	for _, start := range []int{4, 30, 50, 2000} {
		p := newPace(30*time.Millisecond, start, 4, 4096)
		for range 60 {
			n := p.size()
			p.observe(n, true, cost(n))
		}
		if took := cost(p.size()); took < 25*time.Millisecond || took > 34*time.Millisecond {
			t.Errorf("from %d it settles at %d tokens, %v", start, p.size(), took)
		}
	}
	p := newPace(30*time.Millisecond, 20, 4, 4096)
	for range 60 {
		p.observe(20, false, time.Millisecond)
	}
	if p.size() != 20 {
		t.Errorf("the budget grew to %d although it was not the limit", p.size())
	}
}

func TestTraceRoundTrip(t *testing.T) {
	cfg := Config{
		Policy: "uma", MaxRunning: 4, Cells: 100, MaxBatch: 16, EveryRows: 9, Forks: 2, MaxQueue: 4,
		Limits:     [NumClasses]ClassLimits{{1, 2, 3}, {4, 5, 6}},
		TickBudget: 33333333, SoloBudget: time.Second, SoloLimit: 2 * time.Second, StartBudget: 7, FirstPrefill: 5,
		MinPrefill: 3, Guard: 100 * time.Millisecond,
		MaxHeld: 2, DecodeReserve: -1, BackgroundEvery: time.Minute, PauseGrace: 1500 * time.Microsecond,
		Prefix: true, ITLTarget: 50 * time.Millisecond, ThinkFloor: time.Second, ThinkMultiplier: 3.25, OutputSlots: 3,
	}
	m := cost.New(&cost.State{})
	for i := range 20 {
		m.Observe(mixed(i%3, 7*i, 11*i, i), time.Duration(1+i)*3456789, i%2 == 0)
	}
	cfg.Cost = m.State()
	events := []Event{
		EvStep{Outcome: StepKVFull, Took: 29123457},
		EvArrive{Req: 18446744073709551615,
			Spec: &Spec{Class: Background, Owner: 4294967295, Prompt: 5, MaxTokens: 6,
				Targets: slo.Targets{TargetTTFT: 7, TargetITL: time.Hour}},
			QueuedFor: 3 * time.Microsecond, Thinking: true},
		EvArrive{Req: 2, Spec: &Spec{Prompt: 5, MaxTokens: 6}},
		EvCancel{Req: 2}, EvCancel{Req: 12, Cells: 3},
		EvFinish{Req: 13, Reason: reason.Stop, Cells: 4},
		EvStep{Took: 5, Resident: 77}, EvToken{Req: 3}, EvToken{Req: 4, Thinking: true},
		EvFinish{Req: 5, Reason: reason.Length}, EvPause{Req: 6}, EvResume{Req: 7},
		EvDrain{},
		EvArrive{Req: 8, Spec: &Spec{Prompt: 5, MaxTokens: 6, Targets: slo.Targets{TargetTTFT: 7, Strict: true}},
			Shared: 3},
		EvToken{Req: 3, Thinking: true, Probe: 4},
		EvArrive{Req: 12, Spec: &Spec{Prompt: 5, MaxTokens: 1, Whole: true}},
		EvArrive{Req: 13, Spec: &Spec{Prompt: 5, MaxTokens: 1, EveryRow: true}},
		EvStarted{Req: 8}, EvStarted{Req: 9, Cached: 100, Shared: 64},
		EvDefer{Req: 10, Reason: reason.Joining},
		EvDefer{Req: 11, Reason: reason.Restoring}, EvReady{Req: 10, Shared: 12},
		EvReady{Req: 11}, EvCells{Cells: 99}, EvCells{},
		EvLimit{}, EvLimit{Limit: 63 * time.Millisecond, Waited: 1234567},
	}
	text := AppendConfig(nil, &cfg)
	text = AppendEvents(text, 123456789, List(events...))
	text = append(text, "\n# a remark\n> plan line\n> another\n"...)
	text = AppendEvents(text, 3e9, List())
	tr, err := ReadTrace(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if tr.Config != cfg {
		t.Errorf("config is %+v\nwant %+v\n%s", tr.Config, cfg, text)
	}
	if len(tr.Steps) != 2 || tr.Steps[0].Now != 123456789 || tr.Steps[1].Now != 3e9 ||
		!reflect.DeepEqual(&tr.Steps[0].Events, List(events...)) || tr.Steps[0].Plan != "plan line\nanother\n" {
		t.Errorf("steps are %+v\nof\n%s", tr.Steps, text)
	}
	// Cut in the middle of a line, the last step is left out.
	if tr, err = ReadTrace(append(text, "token 9"...)); err != nil || len(tr.Steps) != 1 {
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
		if _, err := ReadTrace([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		head + "step 0s\noutcome ok\n":                       "line 2: EvStep, but the previous plan had no batch",
		head + "step 0s\narrive 1 prompt=5 max=2\nstep 1s\n": "line 4: no EvStep",

		head + "step 0s\narrive 1 prompt=5 max=2\n> plan tokens=4\n": "line 2: the plan differs",

		"config policy=uma max_running=2 cells=50 max_batch=8 max_queue=16777217\nstep 0s\n": "MaxQueue is 16777217",
	} {
		tr, err := ReadTrace([]byte(text))
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
	data, err := os.ReadFile(filepath.Join("testdata", "storm-meridian.trace"))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := ReadTrace(data)
	if err != nil {
		t.Fatal(err)
	}
	type step struct {
		batch    []Slice
		released []ReqID
		tokens   [4]int
	}
	steps := func(each func(func(*TraceStep, *Plan)) error) (out []step) {
		if err := each(func(_ *TraceStep, p *Plan) {
			var s step
			for _, sl := range p.Batch {
				s.batch = append(s.batch, Slice{Req: sl.Req, Start: sl.Start, N: sl.N, Row: sl.Row, Kind: sl.Kind,
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
		if err := tr.Visit(func(*TraceStep, *Plan) {}); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestTraceOfFourCoefficients: a trace from before Cost.E is read, without what its cost model had learned.
func TestTraceOfFourCoefficients(t *testing.T) {
	head := "config policy=uma max_running=2 cells=50 max_batch=8 max_queue=1 cost=" + strings.Repeat("1,", 19)
	tr, err := ReadTrace([]byte(head + "1\nstep 0s\n"))
	if err != nil || tr.Config.Cost != (CostState{}) {
		t.Errorf("%v, %+v", err, tr)
	}
	if _, err := ReadTrace([]byte(head + "x\n")); err == nil {
		t.Error("x is taken for a number")
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
	tr, err := ReadTrace(data)
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	if err := tr.Replay(func(_ *TraceStep, p *Plan) { tokens += p.Tokens }); err != nil {
		t.Fatal(err)
	}
	if len(tr.Steps) < 50 || tokens < 500 {
		t.Errorf("the trace has %d steps with %d tokens", len(tr.Steps), tokens)
	}
}

// recordStorm is the daemon's view of two answers and four long prompts, written down.
func recordStorm(t *testing.T, policy string) []byte {
	cfg := Config{Policy: policy, MaxRunning: 4, Cells: 1200, MaxBatch: 128, MaxQueue: 2, Guard: 60 * time.Millisecond}
	if policy == "meridian" {
		cfg.ITLTarget = 60 * time.Millisecond
	}
	sc := &script{}
	var out strings.Builder
	if err := sc.command(&out, strings.Fields(string(AppendConfig(nil, &cfg)))); err != nil {
		t.Fatal(err)
	}
	text := []byte("# Two answers run, four owners send prompts of 250 tokens, one is cancelled.\n")
	text = AppendConfig(text, &cfg)
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
		text = AppendEvents(text, sc.now, List(sc.events...))
		sc.step()
		text = sc.plan.Append(text, planPrefix)
		if sc.owed {
			if err := sc.took(15*time.Millisecond+time.Duration(sc.plan.PrefillTokens)*3250*time.Microsecond,
				nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return text
}

// FuzzReadTrace: no input panics, and what is read is written and read back the same.
func FuzzReadTrace(f *testing.F) {
	f.Add([]byte("config policy=uma max_running=2 cells=50 max_batch=8\nstep 0s\narrive 1 prompt=5 max=2\nstep 1s\n" +
		"outcome ok took=3ms\ntoken 1 think\n"))
	f.Add([]byte("config policy=stock max_running=2 cells=50 max_batch=8 guard=1ms\nstep 5ns\ndrain\ncancel 4\n" +
		"step 6ns\nfinish 9 stop\n> x\n"))
	if data, err := os.ReadFile(filepath.Join("testdata", "storm.trace")); err == nil {
		f.Add(data[:2000])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := ReadTrace(data)
		if err != nil {
			return
		}
		text := AppendConfig(nil, &tr.Config)
		for _, s := range tr.Steps {
			text = AppendEvents(text, s.Now, &s.Events)
		}
		again, err := ReadTrace(text)
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

// TestBrokenAnswers: what only a broken caller answers to Plan.Start panics with the request's number.
func TestBrokenAnswers(t *testing.T) {
	arrive := EvArrive{Req: 7, Spec: &Spec{Prompt: 4, MaxTokens: 9}}
	for name, c := range map[string]struct {
		steps [][]Event
		want  string
	}{
		"none": {[][]Event{{arrive}, {}}, "no EvStarted, EvDefer or EvCancel for the start of request 7"},
		"two": {[][]Event{{arrive}, {EvStarted{Req: 7}, EvStarted{Req: 7}}},
			"EvStarted of request 7, which no Plan.Start named"},
		"held and started": {[][]Event{{arrive}, {EvDefer{Req: 7, Reason: reason.Joining},
			EvStarted{Req: 7}}}, "EvStarted of request 7"},
		"held running": {[][]Event{{arrive},
			{EvStarted{Req: 7}, EvDefer{Req: 7, Reason: reason.Joining}}}, "EvDefer of request 7"},
		"all cached":  {[][]Event{{arrive}, {EvStarted{Req: 7, Cached: 4}}}, "Cached 4; it must be 0…3"},
		"more shared": {[][]Event{{arrive}, {EvStarted{Req: 7, Cached: 2, Shared: 3}}}, "Shared 3 of Cached 2"},

		"held for nothing": {[][]Event{{arrive}, {EvDefer{Req: 7, Reason: reason.Stop}}}, "it must be"},
		"too many cells":   {[][]Event{{EvCells{Cells: 101}}}, "EvCells of 101 cells"},
		"gives too much": {[][]Event{{arrive}, {EvStarted{Req: 7}}, {EvCancel{Req: 7, Cells: 101}}},
			"gives up 101 cells"},
		"negative cells": {[][]Event{{EvCells{Cells: -1}}}, "EvCells of -1 cells"},
		"hint": {[][]Event{{EvArrive{Req: 7, Spec: &Spec{Prompt: 4, MaxTokens: 9}, Shared: -1}}},
			"Shared -1"},
		"fork": {[][]Event{{arrive}, {EvStarted{Req: 7}},
			{EvStep{}, EvToken{Req: 7, Probe: -1}}}, "Probe -1"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if msg, _ := recover().(string); !strings.HasPrefix(msg, "sched: ") || !strings.Contains(msg, c.want) {
					t.Errorf("panic is %q, want %q", msg, c.want)
				}
			}()
			cfg := valid
			cfg.Prefix = true
			s, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range c.steps {
				s.Step(0, List(in...))
			}
		})
	}
}

// TestPinnedInTheWay: what is asked for and not given up ends the only running request, which could not go on.
func TestPinnedInTheWay(t *testing.T) {
	cfg := valid
	cfg.Prefix, cfg.Cells = true, 20
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Step(0, List(EvArrive{Req: 1, Spec: &Spec{Prompt: 10, MaxTokens: 9}}))
	s.Step(0, List(EvStarted{Req: 1}))
	plan := s.Step(1, List(EvStep{Took: 1}, EvToken{Req: 1}, EvCells{}))
	if !plan.Again || plan.Reclaim != 1 || len(plan.Batch) > 0 {
		t.Fatalf("plan is\n%s", &plan)
	}
	plan = s.Step(2, List(EvCells{Cells: 1}))
	if plan.Again || plan.Reclaim != 0 || plan.DecodeTokens != 1 {
		t.Fatalf("after one cell came free:\n%s", &plan)
	}
	plan = s.Step(3, List(EvStep{Took: 1}, EvToken{Req: 1}, EvCells{}))
	if !plan.Again || plan.Reclaim != 1 {
		t.Fatalf("plan is\n%s", &plan)
	}
	plan = s.Step(4, List())
	if want := (Release{Req: 1, Seq: 0, Reason: reason.KVFull, Final: true}); len(plan.Release) != 1 ||
		plan.Release[0] != want {
		t.Fatalf("nothing came free:\n%s", &plan)
	}
}

// TestStaticRule has the worked examples of the rule's specification: places for thinking are the multiplier of those
// for answers, rounded down.
func TestStaticRule(t *testing.T) {
	for _, c := range []struct {
		slots  int
		mult   float64
		thinks int
	}{{2, 2, 4}, {3, 2.5, 7}, {1, 2.5, 2}, {4, 1, 4}} {
		cfg := valid
		cfg.Policy, cfg.OutputSlots, cfg.ThinkMultiplier = "meridian_static", c.slots, c.mult
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if p := s.policy.(*meridianStatic); p.slots != c.slots || p.thinks != c.thinks {
			t.Errorf("%d × %v: %d places for answers, %d for thinking, want %d", c.slots, c.mult, p.slots, p.thinks,
				c.thinks)
		}
	}
}

// TestLogForgets: a request remembers its newest decisions, the ring of the ended its newest members, and one that is
// served in turns does not lose its past to the turns.
func TestLogForgets(t *testing.T) {
	var d decisions
	for i := range 40 {
		d.add(Instant(i), Reason(1+i%20), 1)
	}
	log := d.appendTo(nil)
	if len(log) != logSize || log[0].First != 24 || log[logSize-1].First != 39 {
		t.Errorf("log is %+v", log)
	}
	d = decisions{}
	d.add(0, reason.Arrived, 5)
	for i := range 100 {
		d.add(Instant(i), []Reason{reason.Think, reason.ThinkHeld}[i%2], i%2)
	}
	if log := d.appendTo(nil); len(log) != 3 || log[1].Times != 50 || log[2].Last != 99 {
		t.Errorf("log is %+v", log)
	}
	s, err := New(valid)
	if err != nil {
		t.Fatal(err)
	}
	for id := ReqID(1); id <= endedSize+5; id++ {
		s.Step(Instant(id), List(EvArrive{Req: id, Spec: &Spec{Prompt: 500, MaxTokens: 1}}))
	}
	all := s.Finished(nil)
	if len(all) != endedSize || all[0].Req != endedSize+5 || all[endedSize-1].Req != 6 ||
		all[0].Reason != reason.PromptTooLong {
		t.Errorf("%d ended: %+v …", len(all), all[0])
	}
	if _, ok := s.Decisions(nil, 3); ok {
		t.Error("request 3 is still remembered")
	}
	if log, ok := s.Decisions(nil, 30); !ok || len(log) != 2 || log[1].Reason != reason.PromptTooLong {
		t.Errorf("request 30: %+v, %v", log, ok)
	}
}

// TestRankIsLostToRequestsThatStay: a thought that is preempted for an answer ranks behind it, unless the answer
// makes way in the same Step too. It would rank behind requests that started after it and were never spared for it.
func TestRankIsLostToRequestsThatStay(t *testing.T) {
	for _, both := range []bool{false, true} {
		cfg := valid
		cfg.Policy, cfg.Prefix, cfg.Cells, cfg.MaxRunning, cfg.MaxBatch = "uma", true, 100, 4, 32
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var arrive, start, answer []Event
		for id := range ReqID(3) {
			arrive = append(arrive, EvArrive{Req: id + 1,
				Spec: &Spec{Prompt: 4, MaxTokens: 9}, Thinking: id == 1})
			shared := 0
			if id == 1 {
				shared = 3 // the thought gives up one cell
			}
			start = append(start, EvStarted{Req: id + 1, Cached: 3, Shared: shared})
			answer = append(answer, EvToken{Req: id + 1, Thinking: id == 1})
		}
		s.Step(0, List(arrive...))
		if plan := s.Step(0, List(start...)); len(plan.Batch) != 3 {
			t.Fatalf("the plan is\n%s", &plan)
		}
		cells := 0 // too few for the others' next tokens
		if !both {
			cells = 1
		}
		events := append(append([]Event{EvStep{Took: 1}}, answer...), EvCells{Cells: cells})
		plan := s.Step(1, List(events...))
		if plan.Release[0].Req != 2 || (len(plan.Release) > 1) != both {
			t.Fatalf("both %t: the plan is\n%s", both, &plan)
		}
		if kept := s.requests[2].rank < s.requests[3].rank; kept != both {
			t.Errorf("both %t: the thought has rank %d, the answer %d", both, s.requests[2].rank, s.requests[3].rank)
		}
	}
}
