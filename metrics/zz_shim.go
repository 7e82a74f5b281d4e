package metrics

import "time"

type Gap struct {
	Took           time.Duration
	Thinking, Late bool
}
type zz struct {
	SLOViolationsTTFT, ProbeFallbacks, EATProbes, Snapshots Counter
	ForcedCloses                                            Labels
	ForceLatency, TTOT                                      Durations
}

func (m *Metrics) Restored(string, int, time.Duration) {}
func (m *Metrics) Evicted(cells int, bytes int64)      {}
