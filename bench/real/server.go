package real

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

// Server is a server that speaks llama-server's API and OpenAI's on a Unix socket.
type Server struct {
	Name   string // in messages: "uma-serve", "llama-server"
	Socket string
	once   sync.Once
	http   *http.Client
}

// client returns the server's client, which the first call makes.
func (s *Server) client() *http.Client {
	s.once.Do(func() { s.http = daemonproc.HTTP(s.Socket) })
	return s.http
}

// post sends body as JSON to path and reads the answer into out.
func (s *Server) post(ctx context.Context, path string, body, out any) error {
	if err := daemonproc.Post(ctx, s.client(), daemonproc.Base+path, body, out); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// Close closes idle connections.
func (s *Server) Close() {
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}

// Token is a token of an answer.
type Token struct {
	ID      int32   `json:"id"`
	Text    string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Top     []Token `json:"top_logprobs,omitempty"`
	// Bare: the server reported the id alone, without probabilities.
	Bare bool `json:"-"`
}

// logprob returns the log-probability of id at t's place. If id is not in Top, known is false and the least of Top is
// returned, which bounds it from above.
func (t *Token) logprob(id int32) (lp float64, known bool) {
	if id == t.ID {
		return t.Logprob, true
	}
	lp = t.Logprob
	for _, o := range t.Top {
		if o.ID == id {
			return o.Logprob, true
		}
		lp = min(lp, o.Logprob)
	}
	return lp, false
}

// Completion is an answer of /completion.
type Completion struct {
	Text   string  `json:"content"`
	Tokens []int32 `json:"tokens"`
	Probs  []Token `json:"completion_probabilities"` // as many as Tokens, see align
	Ended  string  `json:"stop_type"`                // "eos", "limit", "word"
	Cached int     `json:"tokens_cached"`
	// Timings.Cached and .Computed are the prompt's tokens.
	Timings struct {
		Cached   int `json:"cache_n"`
		Computed int `json:"prompt_n"`
	} `json:"timings"`
}

// topTokens is the number of alternatives that are requested for each token: a near tie has both tokens among them.
const topTokens = 10

// Adapter is a LoRA adapter of a request: its place among the server's, and the factor of its weights.
type Adapter struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// Complete continues prompt greedily by at most n tokens. adapters names all of the server's adapters; without any,
// their scales are those of the server's start.
func (s *Server) Complete(ctx context.Context, prompt []int32, n int, adapters ...Adapter) (*Completion, error) {
	var c Completion
	body := map[string]any{"prompt": prompt, "n_predict": n, "temperature": 0, "n_probs": topTokens,
		"cache_prompt": true, "return_tokens": true}
	if adapters != nil {
		body["lora"] = adapters
	}
	err := s.post(ctx, "/completion", body, &c)
	c.align()
	return &c, err
}

// align gives each token its place in Probs: of the tokens that make up one character, llama-server reports the last
// one alone.
func (c *Completion) align() {
	if len(c.Tokens) <= len(c.Probs) {
		return
	}
	probs := make([]Token, len(c.Tokens))
	from := 0
	for i, id := range c.Tokens {
		if probs[i] = (Token{ID: id, Bare: true}); from < len(c.Probs) && c.Probs[from].ID == id {
			probs[i] = c.Probs[from]
			from++
		}
	}
	c.Probs = probs
}

// Tokenize returns the tokens of text; special adds the tokens that the model expects before it, and parses control
// tokens in text.
func (s *Server) Tokenize(ctx context.Context, text string, special bool) ([]int32, error) {
	var t struct {
		Tokens []int32 `json:"tokens"`
	}
	err := s.post(ctx, "/tokenize", map[string]any{"content": text, "add_special": special,
		"parse_special": special}, &t)
	return t.Tokens, err
}

// Chat returns the text that the model's template makes of one user message, up to the beginning of the answer.
func (s *Server) Chat(ctx context.Context, user string) (string, error) {
	var t struct {
		Prompt string `json:"prompt"`
	}
	err := s.post(ctx, "/apply-template", map[string]any{
		"messages": []map[string]string{{"role": "user", "content": user}}}, &t)
	return t.Prompt, err
}

// Process is a llama-server that StartLlamaServer has started.
type Process struct {
	*Server
	proc *daemonproc.Proc
}

// StartLlamaServer runs bin on model, and waits until it answers that it is ready, or ctx ends. The caller calls Stop.
func StartLlamaServer(ctx context.Context, bin, model string, args ...string) (*Process, error) {
	p, err := daemonproc.StartLlama(ctx, bin, "", append([]string{"-m", model}, args...)...)
	if err != nil {
		return nil, err
	}
	return &Process{&Server{Name: "llama-server", Socket: p.Socket}, p}, nil
}

// Stop ends the process, by force after ten seconds.
func (p *Process) Stop() {
	p.Close()
	_ = p.proc.Stop(10 * time.Second) // its status after a signal says nothing
}

// Build returns the build that the server reports; "" if it reports none.
func (s *Server) Build(ctx context.Context) string {
	var props struct {
		Build string `json:"build_info"`
	}
	if daemonproc.Get(ctx, s.client(), daemonproc.Base+"/props", &props) != nil {
		return ""
	}
	return props.Build
}
