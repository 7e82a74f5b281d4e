package bench

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestEditText: the token that most often follows a token in the prompt also follows it in the changed text.
func TestEditText(t *testing.T) {
	prompt, changed := editText(rand.New(rand.NewPCG(1, 2)), 401, 49_152)
	followers := map[int32]map[int32]int{}
	for i, tok := range prompt[:len(prompt)-1] {
		if followers[tok] == nil {
			followers[tok] = map[int32]int{}
		}
		followers[tok][prompt[i+1]]++
	}
	edits := 0
	for i, tok := range changed[:len(changed)-1] {
		for other, n := range followers[tok] {
			if want := followers[tok][changed[i+1]]; other != changed[i+1] && n >= want {
				t.Fatalf("token %d is followed %d times by the one that is wanted, %d times by another", i, want, n)
			}
		}
		if changed[i] != prompt[1+i] {
			edits++
		}
	}
	if edits != 20 || prompt[len(prompt)-1] != changed[0] {
		t.Errorf("%d changes; the prompt ends with token %d, the text begins with %d", edits, prompt[len(prompt)-1],
			changed[0])
	}
}

func TestSpeculateSummary(t *testing.T) {
	ms := func(n ...int) (out []time.Duration) {
		for _, x := range n {
			out = append(out, time.Duration(x)*time.Millisecond)
		}
		return out
	}
	rate, p95 := summary([]guessedAnswer{{times: ms(0, 10, 10, 10, 20)}, {times: ms(5, 100)}})
	if rate != 50 || p95 != 95 {
		t.Errorf("%v tokens/s, p95 %v ms", rate, p95)
	}
	// Tokens faster than arrivals can be told apart have a rate and no gap.
	if rate, p95 = summary([]guessedAnswer{{times: []time.Duration{0, 100_000, 200_000}}}); rate != 10_000 || p95 != 0 {
		t.Errorf("within one arrival: %v tokens/s, p95 %v", rate, p95)
	}
}

// TestChatQuestion: the program has the old name in it, the request both, and seeds differ.
func TestChatQuestion(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(20) {
		q := chatQuestion(rand.New(rand.NewPCG(seed, 5)), true)
		_, rest, _ := strings.Cut(q, "Rename the type ")
		from, _, _ := strings.Cut(rest, " to ")
		if strings.Contains(q, "NAME") || strings.Count(q, from) < 10 {
			t.Fatalf("seed %d: %s", seed, q)
		}
		seen[q] = true
		if s := chatQuestion(rand.New(rand.NewPCG(seed, 5)), false); !strings.HasPrefix(s, "Tell a story about a ") {
			t.Error(s)
		}
	}
	if len(seen) < 5 {
		t.Errorf("%d different questions", len(seen))
	}
}
