package download

import "syscall"

// ownGroup keeps Ctrl-C at a console from the process: the daemon handles it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
