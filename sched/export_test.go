package sched

// What package sched_test needs of this one, and the other way round: tests here cannot import package trace, which
// imports this package.

// Check verifies every invariant.
func (s *Scheduler) Check() error { return s.check() }

// Traced are functions of package trace.
type Traced struct {
	config func([]byte, *Config) []byte
	step   func([]byte, Instant, *Events, *Plan) []byte
	replay func([]byte) (steps int, err error)
}

var traced Traced

func SetTraced(config func([]byte, *Config) []byte, step func([]byte, Instant, *Events, *Plan) []byte,
	replay func([]byte) (int, error)) {
	traced = Traced{config, step, replay}
}
