package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/heldout"
)

// EvalConfig is one examination of the model a daemon serves.
type EvalConfig struct {
	Socket      string
	Problems    []heldout.Problem
	Concurrency int     // questions in flight, at least 1
	Repeat      int     // times that each is asked, at least 1; more than once makes sense with a temperature
	Temperature float32 // 0 = greedy
	Seed        uint64  // the k-th question of the run is sampled with Seed + k
	MaxTokens   int     // of an answer with its thinking; one that is cut off is wrong
	Think       wire.Think
	Format      wire.Format // of the answers; the zero value leaves them free
	Log         io.Writer
}

// EvalScore is the result of one task, or of all. Tokens are means over the answers.
type EvalScore struct {
	Task         string     `json:"task"`
	Asked        int        `json:"asked"`
	Right        int        `json:"right"`
	Accuracy     float64    `json:"accuracy"`
	CI95         [2]float64 `json:"ci95"` // Wilson's interval
	Closed       int        `json:"closed_think"`
	ThinkTokens  float64    `json:"think_tokens"`
	AnswerTokens float64    `json:"answer_tokens"` // without the thinking
	ThinkP5      int        `json:"think_tokens_p5"`
	ThinkP95     int        `json:"think_tokens_p95"`
	// Spread is the median over the problems of longest thinking / shortest thinking; only where each was asked
	// repeatedly.
	Spread float64 `json:"think_spread,omitempty"`
}

// EvalMiss is a wrong answer.
type EvalMiss struct {
	heldout.Problem
	Got    string `json:"got"`
	Think  string `json:"think"`
	Reason string `json:"reason"` // reason of its end
}

// EvalReport is an examination's result.
type EvalReport struct {
	Model       string      `json:"model"`
	Concurrency int         `json:"concurrency"`
	Temperature float32     `json:"temperature"`
	Seconds     float64     `json:"seconds"`
	Overall     EvalScore   `json:"overall"`
	Tasks       []EvalScore `json:"tasks"`
	Misses      []EvalMiss  `json:"misses"`

	answers []answered // problem i's lie at i·Repeat …
}

// answered is one answer.
type answered struct {
	right, closed bool
	think, answer int // tokens
}

// RunEval asks the daemon every problem and grades the answers: an answer is right if its text, trimmed, is exactly the
// expected one.
func RunEval(ctx context.Context, cfg EvalConfig) (*EvalReport, error) {
	if len(cfg.Problems) == 0 {
		return nil, errors.New("there are no problems to ask")
	}
	c, err := wireclient.Dial(ctx, cfg.Socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.WaitReady(ctx, nil); err != nil {
		return nil, err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	r := &EvalReport{Concurrency: cfg.Concurrency, Temperature: cfg.Temperature}
	if info.Model != nil {
		r.Model = info.Model.Name
	}
	total := len(cfg.Problems) * cfg.Repeat
	answers := make([]answered, total)
	misses := make([]*EvalMiss, total)
	var next, done atomic.Int64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	start := time.Now()
	for range cfg.Concurrency {
		wg.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k >= total || ctx.Err() != nil {
					return
				}
				p := cfg.Problems[k/cfg.Repeat]
				end, err := question(ctx, c, &cfg, p.Question, cfg.Seed+uint64(k))
				if err != nil {
					cancel(fmt.Errorf("%q: %w", p.Question, err))
					return
				}
				a, got := &answers[k], strings.TrimSpace(string(end.Text))
				a.think, a.answer = end.Usage.ThinkTokens, end.Usage.CompletionTokens-end.Usage.ThinkTokens
				a.closed = len(end.Think) > 0 && got != ""
				a.right = end.Reason == wire.Stop && got == p.Answer
				if !a.right {
					misses[k] = &EvalMiss{Problem: p, Got: got, Think: string(end.Think), Reason: string(end.Reason)}
				}
				if n := done.Add(1); n%100 == 0 {
					say(cfg.Log, "%d of %d answered after %.0f s", n, total, time.Since(start).Seconds())
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.Seconds, r.answers = time.Since(start).Seconds(), answers
	byTask := map[string][]int{}
	for i, p := range cfg.Problems {
		byTask[p.Task] = append(byTask[p.Task], i)
	}
	all := make([]int, len(cfg.Problems))
	for i := range all {
		all[i] = i
	}
	r.Overall = score("all", all, answers, cfg.Repeat)
	for task, problems := range byTask {
		r.Tasks = append(r.Tasks, score(task, problems, answers, cfg.Repeat))
	}
	slices.SortFunc(r.Tasks, func(a, b EvalScore) int { return strings.Compare(a.Task, b.Task) })
	for _, m := range misses {
		if m != nil {
			r.Misses = append(r.Misses, *m)
		}
	}
	return r, nil
}

func question(ctx context.Context, c *wireclient.Client, cfg *EvalConfig, text string, seed uint64) (*wire.EOS, error) {
	req := wire.DefaultRequest()
	req.Messages = []wire.Message{{Role: "user", Content: text}}
	req.MaxTokens, req.Think, req.Format = cfg.MaxTokens, cfg.Think, cfg.Format
	req.Sampling.Temperature = cfg.Temperature
	req.Sampling.Seed, req.Sampling.SeedSet = seed, true
	if cfg.Temperature > 0 { // the unmodified distribution
		req.Sampling.TopK, req.Sampling.TopP, req.Sampling.MinP = 0, 1, 0
	}
	return c.Chat(ctx, &req)
}

// score sums up the answers to problems, each asked repeat times.
func score(task string, problems []int, answers []answered, repeat int) EvalScore {
	s := EvalScore{Task: task, Asked: len(problems) * repeat}
	var lengths []int
	var spreads []float64
	for _, i := range problems {
		shortest, longest := math.MaxInt, 0
		for _, a := range answers[i*repeat : (i+1)*repeat] {
			if a.right {
				s.Right++
			}
			if a.closed {
				s.Closed++
			}
			s.ThinkTokens += float64(a.think)
			s.AnswerTokens += float64(a.answer)
			lengths = append(lengths, a.think)
			shortest, longest = min(shortest, a.think), max(longest, a.think)
		}
		if shortest > 0 {
			spreads = append(spreads, float64(longest)/float64(shortest))
		}
	}
	n := float64(s.Asked)
	s.Accuracy, s.ThinkTokens, s.AnswerTokens = float64(s.Right)/n, s.ThinkTokens/n, s.AnswerTokens/n
	s.CI95[0], s.CI95[1] = report.Wilson(s.Right, s.Asked)
	slices.Sort(lengths)
	s.ThinkP5, s.ThinkP95 = lengths[len(lengths)*5/100], lengths[(len(lengths)-1)*95/100]
	if repeat > 1 {
		s.Spread = median(spreads)
	}
	return s
}

// Markdown writes the report as a table.
func (r *EvalReport) Markdown(w io.Writer) {
	how := "greedy"
	if r.Temperature > 0 {
		how = fmt.Sprintf("temperature %g", r.Temperature)
	}
	fmt.Fprintf(w, "%s, %d answers, %s, %d at a time, %.0f s\n\n", r.Model, r.Overall.Asked, how, r.Concurrency,
		r.Seconds)
	fmt.Fprint(w, "| task | asked | right | accuracy | 95 % interval | closed think block | think tokens: mean, p5 "+
		"… p95 | answer tokens |")
	if r.Overall.Spread > 0 {
		fmt.Fprint(w, " longest / shortest thinking, median |")
	}
	fmt.Fprint(w, "\n|---|---|---|---|---|---|---|---|")
	if r.Overall.Spread > 0 {
		fmt.Fprint(w, "---|")
	}
	fmt.Fprintln(w)
	for _, s := range append(slices.Clone(r.Tasks), r.Overall) {
		fmt.Fprintf(w, "| %s | %d | %d | **%.1f %%** | %.1f … %.1f | %d | %.0f, %d … %d | %.1f |", s.Task, s.Asked,
			s.Right, 100*s.Accuracy,
			100*s.CI95[0], 100*s.CI95[1], s.Closed, s.ThinkTokens, s.ThinkP5, s.ThinkP95, s.AnswerTokens)
		if r.Overall.Spread > 0 {
			fmt.Fprintf(w, " %.1f |", s.Spread)
		}
		fmt.Fprintln(w)
	}
}
