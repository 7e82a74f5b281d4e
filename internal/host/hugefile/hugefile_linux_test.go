package hugefile

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// written makes a file of n bytes in pieces of 4 KiB at scattered places, as a download over many connections does.
func written(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for first := range 8 {
		for at := first * len(block); at < n; at += 8 * len(block) {
			for i := range block {
				block[i] = byte(at/4096 + i)
			}
			if _, err := f.WriteAt(block[:min(len(block), n-at)], int64(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return path
}

func sum(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// inHuge reports how many bytes of a file the system maps in huge pages after a plain read of all of it, which is how
// the file system shows whether it has any.
func inHuge(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	n, err := populate(f, 0, info.Size())
	if err != nil {
		t.Skip("the system cannot read a mapping ahead: ", err)
	}
	return n
}

// TestRead: a file that lies in small pages is in huge ones afterwards where the file system has these, holds what it
// held, and is not read again the next time.
func TestRead(t *testing.T) {
	const size = Smallest + 123_457
	path := written(t, size)
	before, want := inHuge(t, path), sum(t, path)
	last := float32(0)
	o := Options{Limit: time.Minute, Progress: func(share float32) bool {
		if share <= last || share > 1 {
			t.Errorf("the share went from %v to %v", last, share)
		}
		last = share
		return true
	}}
	p, err := Read(path, math.MaxUint64, o)
	if err != nil {
		t.Fatal(err)
	}
	if p.File != size || p.Huge < before || p.Huge > size || last != 1 {
		t.Errorf("Read() = %+v, %d bytes were in huge pages before, share %v at the end", p, before, last)
	}
	if sum(t, path) != want {
		t.Error("the file holds something else now")
	}
	if p.Huge < size/2 {
		t.Skipf("no huge pages in %s: %+v", t.TempDir(), p)
	}
	if before > size/2 {
		t.Errorf("%d bytes of a file in small pieces were in huge pages: the test shows nothing", before)
	}
	o.Progress = nil
	if p, err = Read(path, math.MaxUint64, o); err != nil || p.Again != 0 || p.Huge < size/2 {
		t.Errorf("the second time: Read() = %+v, %v", p, err)
	}
}

// TestReadLeavesAlone: small files, those larger than the memory or mapped by another, and those that are not to be
// read again stay in their pages.
func TestReadLeavesAlone(t *testing.T) {
	always := Options{Limit: time.Minute}
	small := written(t, 1<<20)
	if p, err := Read(small, math.MaxUint64, always); err != nil || p != (Pages{File: 1 << 20}) {
		t.Errorf("a small file: %+v, %v", p, err)
	}
	path := written(t, Smallest)
	if p, err := Read(path, Smallest-1, always); err != nil || p != (Pages{File: Smallest}) {
		t.Errorf("a file larger than the memory: %+v, %v", p, err)
	}
	if p, err := Read(path, math.MaxUint64, Options{}); errors.Is(err, unix.EINVAL) {
		t.Skip("the system cannot read a mapping ahead")
	} else if err != nil || p.Again != 0 {
		t.Errorf("without a limit: %+v, %v", p, err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, Smallest, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	if p, err := Read(path, math.MaxUint64, always); err != nil || p.Again > piece {
		t.Errorf("a file that is mapped: %+v, %v; want one try at most", p, err)
	}
	if !bytes.Equal(m[:8], []byte{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("the other mapping has %v now", m[:8])
	}
}

// TestReadStops: a stop of the load ends it at once, and what cannot be opened is an error.
func TestReadStops(t *testing.T) {
	path := written(t, Smallest+2*piece)
	calls := 0
	p, err := Read(path, math.MaxUint64, Options{Progress: func(float32) bool {
		calls++
		return false
	}})
	if errors.Is(err, unix.EINVAL) {
		t.Skip("the system cannot read a mapping ahead")
	}
	if err != nil || calls != 1 {
		t.Errorf("stopped at once: %+v, %v, %d calls", p, err, calls)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none"), math.MaxUint64, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if p, err := Read(t.TempDir(), math.MaxUint64, Options{}); err != nil || p.Huge != 0 {
		t.Errorf("a folder: %+v, %v", p, err)
	}
}

func TestHugeOf(t *testing.T) {
	const smaps = "7f00-7f10 r--s 00000000 fe:00 12 /m.gguf\nRss: 4 kB\nFilePmdMapped:    2048 kB\n" +
		"7f10-7f20 r--s 00000000 fe:00 12 /m.gguf\nRss: 4 kB\nFilePmdMapped:       0 kB\n" +
		"7f20-7f30 rw-p 00000000 00:00 0\nRss: 4 kB\n7f30-7f40 r--s 00000000 fe:00 12 /x - y\nFilePmdMapped: bad\n"
	for address, want := range map[uintptr]int64{0x7f00: 2 << 20, 0x7f10: 0, 0x7f20: 0, 0x7f30: 0, 0x1: 0} {
		if got := hugeOf([]byte(smaps), address); got != want {
			t.Errorf("the mapping at %x: %d, want %d", address, got, want)
		}
	}
}
