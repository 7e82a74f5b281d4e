package sched_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/trace"
)

// steady is a scheduler with n answers running, one long prompt being computed and queued requests waiting.
type steady struct {
	s      *sched.Scheduler
	now    sched.Instant
	events sched.Events
	trace  []byte
	think  bool // every second request thinks for ever
	probe  int  // rows of the fork that each token asks for
}

func newSteady(tb testing.TB, policy string, running, queued int) *steady {
	cfg := sched.Config{Policy: policy, MaxRunning: running, Cells: 1 << 29, MaxBatch: 512, MaxQueue: queued + running,
		Guard: sched.DefaultGuard}
	s, err := sched.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	st := &steady{s: s, trace: make([]byte, 0, 1<<20)}
	for id := range running + queued {
		st.events.Arrive(sched.EvArrive{Req: sched.ReqID(id + 1),
			Spec: &sched.Spec{Owner: uint32(id % 7), Prompt: 3, MaxTokens: 1 << 24}})
	}
	if running > 1 {
		st.events.Arrivals[running/2].Prompt = 1 << 25
	}
	for range 100 {
		st.step()
	}
	return st
}

// step is one turn of the decode loop around Step: every row brings a token.
func (st *steady) step() sched.Plan {
	plan := st.s.Step(st.now, &st.events)
	st.now = st.now.Add(10 * time.Millisecond)
	st.events.Reset()
	st.events.Step(sched.EvStep{Took: 10 * time.Millisecond})
	for i := range plan.Batch {
		if plan.Batch[i].Row >= 0 && plan.Batch[i].Kind != sched.SliceProbe {
			st.events.Token(sched.EvToken{Req: plan.Batch[i].Req, Thinking: st.think && plan.Batch[i].Req%2 == 0,
				Probe: st.probe})
		}
	}
	return plan
}

// BenchmarkStep measures the scheduler's part of a decode step, without arrivals and ends of requests.
func BenchmarkStep(b *testing.B) {
	for _, policy := range sched.Policies() {
		for _, n := range []int{1, 16, 256} {
			for _, queued := range []int{0, 1000} {
				b.Run(fmt.Sprintf("%s/running=%d/queued=%d", policy, n, queued), func(b *testing.B) {
					st := newSteady(b, policy, n, queued)
					b.ReportAllocs()
					for b.Loop() {
						st.step()
					}
				})
			}
		}
	}
}

// BenchmarkRequest is a request's whole life, 20 tokens of prompt and 10 steps of answer, on its own.
func BenchmarkRequest(b *testing.B) {
	s, err := sched.New(sched.Config{Policy: "uma", MaxRunning: 16, Cells: 4096, MaxBatch: 512, MaxQueue: 16})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	now := sched.Instant(0)
	spec := &sched.Spec{Prompt: 20, MaxTokens: 100}
	var events sched.Events
	step := func() sched.Plan {
		plan := s.Step(now, &events)
		events.Reset()
		return plan
	}
	for id := sched.ReqID(1); b.Loop(); id++ {
		events.Arrive(sched.EvArrive{Req: id, Spec: spec})
		plan := step()
		for range 10 {
			now = now.Add(time.Millisecond)
			events.Step(sched.EvStep{Took: time.Millisecond})
			events.Token(sched.EvToken{Req: plan.Batch[0].Req})
			plan = step()
		}
		events.Step(sched.EvStep{Took: time.Millisecond})
		events.Finish(sched.EvFinish{Req: id, Reason: reason.Stop})
		step()
	}
}

// BenchmarkStepThinking is a step of 16 requests of which half think and each asks for a fork, the dearest there is.
func BenchmarkStepThinking(b *testing.B) {
	st := newSteady(b, "meridian", 16, 100)
	st.think, st.probe = true, 2
	b.ReportAllocs()
	for b.Loop() {
		st.step()
	}
}

// TestStepAllocatesNothing in the steady state, with its trace written too.
func TestStepAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the invariants' check allocates")
	}
	for _, policy := range sched.Policies() {
		for _, n := range []int{1, 16, 256} {
			st := newSteady(t, policy, n, 100)
			st.think, st.probe = n > 1, n%3
			if got := testing.AllocsPerRun(200, func() { st.step() }); got != 0 {
				t.Errorf("%s with %d answers: %v allocations a step", policy, n, got)
			}
			got := testing.AllocsPerRun(200, func() {
				st.trace = trace.AppendEvents(st.trace[:0], st.now, &st.events)
				plan := st.step()
				st.trace = trace.AppendPlan(st.trace, "> ", &plan)
			})
			if got != 0 {
				t.Errorf("%s with %d answers: %v allocations a traced step", policy, n, got)
			}
		}
	}
}
