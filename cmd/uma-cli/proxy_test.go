package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// serveUnix serves HTTP alone, on a Unix socket, until the test ends.
func serveUnix(t *testing.T, serve http.HandlerFunc) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "uma")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: serve}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return socket
}

// webDaemon is a daemon that answers with the path and body of a request.
func webDaemon(t *testing.T) (socket string) {
	t.Helper()
	return serveUnix(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		io.WriteString(w, r.URL.Path+" "+string(b))
	})
}

// TestProxyCommand: the command finds the port in its environment, gets its input, and its exit status is the proxy's.
func TestProxyCommand(t *testing.T) {
	socket := webDaemon(t)
	script := filepath.Join(t.TempDir(), "not-executable")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		want   string // in the output
	}{
		{[]string{"--", "/bin/sh", "-c", `case $OPENAI_BASE_URL in http://127.0.0.1:*/v1) echo right;; esac`}, 0,
			"right"},
		{[]string{"--", "/bin/sh", "-c", `[ "$OLLAMA_HOST/v1" = "$OPENAI_BASE_URL" ] && [ "$UMA_URL" = ` +
			`"$ANTHROPIC_BASE_URL" ] && [ -n "$OPENAI_API_KEY" ] && echo right`}, 0, "right"},
		{[]string{"--listen", "[::1]:0", "--", "/bin/sh", "-c", `echo $UMA_URL`}, 0, "http://[::1]:"},
		{[]string{"--", "/bin/sh", "-c", "read x; echo got $x; exit 7"}, 7, "got input"},
		{[]string{"--", "/bin/sh", "-c", "kill -KILL $$"}, 137, ""},
		{[]string{"--", "/nonexistent/program"}, 127, "there is no"},
		{[]string{"--", script}, 126, "permission denied"},
		{[]string{"echo", "x"}, exitUsage, "put -- before the command: uma-cli proxy -- echo x"},
		{[]string{"--listen", "0.0.0.0:0"}, exitUsage, "no loopback address"},
		{[]string{"--listen", "nowhere"}, exitUsage, "must be an address and a port"},
	} {
		cmd := program(t, socket, append([]string{"proxy"}, c.args...)...)
		cmd.Stdin = strings.NewReader("input\n")
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != c.status || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: exit status %d, %q; want %d and %q", c.args, got, out, c.status, c.want)
		}
	}
	cmd := program(t, "/nonexistent/uma.sock", "proxy", "--", "/bin/sh", "-c", "echo started")
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != exitNoDaemon || strings.Contains(string(out), "started") {
		t.Errorf("without a daemon: exit status %d, %q", got, out)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	out, _ = program(t, socket, "proxy", "--listen", taken.Addr().String()).CombinedOutput()
	if !strings.Contains(string(out), "another program listens there") {
		t.Errorf("a port that is taken: %q", out)
	}
}

// TestProxyPassesSignals: SIGTERM reaches the command, which decides how it ends.
func TestProxyPassesSignals(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := program(t, webDaemon(t), "proxy", "--", self, onSignal)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 9 {
		t.Errorf("exit status %d, want the command's 9", got)
	}
}

// TestProxyAlone: without a command the proxy prints its URL, forwards, and ends with SIGTERM.
func TestProxyAlone(t *testing.T) {
	cmd := program(t, webDaemon(t), "proxy")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(out)
	line, err := br.ReadString('\n')
	url := strings.TrimSpace(line)
	if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("%q, %v", line, err)
	}
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	// 401: where the kernel tells no users
	if string(b) != "/v1/completions {}" && resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s %q, %v", resp.Status, b, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(br)
	if err := cmd.Wait(); err != nil || len(rest) > 0 {
		t.Errorf("%v, then %q, %s", err, rest, &errs)
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
		c.Close()
		t.Error("the port is still open")
	}
}
