package waitfor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Stopped waits until no thread of a process runs that was sent SIGSTOP: on a busy machine one may answer for a while
// after the signal.
func Stopped(t testing.TB, pid int) {
	t.Helper()
	True(t, "all threads of the process are stopped", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, file := range threads {
			stat, err := os.ReadFile(file)
			if _, state, ok := bytes.Cut(stat, []byte(") ")); err != nil || !ok || state[0] != 'T' {
				return false
			}
		}
		return len(threads) > 0
	})
}
