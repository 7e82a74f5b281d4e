package hostmem

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Read reads /proc/meminfo, the limits of the control groups (v2) this process is in, and that of its address space.
func Read() Memory {
	m := read("/")
	if limit, used, limited := AddressSpace(); limited {
		m.Available = min(m.Available, limit-min(limit, used))
	}
	return m
}

func read(root string) Memory {
	var m Memory
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		kb, _ := strconv.ParseUint(fields[0], 10, 64)
		switch name {
		case "MemTotal":
			m.Total = kb << 10
		case "MemAvailable":
			m.Available = kb << 10
		}
	}
	// The limits of all ancestors apply.
	for dir := cgroup(root); dir != ""; dir = parent(dir) {
		base := filepath.Join(root, "sys/fs/cgroup", dir)
		limit, ok := number(filepath.Join(base, "memory.max"))
		if !ok {
			continue
		}
		m.Total = min(m.Total, limit)
		if used, ok := number(filepath.Join(base, "memory.current")); ok {
			// Page cache counts as used but is freed on demand.
			used -= min(used, stat(filepath.Join(base, "memory.stat"), "inactive_file"))
			m.Available = min(m.Available, limit-min(limit, used))
		}
	}
	return m
}

// cgroup returns the path of this process's v2 group; "" when there is none.
func cgroup(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Clean(path)
		}
	}
	return ""
}

func parent(dir string) string {
	if dir == "/" || dir == "." {
		return ""
	}
	return filepath.Dir(dir)
}

// number reads a file with one number; false for "max".
func number(path string) (uint64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

func stat(path, key string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key+" "); ok {
			n, _ := strconv.ParseUint(v, 10, 64)
			return n
		}
	}
	return 0
}
