//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// A thousand requests with random budgets on the real engine, whose noise hardly ever closes a think block by itself:
// every block closes, no budget is passed, and what came before and after is whole characters.
func TestForcedClosesArrive(t *testing.T) {
	const (
		requests = 1000
		inFlight = 16
	)
	s := start(t, "--parallel", fmt.Sprint(inFlight), "--max-queue", "64", "--policy", "meridian")
	c := s.dial()
	defer c.Close()
	r := rand.New(rand.NewPCG(1, 5))
	budgets := map[string]int{}
	sent := 0
	send := func() {
		id := fmt.Sprintf("f%d", sent)
		// Token by token noise of all 256 byte pieces: mid-character ends are the rule, not the exception.
		budgets[id] = 1 + r.IntN(48)
		c.request(fmt.Sprintf(`{"id":%q,"messages":[{"role":"user","content":"problem %d"}],"max_tokens":%d,`+
			`"seed":%d,"temperature":%.1f,"ignore_eos":true,"think":{"mode":"on","budget_tokens":%d}}`,
			id, sent%7, budgets[id]+60, sent, r.Float64()*1.5, budgets[id]))
		sent++
	}
	for sent < inFlight {
		send()
	}
	ended := map[string]int{}
	for done := 0; done < requests; done++ {
		ev, err := c.next()
		for err == nil && ev.Kind == wire.EventToken {
			ev, err = c.next()
		}
		if err != nil || ev.Kind != wire.EventEOS {
			t.Fatalf("after %d: %+v %v", done, ev, err)
		}
		e := ev.EOS
		budget := budgets[e.ID]
		th := e.Thought
		ended[th.Ended]++
		switch {
		case th.Tokens > budget:
			t.Errorf("%s thought %d tokens with a budget of %d", e.ID, th.Tokens, budget)
		case th.Ended == "" || th.Ended == "length" || th.Ended == "eog":
			t.Errorf("%s: its thinking ended by %q with a budget of %d (%d tokens in all)", e.ID, th.Ended, budget,
				e.Usage.CompletionTokens)
		case !utf8.Valid(e.Think):
			t.Errorf("%s: the thinking is cut inside a character: %q", e.ID, e.Think)
		case e.Usage.CompletionTokens <= th.Tokens+1:
			t.Errorf("%s: no answer follows the thinking: %+v", e.ID, e.Usage)
		}
		delete(budgets, e.ID)
		if sent < requests {
			send()
		}
	}
	t.Logf("ended: %v", ended)
	if ended["hard_cap"] < requests/2 {
		t.Errorf("only %d of %d were forced: %v", ended["hard_cap"], requests, ended)
	}
}
