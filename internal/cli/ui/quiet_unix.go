//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package ui

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Quiet keeps what is typed on the terminal f out of the text that is being printed: nothing is echoed, and the keys
// wait, unchanged, for the next reader of the terminal. Ctrl-C and Ctrl-Z stay signals; a program that is stopped by
// Ctrl-Z leaves the terminal as it was, and finds it quiet when it continues. onStop and onContinue, if not nil, run
// then, on another goroutine. The function that Quiet returns puts the terminal back as it was. On what is no terminal
// neither does anything.
func Quiet(f *os.File, onStop, onContinue func()) (restore func()) {
	fd := int(f.Fd())
	old, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return func() {}
	}
	quiet := *old
	quiet.Lflag &^= unix.ECHO | unix.ICANON
	quiet.Iflag &^= unix.ICRNL // Enter stays what a line editor expects
	quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, setTermios, &quiet) != nil {
		return func() {}
	}
	q := &quietTerminal{fd: fd, old: old, quiet: &quiet, isQuiet: true, onStop: onStop, onContinue: onContinue}
	handleStops()
	stops.quiet.Store(q)
	return func() {
		stops.quiet.CompareAndSwap(q, nil)
		q.end()
	}
}

// stops is the handling of Ctrl-Z. Once Go has caught SIGTSTP it never leaves the signal to the system again, so that
// there is one handler from then on, for as long as the program runs.
var stops struct {
	once  sync.Once
	quiet atomic.Pointer[quietTerminal] // the terminal to restore; nil = none
}

func handleStops() {
	stops.once.Do(func() {
		signals := make(chan os.Signal, 4)
		signal.Notify(signals, syscall.SIGTSTP, syscall.SIGCONT)
		go func() {
			for s := range signals {
				q := stops.quiet.Load()
				if s == syscall.SIGTSTP {
					if q != nil {
						q.leave()
					}
					// SIGTTOU stops a program as SIGTSTP does. Both do nothing where no shell can let it go on.
					stop(syscall.Getpid(), syscall.SIGTTOU)
				}
				if q != nil {
					q.enter()
				}
			}
		}()
	})
}

// quietTerminal is a terminal whose modes a goroutine of job control and the owner of the terminal both set.
type quietTerminal struct {
	fd         int
	old, quiet *unix.Termios

	onStop, onContinue func()

	mu      sync.Mutex
	isQuiet bool
	over    bool // the owner has restored the terminal: job control keeps its hands off
}

func (q *quietTerminal) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isQuiet {
		unix.IoctlSetTermios(q.fd, setTermios, q.old)
		q.isQuiet = false
		if q.onStop != nil {
			q.onStop()
		}
	}
}

// enter makes the terminal quiet unless it belongs to another program: this one may continue in the background.
func (q *quietTerminal) enter() {
	q.mu.Lock()
	defer q.mu.Unlock()
	group, err := unix.IoctlGetInt(q.fd, unix.TIOCGPGRP)
	if q.over || err != nil || group != unix.Getpgrp() {
		return
	}
	unix.IoctlSetTermios(q.fd, setTermios, q.quiet)
	q.isQuiet = true
	if q.onContinue != nil {
		q.onContinue()
	}
}

// end restores the terminal and stops watching for signals.
func (q *quietTerminal) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	if q.isQuiet {
		unix.IoctlSetTermios(q.fd, setTermios, q.old)
		q.isQuiet = false
	}
}

// Stop stops the programs of this process group, this one among them, as Ctrl-Z does, and returns when it continues.
// Without a shell that can let it go on it does nothing.
func Stop() {
	handleStops()
	stop(0, syscall.SIGTSTP)
}

func stop(pid int, how syscall.Signal) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	syscall.Kill(pid, how)
	// The signal may take effect a moment after the call has returned. Where nothing can let the program go on, the
	// system does not stop it, and no SIGCONT comes.
	select {
	case <-continued:
	case <-time.After(stopTime):
	}
}

// stopTime is the longest time until a stop reaches the program.
const stopTime = 100 * time.Millisecond

// foreground reports whether the process group of this program has the terminal f. A terminal of another session says
// nothing about it: the program may write.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}
