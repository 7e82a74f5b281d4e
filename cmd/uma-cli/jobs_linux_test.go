package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// shell is an interactive shell with job control in a terminal, with the environment of uma-cli; "$CLI" runs it.
func shell(t *testing.T, socket string) *console {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cli := program(t, socket)
	cmd := exec.CommandContext(t.Context(), sh, "-i")
	cmd.Env = append(cli.Env, "CLI="+cli.Path, "PS1=READY ", "ENV=", "PATH="+os.Getenv("PATH"))
	c := openConsole(t, cmd)
	c.expect("READY ")
	return c
}

func (c *console) modes() *unix.Termios {
	c.t.Helper()
	modes, err := unix.IoctlGetTermios(c.fd, unix.TCGETS)
	if err != nil {
		c.t.Fatal(err)
	}
	return modes
}

// sane checks, by a program that the shell runs, that the terminal's modes are those that programs expect.
func (c *console) sane() {
	c.t.Helper()
	c.typeKeys("stty -a | tr ' ;' '\\n\\n' | grep -cx -e icanon -e echo -e isig -e icrnl -e opost; echo counted\r")
	c.expect("\n5\r\n")
	c.expect("READY ")
}

// TestSuspend: Ctrl-Z gives the terminal to the shell as it was, at the prompt and during an answer, and fg goes on.
func TestSuspend(t *testing.T) {
	server := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		eos := wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true,
			Usage: wire.Usage{PromptTokens: 1, CompletionTokens: 1}}
		last := r.Messages[len(r.Messages)-1].Content
		c.Token(r.ID, "heard "+last, wire.Output)
		if last == "go on" {
			<-r.Cancelled
			eos.Reason = wire.Cancelled
		}
		c.EOS(eos)
	}}).Start(t)
	c := shell(t, server.Path)
	c.typeKeys("$CLI\r")
	c.expect(">>> ")
	c.typeKeys("half a li")
	c.expect("half a li")
	c.typeKeys("\x1a")
	c.expect("\x1b[?2004l") // pasted text has no brackets for the shell
	c.expect("READY ")
	c.sane()
	c.typeKeys("fg\r")
	c.expect(">>> half a li")
	c.typeKeys("ne\r")
	c.expect("heard half a line")
	c.expect(">>> ")

	c.typeKeys("go on\r")
	c.expect("heard go on")
	c.typeKeys("\x1a")
	c.expect("\x1b[?2004l")
	c.expect("READY ")
	c.sane()
	c.typeKeys("fg\r")
	c.expect("\x1b[?2004h") // the answer goes on
	if m := c.modes(); m.Lflag&unix.ECHO != 0 || m.Lflag&unix.ISIG == 0 {
		t.Errorf("the terminal's modes during the answer are %x", m.Lflag)
	}
	c.typeKeys("\x03")
	c.expect("[cancelled]")
	c.expect(">>> ")
	c.typeKeys("é\r")
	c.expect("heard é")
	c.expect(">>> ")
	c.typeKeys("\x04")
	c.expect("READY ")
	c.sane()
	c.typeKeys("exit\r")
	c.exit()
}

// TestSuspendWithoutShell: where no shell could let it go on, Ctrl-Z does not stop the program.
func TestSuspendWithoutShell(t *testing.T) {
	var l listener
	server := (&clienttest.Server{Answer: l.answer}).Start(t)
	c := openConsole(t, program(t, server.Path))
	c.expect(">>> ")
	c.typeKeys("ab\x1ac\r")
	c.expect("heard")
	if got := l.last(); got != "abc" {
		t.Errorf("the model got %q", got)
	}
	c.expect(">>> ")
	c.typeKeys("\x04")
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestSuspendWatch: a watch continues after Ctrl-Z, on a new screen.
func TestSuspendWatch(t *testing.T) {
	server := (&clienttest.Server{Metrics: `{"prompts_total":1}`}).Start(t)
	c := shell(t, server.Path)
	c.typeKeys("$CLI metrics --watch --interval 1h\r")
	c.expect("\x1b[H\x1b[2mrequests")
	c.typeKeys("\x1a")
	c.expect("READY ")
	c.typeKeys("fg\r")
	c.expect(strings.Repeat("\r\n", 30) + "\x1b[H\x1b[2mrequests")
	c.typeKeys("\x03")
	c.expect("READY ")
	c.typeKeys("exit\r")
	c.exit()
}
