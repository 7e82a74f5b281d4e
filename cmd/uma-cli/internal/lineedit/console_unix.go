//go:build unix

package lineedit

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

// console is the process's terminal.
type console struct {
	in, out *os.File
	wakeR   *os.File // a byte comes with each signal
	wakeW   *os.File
	signals chan os.Signal
	cooked  *term.State // the modes outside of a prompt
}

func openConsole(in, out *os.File) (*console, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &console{in: in, out: out, wakeR: r, wakeW: w}, nil
}

// begin puts the terminal into raw mode: keys arrive as they are typed, and none is a signal.
func (c *console) begin() error {
	state, err := term.MakeRaw(int(c.in.Fd()))
	if err != nil {
		return err
	}
	c.cooked = state
	c.signals = make(chan os.Signal, 4)
	signal.Notify(c.signals, syscall.SIGWINCH, syscall.SIGCONT)
	go func(signals <-chan os.Signal) {
		for s := range signals {
			b := byte('w')
			if s == syscall.SIGCONT {
				b = 'c'
			}
			c.wakeW.Write([]byte{b})
		}
	}(c.signals)
	return nil
}

// end restores the terminal's mode.
func (c *console) end() {
	signal.Stop(c.signals)
	close(c.signals)
	term.Restore(int(c.in.Fd()), c.cooked)
}

// read waits for input for up to d, for ever if d is negative.
func (c *console) read(buf []byte, d time.Duration) (int, error) {
	timeout := -1
	if d >= 0 {
		timeout = int(d / time.Millisecond)
	}
	fds := []unix.PollFd{{Fd: int32(c.in.Fd()), Events: unix.POLLIN}, {Fd: int32(c.wakeR.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, timeout)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, errPaused
		}
		break
	}
	if fds[1].Revents != 0 {
		var woken [64]byte
		n, err := c.wakeR.Read(woken[:])
		if err != nil {
			return 0, err
		}
		for _, b := range woken[:n] {
			if b == 'c' {
				return 0, errContinued
			}
		}
		return 0, errResized
	}
	n, err := unix.Read(int(c.in.Fd()), buf)
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return 0, errResized
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (c *console) write(s string) error {
	_, err := c.out.WriteString(s)
	return err
}

func (c *console) size() (cols, rows int) {
	cols, rows, err := term.GetSize(int(c.out.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return 80, 24
	}
	return cols, rows
}

// suspend stops the program as Ctrl-Z does, and returns when it continues. Without a shell that could continue it, the
// system ignores the request.
func (c *console) suspend() error {
	term.Restore(int(c.in.Fd()), c.cooked)
	ui.Stop()
	return c.resume()
}

// resume puts the terminal into raw mode again after a shell had it.
func (c *console) resume() error {
	_, err := term.MakeRaw(int(c.in.Fd()))
	return err
}
