package invariants

import (
	"testing"
	"unsafe"
)

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return
}

func TestCloseChecker(t *testing.T) {
	var c CloseChecker
	if panics(c.AssertOpen) || panics(c.Close) {
		t.Fatal("an open owner panicked")
	}
	if got := panics(c.AssertOpen); got != Enabled {
		t.Errorf("use after close panicked: %v, want %v", got, Enabled)
	}
	if got := panics(c.Close); got != Enabled {
		t.Errorf("second close panicked: %v, want %v", got, Enabled)
	}
	if size := unsafe.Sizeof(c); !Enabled && size != 0 {
		t.Errorf("a CloseChecker takes %d bytes without invariants", size)
	}
}
