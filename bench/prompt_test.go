package bench

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// watched is the fake engine, with what a Watched engine must have.
type watched struct{ *fake.Engine }

func (watched) ProbeRow(int, []runtime.Token, *runtime.RowStats) bool { return false }

// computing is a daemon that computes compute(n) of the n tokens of a text in two steps, and answers after them.
func computing(eng *Watched, compute func(n int) int) func(ClientJob) ([][]int64, error) {
	return func(j ClientJob) ([][]int64, error) {
		toks, err := eng.Vocab().Tokenize(nil, j.Text, true, false)
		if err != nil {
			return nil, err
		}
		n := compute(len(toks))
		for at, b := 0, eng.Batch(); at < n; {
			b.Reset()
			for ; at < n && b.Len() < (n+1)/2; at++ {
				b.Add(toks[at], runtime.Pos(at), 0, at == n-1)
			}
			if err := eng.Decode(); err != nil {
				return nil, err
			}
		}
		eng.SeqRemove(0, 0, -1)
		return [][]int64{{50e6}}, nil // 50 ms
	}
}

// A prompt has as many tokens as asked for on both sides, another text each time, and only computed tokens are
// measured.
func TestRunPrompt(t *testing.T) {
	eng := Watch(watched{fake.New(fake.Config{Options: runtime.Options{ContextTokens: 1024, Batch: 40}})})
	defer eng.Close()
	texts := map[string]bool{}
	client := computing(eng, func(n int) int { return n })
	cfg := PromptConfig{Tokens: []int{64, 7}, Rounds: 3, Idle: func() bool { return true },
		Client: func(j ClientJob) ([][]int64, error) {
			if texts[j.Text] || j.Tokens != 1 || j.Streams != 1 {
				t.Errorf("job %+v", j)
			}
			texts[j.Text] = true
			return client(j)
		}}
	rows, err := RunPrompt(cfg, eng)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range cfg.Tokens {
		r := rows[i]
		if r.Tokens != n || r.Served.FirstTokenMs != 50 || r.Served.Steps != 2 ||
			r.Served.TokensPerSecond != 20*float64(n) {
			t.Errorf("%d tokens, served: %+v", n, r)
		}
		if want := float64((n + 39) / 40); r.Bare.Steps != want || r.Bare.FirstTokenMs <= 0 ||
			r.Bare.DecodeMs > r.Bare.FirstTokenMs || r.Ratio <= 0 {
			t.Errorf("%d tokens, bare: %+v, want %v steps", n, r, want)
		}
	}
	if len(texts) != 8 {
		t.Errorf("%d different prompts in 2 · (1 + 3) rounds", len(texts))
	}
}

// A daemon that had a part of the prompt cached is not measured.
func TestRunPromptRefusesWhatWasNotComputed(t *testing.T) {
	eng := Watch(watched{fake.New(fake.Config{Options: runtime.Options{ContextTokens: 1024}})})
	defer eng.Close()
	cfg := PromptConfig{Tokens: []int{64}, Rounds: 1, Idle: func() bool { return true },
		Client: computing(eng, func(n int) int { return n - 10 })}
	if _, err := RunPrompt(cfg, eng); err == nil ||
		!strings.Contains(err.Error(), "54 tokens were computed for a prompt of 64") {
		t.Errorf("%v", err)
	}
}
