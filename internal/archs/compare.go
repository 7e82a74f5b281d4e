package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// nearTie is the gap, in log-probability, up to which two tokens are equally right: sums of the same products in
// another order, and K and V in 16 bits, differ by that much.
const nearTie = 0.02

// unlisted stands for the gap to a token that is not among the three best: too large to be known.
const unlisted = 1e6

// sameEmbedding is the largest difference between an element of a normalised embedding and llama-server's.
const sameEmbedding = 0.01

const generated = 12 // tokens of each answer

// lengths are those of the eight prompts, in tokens. A model with learned positions has shorter ones instead.
var lengths = []int{5, 17, 40, 64, 130, 257, 602, 1200}

// prompt returns n tokens, the same for a seed.
func prompt(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 7))
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(1 + rng.IntN(127))
	}
	return list
}

// cell is the outcome of one kind of comparison.
type cell struct {
	Answers int     // compared
	Tokens  int     // that are equal
	Gap     float64 // the largest at which an answer parted; 0: none parted
	Apart   int     // answers that parted at more than a near tie
	Delta   float64 // the largest difference between log-probabilities of the same token
	Failed  string  // an error; "" = none
}

func (c *cell) text() string {
	switch {
	case c.Failed != "":
		return "fails"
	case c.Answers == 0:
		return "–"
	case c.Gap >= unlisted:
		return "**parts**"
	case c.Apart > 0:
		return fmt.Sprintf("**parts, %.2g**", c.Gap)
	case c.Gap > 0:
		return fmt.Sprintf("tie %.1g", c.Gap)
	}
	return "="
}

// kinds are the columns of the table, in order.
var kinds = []string{"prompts", "chunks", "two at a time", "prefix", "guessed", "fork", "resumed", "restart"}

// result has the findings about one model.
type result struct {
	File, Arch, Memory, Refused, Note string
	Cells                             map[string]*cell
	Shared                            map[string]string
	Heads                             map[string]*headResult // by their architecture
}

func (r *result) cell(kind string) *cell {
	if r.Cells[kind] == nil {
		r.Cells[kind] = &cell{}
	}
	return r.Cells[kind]
}

// apart reports whether anything differs by more than a near tie, or fails.
func (r *result) apart() bool {
	for _, c := range r.Cells {
		if c.Failed != "" || c.Apart > 0 {
			return true
		}
	}
	for _, h := range r.Heads {
		if h.fails() {
			return true
		}
	}
	return false
}

// compare adds the comparison of two answers to the same prompt.
func (c *cell) compare(want, got *answer) {
	c.Answers++
	for i := range want.Probs {
		w := &want.Probs[i]
		if i >= len(got.Probs) {
			c.Apart++
			c.Gap = unlisted
			return
		}
		g := &got.Probs[i]
		if w.ID != g.ID {
			// The gap is what the better token has more than the one that ours took, by the server that lists both.
			gap := float64(unlisted)
			for _, top := range w.Top {
				if top.ID == g.ID && top.Logprob != nil && w.Logprob != nil {
					gap = *w.Logprob - *top.Logprob
				}
			}
			if w.Logprob == nil && g.Logprob == nil { // neither is a number
				return
			}
			c.Gap = max(c.Gap, gap, 1e-9)
			if gap > nearTie {
				c.Apart++
			}
			return
		}
		c.Tokens++
		if w.Logprob != nil && g.Logprob != nil {
			c.Delta = max(c.Delta, math.Abs(*w.Logprob-*g.Logprob))
		}
	}
}

// reference answers prompts, each once: llama-server, or what it once answered.
type reference struct {
	*server // nil: it is not here
	known   map[string]*answer
}

func (r *reference) answer(tokens []int32) (*answer, error) {
	key := key(tokens)
	if a := r.known[key]; a != nil {
		return a, nil
	}
	if r.server == nil {
		return nil, fmt.Errorf("no answer of llama-server to a prompt of %d tokens is recorded", len(tokens))
	}
	a, err := r.complete(tokens, generated, false)
	if err != nil {
		return nil, fmt.Errorf("llama-server: %w", err)
	}
	r.known[key] = &a
	return &a, nil
}

// trial is the comparison of one model.
type trial struct {
	*result
	ref   *reference
	ours  *server
	most  int // tokens of the longest prompt
	asked []asked
	// oneStep starts llama-server anew so that it computes each prompt in one step; nil: it cannot be.
	oneStep func() (*server, error)
}

// check compares an answer of ours with the reference's. It returns how many tokens of the prompt ours shared.
func (t *trial) check(kind string, tokens []int32, keep bool) int {
	a, err := t.ours.complete(tokens, generated, keep)
	t.compareWith(kind, tokens, &a, err)
	return a.Timings.Cached
}

func (t *trial) compareWith(kind string, tokens []int32, a *answer, err error) {
	var want *answer
	if err == nil {
		want, err = t.ref.answer(tokens)
	}
	if err != nil && t.ref.server != nil && t.ref.ended() { // a fault of llama-server's
		if want, err = t.inOneStep(tokens); err != nil {
			t.Note = fmt.Sprintf("not compared: llama-server ends at a prompt of %d tokens", len(tokens))
			return
		}
	}
	c := t.cell(kind)
	if err != nil {
		if c.Failed == "" {
			c.Failed = err.Error()
		}
		return
	}
	t.asked = append(t.asked, asked{kind, tokens, a})
	c.compare(want, a)
}

// inOneStep puts a llama-server that computes each prompt in one step in the place of one that has ended.
func (t *trial) inOneStep(tokens []int32) (*answer, error) {
	if t.oneStep == nil {
		return nil, errors.New("llama-server ended")
	}
	start := t.oneStep
	t.oneStep = nil
	t.Note = fmt.Sprintf("llama-server ends at a prompt of %d tokens; the row compares with one that computes each "+
		"prompt in one step (-ub %d)", len(tokens), longContext)
	server, err := start()
	if err != nil {
		return nil, err
	}
	t.ref.stop()
	t.ref.server = server
	return t.ref.answer(tokens)
}

// prompts returns the eight prompts within the model's limits.
func (t *trial) prompts() [][]int32 {
	var all [][]int32
	for i, n := range lengths {
		if n > t.most {
			n = t.most * (i + 1) / len(lengths)
		}
		all = append(all, prompt(uint64(i), n))
	}
	return all
}

// inSteps makes the requests to one daemon: all but those that need another daemon.
func (t *trial) inSteps() {
	all := t.prompts()
	for _, p := range all {
		t.check("prompts", p, true)
	}

	// A prefix: a prompt, the beginning of its answer, and other tokens behind.
	long := all[5]
	var before []int32
	if a := t.ref.known[key(long)]; a != nil && len(a.Tokens) >= 4 {
		before = a.Tokens[:4]
	}
	again := slices.Concat(long, before, prompt(20, 9))
	t.Shared["prefix"] = fmt.Sprintf("%d of %d", t.check("prefix", again, true), len(long)+len(before))

	// Guesses: the text repeats the end of a prompt, behind which an answer stood. They are mostly wrong at first, and
	// right when the same is asked again.
	repeated := all[3]
	if a := t.ref.known[key(repeated)]; a != nil {
		repeated = slices.Concat(repeated, a.Tokens, repeated[len(repeated)/2:])
		if len(repeated) <= t.most {
			t.check("guessed", repeated, true)
			t.check("guessed", repeated, true)
		}
	}

	var wait sync.WaitGroup
	pair := [2][]int32{prompt(30, min(64, t.most)), prompt(31, min(130, t.most))}
	var answers [2]answer
	var errs [2]error
	for i := range pair {
		wait.Go(func() { answers[i], errs[i] = t.ours.complete(pair[i], generated, false) })
	}
	wait.Wait()
	for i := range pair {
		t.compareWith("two at a time", pair[i], &answers[i], errs[i])
	}

	// A fork: while one answer is under way, another request begins with the same tokens.
	trunk := prompt(40, min(200, t.most))
	branch := slices.Concat(trunk[:len(trunk)-20], prompt(41, 10))
	if drop, err := t.ours.begin(trunk, 40); err != nil {
		t.cell("fork").Failed = err.Error()
	} else {
		t.Shared["fork"] = fmt.Sprintf("%d of %d", t.check("fork", branch, true), len(trunk)-20)
		drop()
		t.check("fork", trunk, true)
	}

	// Cancelled after the first token, then asked again.
	cut := prompt(50, min(130, t.most))
	if drop, err := t.ours.begin(cut, 100); err != nil {
		t.cell("resumed").Failed = err.Error()
	} else {
		drop()
		t.Shared["resumed"] = fmt.Sprintf("%d of %d", t.check("resumed", cut, true), len(cut))
	}
}

// run compares one model with llama-server, and adds its answers to known; without llama-server, with those in known.
// dir is a new directory.
func run(tools tools, model, dir string, known map[string]*answer) *result {
	r := &result{File: filepath.Base(model), Cells: map[string]*cell{}, Shared: map[string]string{}}
	cache := filepath.Join(dir, "cache")
	args := []string{"-c", fmt.Sprint(longContext), "--cache-dir", cache}
	ours, err := startOurs(tools.ours, model, args...)
	if err != nil {
		r.Refused = refusal(err.Error())
		return r
	}
	defer func() { ours.stop() }()
	f, err := ours.facts()
	if err != nil {
		r.Refused = err.Error()
		return r
	}
	r.Arch, r.Memory = f.Model.Architecture, f.memory()
	whole := []string{"-ub", fmt.Sprint(longContext), "-b", fmt.Sprint(longContext)}
	var refArgs []string
	if f.Model.Encoder {
		refArgs = append([]string{"--embedding", "--pooling", "mean"}, whole...)
	}
	var ref *server
	if tools.reference != "" {
		if ref, err = startReference(tools.reference, model, refArgs...); err != nil {
			r.Note = err.Error()
			return r
		}
	}
	t := &trial{result: r, ref: &reference{ref, known}, ours: ours,
		most: min(f.Capabilities.Context, longContext) - 48}
	if ref != nil {
		defer func() { t.ref.stop() }()
		t.oneStep = func() (*server, error) { return startReference(tools.reference, model, whole...) }
	}
	if f.Model.Encoder {
		t.encode()
		return r
	}
	if f.Model.Positions > 0 {
		r.Note = t.beyond(f.Model.Positions)
	}
	t.inSteps()

	// The same daemon's files, another process, and prompts in small pieces.
	ours.stop()
	args = append(args, "--batch-size", "48", "--ubatch-size", "48")
	if ours, err = startOurs(tools.ours, model, args...); err != nil {
		r.cell("restart").Failed = refusal(err.Error())
		ours = &server{stop: func() {}}
		return r
	}
	t.ours = ours
	kept := t.prompts()[6]
	r.Shared["restart"] = fmt.Sprintf("%d of %d", t.check("restart", kept, true), len(kept))
	for _, i := range []int{4, 5, 6} {
		t.check("chunks", t.prompts()[i], false)
	}
	if ref != nil {
		t.inSingleSteps(func() (*server, error) { return startReference(tools.reference, model, "-ub", "1") })
	}
	return r
}

// beyond asks for more than the model has learned positions and returns what is wrong with the answer, or a sentence
// for the table.
func (t *trial) beyond(positions int) string {
	_, err := t.ours.complete(prompt(60, positions+100), 1, true)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(positions)) ||
		!strings.Contains(err.Error(), "HTTP 400") {
		t.cell("prompts").Failed = fmt.Sprintf("a prompt of %d tokens: %v", positions+100, err)
	}
	return fmt.Sprintf("%d learned positions, the most that a request can have", positions)
}

// encode compares the embeddings of the eight prompts.
func (t *trial) encode() {
	type embeddings []struct {
		Embedding [][]float64 `json:"embedding"`
	}
	c := t.cell("prompts")
	for _, p := range t.prompts() {
		var got, want embeddings
		if err := t.ours.post("/embedding", map[string]any{"content": p}, &got); err != nil {
			c.Failed = err.Error()
			return
		}
		if err := t.ref.post("/embedding", map[string]any{"content": p}, &want); err != nil {
			c.Failed = "llama-server: " + err.Error()
			return
		}
		c.Answers++
		if len(got) != 1 || len(want) != 1 || len(got[0].Embedding) != 1 || len(want[0].Embedding) != 1 ||
			len(got[0].Embedding[0]) != len(want[0].Embedding[0]) {
			c.Failed = "the embeddings have different shapes"
			return
		}
		far := 0.0
		for i, v := range want[0].Embedding[0] {
			far = max(far, math.Abs(v-got[0].Embedding[0][i]))
		}
		if c.Delta = max(c.Delta, far); !(far <= sameEmbedding) {
			c.Apart++
			c.Gap = max(c.Gap, far)
		}
	}
}

// refusal returns the reason in what a daemon wrote before it ended.
func refusal(text string) string {
	text = lastLines(text, 1)
	if i := strings.LastIndex(text, ".gguf: "); i >= 0 {
		text = text[i+len(".gguf: "):]
	}
	return strings.TrimSpace(text)
}

// tools are the programs that are compared.
type tools struct{ ours, reference string }

// timed runs a model and says how it went.
func timed(tools tools, model, dir string, say func(string)) *result {
	begin := time.Now()
	r := run(tools, model, dir, map[string]*answer{})
	r.addHeads(tools, model)
	state := "equal"
	switch {
	case r.Refused != "":
		state = "refused: " + r.Refused
	case r.apart():
		state = "APART"
		for _, k := range kinds {
			if c := r.Cells[k]; c != nil && (c.Failed != "" || c.Apart > 0) {
				state += fmt.Sprintf("; %s: %s", k, strings.TrimSpace(c.text()+" "+c.Failed))
			}
		}
		state += r.headsText()
	case len(r.Cells) == 0:
		state = "not compared: " + r.Note
	}
	say(fmt.Sprintf("%s: %s (%.1f s)", r.File, state, time.Since(begin).Seconds()))
	return r
}
