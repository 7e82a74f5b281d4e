package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

// startTimeout is the limit on a server's start with a model of a few megabytes, beside other busy processes.
const startTimeout = 3 * time.Minute

// server answers llama-server's API.
type server struct {
	http *http.Client
	base string
	stop func()
	log  func() string
	// ended reports, after an error, whether the process has ended; for llama-server only.
	ended func() bool
}

// answer has the compared fields of a completion.
type answer struct {
	Tokens []int32 `json:"tokens"`
	Probs  []struct {
		ID      int32    `json:"id"`
		Logprob *float64 `json:"logprob"` // nil: not a number
		Top     []struct {
			ID      int32    `json:"id"`
			Logprob *float64 `json:"logprob"`
		} `json:"top_logprobs"`
	} `json:"completion_probabilities"`
	Timings struct {
		Cached int `json:"cache_n"`
	} `json:"timings"`
}

// lockedBuffer collects what a process writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startReference runs llama-server on a free port of the loopback interface.
func startReference(bin, model string, args ...string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	var log lockedBuffer
	cmd := exec.Command(bin, append([]string{"-m", model, "--host", "127.0.0.1", "--port", fmt.Sprint(port), "-np", "1",
		"-t", "1", "-c", fmt.Sprint(longContext), "--cache-ram", "0"}, args...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	// llama-server closes idle connections, and a request that is just being sent on one is lost.
	s := &server{base: fmt.Sprintf("http://127.0.0.1:%d", port), log: log.String,
		http: &http.Client{Timeout: 10 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}}
	s.stop = func() {
		s.http.CloseIdleConnections()
		cmd.Process.Kill()
		<-ended
	}
	s.ended = func() bool {
		select {
		case <-ended:
			return true
		case <-time.After(5 * time.Second): // a failed assertion first prints the stack, after the connection is gone
			return false
		}
	}
	deadline := time.Now().Add(startTimeout)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		select {
		case <-ended:
			tick.Stop()
			return nil, fmt.Errorf("llama-server ended: %s", lastLines(log.String(), 3))
		default:
		}
		if r, err := s.http.Get(s.base + "/health"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				tick.Stop()
				return s, nil
			}
		}
		if time.Now().After(deadline) {
			tick.Stop()
			s.stop()
			return nil, errors.New("llama-server was not ready in time")
		}
	}
}

// startOurs runs uma-serve on a socket.
func startOurs(bin, model string, args ...string) (*server, error) {
	p, err := daemonproc.Start(bin, startTimeout, nil, append([]string{"-m", model, "-t", "1"}, args...)...)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", p.Socket)
	}
	s := &server{base: "http://uma", log: p.Log,
		http: &http.Client{Timeout: 10 * time.Minute, Transport: &http.Transport{DialContext: dial}}}
	s.stop = func() {
		s.http.CloseIdleConnections()
		p.Stop(time.Minute)
	}
	return s, nil
}

// lastLines returns the last n lines of a text that are not empty, joined.
func lastLines(text string, n int) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

func body(prompt []int32, tokens int, keep, stream bool) map[string]any {
	return map[string]any{"prompt": prompt, "n_predict": tokens, "temperature": 0, "n_probs": 3, "ignore_eos": true,
		"cache_prompt": keep, "return_tokens": true, "stream": stream}
}

// post sends a request and decodes its answer into v. An HTTP status other than 200 is an error with its text.
func (s *server) post(path string, request, v any) error {
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := s.http.Post(s.base+path, "application/json", bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("%w; its log: %s", err, lastLines(s.log(), 4))
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%w; its log: %s", err, lastLines(s.log(), 4))
	case r.StatusCode != http.StatusOK:
		return fmt.Errorf("HTTP %d: %.300s", r.StatusCode, got)
	}
	return json.Unmarshal(got, v)
}

func (s *server) complete(prompt []int32, tokens int, keep bool) (a answer, err error) {
	err = s.post("/completion", body(prompt, tokens, keep, false), &a)
	return a, err
}

// begin starts a stream, waits for its first token and returns a function that drops the connection.
func (s *server) begin(prompt []int32, tokens int) (drop func(), err error) {
	b, err := json.Marshal(body(prompt, tokens, true, true))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	q, err := http.NewRequestWithContext(ctx, "POST", s.base+"/completion", bytes.NewReader(b))
	if err != nil {
		cancel()
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	r, err := s.http.Do(q)
	if err != nil {
		cancel()
		return nil, err
	}
	drop = func() {
		cancel()
		r.Body.Close()
	}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		var a answer
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &a) == nil &&
			len(a.Tokens) > 0 {
			return drop, nil
		}
	}
	drop()
	return nil, fmt.Errorf("the stream ended before its first token: HTTP %d", r.StatusCode)
}

// facts has the fields of uma-serve's info about its model.
type facts struct {
	Model struct {
		Architecture string `json:"architecture"`
		Window       int    `json:"sliding_window"`
		Recurrent    bool   `json:"recurrent"`
		Encoder      bool   `json:"encoder"`
		TokenBytes   int    `json:"kv_bytes_per_token"`
		Positions    int    `json:"positions"`
	} `json:"model"`
	Capabilities struct {
		Context int `json:"n_ctx"`
	} `json:"capabilities"`
}

func (s *server) facts() (f facts, err error) {
	r, err := s.http.Get(s.base + "/info")
	if err != nil {
		return f, err
	}
	defer r.Body.Close()
	return f, json.NewDecoder(r.Body).Decode(&f)
}

// memory names what the model keeps of a text.
func (f *facts) memory() string {
	m := &f.Model
	switch {
	case m.Encoder:
		return "none"
	case m.Recurrent && m.TokenBytes <= 0:
		return "recurrent"
	case m.Recurrent:
		return "hybrid"
	case m.Window > 0:
		return fmt.Sprintf("window %d", m.Window)
	}
	return "full"
}
