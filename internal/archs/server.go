package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

// startTimeout is the limit on a server's start with a model of a few megabytes, beside other busy processes.
const startTimeout = 3 * time.Minute

// server answers llama-server's API.
type server struct {
	http *http.Client
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

// startReference runs llama-server.
func startReference(bin, model string, args ...string) (*server, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout,
		fmt.Errorf("no answer within %v", startTimeout))
	defer cancel()
	p, err := daemonproc.StartLlama(ctx, bin, "", append([]string{"-m", model, "-np", "1", "-t", "1",
		"-c", fmt.Sprint(longContext), "--cache-ram", "0"}, args...)...)
	if err != nil {
		why, log, _ := strings.Cut(err.Error(), "\n")
		return nil, fmt.Errorf("%s: %s", why, lastLines(log, 3))
	}
	s := serverOf(p)
	// A failed assertion first prints the stack, after the connection is gone.
	s.ended = func() bool { return p.Ended(5 * time.Second) }
	return s, nil
}

// startOurs runs uma-serve.
func startOurs(bin, model string, args ...string) (*server, error) {
	p, err := daemonproc.Start(bin, startTimeout, nil, append([]string{"-m", model, "-t", "1"}, args...)...)
	if err != nil {
		return nil, err
	}
	return serverOf(p), nil
}

func serverOf(p *daemonproc.Proc) *server {
	s := &server{http: daemonproc.HTTP(p.Socket), log: p.Log, stop: func() { p.Stop(time.Minute) }}
	s.http.Timeout = 10 * time.Minute
	return s
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

// post sends a request and decodes its answer into v.
func (s *server) post(path string, request, v any) error {
	err := daemonproc.Post(context.Background(), s.http, daemonproc.Base+path, request, v)
	if _, broken := errors.AsType[*url.Error](err); broken { // no answer, or not the whole
		return fmt.Errorf("%w; its log: %s", err, lastLines(s.log(), 4))
	}
	return err
}

func (s *server) complete(prompt []int32, tokens int, keep bool) (a answer, err error) {
	err = s.post("/completion", body(prompt, tokens, keep, false), &a)
	return a, err
}

// begin starts a stream, waits for its first token and returns a function that drops the connection.
func (s *server) begin(prompt []int32, tokens int) (drop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	r, err := daemonproc.Stream(ctx, s.http, daemonproc.Base+"/completion", body(prompt, tokens, true, true))
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
	return nil, errors.New("the stream ended before its first token")
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
	err = daemonproc.Get(context.Background(), s.http, daemonproc.Base+"/info", &f)
	return f, err
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
