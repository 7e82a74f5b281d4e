package main

import (
	"os"
	"syscall"
)

// apart has a child ignore the terminal's Ctrl-C.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// windowSignals is empty: Windows tells no program that its window changes.
var windowSignals []os.Signal

func resumed(os.Signal) bool { return false }

// passedSignals are given to a child. A console sends Ctrl-C to both.
var passedSignals = []os.Signal{syscall.SIGTERM}
