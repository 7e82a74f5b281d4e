//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"fmt"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// compared is greedy with what likeAlone needs to know.
func compared(id, prompt string, n int) string {
	return fmt.Sprintf(`{"id":%q,"prompt":%q,"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":true,`+
		`"logprobs":20}`, id, prompt, n)
}

// said is an answer, token by token.
type said []word

type word struct {
	token runtime.Token
	text  string
	top   []likely // the most likely first
}

type likely struct {
	token   runtime.Token
	logprob float32
}

func (s said) text() string {
	var b strings.Builder
	for _, w := range s {
		b.WriteString(w.text)
	}
	return b.String()
}

// tie is the largest difference of two tokens' log-probabilities at which ggml's own products and attention may choose
// either. The last bits of its logits depend on the other rows of a step and on the positions of cells in the pool.
// Q8_0 rounds the inputs of each matrix to 8 bits, so that a last bit can become 1/127 of a block's largest value.
const tie = 0.05

// likeAlone says what is wrong with the n tokens that a request got among others, beside those that it got alone. With
// our kernels and Q8_0 weights (llama.Exact) there is no excuse. Elsewhere an answer may go another way, once, where
// alone the token that it took was as good as the best one; what follows then has another beginning.
func likeAlone(alone, among said, n int, exact bool) error {
	if exact {
		return likeWithin(alone, among, n, 0)
	}
	return likeWithin(alone, among, n, tie)
}

// likeWithin is likeAlone where tokens that are at most limit apart may change places; 0: none may.
func likeWithin(alone, among said, n int, limit float32) error {
	if len(among) != n || len(alone) < n {
		return fmt.Errorf("%d tokens, want %d; %d alone", len(among), n, len(alone))
	}
	for i, w := range among {
		a := alone[i]
		if w.token == a.token {
			continue
		}
		if limit == 0 {
			return fmt.Errorf("token %d is %d %q, alone %d %q", i, w.token, w.text, a.token, a.text)
		}
		for _, l := range a.top {
			if l.token == w.token && a.top[0].logprob-l.logprob <= limit {
				return nil
			}
		}
		return fmt.Errorf("token %d is %d %q, alone %d %q, and there it was not as likely: %v", i, w.token, w.text,
			a.token, a.text, a.top)
	}
	return nil
}

func TestLikeAlone(t *testing.T) {
	alone := said{
		{1, "a", []likely{{1, -0.1}, {2, -3}}},
		{3, "b", []likely{{3, -0.69}, {4, -0.70}, {5, -4}}},
		{6, "c", []likely{{6, -0.2}, {7, -2}}},
	}
	for _, c := range []struct {
		tokens       []runtime.Token
		exact, other bool // whether it is right
	}{
		{[]runtime.Token{1, 3, 6}, true, true},
		{[]runtime.Token{1, 4, 9}, false, true}, // as likely, and then another answer
		{[]runtime.Token{1, 5, 6}, false, false},
		{[]runtime.Token{2, 3, 6}, false, false},
		{[]runtime.Token{1, 3, 8}, false, false}, // not likely at all
		{[]runtime.Token{1, 3}, false, false},
		{nil, false, false},
	} {
		var among said
		for _, tok := range c.tokens {
			among = append(among, word{token: tok})
		}
		for _, exact := range []bool{true, false} {
			want := c.other
			if exact {
				want = c.exact
			}
			if err := likeAlone(alone, among, 3, exact); (err == nil) != want {
				t.Errorf("%v, exact %v: %v", c.tokens, exact, err)
			}
		}
	}
}
