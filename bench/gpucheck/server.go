package gpucheck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

// server is a running uma-serve or llama-server; both answer llama-server's API.
type server struct {
	base   string // "http://127.0.0.1:8080"
	client *http.Client
	stop   func() error
	log    func() string // its end
}

// startUMA starts a uma-serve, with its engine process in the sandbox, and waits until it is ready.
func startUMA(bin string, limit time.Duration, args ...string) (*server, error) {
	p, err := daemonproc.Start(bin, limit, nil, append([]string{"--single=false", "--serve-found=false"}, args...)...)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", p.Socket)
	}
	return &server{base: "http://uma",
		client: &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 128}},
		stop:   func() error { return p.Stop(10 * time.Second) },
		log: func() string {
			log := p.Log()
			return log[max(0, len(log)-8000):]
		}}, nil
}

// startLlama starts a llama-server on a free port of the loopback interface and waits until it is ready. It looks for
// the libraries of back ends in its folder and in dir.
func startLlama(bin, dir string, limit time.Duration, args ...string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close() // llama-server takes the port at once; another program would have to guess it
	log := &lockedBuffer{}
	cmd := exec.Command(bin, append([]string{"--host", "127.0.0.1", "--port", port}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	s := &server{base: "http://127.0.0.1:" + port, log: log.tail,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}}
	s.stop = func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done: // its status after a signal says nothing
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
			<-done
		}
		return nil
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-done:
			return nil, fmt.Errorf("llama-server ended while starting: %v\n%s", err, log.tail())
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := s.get(ctx, "/health", nil)
		cancel()
		if err == nil {
			return s, nil
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, fmt.Errorf("llama-server was not ready after %v\n%s", limit, log.tail())
		}
	}
}

// lockedBuffer collects the output of a process.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.b.Bytes()
	return string(b[max(0, len(b)-2000):])
}

// get reads the JSON at path into out; nil discards it.
func (s *server) get(ctx context.Context, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, "GET", s.base+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	return s.do(req, out)
}

// post sends body as JSON and reads the answer into out; nil discards it.
func (s *server) post(ctx context.Context, path string, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", s.base+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return s.do(req, out)
}

func (s *server) do(req *http.Request, out any) error {
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", req.URL.Path, resp.Status, bytes.TrimSpace(b[:min(len(b), 500)]))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// request is a greedy answer of exactly Tokens tokens.
type request struct {
	prompt []int
	tokens int
	probs  int    // most probable tokens that are told at each position; 0 = none
	slot   int    // names the conversation; 0 = none
	cut    int    // the client disconnects after so many tokens; 0 = it reads to the end
	cold   bool   // no prefix is used again
	first  func() // called at the first token; nil = nothing
}

// candidate is a token with the natural logarithm of its probability.
type candidate struct {
	ID      int     `json:"id"`
	Logprob float64 `json:"logprob"`
}

// answer is a streamed answer, with the tokens' arrivals since the request was sent.
type answer struct {
	tokens []int
	times  []time.Duration
	probs  [][]candidate // of each token, most probable first
	cached int           // tokens of the prompt that were not computed
}

// ask streams an answer. A request with cut ends without an error once that many tokens are there.
func (s *server) ask(ctx context.Context, r request) (a answer, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body := map[string]any{"prompt": r.prompt, "n_predict": r.tokens, "temperature": 0, "stream": true,
		"ignore_eos": true, "return_tokens": true, "cache_prompt": !r.cold}
	if r.probs > 0 {
		body["n_probs"] = r.probs
	}
	if r.slot > 0 {
		body["id_slot"] = r.slot
	}
	b, err := json.Marshal(body)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", s.base+"/completion", bytes.NewReader(b))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	begin := time.Now()
	resp, err := s.client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return a, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(b))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return a, fmt.Errorf("read an answer: %w", err)
		}
		if c.Error != nil {
			return a, fmt.Errorf("the server answered %s", c.Error)
		}
		if c.Stop {
			a.cached = c.Timings.Cached
			if len(a.tokens) != r.tokens {
				return a, fmt.Errorf("an answer of %d tokens, want %d", len(a.tokens), r.tokens)
			}
			return a, nil
		}
		now := time.Since(begin)
		if len(a.tokens) == 0 && len(c.Tokens) > 0 && r.first != nil {
			r.first()
		}
		a.tokens = append(a.tokens, c.Tokens...)
		for range c.Tokens {
			a.times = append(a.times, now)
		}
		for _, p := range c.Probs {
			a.probs = append(a.probs, p.Top)
		}
		if r.cut > 0 && len(a.tokens) >= r.cut {
			return a, nil
		}
	}
	if err := lines.Err(); err != nil {
		return a, err
	}
	return a, fmt.Errorf("the answer broke off after %d tokens", len(a.tokens))
}

// chunk is one event of an answer.
type chunk struct {
	Tokens []int
	Stop   bool
	Error  json.RawMessage
	Probs  []struct {
		Top []candidate `json:"top_logprobs"`
	} `json:"completion_probabilities"`
	Timings struct {
		Cached int `json:"cache_n"`
	}
}
