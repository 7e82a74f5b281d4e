//go:build !linux

package lease

import (
	"os"
	"sync/atomic"
	"time"
)

// poll is how often a word is looked at on systems without futexes.
const poll = 200 * time.Microsecond

// futexWait sleeps until the word has changed from old, or d has passed.
func futexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	for end := time.Now().Add(d); word.Load() == old && time.Now().Before(end); {
		time.Sleep(min(poll, d))
	}
}

// futexWake does nothing: the one that waits looks.
func futexWake(*atomic.Uint32) {}

// newFile is a file whose name is removed at once.
func newFile() (*os.File, error) {
	f, err := os.CreateTemp("", "uma-leases-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// seal does nothing: these systems have no seals.
func seal(*os.File) error { return nil }
