//go:build linux && (amd64 || arm64)

package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Calls that no engine needs once it runs: other programs, other processes, ways around the filter, the kernel itself.
var refusedCalls = []string{
	"execve", "execveat",
	"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "kill",
	"io_uring_setup", "bpf", "perf_event_open", "userfaultfd", "open_by_handle_at",
	"mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "add_key", "request_key", "keyctl",
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff",
}

// programCalls are those that a process with Programs needs, and groupCalls those that it may not have instead.
var (
	programCalls = []string{"execve", "execveat", "pidfd_open", "pidfd_send_signal", "kill"}
	groupCalls   = []string{"setpgid", "setsid"}
)

// networkCalls make or accept connections. Those that the process has got from outside are read and written without
// them.
var networkCalls = []string{"socket", "connect", "bind", "listen", "accept", "accept4"}

// openCalls are shown to the supervisor, which allows them or not by their path.
var openCalls = []string{"open", "openat", "openat2", "creat"}

const (
	retUserNotif = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
	retErrnoPerm = 0x50000 | uint32(unix.EPERM)

	flagTSync       = 1 << 0
	flagNewListener = 1 << 3
	flagTSyncESRCH  = 1 << 4

	setModeFilter = 1
)

// Enter confines the process, all of its threads, for ever. The error is of a policy that cannot be carried out though
// the kernel could; what the kernel lacks is in State.Missing.
func Enter(p Policy) (State, error) {
	var st State
	p = p.Resolved()
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < 1 {
		st.Missing = append(st.Missing,
			missing("Landlock", fmt.Errorf("the kernel has none (%v): the process can open every file of its user",
				err)))
	} else if err := lock(p, version); err != nil {
		return st, fmt.Errorf("confine by Landlock: %w", err)
	} else {
		st.Landlock, st.NoNewPrivs = version, true
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return st, fmt.Errorf("give up new privileges: %w", err)
	}
	fd, err := filter(p)
	if err != nil {
		st.Missing = append(st.Missing, missing("seccomp", err))
		return st, nil
	}
	st.Seccomp, st.NoNewPrivs = true, true // the filter's synchronisation sets it in every thread
	if fd >= 0 {
		err = p.Supervise(fd)
		unix.Close(fd)
		if err != nil {
			return st, fmt.Errorf("find a supervisor for the filter: %w", err)
		}
	}
	if p.Network {
		st.Missing = append(st.Missing, "network: connections are allowed, as the configuration needs them")
	}
	return st, nil
}

// referFrom is the first version of Landlock that lets files move between folders; in earlier ones no process may move
// them.
const referFrom = 2

// writable returns the rule of a folder in which files are made, removed and moved, also into folders below it.
func writable(dir string, version int) landlock.FSRule {
	rule := landlock.RWDirs(dir)
	if version >= referFrom {
		rule = rule.WithRefer()
	}
	return rule
}

// lock limits the files.
func lock(p Policy, version int) error {
	var rules []landlock.Rule
	for _, path := range p.List {
		if fi, err := os.Stat(path); err == nil && fi.IsDir() {
			rules = append(rules, landlock.PathAccess(ll.AccessFSReadDir, path))
		}
	}
	for _, path := range p.Read {
		if fi, err := os.Stat(path); err == nil {
			access := landlock.AccessFSSet(ll.AccessFSReadFile)
			if p.Programs {
				access |= ll.AccessFSExecute
			}
			if fi.IsDir() {
				access |= ll.AccessFSReadDir
			}
			rules = append(rules, landlock.PathAccess(access, path))
		}
	}
	for _, path := range p.Write {
		if fi, err := os.Stat(path); err == nil {
			if fi.IsDir() {
				rules = append(rules, writable(path, version))
			} else {
				rules = append(rules, landlock.RWFiles(path))
			}
		}
	}
	for _, path := range p.Devices {
		if fi, err := os.Stat(path); err == nil && !fi.IsDir() {
			rules = append(rules, landlock.RWFiles(path).WithIoctlDev())
		}
	}
	if p.Network {
		if err := landlock.V8.BestEffort().RestrictPaths(rules...); err != nil || !p.Programs {
			return err
		}
		return landlock.V8.BestEffort().RestrictScoped() // programs may signal only what they have started
	}
	return landlock.V8.BestEffort().Restrict(rules...)
}

// filter installs the filter on all threads. fd has the kernel's questions; -1: refused calls fail by themselves.
func filter(p Policy) (fd int, err error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return -1, err
	}
	names := append([]string(nil), refusedCalls...)
	if p.Programs {
		names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(programCalls, n) })
		names = append(names, groupCalls...)
	}
	if !p.Network {
		names = append(names, networkCalls...)
	}
	action := seccomp.Action(retErrnoPerm)
	flags := uintptr(flagTSync)
	if p.Supervise != nil {
		names = append(names, openCalls...)
		action, flags = retUserNotif, flagTSync|flagNewListener|flagTSyncESRCH
	}
	known := names[:0]
	for _, n := range names {
		if _, ok := info.SyscallNames[n]; ok {
			known = append(known, n)
		}
	}
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow,
		Syscalls: []seccomp.SyscallGroup{{Names: known, Action: action}}}
	program, err := policy.Assemble()
	if err != nil {
		return -1, err
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return -1, err
	}
	insts := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		insts[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	prog := unix.SockFprog{Len: uint16(len(insts)), Filter: &insts[0]}
	n, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(insts)
	if errno != 0 {
		return -1, errno
	}
	if p.Supervise == nil {
		return -1, nil
	}
	return int(n), nil
}
