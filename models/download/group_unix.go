//go:build unix

package download

import "syscall"

// ownGroup keeps Ctrl-C at a terminal from the process: the daemon handles it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
