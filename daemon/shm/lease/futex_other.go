//go:build !linux

package lease

import (
	"sync/atomic"
	"time"
)

// poll is the interval at which a word is read on systems without futexes.
const poll = 200 * time.Microsecond

// futexWait sleeps until the word has changed from old, or d has passed.
func futexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	for end := time.Now().Add(d); word.Load() == old && time.Now().Before(end); {
		time.Sleep(min(poll, d))
	}
}

// futexWake does nothing: the one that waits looks.
func futexWake(*atomic.Uint32) {}
