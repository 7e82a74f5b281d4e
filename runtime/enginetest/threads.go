package enginetest

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// threads: an engine that takes a number of threads computes the same rows with any, and from one step to the next.
func threads(t *testing.T, s *subject) {
	set, ok := s.Engine.(runtime.ThreadSetter)
	if !ok {
		t.Skip("the engine has no threads to set")
	}
	most := s.Capabilities().Threads
	defer set.SetThreads(most)
	prompt := s.tokens(3, 40)
	want := s.decode(0, 0, prompt...)
	next := s.decode(0, len(prompt), prompt[0])
	for _, n := range []int{1, most, 0, most + 100, -1, most} {
		s.empty(0)
		set.SetThreads(n)
		s.same("a prompt on other threads", want, s.decode(0, 0, prompt...))
		set.SetThreads(most + 1 - n)
		s.same("a token on other threads", next, s.decode(0, len(prompt), prompt[0]))
	}
	ids := set.ComputeThreads([]int{-7})
	if ids[0] != -7 {
		t.Errorf("ComputeThreads overwrote what dst had: %v", ids)
	}
	slices.Sort(ids)
	if unique := slices.Compact(slices.Clone(ids)); len(unique) != len(ids) {
		t.Errorf("a compute thread is named twice: %v", ids)
	}
	set.BarrierSleeps()
}
