//go:build linux || darwin

package mcp

import (
	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
)

// limit bounds the process and those that it starts, each: private memory, open files, the size of a file, no core
// dump.
func limit(memory int64) error {
	for resource, most := range map[int]uint64{unix.RLIMIT_DATA: uint64(memory), unix.RLIMIT_CORE: 0,
		unix.RLIMIT_NOFILE: setup.MaxOpenFiles, unix.RLIMIT_FSIZE: setup.MaxFileBytes} {
		var old unix.Rlimit
		if err := unix.Getrlimit(resource, &old); err != nil {
			return err
		}
		if old.Max > most {
			if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
				return err
			}
		}
	}
	return nil
}
