package mcp

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/internal/host/sandbox"
)

// systemFiles are the files that programs need to run, and that tell nothing of the user.
var systemFiles = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/opt/homebrew",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/ssl",
	"/etc/ca-certificates", "/etc/pki", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts",
	"/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/mime.types",
	"/dev/urandom", "/dev/random", "/dev/zero", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version",
	"/proc/sys/kernel", "/proc/sys/vm", "/sys/devices/system/cpu"}

// confine limits the process and what it starts: memory, files, calls. It returns the path of the server's program.
func confine(start *setup.Start) (program string, err error) {
	s := &start.Server
	debug.SetMemoryLimit(s.Memory / 2)
	if err := (sandbox.Limits{Memory: uint64(s.Memory), OpenFiles: setup.MaxOpenFiles,
		FileBytes: setup.MaxFileBytes}).Set(); err != nil {
		return "", fmt.Errorf("limit the memory of the server: %w", err)
	}
	p := sandbox.Policy{Read: systemFiles, Network: s.Network || s.URL != ""}
	if s.URL == "" {
		if program, err = exec.LookPath(s.Command[0]); err != nil {
			return "", fmt.Errorf("command: %w; name a program of PATH or an absolute path", err)
		}
		if program, err = filepath.Abs(program); err != nil {
			return "", err
		}
		p.Programs = true
		p.Read = append(append(p.Read, program), s.Read...)
		p.Write = append([]string{start.Temp, "/dev/null"}, s.Write...)
	}
	if s.Unconfined {
		return program, nil
	}
	state, err := sandbox.Enter(p)
	if err != nil {
		return "", fmt.Errorf("confine the server: %w", err)
	}
	if state.Landlock == 0 || !state.Seccomp {
		return "", fmt.Errorf("the server cannot be confined on this system (%s): it would have every file of its "+
			"user; unconfined = true in [mcp.%s] runs it nevertheless", strings.Join(state.Missing, "; "), s.Name)
	}
	return program, nil
}
