// Package daemonproc runs a built uma-serve as a child process, for benchmarks and end-to-end tests: on a socket in
// a new directory, stopped by PID, observed through the system.
package daemonproc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Proc is a running daemon.
type Proc struct {
	Socket string
	Cmd    *exec.Cmd

	dir  string
	done chan struct{}
	err  error // of Wait; read after done

	mu  sync.Mutex
	log bytes.Buffer // stderr
}

// Write collects stderr.
func (p *Proc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// Log returns the daemon's stderr so far.
func (p *Proc) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Start runs bin with args and waits until it answers that it is ready, or has ended, or timeout passed.
func Start(bin string, timeout time.Duration, env []string, args ...string) (*Proc, error) {
	return StartTo(nil, bin, timeout, env, args...)
}

// StartTo is Start with stderr as the daemon's stderr, which Log then lacks.
func StartTo(stderr *os.File, bin string, timeout time.Duration, env []string, args ...string) (*Proc, error) {
	dir, err := os.MkdirTemp("", "uma")
	if err != nil {
		return nil, err
	}
	p := &Proc{dir: dir, Socket: filepath.Join(dir, "uma.sock"), done: make(chan struct{})}
	p.Cmd = exec.Command(bin, append([]string{"--socket", p.Socket}, args...)...)
	// A new cache directory, and no configuration file of the user: learned step costs or options would make two runs
	// different.
	p.Cmd.Env = append(append(os.Environ(), "XDG_CACHE_HOME="+dir, "UMA_CONFIG="), env...)
	p.Cmd.Stderr = p
	if stderr != nil {
		p.Cmd.Stderr = stderr
	}
	if err := p.Cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		p.err = p.Cmd.Wait()
		close(p.done)
	}()
	for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.done:
			os.RemoveAll(dir)
			return nil, fmt.Errorf("%s ended while starting: %v\n%s", bin, p.err, p.Log())
		default:
		}
		var h struct{ Status string }
		if body, err := p.Ask("health"); err == nil && json.Unmarshal([]byte(body), &h) == nil && h.Status == "ok" {
			return p, nil
		}
		if time.Now().After(deadline) {
			p.Stop(time.Second)
			return nil, fmt.Errorf("%s was not ready after %v\n%s", bin, timeout, p.Log())
		}
	}
}

// Ask sends an admin request over HTTP ("health", "info", "metrics" as JSON) and returns the body. It speaks HTTP/1.0,
// so that no answer comes in chunks, and uses no connection pool, so that it leaves no descriptor behind.
func (p *Proc) Ask(what string) (string, error) {
	c, err := net.DialTimeout("unix", p.Socket, time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "GET /%s HTTP/1.0\r\nHost: uma\r\nAccept: application/json\r\nConnection: close\r\n\r\n", what)
	var b bytes.Buffer
	if _, err := b.ReadFrom(c); err != nil {
		return "", err
	}
	_, body, ok := strings.Cut(b.String(), "\r\n\r\n")
	if !ok {
		return "", errors.New("no HTTP answer")
	}
	return body, nil
}

// Stop sends SIGTERM and waits at most grace for the end; then SIGKILL. It returns the process's error.
func (p *Proc) Stop(grace time.Duration) error {
	defer os.RemoveAll(p.dir)
	p.Cmd.Process.Signal(syscall.SIGTERM)
	if !p.Ended(grace) {
		p.Cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("did not end within %v of SIGTERM\n%s", grace, p.Log())
	}
	return p.err
}

// Ended waits at most d for the process to end.
func (p *Proc) Ended(d time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(d):
		return false
	}
}

// Err is the process's exit error; valid once Ended.
func (p *Proc) Err() error { return p.err }
