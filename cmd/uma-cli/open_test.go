package main

import (
	"bufio"
	"context"
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

	"github.com/uma-serve/uma-serve/internal/waitfor"
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

// TestOpen: the address lets a browser in, its cookie keeps it in, and nothing of the browser's checks reaches the daemon.
// Ctrl-C is an orderly end.
func TestOpen(t *testing.T) {
	more := make(chan struct{})
	socket := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			fmt.Fprint(w, "data: 1\n\n")
			http.NewResponseController(w).Flush()
			<-more
			fmt.Fprint(w, "data: 2\n\n")
			return
		}
		fmt.Fprintf(w, "%s %s host=%s origin=%q cookie=%q", r.Method, r.URL, r.Host, r.Header.Get("Origin"), r.Header.Get("Cookie"))
	})
	address, end := opened(t, socket)
	base, key, ok := strings.Cut(address, "/?key=")
	if !ok || !strings.HasPrefix(base, "http://127.0.0.1:") || len(key) < 20 {
		t.Fatalf("the address is %q", address)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: waitfor.Limit}
	ask := func(c *http.Client, method, url string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			if req.Header.Set(header[i], header[i+1]); header[i] == "Host" {
				req.Host = header[i+1]
			}
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for _, url := range []string{base + "/", base + "/v1/models", base + "/?key=guess", base + "/v1/models?key=" + key} {
		if status, body := ask(browser, "GET", url); status != http.StatusForbidden || !strings.Contains(body, "uma-cli open printed") {
			t.Errorf("%s without the cookie: %d %s", url, status, body)
		}
	}
	if status, body := ask(browser, "GET", address); status != 200 || body != `GET / host=uma-serve origin="" cookie=""` {
		t.Fatalf("%d %s", status, body)
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(base, "http://"))
	for _, c := range []struct {
		method string
		header []string
		status int
		says   string
	}{
		{"GET", nil, 200, "GET /v1/x?a=b"},
		{"POST", []string{"Origin", base}, 200, `origin=""`},
		{"POST", []string{"Origin", base, "Sec-Fetch-Site", "same-origin"}, 200, "POST"},
		{"POST", []string{"Origin", "http://127.0.0.1:1"}, 403, ""},
		{"POST", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403, ""},
		{"POST", []string{"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"}, 403, ""},
		{"GET", []string{"Host", "evil.example:" + port}, 421, "evil.example"},
		{"GET", []string{"Host", "localhost:" + port}, 421, "localhost"},
	} {
		if status, body := ask(browser, c.method, base+"/v1/x?a=b", c.header...); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %v: %d %s", c.method, c.header, status, body)
		}
	}
	resp, err := browser.Get(base + "/stream")
	if err != nil {
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

// TestOpenCancels: a browser that closes its request ends the daemon's.
func TestOpenCancels(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	d := newDoor(1, roundTrip(func(r *http.Request) (*http.Response, error) {
		close(began)
		<-r.Context().Done()
		close(ended)
		return nil, r.Context().Err()
	}))
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.host = l.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.serve(ctx, l) }()
	asking, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(asking, http.MethodGet, "http://"+d.host+"/live", nil)
	req.AddCookie(&http.Cookie{Name: d.cookie, Value: d.key})
	go http.DefaultClient.Do(req)
	waitfor.Recv(t, "the request arrives", began)
	cancel()
	waitfor.Recv(t, "the daemon's request ends", ended)
	stop()
	if err := waitfor.Recv(t, "serving ends", served); err != nil {
		t.Error(err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

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
		{socket, []string{"--port", taken}, exitError, "--port " + taken},
		{socket, []string{"--port", "70000"}, exitUsage, "it must be 0…65535"},
		{socket, []string{"page"}, exitUsage, "takes no argument"},
	} {
		cmd := program(t, c.socket, append([]string{"open", "--no-browser"}, c.args...)...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); err == nil || code != c.exit || !strings.Contains(strings.ToLower(string(out)), c.says) {
			t.Errorf("%q: exit status %d\n%s", c.args, code, out)
		}
	}
}

// TestOpenStartsTheBrowser: $BROWSER is given the address.
func TestOpenStartsTheBrowser(t *testing.T) {
	dir := t.TempDir()
	told := filepath.Join(dir, "told")
	if err := syscall.Mkfifo(told, 0o600); err != nil {
		t.Fatal(err)
	}
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
