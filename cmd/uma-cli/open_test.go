package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/fifo"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// backend is a daemon's HTTP side on a socket.
func backend(t *testing.T, h http.HandlerFunc) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return socket
}

// opened runs uma-cli open and returns the address that it prints.
func opened(t *testing.T, socket string, args ...string) (address string, end func() error) {
	t.Helper()
	cmd := program(t, socket, append([]string{"open", "--no-browser"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), func() error {
		cmd.Process.Signal(syscall.SIGINT)
		return cmd.Wait()
	}
}

// TestOpen: the printed address is the page, answers stream through it, a page elsewhere is refused, and Ctrl-C is an
// orderly end. What else the port refuses is tested in internal/portproxy.
func TestOpen(t *testing.T) {
	more := make(chan struct{})
	socket := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" {
			fmt.Fprint(w, "data: 1\n\n")
			http.NewResponseController(w).Flush()
			<-more
			fmt.Fprint(w, "data: 2\n\n")
			return
		}
		fmt.Fprintf(w, "%s %s", r.Method, r.URL)
	})
	address, end := opened(t, socket)
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Fatalf("the address is %q", address)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: waitfor.Limit}
	resp, err := browser.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || string(page) != "GET /" {
		t.Errorf("%d %s %v", resp.StatusCode, page, err)
	}
	base := "http://" + resp.Request.URL.Host
	foreign, err := http.NewRequest(http.MethodPost, base+"/end_think", nil)
	if err != nil {
		t.Fatal(err)
	}
	foreign.Header.Set("Origin", "https://evil.example")
	if resp, err = browser.Do(foreign); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("a foreign origin: %v %v", resp, err)
	}
	resp.Body.Close()
	if resp, err = browser.Get(base + "/live"); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 9)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "data: 1\n\n" {
		t.Errorf("an event waits for the next one: %q %v", first, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: 2\n\n" {
		t.Errorf("%q %v", rest, err)
	}
	resp.Body.Close()
	if err := end(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}

// TestBrowserAddress: a key is not on the browser's command line, but in a file that only this user reads.
func TestBrowserAddress(t *testing.T) {
	if address, _, err := browserAddress("http://127.0.0.1:1/", false); err != nil || address != "http://127.0.0.1:1/" {
		t.Errorf("%s %v", address, err)
	}
	const url = "http://127.0.0.1:1/?key=SECRET"
	address, remove, err := browserAddress(url, true)
	if err != nil || strings.Contains(address, "SECRET") {
		t.Fatalf("%s %v", address, err)
	}
	path := strings.TrimPrefix(address, "file://")
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), url) {
		t.Errorf("%s %v", text, err)
	}
	for _, p := range []string{path, filepath.Dir(path)} {
		if st, err := os.Stat(p); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v %v", p, st, err)
		}
	}
	remove()
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
}

// TestOpenErrors: no daemon, a port that is taken, and wrong flags are told before a browser opens.
func TestOpenErrors(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken, _ := net.SplitHostPort(l.Addr().String())
	socket := backend(t, func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		socket string
		args   []string
		exit   int
		says   string
	}{
		{filepath.Join(t.TempDir(), "none"), nil, exitNoDaemon, "no uma-serve daemon"},
		{socket, []string{"--listen", taken}, exitError, "--listen 127.0.0.1:" + taken},
		{socket, []string{"--listen", "70000"}, exitUsage, "--listen"},
		{socket, []string{"--listen", "192.0.2.1:80"}, exitUsage, "no loopback address"},
		{socket, []string{"page"}, exitUsage, "takes no argument"},
	} {
		cmd := program(t, c.socket, append([]string{"open", "--no-browser"}, c.args...)...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); err == nil || code != c.exit ||
			!strings.Contains(strings.ToLower(string(out)), c.says) {
			t.Errorf("%q: exit status %d\n%s", c.args, code, out)
		}
	}
}

// TestOpenStartsTheBrowser: $BROWSER is given the address.
func TestOpenStartsTheBrowser(t *testing.T) {
	dir := t.TempDir()
	told := filepath.Join(dir, "told")
	fifo.Make(t, told)
	browser := filepath.Join(dir, "browser")
	if err := os.WriteFile(browser, []byte("#!/bin/sh\necho \"$1\" >"+told+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", browser)
	if !openBrowser("http://127.0.0.1:1/?key=k") {
		t.Fatal("no browser was found")
	}
	if got, err := os.ReadFile(told); err != nil || strings.TrimSpace(string(got)) != "http://127.0.0.1:1/?key=k" {
		t.Errorf("%q %v", got, err)
	}
	t.Setenv("BROWSER", filepath.Join(dir, "missing"))
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	if openBrowser("http://127.0.0.1:1/") {
		t.Error("a browser that is not there was opened")
	}
}
