package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// console is a terminal with uma-cli in it.
type console struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	fd     int           // master's
	before *unix.Termios // before the program ran
	ended  chan struct{} // closed when the program has closed the terminal

	mu   sync.Mutex
	more sync.Cond
	seen strings.Builder
	from int // what expect has passed
}

// openConsole starts cmd on a new pseudo terminal, as its controlling terminal.
func openConsole(t *testing.T, cmd *exec.Cmd) *console {
	t.Helper()
	return openConsoleWith(t, cmd, func(slave *os.File) { cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave })
}

// openConsoleWith is openConsole with what connect makes the program's standard streams.
func openConsoleWith(t *testing.T, cmd *exec.Cmd, connect func(slave *os.File)) *console {
	t.Helper()
	// Not blocking, so that Close ends a Read.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	connect(slave)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	c := &console{t: t, cmd: cmd, master: master, fd: fd, ended: make(chan struct{})}
	c.more.L = &c.mu
	if c.before, err = unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.read()
	return c
}

// read collects what the program shows and answers its questions for the cursor's position, as a terminal does.
func (c *console) read() {
	defer func() {
		close(c.ended)
		c.mu.Lock()
		c.more.Broadcast()
		c.mu.Unlock()
	}()
	buf := make([]byte, 4096)
	for {
		n, err := c.master.Read(buf)
		if strings.Contains(string(buf[:n]), "\x1b[6n") {
			c.master.WriteString("\x1b[1;1R")
		}
		c.mu.Lock()
		c.seen.Write(buf[:n])
		c.more.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *console) typeKeys(keys string) {
	c.t.Helper()
	if _, err := c.master.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

// expect waits until text is shown, after what the last expect found.
func (c *console) expect(text string) {
	c.t.Helper()
	timeout := time.AfterFunc(waitfor.Limit, func() { c.master.Close() })
	defer timeout.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if at := strings.Index(c.seen.String()[c.from:], text); at >= 0 {
			c.from += at + len(text)
			return
		}
		select {
		case <-c.ended:
			c.t.Fatalf("%q was not shown; after what was expected before it came\n%q", text, c.seen.String()[c.from:])
		default:
		}
		c.more.Wait()
	}
}

// exit waits for the program's end.
func (c *console) exit() int {
	c.cmd.Wait()
	return c.cmd.ProcessState.ExitCode()
}

// TestChatOnTerminal drives the real line editor, the real signals and the real terminal modes.
func TestChatOnTerminal(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	server := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		last := r.Messages[len(r.Messages)-1].Content
		mu.Lock()
		asked = append(asked, last)
		mu.Unlock()
		eos := wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true,
			Usage: wire.Usage{PromptTokens: 1, CompletionTokens: 1}}
		c.Token(r.ID, "heard", wire.Output)
		if last == "go on" {
			<-r.Cancelled
			eos.Reason = wire.Cancelled
		}
		c.EOS(eos)
	}}).Start(t)
	c := openConsole(t, program(t, server.Path))
	c.expect("/? for help")
	c.expect(">>> ")
	c.typeKeys("hello 世界\r")
	c.expect("heard")
	c.expect("1 token · prompt 1")
	c.expect(">>> ")
	c.typeKeys("\x03") // Ctrl-C at the prompt
	c.expect("Ctrl-D or /bye leaves")
	c.expect(">>> ")
	c.typeKeys("\"\"\"two\rlines\"\"\"\r")
	c.expect("heard")
	c.expect(">>> ")
	c.typeKeys("\x1b[200~pasted\rlines\x1b[201~\r")
	c.expect("heard")
	c.expect(">>> ")
	c.typeKeys("go on\r")
	c.expect("heard")
	c.typeKeys("\x03") // Ctrl-C during an answer
	c.expect("[cancelled]")
	c.expect(">>> ")
	c.typeKeys("\x1b[A\x1b[A\r") // two up: the pasted lines again
	c.expect("heard")
	c.expect(">>> ")
	c.typeKeys("/se\t te\t 0.5\r") // completion
	c.expect("temperature is 0.5")
	c.expect(">>> ")
	c.typeKeys("\x04")
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	mu.Lock()
	defer mu.Unlock()
	if got, want := strings.Join(asked, "|"), "hello 世界|two\nlines|pasted\nlines|go on|pasted\nlines"; got != want {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// TestRunOnTerminal: thinking, progress and the answer share the screen, and with NO_COLOR none of it is an escape.
func TestRunOnTerminal(t *testing.T) {
	server := (&clienttest.Server{Answer: answers}).Start(t)
	for _, noColor := range []bool{false, true} {
		cmd := program(t, server.Path, "run", "think")
		if noColor {
			cmd.Env = append(cmd.Env, "NO_COLOR=1")
		}
		c := openConsole(t, cmd)
		c.expect("hm")
		c.expect("\r\n\r\nanswer\r\n")
		if code := c.exit(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		<-c.ended
		if got := strings.Contains(c.seen.String(), "\x1b"); got == noColor {
			t.Errorf("NO_COLOR %v: %q", noColor, c.seen.String())
		}
	}
}

// TestKilledChat: SIGTERM restores the terminal.
func TestKilledChat(t *testing.T) {
	server := (&clienttest.Server{Answer: answers}).Start(t)
	c := openConsole(t, program(t, server.Path))
	c.expect(">>> ")
	c.typeKeys("wait for cancel\r")
	c.expect("started")
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.exit(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit status %d", code)
	}
	after, err := unix.IoctlGetTermios(c.fd, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if before := c.before; before.Lflag != after.Lflag || before.Iflag != after.Iflag {
		t.Errorf("the terminal's modes were %x/%x and are %x/%x", before.Iflag, before.Lflag, after.Iflag, after.Lflag)
	}
}
