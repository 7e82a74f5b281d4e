package core

import (
	"github.com/uma-serve/uma-serve/meridian"
)

// script is a thought as a test wants it: so many tokens of thinking, forks behind some.
type script struct {
	think int // tokens of thought, the closing tag included
	n     int
	forks map[int]int // rows, by tokens so far
}

func (s *script) Phase() meridian.Phase {
	if s.n < s.think {
		return meridian.ThinkDecode
	}
	return meridian.OutputDecode
}

func (s *script) OnToken(_ Token, _ []byte, eog bool, _ int64) (step meridian.Step) {
	if s.n++; s.n == s.think {
		step.Event = meridian.ExitThink
	}
	if eog {
		step.Event |= meridian.Completed
	}
	return step
}

func (s *script) Flush() (think, answer []byte) { return nil, nil }
func (s *script) EndThink(int64) bool           { s.think = min(s.think, s.n+1); return true }
func (s *script) OnProbe(float64)               {}
func (s *script) ProbeFailed()                  {}
func (s *script) ProbeDue() ([]Token, bool) {
	rows := s.forks[s.n]
	return make([]Token, rows), rows > 0
}
