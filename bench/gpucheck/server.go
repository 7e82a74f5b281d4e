package gpucheck

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
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
	return serverOf(p, func() error { return p.Stop(10 * time.Second) }), nil
}

// startLlama starts a llama-server and waits until it is ready. It looks for the libraries of back ends in its folder
// and in dir.
func startLlama(bin, dir string, limit time.Duration, args ...string) (*server, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	p, err := daemonproc.StartLlama(ctx, bin, dir, args...)
	if err != nil {
		return nil, err
	}
	return serverOf(p, func() error {
		_ = p.Stop(10 * time.Second) // its status after a signal says nothing
		return nil
	}), nil
}

func serverOf(p *daemonproc.Proc, stop func() error) *server {
	return &server{base: daemonproc.Base, client: daemonproc.HTTP(p.Socket), stop: stop, log: p.Tail}
}

func (s *server) get(ctx context.Context, path string, out any) error {
	return daemonproc.Get(ctx, s.client, s.base+path, out)
}

func (s *server) post(ctx context.Context, path string, body, out any) error {
	return daemonproc.Post(ctx, s.client, s.base+path, body, out)
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
	begin := time.Now()
	resp, err := daemonproc.Stream(ctx, s.client, s.base+"/completion", body)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
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
