package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// reading returns a daemon whose prompts take as long as the test wants.
func reading(release <-chan struct{}) *clienttest.Server {
	return &clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		if r.Progress {
			c.Progress(wire.Progress{ID: r.ID, Processed: 1000, Total: 4000})
		}
		<-release
		c.Token(r.ID, "answer", wire.Output)
		c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true,
			Usage: wire.Usage{PromptTokens: 1, CompletionTokens: 1}})
	}}
}

// screenOf returns the rows of a window of 30 rows and 100 columns as they are now.
func (c *console) screenOf() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := newScreen(30, 100)
	s.write(c.seen.String())
	var rows []string
	for i := range s.cells {
		rows = append(rows, s.line(i))
	}
	return strings.Join(rows, "\n")
}

// TestSpinnerOnTerminal: chat and run show how far a prompt is computed, moving, and nothing of it stays.
func TestSpinnerOnTerminal(t *testing.T) {
	for name, args := range map[string][]string{"chat": nil, "run": {"run", "hello"}} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			c := openConsole(t, program(t, reading(release).Start(t).Path, args...))
			if args == nil {
				c.expect(">>> ")
				c.typeKeys("hello\r")
			}
			for range 3 { // the same text behind another sign
				c.expect(" reading the prompt… 1,000 of 4,000 tokens (25 %)")
			}
			close(release)
			c.expect("answer")
			if args == nil {
				c.expect(">>> ")
				c.typeKeys("\x04")
			}
			if code := c.exit(); code != 0 {
				t.Errorf("exit status %d", code)
			}
			<-c.ended
			if got := c.screenOf(); strings.Contains(got, "reading") || !strings.Contains(got, "\nanswer\n") &&
				!strings.HasPrefix(got, "answer\n") {
				t.Errorf("the window shows\n%s", got)
			}
		})
	}
}

// TestNoSpinnerInPipe: output to a pipe has no spinner.
func TestNoSpinnerInPipe(t *testing.T) {
	release := make(chan struct{})
	close(release)
	cmd := program(t, reading(release).Start(t).Path, "run", "hello")
	var out, aside bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &aside
	if err := cmd.Run(); err != nil || out.String() != "answer\n" || aside.Len() > 0 {
		t.Errorf("%v, %q, %q", err, out.String(), aside.String())
	}
}

// TestSpinnerBesidePipe: with the answer in a file the terminal still shows how far it is, and is clean at the end.
func TestSpinnerBesidePipe(t *testing.T) {
	release := make(chan struct{})
	cmd := program(t, reading(release).Start(t).Path, "run", "hello")
	file, err := os.Create(t.TempDir() + "/answer")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := openConsoleWith(t, cmd, func(slave *os.File) { cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, file, slave })
	c.expect("(25 %)")
	close(release)
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	<-c.ended
	if got := strings.TrimSpace(c.screenOf()); got != "" {
		t.Errorf("the terminal shows %q", got)
	}
	if b, _ := os.ReadFile(file.Name()); string(b) != "answer\n" {
		t.Errorf("the file holds %q", b)
	}
}

// TestBareFlags: the flags of chat are flags of uma-cli, on a terminal and on a pipe.
func TestBareFlags(t *testing.T) {
	server := (&clienttest.Server{Answer: answers}).Start(t)
	c := openConsole(t, program(t, server.Path, "--think", "off", "--temp", "0"))
	c.expect(">>> ")
	c.typeKeys("how\r")
	c.expect("effort  mode off budget 0")
	c.expect(">>> ")
	c.typeKeys("/show\r")
	c.expect("temperature")
	c.expect(">>> ")
	c.typeKeys("\x04")
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	for args, want := range map[string]string{
		"--think off":            "effort  mode off budget 0 exit \n",
		"--think low run how":    "effort low mode  budget 0 exit \n",
		"--early-exit both":      "effort  mode  budget 0 exit both\n",
		"--reasoning-budget 0":   "effort  mode off budget 0 exit \n",
		"run how --think=medium": "effort medium mode  budget 0 exit \n",
	} {
		cmd := program(t, server.Path, strings.Fields(args)...)
		cmd.Stdin = strings.NewReader("how\n")
		if out, err := cmd.Output(); string(out) != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", args, out, err, want)
		}
	}
}

// TestDumbTerminals: without a terminal that knows escapes there are none, and any language is understood still.
func TestDumbTerminals(t *testing.T) {
	for _, name := range []string{"TERM=dumb", "TERM="} {
		var l listener
		server := (&clienttest.Server{Answer: l.answer}).Start(t)
		cmd := program(t, server.Path)
		cmd.Env = append(cmd.Env, name)
		c := openConsole(t, cmd)
		c.expect(">>> ")
		for _, text := range []string{"Größe übt é", "世界 🙂 नमस्ते"} {
			c.typeKeys(text + "\r")
			c.expect("heard")
			c.expect(">>> ")
			if got := l.last(); got != text {
				t.Errorf("%s: the model got %q, want %q", name, got, text)
			}
		}
		c.typeKeys("a\xffb\r")
		c.expect("not valid UTF-8")
		c.typeKeys("\x04")
		if code := c.exit(); code != 0 {
			t.Errorf("%s: exit status %d", name, code)
		}
		<-c.ended
		if strings.Contains(c.seen.String(), "\x1b") {
			t.Errorf("%s: escapes in %q", name, c.seen.String())
		}
	}
}

// TestNoTERM: a program that is started without TERM writes no escapes either.
func TestNoTERM(t *testing.T) {
	server := (&clienttest.Server{Answer: answers, Metrics: `{"prompts_total":1}`}).Start(t)
	for _, args := range [][]string{{"run", "think"}, {"info"}, {"metrics"}} {
		cmd := program(t, server.Path, args...)
		for i, e := range cmd.Env {
			if strings.HasPrefix(e, "TERM=") {
				cmd.Env = append(cmd.Env[:i], cmd.Env[i+1:]...)
				break
			}
		}
		c := openConsole(t, cmd)
		c.exit()
		<-c.ended
		if strings.Contains(c.seen.String(), "\x1b") {
			t.Errorf("%v: escapes in %q", args, c.seen.String())
		}
	}
}

// TestNarrowChat: in a window of 40 columns that becomes one of 30, a text of wide characters stands there as it was
// typed.
func TestNarrowChat(t *testing.T) {
	var l listener
	server := (&clienttest.Server{Answer: l.answer}).Start(t)
	c := openConsole(t, program(t, server.Path))
	size := func(cols uint16) {
		if err := unix.IoctlSetWinsize(c.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: cols}); err != nil {
			t.Fatal(err)
		}
	}
	c.expect(">>> ")
	size(40)
	text := strings.Repeat("世界", 15)
	c.typeKeys(text)
	c.expect("世界\x1b[?7h\x1b[?25h")
	size(30)
	c.expect(">>> " + text[:13*3] + "\r\n" + text[13*3:28*3] + "\r\n" + text[28*3:])
	c.typeKeys("!\r")
	c.expect("heard")
	if got := l.last(); got != text+"!" {
		t.Errorf("the model got %q", got)
	}
	c.expect(">>> ") // a Ctrl-D that comes before the prompt is the terminal's, not the editor's
	c.typeKeys("\x04")
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestPasteDuringAnswer: a text of several lines that is pasted while an answer runs is one message, afterwards.
func TestPasteDuringAnswer(t *testing.T) {
	var l listener
	release := make(chan struct{})
	server := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		if r.Messages[len(r.Messages)-1].Content == "first" {
			c.Token(r.ID, "started", wire.Output)
			<-release
		}
		l.answer(c, r)
	}}).Start(t)
	c := openConsole(t, program(t, server.Path))
	c.expect(">>> ")
	c.typeKeys("first\r")
	c.expect("started")
	c.typeKeys("\x1b[200~zwei\rZeilen é\x1b[201~\r")
	close(release)
	c.expect("heard")
	c.expect("heard")
	if got := l.last(); got != "zwei\nZeilen é" {
		t.Errorf("the model got %q", got)
	}
	c.expect(">>> ")
	c.typeKeys("\x04")
	c.exit()
}
