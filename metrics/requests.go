package metrics

import "time"

// CancelDone counts a cancelled request. took is the time from the cancel to the end.
func (m *Metrics) CancelDone(d time.Duration) { m.CancelLatency.Observe(d) }
