package bench

import (
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/heldout"
)

func TestWilson(t *testing.T) {
	// Wilson, E. B. (1927); values from the formula, to four places.
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{{10, 10, 0.7225, 1}, {0, 10, 0, 0.2775}, {50, 100, 0.4038, 0.5962}, {1150, 1210, 0.9366, 0.9613}} {
		low, high := report.Wilson(c.k, c.n)
		if math.Abs(low-c.low) > 1e-4 || math.Abs(high-c.high) > 1e-4 {
			t.Errorf("%d of %d: %.4f … %.4f, want %.4f … %.4f", c.k, c.n, low, high, c.low, c.high)
		}
	}
}

func TestRunEval(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	seeds := map[uint64]bool{}
	srv := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		q := r.Messages[0].Content
		mu.Lock()
		asked[q]++
		n := asked[q]
		seeds[r.Sampling.Seed] = true
		mu.Unlock()
		if r.Sampling.Temperature != 1 || r.Sampling.TopK != 0 || r.Sampling.TopP != 1 || r.Sampling.MinP != 0 ||
			r.MaxTokens != 99 || r.Stream {
			t.Errorf("request %+v", r.Request)
		}
		e := wire.EOS{ID: r.ID, Reason: wire.Stop, Text: []byte(" 3\n"), Think: []byte("1+2\nSo 3.\n\n"),
			Usage: wire.Usage{CompletionTokens: 10*n + 2, ThinkTokens: 10 * n}}
		switch q {
		case "cut":
			e.Reason, e.Text = wire.Length, nil
		case "hasty":
			e.Think, e.Usage = nil, wire.Usage{CompletionTokens: 2}
		case "wrong":
			e.Text = []byte("33")
		}
		c.EOS(e)
	}}).Start(t)
	r, err := RunEval(t.Context(), EvalConfig{
		Socket: srv.Path, Concurrency: 3, Repeat: 4, Temperature: 1, Seed: 100, MaxTokens: 99,
		Problems: []heldout.Problem{{Task: "sums", Question: "fine", Answer: "3"},
			{Task: "sums", Question: "wrong", Answer: "3"},
			{Task: "odd", Question: "cut", Answer: "3"}, {Task: "odd", Question: "hasty", Answer: "3"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) != 4 || asked["cut"] != 4 || len(seeds) != 16 || !seeds[100] || !seeds[115] {
		t.Errorf("asked %v with the seeds %v", asked, seeds)
	}
	if r.Overall.Asked != 16 || r.Overall.Right != 8 || r.Overall.Closed != 8 || len(r.Misses) != 8 ||
		r.Tasks[0].Task != "odd" || r.Tasks[0].Right != 4 || r.Tasks[1].Right != 4 {
		t.Errorf("%+v", r)
	}
	// Four answers of 10, 20, 30 and 40 tokens of thinking to each question but the quick one.
	if s := r.Tasks[1]; s.ThinkTokens != 25 || s.AnswerTokens != 2 || s.Spread != 4 || s.ThinkP5 != 10 {
		t.Errorf("%+v", s)
	}
	for _, m := range r.Misses {
		if m.Question == "cut" && (m.Reason != "length" || m.Think == "") || m.Question == "wrong" && m.Got != "33" {
			t.Errorf("%+v", m)
		}
	}
	var md strings.Builder
	r.Markdown(&md)
	if !strings.Contains(md.String(), "| sums | 8 | 4 | **50.0 %** |") ||
		!strings.Contains(md.String(), "temperature 1") {
		t.Error(md.String())
	}
}

func TestRunEvalRefused(t *testing.T) {
	srv := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		c.Error(wire.Error{ID: r.ID, Code: wire.BadRequest, Message: "no"})
	}}).Start(t)
	_, err := RunEval(t.Context(), EvalConfig{Socket: srv.Path, Concurrency: 2, Repeat: 1,
		Problems: []heldout.Problem{{Task: "a", Question: "b", Answer: "c"}}})
	if err == nil || !strings.Contains(err.Error(), `"b"`) || !strings.Contains(err.Error(), "no") {
		t.Error(err)
	}
	if _, err := RunEval(t.Context(), EvalConfig{Socket: srv.Path}); err == nil {
		t.Error("an examination without problems")
	}
}
