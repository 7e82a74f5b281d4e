package bench

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
)

// PromptConfig configures the comparison of the daemon's prompt speed with the bare decode loop's.
type PromptConfig struct {
	Tokens []int // of a prompt, exactly
	Rounds int   // pairs of (bare, served) per length; the order alternates
	Socket string
	Idle   func() bool                        // see OverheadConfig
	Client func(ClientJob) ([][]int64, error) // see OverheadConfig
	Log    io.Writer                          // progress lines; nil = none
}

// PromptSide is the result of one side of a comparison: medians over the rounds.
type PromptSide struct {
	FirstTokenMs    float64 `json:"first_token_ms"`
	TokensPerSecond float64 `json:"tokens_per_second"` // of the prompt, until the first token of the answer
	DecodeMs        float64 `json:"decode_ms"`         // of it inside of decodes
	Steps           float64 `json:"steps"`             // decodes
}

// Prompt is one row: prompts of one length, bare and served.
type Prompt struct {
	Weights string     `json:"weights,omitempty"`
	Tokens  int        `json:"tokens"`
	Bare    PromptSide `json:"bare"`
	Served  PromptSide `json:"served"`
	Ratio   float64    `json:"ratio"` // served speed / bare speed, median of the rounds' ratios
}

// RunPrompt alternates, for each length, a prompt in the bare loop on eng with one of as many tokens asked of the
// daemon that serves eng at cfg.Socket. The daemon must be idle otherwise.
//
// Bare: the tokens are there; Decode them, as many in a step as the engine takes, and take the argmax of the last row.
// Served: from just before the client writes the request to when it has read the first token, so tokenizer, scheduling
// and both ways over the socket count.
func RunPrompt(cfg PromptConfig, eng *Watched) ([]Prompt, error) {
	var out []Prompt
	for _, n := range cfg.Tokens {
		row := Prompt{Tokens: n}
		var bares, serveds []PromptSide
		var ratios []float64
		for round := range cfg.Rounds + 1 {
			var bare, served PromptSide
			var err1, err2 error
			if round%2 == 0 {
				bare, err1 = barePrompt(eng, n, 2*round)
				served, err2 = servedPrompt(cfg, eng, n, 2*round+1)
			} else {
				served, err2 = servedPrompt(cfg, eng, n, 2*round+1)
				bare, err1 = barePrompt(eng, n, 2*round)
			}
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			if round == 0 {
				continue // warm-up
			}
			ratio := bare.FirstTokenMs / served.FirstTokenMs
			if cfg.Log != nil {
				fmt.Fprintf(cfg.Log, "%d tokens, round %d: bare %.1f ms; served %.1f ms, %.1f in %.0f decodes; ratio "+
					"%.3f\n",
					n, round, bare.FirstTokenMs, served.FirstTokenMs, served.DecodeMs, served.Steps, ratio)
			}
			bares, serveds, ratios = append(bares, bare), append(serveds, served), append(ratios, ratio)
		}
		row.Bare, row.Served, row.Ratio = medianPrompt(bares), medianPrompt(serveds), median(ratios)
		out = append(out, row)
	}
	return out, nil
}

// promptOf returns a text of exactly n tokens, different for each salt, and the tokens.
func promptOf(v runtime.Vocab, n, salt int) (string, []runtime.Token, error) {
	long := prompt(salt, 0, 8*n) // a token of it is at most a few characters
	var toks []runtime.Token
	for end, tries := n, 0; end > 0 && end <= len(long) && tries < 100; tries++ {
		var err error
		if toks, err = v.Tokenize(toks[:0], long[:end], true, false); err != nil {
			return "", nil, err
		}
		if len(toks) == n {
			return long[:end], toks, nil
		}
		end += n - len(toks) // a character is about one token at most, so this does not jump over the length for long
	}
	return "", nil, fmt.Errorf("no text of exactly %d tokens was found in this model's vocabulary", n)
}

func barePrompt(eng *Watched, n, salt int) (PromptSide, error) {
	_, toks, err := promptOf(eng.Vocab(), n, salt)
	if err != nil {
		return PromptSide{}, err
	}
	b := eng.Batch()
	eng.take()
	start := time.Now()
	for at := 0; at < n; {
		b.Reset()
		for ; at < n && b.Len() < cap(b.Token); at++ {
			b.Add(toks[at], runtime.Pos(at), 0, at == n-1)
		}
		if err := eng.Decode(); err != nil {
			return PromptSide{}, fmt.Errorf("bare prompt: %w", err)
		}
	}
	if t, _ := eng.Argmax(b.Len() - 1); t == runtime.NoToken {
		return PromptSide{}, errors.New("bare prompt: no token follows")
	}
	took := time.Since(start)
	eng.SeqRemove(0, 0, -1)
	return promptSide(eng, n, ms(took))
}

func servedPrompt(cfg PromptConfig, eng *Watched, n, salt int) (PromptSide, error) {
	text, _, err := promptOf(eng.Vocab(), n, salt)
	if err != nil {
		return PromptSide{}, err
	}
	eng.take()
	times, err := cfg.Client(ClientJob{Socket: cfg.Socket, Streams: 1, Connections: 1, Tokens: 1, Text: text})
	if err != nil {
		return PromptSide{}, err
	}
	for !cfg.Idle() {
		time.Sleep(time.Millisecond)
	}
	return promptSide(eng, n, ms(time.Duration(times[0][0])))
}

// promptSide takes what eng decoded since the last take. It must be exactly the n tokens of the prompt: with cached
// tokens the comparison would be wrong.
func promptSide(eng *Watched, n int, took float64) (PromptSide, error) {
	s := PromptSide{FirstTokenMs: took, TokensPerSecond: 1000 * float64(n) / took, Steps: float64(len(eng.decodes))}
	for _, d := range eng.decodes {
		s.DecodeMs += d
	}
	rows := eng.rows
	eng.take()
	if rows != n {
		return s, fmt.Errorf("%d tokens were computed for a prompt of %d", rows, n)
	}
	return s, nil
}

func medianPrompt(ss []PromptSide) PromptSide {
	pick := func(f func(PromptSide) float64) float64 {
		xs := make([]float64, len(ss))
		for i, s := range ss {
			xs[i] = f(s)
		}
		return median(xs)
	}
	return PromptSide{
		pick(func(s PromptSide) float64 { return s.FirstTokenMs }),
		pick(func(s PromptSide) float64 { return s.TokensPerSecond }),
		pick(func(s PromptSide) float64 { return s.DecodeMs }), pick(func(s PromptSide) float64 { return s.Steps }),
	}
}
