//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package ui

import (
	"os"

	"golang.org/x/sys/unix"
)

// Quiet keeps what is typed on the terminal f out of the text that is being printed: nothing is echoed, and the keys
// wait, unchanged, for whoever reads the terminal next. Ctrl-C stays a signal. The function it returns puts the
// terminal back as it was. On what is no terminal neither does anything.
func Quiet(f *os.File) (restore func()) {
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
	return func() { unix.IoctlSetTermios(fd, setTermios, old) }
}
