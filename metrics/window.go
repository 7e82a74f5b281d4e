package metrics

import "sync"

// Window is the rate of a count between two scrapes, as llama-server's gauges have it: each scrape begins a new window,
// so programs that scrape the same server share them. The zero Window is ready for use, from any goroutine.
type Window struct {
	mu          sync.Mutex
	count, time float64
}

// Rate returns the count of each second since the call before in which time had passed; count and seconds are totals.
// It is 0 where no time has passed: what was counted meanwhile belongs to the next rate.
func (w *Window) Rate(count, seconds float64) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if count < w.count || seconds < w.time { // of a process that counts from 0 again
		w.count, w.time = 0, 0
	}
	n, s := count-w.count, seconds-w.time
	if s == 0 {
		return 0
	}
	w.count, w.time = count, seconds
	return n / s
}
