package shm

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNew(t *testing.T) {
	f, err := New("uma-test", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 8192)
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	for i, x := range b {
		if x != 0 {
			t.Fatalf("byte %d is %d", i, x)
		}
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v: the file would reach every process that is started", flags, err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	for _, size := range []int64{0, 4096, 16384} {
		if f.Truncate(size) == nil {
			t.Errorf("the size could be changed to %d", size)
		}
	}
}

func TestNewFails(t *testing.T) {
	if f, err := New("uma-test", -1); err == nil {
		f.Close()
		t.Error("a negative size was accepted")
	}
}
