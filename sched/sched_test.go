package sched

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/sched/reason"
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
		t.Errorf("plan is\n%+v", plan)
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
}

// TestRecordsAreReused: thousands of owners who come once leave few records behind.
func TestRecordsAreReused(t *testing.T) {
	s, err := New(valid)
	if err != nil {
		t.Fatal(err)
	}
	for id := ReqID(2); id < 5000; id++ {
		s.Step(0, List(EvArrive{Req: id, Spec: &Spec{Owner: uint32(id), Prompt: 4, MaxTokens: 9}}))
		s.Step(0, List(EvStep{Took: 1}, EvFinish{Req: id, Reason: reason.Stop}))
	}
	if n := len(s.records); n > 4 || n != len(s.free) {
		t.Errorf("%d records, %d of them free", n, len(s.free))
	}
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
		t.Fatalf("plan is\n%+v", plan)
	}
	plan = s.Step(2, List(EvCells{Cells: 1}))
	if plan.Again || plan.Reclaim != 0 || plan.DecodeTokens != 1 {
		t.Fatalf("after one cell came free:\n%+v", plan)
	}
	plan = s.Step(3, List(EvStep{Took: 1}, EvToken{Req: 1}, EvCells{}))
	if !plan.Again || plan.Reclaim != 1 {
		t.Fatalf("plan is\n%+v", plan)
	}
	plan = s.Step(4, List())
	if want := (Release{Req: 1, Seq: 0, Reason: reason.KVFull, Final: true}); len(plan.Release) != 1 ||
		plan.Release[0] != want {
		t.Fatalf("nothing came free:\n%+v", plan)
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
			t.Fatalf("the plan is\n%+v", plan)
		}
		cells := 0 // too few for the others' next tokens
		if !both {
			cells = 1
		}
		events := append(append([]Event{EvStep{Took: 1}}, answer...), EvCells{Cells: cells})
		plan := s.Step(1, List(events...))
		if plan.Release[0].Req != 2 || (len(plan.Release) > 1) != both {
			t.Fatalf("both %t: the plan is\n%+v", both, plan)
		}
		if kept := s.requests[2].entry.Rank < s.requests[3].entry.Rank; kept != both {
			t.Errorf("both %t: the thought has rank %d, the answer %d", both, s.requests[2].entry.Rank,
				s.requests[3].entry.Rank)
		}
	}
}
