package real

import (
	"strings"
	"sync"
	"testing"
)

// TestAdapters: each stream has its adapter on both servers, and an answer that does not have its own is found.
func TestAdapters(t *testing.T) {
	of := func(wrong bool) (*Server, *sync.Map) {
		var seen sync.Map
		return serve(t, map[string]func(map[string]any) any{"/tokenize": vocabulary,
			"/apply-template": func(body map[string]any) any {
				return map[string]string{"prompt": body["messages"].([]any)[0].(map[string]any)["content"].(string)}
			},
			"/completion": func(body map[string]any) any {
				id := int32(2)
				named := body["lora"].([]any)
				if len(named) != 2 { // of a request that names none llama-server applies all
					t.Errorf("%v", named)
				}
				for _, l := range named {
					if a := l.(map[string]any); a["scale"] == 0.5 {
						id = int32(a["id"].(float64))
					} else if a["scale"] != 0. {
						t.Errorf("%v", a)
					}
				}
				seen.Store(id, true)
				if wrong && id == 1 {
					id = 0
				}
				if _, text := body["prompt"].(string); text {
					return Completion{Tokens: make([]int32, 4)}
				}
				first := Token{ID: 10 + id, Logprob: -0.1}
				first.Top = []Token{{ID: 10 + id, Logprob: -0.1}, {ID: 99, Logprob: -5}}
				return Completion{Tokens: []int32{first.ID}, Probs: []Token{first}}
			}}), &seen
	}
	for _, wrong := range []bool{false, true} {
		ours, seen := of(wrong)
		theirs, _ := of(false)
		a := Adapters{Compare: Compare{Ours: ours, Theirs: theirs, Tokens: 1, Near: 0.5, Concurrency: 3}, Scale: 0.5,
			Rounds: 1, Measured: 4}
		if c := a.Check(t.Context(), "adapters", Prompts()[:3]); c.OK {
			t.Errorf("too few texts: %+v", c)
		}
		c := a.Check(t.Context(), "adapters", Prompts()[:12])
		if c.OK == wrong || !strings.Contains(c.Summary, "two and none in turn: ") {
			t.Errorf("%+v", c)
		}
		for _, id := range []int32{0, 1, 2} {
			if _, ok := seen.Load(id); !ok {
				t.Errorf("no request has %d", id)
			}
		}
	}
}
