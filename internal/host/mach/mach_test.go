package mach

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
)

// The words that a Mac with 16 KiB pages returns: free, active, inactive, wired, and what is behind them.
func TestDecodeVM(t *testing.T) {
	words := make([]uint32, vmWords)
	words[0], words[1], words[2], words[3] = 3000, 111, 5000, 222
	got, err := decodeVM(words)
	if err != nil || got != (VM{3000, 5000}) || got.Available(16<<10) != 8000*16<<10 {
		t.Errorf("%+v, %v: %d", got, err, got.Available(16<<10))
	}
	full := []uint32{1<<32 - 1, 0, 1<<32 - 1, 0}
	if got, err := decodeVM(full); err != nil || got.Available(4096) != (1<<33-2)*4096 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := decodeVM(words[:3]); err == nil || !strings.Contains(err.Error(), "3 words") {
		t.Errorf("a short answer: %v", err)
	}
}

func TestDecodeTask(t *testing.T) {
	words := make([]uint32, taskWords)
	words[0], words[2], words[3], words[4] = 99, 0x1234_5678, 2, 77
	if got, err := decodeTask(words); err != nil || got != 0x2_1234_5678 {
		t.Errorf("%x, %v", got, err)
	}
	if _, err := decodeTask(words[:2]); err == nil || !strings.Contains(err.Error(), "2 words") {
		t.Errorf("a short answer: %v", err)
	}
}

func TestKernelError(t *testing.T) {
	if err := kernelError("task_info", 0); err != nil {
		t.Error(err)
	}
	if err := kernelError("task_info", 4); err == nil || err.Error() != "mach: task_info returned 4" {
		t.Error(err)
	}
}

// TestHere asks the machine that runs the test.
func TestHere(t *testing.T) {
	vm, err1 := Memory()
	rss, err2 := Resident()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err3 := SetClass(Interactive)
	if runtime.GOOS != "darwin" {
		for _, err := range []error{err1, err2, err3} {
			if !errors.Is(err, ErrSystem) {
				t.Error(err)
			}
		}
		return
	}
	if err1 != nil || vm.Available(uint64(os.Getpagesize())) < 1<<20 {
		t.Errorf("%+v, %v", vm, err1)
	}
	if err2 != nil || rss < 1<<20 || rss > 1<<40 {
		t.Errorf("%d, %v", rss, err2)
	}
	if err3 != nil || SetClass(Utility) != nil || SetClass(12345) == nil {
		t.Errorf("classes: %v", err3)
	}
}
