//go:build linux || darwin

package sandbox

import "golang.org/x/sys/unix"

// Set bounds this process and those that it starts, each. They dump no core.
func (l Limits) Set() error {
	for resource, most := range map[int]uint64{unix.RLIMIT_DATA: l.Memory, unix.RLIMIT_CORE: 0,
		unix.RLIMIT_NOFILE: l.OpenFiles, unix.RLIMIT_FSIZE: l.FileBytes} {
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
