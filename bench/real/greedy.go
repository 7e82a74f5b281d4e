package real

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Compare compares greedy answers of two servers.
type Compare struct {
	Ours, Theirs *Server
	Tokens       int     // of an answer, at most
	Near         float64 // the largest gap of a near tie, in nats
	// Control is Theirs with another arithmetic, or nil. Their differences are rounding, measured on the same prompts:
	// see Greedy.judge.
	Control     *Server
	Concurrency int // answers in flight
	// Truth starts a server that computes the weights in F32, or is nil. It is called where a parting is no near tie;
	// the second result stops the server.
	Truth func(context.Context) (*Server, func(), error)
	// Adapters are the adapters of each prompt; nil: none has any.
	Adapters [][]Adapter
}

// Parting is a place where the servers' greedy tokens differ.
type Parting struct {
	Prompt int     `json:"prompt"`
	At     int     `json:"at"` // tokens of the answer before it
	Ours   string  `json:"ours"`
	Theirs string  `json:"theirs"`
	Gap    float64 `json:"gap"`   // the larger of both servers' gaps between the two tokens, in nats
	Known  bool    `json:"known"` // each server has the other's token among its alternatives
	Near   bool    `json:"near"`
	Truth  *Place  `json:"truth,omitempty"` // where the weights in F32 were asked
	// Explained: it is no near tie, and no failure, see Greedy.explain.
	Explained bool `json:"explained,omitempty"`

	row          []int32 // the tokens before the place
	ours, theirs Token
}

// unknownGap is the gap where one answer has no token.
const unknownGap = 1e9

// Greedy is the result of a comparison.
type Greedy struct {
	Prompts   int `json:"prompts"`
	Equal     int `json:"equal"`     // prompts without a parting
	Near      int `json:"near"`      // prompts that part at near ties alone
	Explained int `json:"explained"` // the others whose far partings are all explained
	Different int `json:"different"` // the rest
	Tokens    int `json:"tokens"`    // compared
	// Partings are all of them; MaxNear is the largest gap of a near tie, in nats.
	Partings []Parting `json:"partings,omitempty"`
	MaxNear  float64   `json:"max_near_gap"`
	// MeanDelta and P99Delta are of the absolute differences between the servers' log-probabilities of equal tokens.
	MeanDelta float64 `json:"mean_logprob_difference"`
	P99Delta  float64 `json:"p99_logprob_difference"`
	MaxDelta  float64 `json:"max_logprob_difference"`
	// NearGap is the largest gap that counts as a near tie, in nats; Control is the comparison of Compare.Control with
	// Theirs.
	NearGap float64 `json:"near_gap"`
	Control *Greedy `json:"control,omitempty"`
	Truth   *Truth  `json:"truth,omitempty"` // asked where a prompt differs
}

// judge counts which prompts part at near ties alone. A gap is the difference of two log-probabilities, so rounding
// explains a gap of twice the control's largest difference.
func (g *Greedy) judge(near float64) {
	if g.Control != nil {
		near = max(near, 2*g.Control.MaxDelta)
	}
	g.NearGap, g.MaxNear = near, 0
	for i := range g.Partings {
		p := &g.Partings[i]
		if p.Near = p.Known && p.Gap <= near; p.Near {
			g.MaxNear = max(g.MaxNear, p.Gap)
		}
	}
	g.count()
}

// count counts the prompts by their worst parting.
func (g *Greedy) count() {
	const near, explained, different = 1, 2, 3
	worst := map[int]int{}
	for _, p := range g.Partings {
		w := different
		switch {
		case p.Near:
			w = near
		case p.Explained:
			w = explained
		}
		worst[p.Prompt] = max(worst[p.Prompt], w)
	}
	var of [4]int
	for _, w := range worst {
		of[w]++
	}
	g.Near, g.Explained, g.Different, g.Equal = of[near], of[explained], of[different], g.Prompts-len(worst)
}

// Run compares the answers to each prompt, a row of token ids: all of llama-server's, then uma-serve's.
func (c *Compare) Run(ctx context.Context, prompts [][]int32) (*Greedy, error) {
	theirs, err := c.answers(ctx, prompts)
	if err != nil {
		return nil, err
	}
	return c.with(ctx, prompts, theirs)
}

// answers returns llama-server's.
func (c *Compare) answers(ctx context.Context, prompts [][]int32) ([]*Completion, error) {
	out := make([]*Completion, len(prompts))
	return out, each(ctx, len(prompts), c.Concurrency, func(ctx context.Context, i int) (err error) {
		if out[i], err = c.Theirs.Complete(ctx, prompts[i], c.Tokens, c.adapters(i)...); err != nil {
			return fmt.Errorf("prompt %d: %w", i, err)
		}
		return nil
	})
}

// with is Run with llama-server's answers.
func (c *Compare) with(ctx context.Context, prompts [][]int32, answers []*Completion) (*Greedy, error) {
	type result struct {
		partings []Parting
		deltas   []float64
		tokens   int
	}
	results := make([]result, len(prompts))
	err := each(ctx, len(prompts), c.Concurrency, func(ctx context.Context, i int) error {
		r := &results[i]
		theirs := answers[i]
		for at := 0; at < len(theirs.Probs) || at == 0; {
			ours, err := c.Ours.Complete(ctx, slices.Concat(prompts[i], ids(theirs.Probs[:at])), c.Tokens-at,
				c.adapters(i)...)
			if err != nil {
				return fmt.Errorf("prompt %d: %w", i, err)
			}
			n, p := c.compare(ours, theirs, at, &r.deltas)
			at += n
			if p == nil {
				break
			}
			p.Prompt, p.At = i, at
			p.row = slices.Concat(prompts[i], ids(theirs.Probs[:at]))
			r.partings = append(r.partings, *p)
			at++ // behind llama-server's token
		}
		r.tokens = len(theirs.Probs)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &Greedy{Prompts: len(prompts)}
	var deltas []float64
	for _, r := range results {
		out.Tokens += r.tokens
		deltas = append(deltas, r.deltas...)
		out.Partings = append(out.Partings, r.partings...)
	}
	out.judge(c.Near)
	if slices.Sort(deltas); len(deltas) > 0 {
		for _, d := range deltas {
			out.MeanDelta += d / float64(len(deltas))
		}
		out.P99Delta, out.MaxDelta = deltas[len(deltas)*99/100], deltas[len(deltas)-1]
	}
	return out, nil
}

func (c *Compare) adapters(i int) []Adapter {
	if c.Adapters == nil {
		return nil
	}
	return c.Adapters[i]
}

// compare reads ours beside theirs from their token at on. It returns the number of equal tokens and the parting behind
// them; nil: there is none. An answer that ends has no token there, so its end is judged by the other's alternatives
// alone.
func (c *Compare) compare(ours, theirs *Completion, at int, deltas *[]float64) (int, *Parting) {
	rest := theirs.Probs[at:]
	for i := range min(len(ours.Probs), len(rest)) {
		o, t := &ours.Probs[i], &rest[i]
		if o.ID == t.ID {
			if !o.Bare && !t.Bare {
				*deltas = append(*deltas, math.Abs(o.Logprob-t.Logprob))
			}
			continue
		}
		p := &Parting{Ours: o.Text, Theirs: t.Text, ours: *o, theirs: *t}
		their, k1 := o.logprob(t.ID)
		our, k2 := t.logprob(o.ID)
		p.Gap, p.Known = max(o.Logprob-their, t.Logprob-our), k1 && k2
		switch { // one server's word is enough
		case o.Bare && t.Bare:
			p.Gap, p.Known = unknownGap, false
		case o.Bare:
			p.Gap, p.Known = t.Logprob-our, k2
		case t.Bare:
			p.Gap, p.Known = o.Logprob-their, k1
		}
		return i, p
	}
	n := min(len(ours.Probs), len(rest))
	switch {
	case len(ours.Probs) == len(rest):
		return n, nil
	case n < len(ours.Probs): // theirs ended
		return n, &Parting{Ours: ours.Probs[n].Text, Theirs: "(end)", Gap: unknownGap}
	}
	return n, &Parting{Ours: "(end)", Theirs: rest[n].Text, Gap: unknownGap}
}

func ids(tokens []Token) []int32 {
	out := make([]int32, len(tokens))
	for i := range tokens {
		out[i] = tokens[i].ID
	}
	return out
}

// each calls f for 0 … n-1, at most concurrency at a time, until one fails.
func each(ctx context.Context, n, concurrency int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := 0
	for range max(1, concurrency) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n || ctx.Err() != nil {
					return
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Check compares the answers to texts: chats of one message, or plain texts for a base model, which has no template.
func (c *Compare) Check(ctx context.Context, texts []string, chat bool) (check Check) {
	check = Check{Name: "greedy", OK: true}
	start := time.Now()
	defer func() { check.Seconds = time.Since(start).Seconds() }()
	prompts := make([][]int32, len(texts))
	err := each(ctx, len(texts), c.Concurrency, func(ctx context.Context, i int) error {
		var got [2][]int32
		for k, s := range []*Server{c.Ours, c.Theirs} {
			text, err := texts[i], error(nil)
			if chat {
				text, err = s.Chat(ctx, text)
			}
			if err == nil {
				got[k], err = s.Tokenize(ctx, text, true)
			}
			if err != nil {
				return err
			}
		}
		if !slices.Equal(got[0], got[1]) {
			return fmt.Errorf("prompt %d is %v here and %v in %s", i, got[0], got[1], c.Theirs.Name)
		}
		prompts[i] = got[1]
		return nil
	})
	var g *Greedy
	var theirs []*Completion
	if err == nil {
		theirs, err = c.answers(ctx, prompts)
	}
	if err == nil {
		g, err = c.with(ctx, prompts, theirs)
	}
	if err == nil && c.Control != nil {
		control := *c
		control.Ours = c.Control
		g.Control, err = control.with(ctx, prompts, theirs)
	}
	if err != nil {
		check.Fail("%v", err)
		return check
	}
	g.judge(c.Near)
	if g.Different > 0 && c.Truth != nil {
		if err := c.explain(ctx, g); err != nil {
			check.Fail("what the weights say in F32 is unknown: %v", err)
		}
	}
	check.Details = g
	check.Summary = fmt.Sprintf("%d prompts: %d equal, %d part at near ties (at most %.3f nats), %d explained, %d "+
		"differ; %d tokens, log-probabilities differ by %.4f in the mean, p99 %.3f",
		g.Prompts, g.Equal, g.Near, g.MaxNear, g.Explained, g.Different, g.Tokens, g.MeanDelta, g.P99Delta)
	if k := g.Control; k != nil {
		check.Summary += fmt.Sprintf("; llama-server beside itself without flash attention: %d of %d equal, %.4f, "+
			"p99 %.3f, at most %.3f", k.Equal, k.Prompts, k.MeanDelta, k.P99Delta, k.MaxDelta)
		if g.MeanDelta > 2*k.MeanDelta+0.001 {
			check.Fail("log-probabilities differ by %.4f in the mean, more than twice llama-server's %.4f with itself",
				g.MeanDelta, k.MeanDelta)
		}
	}
	if t := g.Truth; t != nil {
		check.Summary += fmt.Sprintf("; the weights in F32 at %d partings: uma-serve is %.3f off in the mean, at "+
			"most %.3f, llama-server %.3f, at most %.3f", t.Places, t.Ours.Mean, t.Ours.Max, t.Theirs.Mean,
			t.Theirs.Max)
	}
	for i := range g.Partings {
		if p := &g.Partings[i]; !p.Near {
			text := fmt.Sprintf("prompt %d (%.60q): %s", p.Prompt, texts[p.Prompt], p)
			if p.Explained {
				check.Explained = append(check.Explained, text)
				continue
			}
			check.Fail("%s", text)
		}
	}
	return check
}
