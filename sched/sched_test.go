package sched

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
		{func(c *Config) { c.MaxQueue = -1 }, "MaxQueue is -1"},
		{func(c *Config) { c.Limits[Background].MaxRunning = -1 }, "Limits[Background].MaxRunning is -1"},
		{func(c *Config) { c.Limits[Interactive].MaxQueue = -1 }, "Limits[Interactive].MaxQueue is -1"},
		{func(c *Config) { c.StartBudget = -1 }, "StartBudget is -1"},
		{func(c *Config) { c.MinPrefill = -1 }, "MinPrefill is -1"},
		{func(c *Config) { c.MaxHeld = -1 }, "MaxHeld is -1"},
		{func(c *Config) { c.DecodeReserve = -2 }, "DecodeReserve is -2; it must be -1…"},
		{func(c *Config) { c.TickBudget = -1 }, "TickBudget is -1ns; it must be 0…1h"},
		{func(c *Config) { c.Guard = 2 * time.Hour }, "Guard is 2h0m0s"},
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

// TestReasons: every reason has a label of its own that is fit for a metric, and a sentence.
func TestReasons(t *testing.T) {
	all := Reasons(nil)
	if len(all) < 30 {
		t.Fatalf("only %d reasons", len(all))
	}
	seen := map[string]bool{}
	for _, r := range all {
		label, text := r.String(), r.Explain()
		if seen[label] || label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("reason %d has label %q", r, label)
		}
		seen[label] = true
		if !strings.HasSuffix(text, ".") || len(text) < 15 {
			t.Errorf("%s explains itself as %q", label, text)
		}
		if got, ok := parseReason(label); !ok || got != r {
			t.Errorf("%s is read back as %v, %v", label, got, ok)
		}
	}
	if s := (numReasons + 3).String(); s != "unknown" {
		t.Errorf("a reason that does not exist is %q", s)
	}
	for _, r := range []Reason{ReasonStop, ReasonLength, ReasonFailed, ReasonCancelled, ReasonKVFull} {
		if !r.Final() {
			t.Errorf("%v ends nothing", r)
		}
	}
	if ReasonQueueFull.Final() || ReasonPreemptCells.Final() || ReasonNone.Final() {
		t.Error("a reason that ends nothing is final")
	}
}

// TestBrokenContract: what only a broken caller can do panics with the request's number.
func TestBrokenContract(t *testing.T) {
	arrive := Event{Kind: EvArrive, Req: 7, Prompt: 4, MaxTokens: 9}
	ok := Event{Kind: EvStep, Outcome: StepOK, Took: 1}
	long := arrive
	long.Prompt = 60
	for name, c := range map[string]struct {
		steps [][]Event
		want  string
	}{
		"no outcome":        {[][]Event{{arrive}, {}}, "no EvStep for the batch"},
		"two outcomes":      {[][]Event{{arrive}, {ok, ok}}, "came already"},
		"outcome of none":   {[][]Event{{ok}}, "had no batch"},
		"row unanswered":    {[][]Event{{arrive}, {ok}}, "row of request 7"},
		"token without row": {[][]Event{{long}, {ok, {Kind: EvToken, Req: 7}}}, "request 7, which has no row"},
		"two tokens":        {[][]Event{{arrive}, {ok, {Kind: EvToken, Req: 7}, {Kind: EvToken, Req: 7}}}, "request 7, which has no row"},
		"token too early":   {[][]Event{{arrive}, {{Kind: EvToken, Req: 7}, ok}}, "request 7, which has no row"},
		"live id again":     {[][]Event{{arrive, arrive}}, "request 7, which is live"},
		"id 0":              {[][]Event{{{Kind: EvArrive, Prompt: 1, MaxTokens: 1}}}, "request id 0"},
		"no prompt":         {[][]Event{{{Kind: EvArrive, Req: 7, MaxTokens: 1}}}, "Prompt 0"},
		"no class":          {[][]Event{{{Kind: EvArrive, Req: 7, Prompt: 1, MaxTokens: 1, Class: 9}}}, "class 9"},
		"end without cause": {[][]Event{{arrive}, {ok, {Kind: EvFinish, Req: 7}}}, "ends nothing"},
		"unknown outcome":   {[][]Event{{arrive}, {{Kind: EvStep, Outcome: 9}}}, "outcome 9"},
		"unknown event":     {[][]Event{{arrive, {Kind: 77, Req: 7}}}, "kind 77"},
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
				s.Step(0, in)
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
	for _, line := range []string{"config policy=uma max_running=2 cells=10 max_batch=16", "arrive 1 prompt=9 max=50", "arrive 2 prompt=10 max=1", "step"} {
		if err := sc.command(&out, strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	if len(sc.plan.Reject) != 1 || sc.plan.Reject[0] != (Rejection{Req: 2, Reason: ReasonPromptTooLong, Need: 11, Have: 10}) {
		t.Errorf("rejects %+v", sc.plan.Reject)
	}
	// A caller that feeds a token beyond the room is answered with the end.
	plan := sc.s.Step(1, []Event{{Kind: EvStep}, {Kind: EvToken, Req: 1}})
	if want := (Release{Req: 1, Seq: 0, Reason: ReasonLength, Final: true}); len(plan.Release) != 1 || plan.Release[0] != want {
		t.Errorf("releases %+v, want %+v", plan.Release, want)
	}
}

// TestThinksOnce: the phases a request goes through, told by its tokens.
func TestThinksOnce(t *testing.T) {
	sc := &script{}
	var out strings.Builder
	for _, line := range []string{"config policy=uma max_running=2 cells=100 max_batch=16", "arrive 1 prompt=3 max=50", "step"} {
		if err := sc.command(&out, strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct {
		thinking bool
		want     State
	}{{false, Output}, {true, Think}, {true, Think}, {false, Output}, {true, Output}, {false, Output}} {
		sc.s.Step(Instant(i+1), []Event{{Kind: EvStep}, {Kind: EvToken, Req: 1, Thinking: c.thinking}})
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
	plan := s.Step(0, []Event{
		{Kind: EvArrive, Req: 1, Prompt: 5, MaxTokens: 5},
		{Kind: EvArrive, Req: 2, Prompt: 5, MaxTokens: 5}, {Kind: EvCancel, Req: 2},
		{Kind: EvArrive, Req: 3, Prompt: 5, MaxTokens: 5}, {Kind: EvArrive, Req: 4, Prompt: 5, MaxTokens: 5},
	})
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
	s.Step(0, []Event{{Kind: EvArrive, Req: 1, Prompt: 4, MaxTokens: 90}, {Kind: EvPause, Req: 1}})
	for id := ReqID(2); id < 5000; id++ {
		s.Step(0, []Event{{Kind: EvArrive, Req: id, Owner: uint32(id), Prompt: 4, MaxTokens: 9}})
		s.Step(0, []Event{{Kind: EvStep, Took: 1}, {Kind: EvFinish, Req: id, Finish: ReasonStop}})
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
		Policy: "uma", MaxRunning: 4, Cells: 100, MaxBatch: 16, MaxQueue: 4, Limits: [NumClasses]ClassLimits{{1, 2}, {3, 4}},
		TickBudget: 33333333, SoloBudget: time.Second, StartBudget: 7, MinPrefill: 3, Guard: 100 * time.Millisecond,
		MaxHeld: 2, DecodeReserve: -1, BackgroundEvery: time.Minute, PauseGrace: 1500 * time.Microsecond,
	}
	events := []Event{
		{Kind: EvStep, Outcome: StepKVFull, Took: 29123457},
		{Kind: EvArrive, Req: 18446744073709551615, Class: Background, Owner: 4294967295, Prompt: 5, MaxTokens: 6, TargetTTFT: 7, TargetTBT: time.Hour, Thinking: true},
		{Kind: EvArrive, Req: 2, Prompt: 5, MaxTokens: 6},
		{Kind: EvCancel, Req: 2}, {Kind: EvToken, Req: 3}, {Kind: EvToken, Req: 4, Thinking: true},
		{Kind: EvFinish, Req: 5, Finish: ReasonLength}, {Kind: EvPause, Req: 6}, {Kind: EvResume, Req: 7}, {Kind: EvDrain},
	}
	text := AppendConfig(nil, &cfg)
	text = AppendEvents(text, 123456789, events)
	text = append(text, "\n# a remark\n> plan line\n> another\n"...)
	text = AppendEvents(text, 3e9, nil)
	tr, err := ReadTrace(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if tr.Config != cfg {
		t.Errorf("config is %+v\nwant %+v\n%s", tr.Config, cfg, text)
	}
	if len(tr.Steps) != 2 || tr.Steps[0].Now != 123456789 || tr.Steps[1].Now != 3e9 || !slices.Equal(tr.Steps[0].Events, events) || tr.Steps[0].Plan != "plan line\nanother\n" {
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
		"":                                       "no config line",
		"step 1s\n":                              "line 1: a step before the config line",
		head + head:                              "line 2: a second config",
		head + "token 1\n":                       "line 2: an event before the first step",
		head + "> plan\n":                        "line 2: a plan before the first step",
		head + "step\n":                          "want: step TIME",
		head + "step 1 2\n":                      "want: step TIME",
		head + "step -1s\n":                      "not negative",
		head + "step 0s\njump 1\n":               `"jump" is no event`,
		head + "step 0s\ntoken\n":                "the request id is missing",
		head + "step 0s\ntoken 0\n":              `"0" is no request id`,
		head + "step 0s\ntoken x\n":              `"x" is no request id`,
		head + "step 0s\ncancel 1 now\n":         `"now" is not understood`,
		head + "step 0s\nfinish 1\n":             "the reason is missing",
		head + "step 0s\nfinish 1 decode\n":      `"decode" ends no request`,
		head + "step 0s\narrive 1 prompt=5\n":    "prompt= and max= are needed",
		head + "step 0s\narrive 1 prompt=0\n":    `prompt="0" must be a number in 1…`,
		head + "step 0s\narrive 1 class=other\n": `"other" is no class`,
		head + "step 0s\narrive 1 owner=-3\n":    `owner="-3" is no user id`,
		head + "step 0s\narrive 1 tbt=fast\n":    `tbt="fast" must be a duration`,
		head + "step 0s\noutcome great\n":        `"great" is not understood`,
		"config speed=3\n":                       `no field "speed"`,
		"config cells=many\n":                    `cells="many" must be a number`,
	} {
		if _, err := ReadTrace([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		head + "step 0s\noutcome ok\n":                                                 "line 2: EvStep, but the plan before had no batch",
		head + "step 0s\narrive 1 prompt=5 max=2\nstep 1s\n":                           "line 4: no EvStep",
		head + "step 0s\narrive 1 prompt=5 max=2\n> plan tokens=4\n":                   "line 2: the plan differs",
		"config policy=uma max_running=2 cells=50 max_batch=8 max_queue=-1\nstep 0s\n": "MaxQueue is -1",
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

// TestReplay: a recorded run gives the same plans again; the scripts' traces are recorded and replayed in
// TestRandomWorkloads, this one lies in testdata so that an old trace stays readable.
func TestReplay(t *testing.T) {
	file := filepath.Join("testdata", "storm.trace")
	if *rewrite {
		if err := os.WriteFile(file, recordStorm(t), 0o644); err != nil {
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
func recordStorm(t *testing.T) []byte {
	cfg := Config{Policy: "uma", MaxRunning: 4, Cells: 1200, MaxBatch: 128, MaxQueue: 2, Guard: 60 * time.Millisecond}
	sc := &script{}
	var out strings.Builder
	if err := sc.command(&out, strings.Fields(string(AppendConfig(nil, &cfg)))); err != nil {
		t.Fatal(err)
	}
	text := []byte("# Two answers run, four owners send prompts of 250 tokens, one is cancelled.\n")
	text = AppendConfig(text, &cfg)
	for i := range 80 {
		line := map[int]string{0: "arrive 1 owner=1 prompt=9 max=60", 1: "arrive 2 owner=2 prompt=7 max=70 think tbt=40ms",
			5: "arrive 3 class=background owner=3 prompt=250 max=4", 6: "arrive 4 owner=4 prompt=250 max=4", 7: "arrive 5 owner=5 prompt=250 max=4",
			8: "arrive 6 owner=1 prompt=250 max=4", 9: "arrive 7 owner=1 prompt=250 max=4", 20: "cancel 5", 40: "pause 1", 50: "resume 1"}[i]
		if line != "" {
			if err := sc.command(&out, strings.Fields(line)); err != nil {
				t.Fatal(err)
			}
		}
		text = AppendEvents(text, sc.now, sc.events)
		sc.step()
		text = sc.plan.Append(text, planPrefix)
		if sc.owed {
			if err := sc.took(15*time.Millisecond+time.Duration(sc.plan.PrefillTokens)*3250*time.Microsecond, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return text
}

// FuzzReadTrace: no input panics, and what is read is written and read back the same.
func FuzzReadTrace(f *testing.F) {
	f.Add([]byte("config policy=uma max_running=2 cells=50 max_batch=8\nstep 0s\narrive 1 prompt=5 max=2\nstep 1s\noutcome ok took=3ms\ntoken 1 think\n"))
	f.Add([]byte("config policy=stock max_running=2 cells=50 max_batch=8 guard=1ms\nstep 5ns\ndrain\ncancel 4\nstep 6ns\nfinish 9 stop\n> x\n"))
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
			text = AppendEvents(text, s.Now, s.Events)
		}
		again, err := ReadTrace(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again.Config != tr.Config || len(again.Steps) != len(tr.Steps) {
			t.Fatalf("config or steps changed\n%s", text)
		}
		for i, s := range again.Steps {
			if s.Now != tr.Steps[i].Now || !slices.Equal(s.Events, tr.Steps[i].Events) {
				t.Fatalf("step %d changed\n%s", i, text)
			}
		}
		if tr.Config.MaxRunning <= 64 {
			_ = tr.Replay(nil) // an error is fine, a panic is not
		}
	})
}
