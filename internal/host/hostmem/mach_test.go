package hostmem

import (
	"errors"
	"runtime"
	"testing"

	"github.com/uma-serve/uma-serve/internal/host/mach"
)

// TestReadMach: a Mac of 16 GiB with pages of 16 KiB, and what is told where the system answers less.
func TestReadMach(t *testing.T) {
	const gib = 1 << 30
	numbers := map[string]uint64{"hw.memsize": 16 * gib, "hw.pagesize": 16 << 10}
	pages := mach.VM{Free: 65536, Inactive: 131072} // 1 GiB and 2 GiB
	for name, c := range map[string]struct {
		missing string
		pages   mach.VM
		failed  error
		want    Memory
	}{
		"all":              {pages: pages, want: Memory{16 * gib, 3 * gib}},
		"no total":         {missing: "hw.memsize", pages: pages},
		"no page size":     {missing: "hw.pagesize", pages: pages, want: Memory{Total: 16 * gib}},
		"no pages":         {failed: errors.New("host_statistics64 returned 4"), want: Memory{Total: 16 * gib}},
		"more than is":     {pages: mach.VM{Free: 1 << 32}, want: Memory{16 * gib, 16 * gib}},
		"another system's": {failed: mach.ErrSystem, want: Memory{Total: 16 * gib}},
	} {
		got := readMach(func(key string) (uint64, error) {
			if key == c.missing {
				return 0, errors.New("no such number")
			}
			return numbers[key], nil
		}, func() (mach.VM, error) { return c.pages, c.failed })
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestResidentHere: this process has memory, where the system tells.
func TestResidentHere(t *testing.T) {
	n := Resident()
	if tells := runtime.GOOS == "linux" || runtime.GOOS == "darwin"; tells != (n > 1<<20) || n > 1<<40 {
		t.Errorf("%d bytes", n)
	}
}
