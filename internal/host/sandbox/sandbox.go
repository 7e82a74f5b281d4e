// Package sandbox confines a process that handles files of strangers: Landlock limits the files that it can open, and
// seccomp keeps it from starting programs, from the network and from other processes. What the kernel lacks is left out
// and reported.
//
// A system call that the filter stops is shown to a supervisor, another process, which refuses and logs it. Opening a
// file is shown as well: Landlock refuses silently, and on a kernel without Landlock the supervisor's refusal is all
// there is.
package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Policy lists the files and calls that the process needs.
type Policy struct {
	List  []string // folders whose names it may read
	Read  []string // files and folders to read; those that are missing are left out
	Write []string // files and folders to read, write and create in
	// Devices are device files: reading, writing and ioctl.
	Devices []string
	// Network allows connections: a store of prefixes on another machine needs them.
	Network bool
	// Programs lets the process start programs, those of Read: a server of tools needs them. They are confined as the
	// process is. It may signal processes (from Landlock 6 on only those that it has started), and not leave its
	// process group, by which it can be ended.
	Programs bool
	// Supervise passes the descriptor of the kernel's notifications to the supervisor, before the first one. nil:
	// refused calls fail without a report.
	Supervise func(fd int) error
}

// State lists the confinements in force.
type State struct {
	Landlock   int // the version of the kernel's interface in use; 0 = none
	Seccomp    bool
	NoNewPrivs bool
	Missing    []string // confinements not in force, with the reason
}

// Denial is a system call that was refused.
type Denial struct {
	Call string // its name
	Path string // of a call that opens a file
	TID  uint32 // the thread
}

// allows reports whether a path lies in one of the lists.
func (p *Policy) allows(path string) bool {
	if slices.Contains(p.List, path) {
		return true
	}
	for _, list := range [][]string{p.Read, p.Write, p.Devices} {
		for _, root := range list {
			if path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") {
				return true
			}
		}
	}
	return false
}

// Resolved is p with the targets of symbolic links beside their names, and every path absolute.
func (p Policy) Resolved() Policy {
	resolve := func(list []string) (out []string) {
		for _, path := range list {
			abs, err := filepath.Abs(path)
			if err != nil {
				continue
			}
			out = append(out, abs)
			if real, err := filepath.EvalSymlinks(abs); err == nil && real != abs {
				out = append(out, real)
			}
		}
		return out
	}
	p.List, p.Read, p.Write, p.Devices = resolve(p.List), resolve(p.Read), resolve(p.Write), resolve(p.Devices)
	return p
}

func missing(what string, err error) string { return fmt.Sprintf("%s: %v", what, err) }

// Limits are numbers that a process may not exceed.
type Limits struct {
	Memory    uint64 // bytes of private memory
	OpenFiles uint64
	FileBytes uint64 // of a file that it writes
}
