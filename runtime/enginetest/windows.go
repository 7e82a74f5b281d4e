package enginetest

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// Windows decodes a sequence that is longer than a window of 32 and continues copies of its middle: beside free cells,
// beside those of another sequence, and where that one was. It returns the rows, each of which is of the same text.
func Windows(t *testing.T, e runtime.Engine) [][]float32 {
	const long, part = 120, 60
	s := &subject{T: t, Engine: e}
	prompt, next := s.tokens(4, long), s.tokens(5, 1)
	s.fill(0, 0, prompt[:part])
	rows := [][]float32{s.decode(0, part, next...)}
	s.empty(0)
	middle := func() {
		s.SeqCopy(1, 3, 0, part)
		rows = append(rows, s.decode(3, part, next...))
		s.empty(3)
	}
	s.fill(0, 0, s.tokens(6, 20))
	s.fill(1, 0, prompt)
	s.empty(0)
	middle()
	s.fill(2, 0, s.tokens(7, 40))
	middle()
	s.empty(2)
	middle()
	s.empty(1)
	return rows
}
