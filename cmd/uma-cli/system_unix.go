//go:build !windows

package main

import (
	"os"
	"syscall"
)

// apart has a child ignore the terminal's Ctrl-C.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// windowSignals come when the window changes, and when the program continues after Ctrl-Z, as resumed tells.
var windowSignals = []os.Signal{syscall.SIGWINCH, syscall.SIGCONT}

func resumed(s os.Signal) bool { return s == syscall.SIGCONT }

// passedSignals are given to a child.
var passedSignals = []os.Signal{os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1,
	syscall.SIGUSR2}
