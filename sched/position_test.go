package sched

import "testing"

func TestPosition(t *testing.T) {
	s, err := New(Config{Policy: "uma", MaxRunning: 1, Cells: 100, MaxBatch: 10, MaxQueue: 10})
	if err != nil {
		t.Fatal(err)
	}
	arrive := func(id ReqID, c Class) Event {
		return EvArrive{Req: id, Spec: &Spec{Class: c, Prompt: 5, MaxTokens: 5}}
	}
	s.Step(1, List(arrive(1, Interactive), arrive(2, Background), arrive(3, Interactive), arrive(4, Interactive)))
	for id, want := range map[ReqID]int{1: 0, 3: 1, 4: 2, 2: 3, 99: 0} {
		if got := s.Position(id); got != want {
			t.Errorf("position of %d is %d, want %d", id, got, want)
		}
	}
}
