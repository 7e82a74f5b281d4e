package hostmem

import "github.com/uma-serve/uma-serve/internal/host/mach"

// readMach is Read of macOS, with the system's calls as arguments: sysctl returns a number by its name, pages counts
// the machine's pages. Without the pages, Available is unknown.
func readMach(sysctl func(name string) (uint64, error), pages func() (mach.VM, error)) Memory {
	total, err := sysctl("hw.memsize")
	if err != nil {
		return Memory{}
	}
	m := Memory{Total: total}
	size, err := sysctl("hw.pagesize")
	if err != nil {
		return m
	}
	if vm, err := pages(); err == nil {
		m.Available = min(vm.Available(size), total)
	}
	return m
}
