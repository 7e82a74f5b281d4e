package cpus

import (
	"runtime"
	"testing"
)

func TestPrefer(t *testing.T) {
	runtime.LockOSThread() // without an unlock: the thread ends with the test's goroutine
	if err := Prefer(); err != nil {
		t.Error(err)
	}
}
