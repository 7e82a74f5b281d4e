package hugefile

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	hugePage = 2 << 20
	// piece is the size of one mapping: large enough for sequential reads, small enough that a stop is noticed within a
	// second.
	piece = 32 * hugePage
	// enough is the share of huge pages at which a piece is not read again. It is below 1 because the ends of a file
	// never are in huge pages.
	enough = 0.75
)

// Read reads a file into the page cache, in huge pages where the file system has them. Files below Smallest, and those
// that do not fit into available bytes, are left alone. An error means that the system cannot do it, or the file
// cannot be read; the cache is then as good as before.
func Read(path string, available uint64, o Options) (Pages, error) {
	f, err := os.Open(path)
	if err != nil {
		return Pages{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Pages{}, err
	}
	p := Pages{File: info.Size()}
	if !info.Mode().IsRegular() || p.File < Smallest || uint64(p.File) > available {
		return p, nil
	}
	again, flushed := o.Limit > 0, false
	var spent time.Duration
	for at := int64(0); at < p.File; at += piece {
		n := min(piece, p.File-at)
		huge, err := populate(f, at, n)
		if err != nil {
			return p, err
		}
		if again && huge < int64(enough*float64(n)) && n >= hugePage {
			if !flushed { // pages that wait to be written cannot be dropped
				_ = unix.Fdatasync(int(f.Fd()))
				flushed = true
			}
			from, before := time.Now(), huge
			if err := unix.Fadvise(int(f.Fd()), at, n, unix.FADV_DONTNEED); err != nil {
				return p, os.NewSyscallError("fadvise", err)
			}
			if huge, err = populate(f, at, n); err != nil {
				return p, err
			}
			p.Again += n
			spent += time.Since(from)
			// Another process maps it, the file system has no huge pages, or memory has none left.
			again = huge > before && spent < o.Limit
		}
		p.Huge += huge
		if o.Progress != nil && !o.Progress(float32(at+n)/float32(p.File)) {
			break
		}
	}
	return p, nil
}

// populate maps n bytes of a file from at on, reads those that are not in the cache, and returns how many of them are
// in huge pages.
func populate(f *os.File, at, n int64) (huge int64, err error) {
	m, err := unix.Mmap(int(f.Fd()), at, int(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, os.NewSyscallError("mmap", err)
	}
	defer func() { _ = unix.Munmap(m) }()
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // larger reads; not every kernel can
	if err := unix.Madvise(m, unix.MADV_POPULATE_READ); err != nil {
		return 0, os.NewSyscallError("madvise", err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	return hugeOf(smaps, uintptr(unsafe.Pointer(unsafe.SliceData(m)))), nil
}

// hugeOf returns how many bytes of the mapping that begins at an address are in huge pages, by /proc/self/smaps.
func hugeOf(smaps []byte, address uintptr) int64 {
	begin, found := fmt.Sprintf("%x-", address), false
	for lines := bufio.NewScanner(bytes.NewReader(smaps)); lines.Scan(); {
		line := lines.Text()
		if kb, ok := strings.CutPrefix(line, "FilePmdMapped:"); ok && found {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			return n << 10
		}
		if name, _, _ := strings.Cut(line, " "); strings.Contains(name, "-") {
			found = strings.HasPrefix(line, begin)
		}
	}
	return 0
}
