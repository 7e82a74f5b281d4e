//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestLearnedPositions: a model of 256 learned positions that is started with -c 2048 says so, refuses longer prompts
// by an error that names the limit, and goes on answering. No prompt, length or option ends its process.
func TestLearnedPositions(t *testing.T) {
	s := startModel(t, ggufgen.Cached(t, ggufgen.TinyLearned()), "-c", "2048")
	info := s.info()
	if n := info.ContextTokens(); n != 256 {
		t.Errorf("a context of %d tokens", n)
	}
	if log := s.Log(); !strings.Contains(log, "ctx-size=2048 positions=256") {
		t.Errorf("the log names not both numbers:\n%s", log)
	}
	before, err := s.Processes()
	if err != nil {
		t.Fatal(err)
	}
	c := s.dial()
	prompt := func(n int) string {
		tokens := make([]int, n)
		for i := range tokens {
			tokens[i] = 100 + i%100
		}
		b, _ := json.Marshal(tokens)
		return string(b)
	}
	for i, n := range []int{256, 257, 602, 2048, 5000} {
		id := fmt.Sprintf("long-%d", i)
		c.request(fmt.Sprintf(`{"id":%q,"prompt":%s,"max_tokens":4}`, id, prompt(n)))
		if e := c.mustFail(id, wire.ContextLength); !strings.Contains(e.Message, "256 positions") {
			t.Errorf("%d tokens: %s", n, e.Message)
		}
	}
	for i, n := range []int{1, 200, 255} {
		id := fmt.Sprintf("short-%d", i)
		c.request(fmt.Sprintf(`{"id":%q,"prompt":%s,"max_tokens":1000}`, id, prompt(n)))
		if ev, err := c.end(id); err != nil || ev.Kind != wire.EventEOS {
			t.Errorf("%d tokens: %+v, %v", n, ev, err)
		}
	}
	after, err := s.Processes()
	if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("processes %v before, %v after, %v", before, after, err)
	}
	c.Close()
	s.nothingLeft()
}
