//go:build cgo && (llama_engine || llama_system) && linux

package smoke

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// limited is a program that runs uma-serve under limits of the shell's ulimit.
func limited(t *testing.T, limits string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "uma-serve")
	script := fmt.Sprintf("#!/bin/sh\n%s\nexec %q \"$@\"\n", limits, filepath.Join(bin, "uma-serve"))
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTightLimitsAreNamed: a limit under which the daemon cannot start ends in one line that names it, never in a crash
// report.
func TestTightLimitsAreNamed(t *testing.T) {
	model := ggufgen.Cached(t, ggufgen.Tiny())
	for limits, want := range map[string]string{
		"ulimit -n 6":       "open files is limited to 6; at least 64",
		"ulimit -n 20":      "open files is limited to 20; at least 64",
		"ulimit -v 200000":  "address space is limited to 195 MiB; at least 2048 MiB",
		"ulimit -v 700000":  "address space is limited to 683 MiB; at least 2048 MiB",
		"ulimit -v 1600000": "address space is limited to 1562 MiB; at least 2048 MiB",
		"ulimit -v 2200000": "address space is limited to 2.1 GiB (ulimit -v, LimitAS=); this model with 1024 cells " +
			"needs",
	} {
		t.Run(limits, func(t *testing.T) {
			cmd := exec.Command(limited(t, limits), "-m", model, "--socket", filepath.Join(t.TempDir(), "s"))
			out, err := cmd.CombinedOutput()
			text := string(out)
			if err == nil || !strings.Contains(text, want) || strings.Contains(text, "goroutine") ||
				strings.Count(text, "\n") != 1 {
				t.Errorf("%v:\n%s", err, text)
			}
		})
	}
}

// webAnswer is the status of an HTTP response and its error's code.
func webAnswer(c net.Conn) (status int, code string, err error) {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", err
	}
	var m struct {
		Error struct {
			Code string `json:"uma_code"`
		}
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return 0, "", fmt.Errorf("%q: %w", b, err)
	}
	return resp.StatusCode, m.Error.Code, nil
}

// TestFewDescriptors: a daemon with 64 descriptors answers each of 200 clients that come at once, in JSON: with what
// was asked, or that none is left; and it is well afterwards.
func TestFewDescriptors(t *testing.T) {
	p := startBinary(t, limited(t, "ulimit -n 64"), ggufgen.Cached(t, ggufgen.Tiny()))
	const n = 200
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("unix", p.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(waitfor.Limit))
		conns[i] = c
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	served := 0
	for i, c := range conns {
		wg.Go(func() {
			if i%2 == 0 {
				io.WriteString(c, "GET /health HTTP/1.1\r\nHost: uma\r\n\r\n")
			} else {
				body := `{"prompt":"x","max_tokens":2}`
				fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: uma\r\nContent-Length: %d\r\n\r\n%s", len(body),
					body)
			}
			status, code, err := webAnswer(c)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Errorf("client %d: %v", i, err)
			case status == 200:
				served++
			case status != 503 || code != string(wire.SessionLimit):
				t.Errorf("client %d: %d %s", i, status, code)
			default:
				c.Close() // as clients do: otherwise the next ones wait until the daemon closes it
			}
		})
	}
	wg.Wait()
	if served == 0 || served == n {
		t.Errorf("%d of %d served", served, n)
	}
	for _, c := range conns {
		c.Close()
	}
	waitfor.True(t, "their connections are closed there, too", func() bool {
		var in struct {
			Live struct {
				Sessions int `json:"sessions"`
			} `json:"live"`
		}
		body, err := p.Ask("info") // refused, while none is free
		return err == nil && json.Unmarshal([]byte(body), &in) == nil && in.Live.Sessions == 1
	})
	c := p.dial()
	c.request(`{"id":"after","prompt":"a","max_tokens":2}`)
	if ev, err := c.end("after"); err != nil || ev.Kind != wire.EventEOS {
		t.Errorf("%+v %v", ev, err)
	}
}

// TestAnotherUserGetsIn: this user holds every connection; a client of another user, as the kernel names it, is served.
// It needs the right to run a program as another user; ipc's TestConnectionsAreSharedByUsers needs none.
func TestAnotherUserGetsIn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a client as another user")
	}
	const sessions = 6
	s := startBinary(t, filepath.Join(bin, "uma-serve"), ggufgen.Cached(t, ggufgen.Tiny()),
		"--socket-mode", "0666", "--max-sessions", fmt.Sprint(sessions))
	for _, dir := range []string{filepath.Dir(s.Socket), bin} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	for range sessions {
		c := s.dial()
		c.request(`{"type":"health"}`)
		if _, err := c.next(); err != nil {
			t.Fatal(err)
		}
	}
	cli := func(uid uint32) (string, error) {
		cmd := exec.Command(filepath.Join(bin, "uma-cli"), "health", "--socket", s.Socket)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := cli(0); err == nil || !strings.Contains(out, "--max-sessions") {
		t.Errorf("this user's next client: %v, %s", err, out)
	}
	if out, err := cli(4711); err != nil || !strings.Contains(out, "ok") {
		t.Errorf("the other user's client: %v, %s", err, out)
	}
}
