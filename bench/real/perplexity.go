package real

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// Perplexity is a text's perplexity by both, as llama-perplexity defines it: the text in chunks of Chunk tokens, of
// which the second half is scored.
type Perplexity struct {
	Chunks     int     `json:"chunks"`
	Chunk      int     `json:"chunk_tokens"`
	Ours       float64 `json:"ours"`
	Theirs     float64 `json:"theirs"`
	Difference float64 `json:"difference"` // relative
}

// PerplexityConfig is one comparison.
type PerplexityConfig struct {
	Ours    *Server
	Program string   // llama-perplexity
	Args    []string // of the program: its model, its threads
	File    string   // the text
	Text    string   // the same
	Chunk   int      // tokens
	Chunks  int
	Most    float64 // the largest relative difference
}

// Check compares the perplexity of the text.
func (cfg *PerplexityConfig) Check(ctx context.Context) Check {
	check, start := Check{Name: "perplexity", OK: true}, time.Now()
	p := Perplexity{Chunks: cfg.Chunks, Chunk: cfg.Chunk}
	var err error
	if p.Ours, err = cfg.ours(ctx); err == nil {
		p.Theirs, err = cfg.theirs(ctx)
	}
	check.Seconds = time.Since(start).Seconds()
	if err != nil {
		check.Fail("%v", err)
		return check
	}
	p.Difference = p.Ours/p.Theirs - 1
	check.Details = p
	check.Summary = fmt.Sprintf("%.4f, llama-perplexity %.4f: %+.3f %% (%d chunks of %d tokens)", p.Ours, p.Theirs,
		100*p.Difference, p.Chunks, p.Chunk)
	if !(math.Abs(p.Difference) <= cfg.Most) {
		check.Fail("perplexity %.4f here and %.4f in llama-perplexity: %+.3f %%, more than %.3g %%", p.Ours, p.Theirs,
			100*p.Difference, 100*cfg.Most)
	}
	return check
}

// ours computes the perplexity from the log-probabilities that the server gives of a prompt's tokens.
func (cfg *PerplexityConfig) ours(ctx context.Context) (float64, error) {
	tokens, err := cfg.Ours.Tokenize(ctx, cfg.Text, true)
	if err != nil {
		return 0, err
	}
	plain, err := cfg.Ours.Tokenize(ctx, cfg.Text, false)
	if err != nil {
		return 0, err
	}
	if need := cfg.Chunk * cfg.Chunks; len(tokens) < need {
		return 0, fmt.Errorf("the text has %d tokens; %d chunks of %d are %d", len(tokens), cfg.Chunks, cfg.Chunk, need)
	}
	var sum float64
	n := 0
	for i := range cfg.Chunks {
		chunk := append([]int32(nil), tokens[i*cfg.Chunk:(i+1)*cfg.Chunk]...)
		if len(tokens) > len(plain) { // the model wants a token at the beginning of every text
			chunk[0] = tokens[0]
		}
		var answer struct {
			Choices []struct {
				Logprobs struct {
					TokenLogprobs []*float64 `json:"token_logprobs"`
				} `json:"logprobs"`
			} `json:"choices"`
		}
		if err := cfg.Ours.post(ctx, "/v1/completions", map[string]any{"prompt": chunk, "max_tokens": 1,
			"temperature": 0, "echo": true, "logprobs": 1}, &answer); err != nil {
			return 0, err
		}
		if len(answer.Choices) != 1 || len(answer.Choices[0].Logprobs.TokenLogprobs) < cfg.Chunk {
			return 0, errors.New("the answer lacks log-probabilities of the prompt")
		}
		lps := answer.Choices[0].Logprobs.TokenLogprobs[:cfg.Chunk]
		for _, lp := range lps[cfg.Chunk/2+1:] {
			if lp == nil {
				return 0, errors.New("a token of the prompt has no log-probability")
			}
			sum -= *lp
			n++
		}
	}
	return math.Exp(sum / float64(n)), nil
}

var estimate = regexp.MustCompile(`Final estimate: PPL = ([0-9.]+)`)

func (cfg *PerplexityConfig) theirs(ctx context.Context) (float64, error) {
	args := append([]string{"-f", cfg.File, "-c", strconv.Itoa(cfg.Chunk), "-b", strconv.Itoa(cfg.Chunk),
		"--chunks", strconv.Itoa(cfg.Chunks)}, cfg.Args...)
	out, err := exec.CommandContext(ctx, cfg.Program, args...).CombinedOutput()
	m := estimate.FindSubmatch(out)
	if err != nil || m == nil {
		return 0, fmt.Errorf("%s: %v\n%s", cfg.Program, err, out[max(0, len(out)-1000):])
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
