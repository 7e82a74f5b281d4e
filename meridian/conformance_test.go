package meridian

import (
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
)

// The behaviour of meridian-core (Rust) that this package keeps, item by item, with what differs and why. (Its
// scheduler cases are in package sched, its block manager's in block_test.go, its wire format's in meridian/mrdn, its
// report's in package bench.)

// Happy path: open, five tokens, close. meridian-core's tokens_used is 6, because it counts the closing tag; here a tag
// is no thought (a budget of 5 has room for five tokens of thought), so 6 is tokens and tag.
func TestConformanceHappyPath(t *testing.T) {
	s := newSession(words, DefaultConfig(), DefaultOptions(), "a",
		words.says("<think>wordwordwordwordword</think> is is is"))
	if p := s.c.Phase(); p != Prefill {
		t.Fatalf("begins in %v", p)
	}
	if st := s.step(); st.Event != EnterThink || s.c.Phase() != ThinkDecode {
		t.Fatalf("open: %v in %v", st.Event, s.c.Phase())
	}
	for i := range 5 {
		if st := s.step(); st.Event != None || s.c.ThinkTokens() != i+1 {
			t.Fatalf("token %d: %v, %d counted", i+1, st.Event, s.c.ThinkTokens())
		}
	}
	if st := s.step(); st.Event != ExitThink || s.c.Phase() != OutputDecode || s.c.ThinkTokens()+1 != 6 {
		t.Fatalf("close: %v in %v, %d counted", st.Event, s.c.Phase(), s.c.ThinkTokens())
	}
	if s.model = words.says(eog); s.step().Event != Completed || s.c.Phase() != Complete {
		t.Fatalf("ends in %v", s.c.Phase())
	}
}

// A model that does not think: the first token decides, and the answer is never budgeted.
func TestConformanceNonReasoning(t *testing.T) {
	s := newSession(words, DefaultConfig(), budget(3), "a", words.says("word<think> is"))
	for range 50 {
		if st := s.step(); st.Event != None || s.c.Phase() != OutputDecode {
			t.Fatalf("%v in %v", st.Event, s.c.Phase())
		}
	}
	if sum := s.c.Summary(0); sum != (Summary{}) {
		t.Fatalf("%+v", sum)
	}
}

// Nested open: an ordinary token of thought, counted, nothing reset.
func TestConformanceNestedOpen(t *testing.T) {
	s := newSession(words, DefaultConfig(), DefaultOptions(), "a", words.says("<think><think>word"))
	s.step()
	if st := s.step(); st.Event != None || s.c.ThinkTokens() != 1 || s.c.Blocks() != 1 {
		t.Fatalf("%v, %d counted, %d blocks", st.Event, s.c.ThinkTokens(), s.c.Blocks())
	}
}

// Hard cap: with max 64, tokens 1…63 bring nothing and the 64th the force. Here the force is the 65th token itself.
func TestConformanceHardCapExactly(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MinThinkTokens, cfg.MaxThinkTokens = 0, 64
	s := newSession(words, cfg, DefaultOptions(), "a", words.then("<think>", words.says("word")))
	s.step()
	for i := range 64 {
		if st := s.step(); st.Event != None {
			t.Fatalf("token %d: %v", i+1, st.Event)
		}
	}
	if st := s.step(); st.Event != ForceBudget|ExitThink || st.Reason != HardCap || s.c.ThinkTokens() != 64 {
		t.Fatalf("%v %v after %d", st.Event, st.Reason, s.c.ThinkTokens())
	}
}

// Converged only after the floor: steady from the first probe on, but min_think_tokens holds.
func TestConformanceConvergedAfterFloor(t *testing.T) {
	cfg := eatConfig()
	cfg.MinThinkTokens = 512
	o := cfg.Options()
	o.EarlyExit = ExitEAT
	s := newSession(words, cfg, o, "<think>", words.says("word\n\n"))
	s.probe = func() (float64, bool) { return 0.1, true }
	s.think(1000)
	if sum := s.c.Summary(0); sum.Ended != EndedConverged || sum.Tokens != 512 {
		t.Fatalf("%+v", sum)
	}
	// meridian-core would have stopped at 513 or at 3,456 tokens for any input, by how its averages start. Noise that
	// never settles must not stop here at all.
	s = newSession(words, cfg, o, "<think>", words.says("word\n\n"))
	x := 0.0
	s.probe = func() (float64, bool) { x = 1 - x; return x, true }
	if s.think(5000); s.c.Phase() != ThinkDecode {
		t.Fatalf("%+v", s.c.Summary(0))
	}
}

// Overthinking with the EAT path disabled: there by a negative variance threshold, here by early_exit rpdi; a threshold
// of 0 nats², which no variance is below, does it as well.
func TestConformanceOverthinkingAlone(t *testing.T) {
	for _, exit := range []EarlyExit{ExitRPDI, ExitBoth} {
		cfg := eatConfig()
		cfg.MinThinkTokens, cfg.RPDIWindow, cfg.EATVarianceThreshold = 100, 32, 0
		o := cfg.Options()
		o.EarlyExit = exit
		s := newSession(words, cfg, o, "<think>", words.says("word is.\n\n"))
		s.probe = func() (float64, bool) { return 0.1, true }
		s.stats = func() runtime.RowStats {
			if s.c.ThinkTokens() < 120 {
				return runtime.RowStats{Entropy: 0.2}
			}
			return runtime.RowStats{Entropy: 3}
		}
		s.think(1000)
		if sum := s.c.Summary(0); sum.Ended != EndedOverthinking || sum.Tokens < 120 || sum.Tokens > 160 {
			t.Errorf("%v: %+v", exit, sum)
		}
	}
}

// A single ForceBudget, and in the same token a natural close wins: nothing is counted as forced.
func TestConformanceSingleForce(t *testing.T) {
	s := newSession(words, DefaultConfig(), budget(64), "<think>", words.says("word"))
	for range 200 {
		s.step()
	}
	if s.forces != 1 || s.exits != 1 {
		t.Fatalf("%d forces, %d exits", s.forces, s.exits)
	}
	s = newSession(words, DefaultConfig(), budget(64), "<think>", words.then(strings.Repeat("word", 40)+"</think>",
		words.says(" is")))
	s.think(100) // the close for the cap was being looked for since token 32
	if sum := s.c.Summary(0); sum.Ended != EndedNatural || s.forces != 0 || s.c.LastForce() != (Force{}) {
		t.Fatalf("%+v, %d forces", sum, s.forces)
	}
}

// Unknown and reaped ids are safe; the gauge is exact; only time makes a request stale.
func TestConformanceRegistry(t *testing.T) {
	r := NewRegistry()
	cs := map[uint64]*Control{}
	for id := range uint64(3) {
		cs[id] = mustControl(DefaultConfig(), nil, DefaultOptions(), nil)
		r.Register(id, cs[id], 0)
		r.Register(id, cs[id], 0) // twice is once
	}
	if r.Len() != 3 || r.Get(1) != cs[1] || r.Get(7) != nil || r.Reap(7) {
		t.Fatalf("%d requests", r.Len())
	}
	// Fifty tokens of one request: meridian-core counted those as time and reaped the two others.
	for i := range int64(50) {
		cs[0].OnToken(1, []byte("a"), false, i)
	}
	minute := int64(time.Minute)
	if got := r.ReapStaleOlderThan(time.Minute, minute, nil); len(got) != 0 {
		t.Fatalf("%v are stale after exactly a minute", got)
	}
	if got := r.ReapStaleOlderThan(time.Minute, minute+1, nil); len(got) != 2 || r.Len() != 1 || r.Get(0) == nil {
		t.Fatalf("%v are stale, %d left", got, r.Len())
	}
	if !r.Reap(0) || r.Reap(0) || r.Len() != 0 {
		t.Fatalf("%d requests after reaping", r.Len())
	}
	cs[0].OnToken(1, []byte("a"), false, 0) // a reaped request is still whole
}

// (Monotone phases: TestRouterMonotone.)

// The probe's vectors: entropy in nats and the close ids' mass, by the reference.
func TestConformanceProbeVectors(t *testing.T) {
	for _, c := range []struct {
		row     []float32
		ids     []runtime.Token
		h, mass float64
	}{
		{[]float32{0, 1, 2, 3}, []runtime.Token{3}, 0.9475370, 0.6439143},
		{[]float32{0, 0, 0, 0}, []runtime.Token{1, 2}, 1.3862944, 0.5},
		{[]float32{10, 0, 0, 0}, []runtime.Token{0}, 0.0014980, 0.9998638},
		{[]float32{-2, -1, .5, 4, 4}, []runtime.Token{3, 4}, 0.7882985, 0.9806738},
	} {
		if st := ReferenceProbe(c.row, c.ids); !near(st.Entropy, c.h, 5e-8) || !near(st.CloseMass, c.mass, 5e-8) {
			t.Errorf("%v: H %v mass %v, want %v %v", c.row, st.Entropy, st.CloseMass, c.h, c.mass)
		}
	}
}
