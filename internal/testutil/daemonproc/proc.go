// Package daemonproc runs a built uma-serve, or a llama-server beside it, as a child process, for benchmarks and
// end-to-end tests: on a socket in a new directory, stopped by PID, observed through the system.
package daemonproc

import (
	"bytes"
	"context"
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

// Proc is a running server.
type Proc struct {
	Socket string
	Cmd    *exec.Cmd

	dir  string
	done chan struct{}
	err  error // of Wait; read after done

	mu  sync.Mutex
	log bytes.Buffer // stderr; of llama-server stdout too
}

// Write collects the log.
func (p *Proc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// Log returns the server's log so far.
func (p *Proc) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Tail returns the end of the log, 8,000 bytes at most.
func (p *Proc) Tail() string {
	log := p.Log()
	return log[max(0, len(log)-8000):]
}

// Start runs bin with args and waits until it answers that it is ready, or has ended, or timeout passed.
func Start(bin string, timeout time.Duration, env []string, args ...string) (*Proc, error) {
	return StartTo(nil, bin, timeout, env, args...)
}

// StartTo is Start with stderr as the daemon's stderr, which Log then lacks.
func StartTo(stderr *os.File, bin string, timeout time.Duration, env []string, args ...string) (*Proc, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	return start(ctx, bin, func(p *Proc) {
		p.Cmd.Args = append(append(p.Cmd.Args, "--socket", p.Socket), args...)
		// A new cache directory, and no configuration file of the user: learned step costs or options would make two
		// runs different.
		p.Cmd.Env = append(append(os.Environ(), "XDG_CACHE_HOME="+p.dir, "UMA_CONFIG="), env...)
		if stderr != nil {
			p.Cmd.Stderr = stderr
		}
	})
}

// StartLlama runs a llama-server and waits until it is ready. If ctx ends before that, the process is stopped and the
// error wraps the cause of ctx. llama-server looks for libraries of back ends in its own folder and in dir, its working
// directory; "" = the caller's.
func StartLlama(ctx context.Context, bin, dir string, args ...string) (*Proc, error) {
	return start(ctx, bin, func(p *Proc) {
		p.Cmd.Args = append(append(p.Cmd.Args, "--host", p.Socket), args...)
		p.Cmd.Dir, p.Cmd.Stdout = dir, p
	})
}

// start runs bin, as set completes its command, and waits until it is ready.
func start(ctx context.Context, bin string, set func(p *Proc)) (*Proc, error) {
	dir, err := os.MkdirTemp("", "uma")
	if err != nil {
		return nil, err
	}
	p := &Proc{dir: dir, Socket: filepath.Join(dir, "uma.sock"), done: make(chan struct{}), Cmd: exec.Command(bin)}
	p.Cmd.Stderr = p
	set(p)
	if err := p.Cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	go func() {
		p.err = p.Cmd.Wait()
		close(p.done)
	}()
	for {
		var h struct{ Status string }
		if body, err := p.Ask("health"); err == nil && json.Unmarshal([]byte(body), &h) == nil && h.Status == "ok" {
			return p, nil
		}
		select {
		case <-p.done:
			os.RemoveAll(dir)
			return nil, fmt.Errorf("%s ended while starting: %v\n%s", bin, p.err, p.Tail())
		case <-ctx.Done():
			p.Stop(time.Second)
			return nil, fmt.Errorf("%s was not ready: %w\n%s", bin, context.Cause(ctx), p.Tail())
		case <-time.After(20 * time.Millisecond):
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
