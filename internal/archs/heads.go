package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// A head with a file drafts for the models of some architectures. Here the daemon's answers with the drafts of a random
// head are compared with its answers without: prompts, a prefix, a fork, a resumed answer, sampled ones with a seed,
// and four at once in a context that is too small for them.

// headKinds are the columns of the table of heads: an architecture of a head, and its --spec-type.
var headKinds = []struct {
	arch ggufgen.Arch
	kind string
}{{ggufgen.Eagle3, "draft-eagle3"}, {ggufgen.DFlash, "draft-dflash"}, {ggufgen.Gemma4Assistant, "draft-mtp"}}

// headContext is the context of these daemons, in tokens: less than four of their longest requests have.
const headContext = 1024

// headTokens is the length of each answer. Most is drafted at the beginning of a process: then a head is tried.
const headTokens = 40

// headResult has the findings about a model with one kind of head.
type headResult struct {
	cell
	Memory            string // of the model
	Drafted, Accepted int    // tokens of the head
	Refused           string // why the daemon does not use it
	// Self is the largest gap at which answers without drafts part in steps of another size; 0: they do not.
	Self float64
}

// text is the result's place in the table.
func (h *headResult) text() string {
	switch {
	case h == nil || h.Refused != "":
		return "–"
	case h.Drafted == 0:
		return "nothing drafted"
	}
	if h.Self > 0 {
		return fmt.Sprintf("parts at %.2g, without drafts at %.2g; %d / %d", h.Gap, h.Self, h.Accepted, h.Drafted)
	}
	return fmt.Sprintf("%s %d / %d", h.cell.text(), h.Accepted, h.Drafted)
}

// fails reports whether an answer differs, or nothing was drafted.
func (h *headResult) fails() bool {
	return h.Refused == "" && (h.Failed != "" || h.Apart > 0 && h.Gap > 2*h.Self || h.Drafted == 0)
}

// compareAll adds the comparison of answers with those without drafts.
func (h *headResult) compareAll(plain, got []headAnswer) {
	for i := range plain {
		if plain[i].sampled {
			h.sampled(&plain[i].answer, &got[i].answer)
		} else {
			h.compare(&plain[i].answer, &got[i].answer)
		}
	}
}

// headAnswer is an answer to compare, and how it is compared.
type headAnswer struct {
	answer
	sampled bool
}

// withHeads compares the answers of a model with each kind of head. dir is a new directory.
func withHeads(t tools, model, dir string) (map[string]*headResult, error) {
	of, err := archOf(model)
	if err != nil {
		return nil, err
	}
	var plain []headAnswer
	found := map[string]*headResult{}
	for _, k := range headKinds {
		if k.arch == ggufgen.Gemma4Assistant && of != ggufgen.Gemma4 {
			continue
		}
		h := &headResult{}
		found[string(k.arch)] = h
		head := filepath.Join(dir, string(k.arch)+".gguf")
		if err := ggufgen.WriteHeadFor(head, model, k.arch); err != nil {
			return nil, err
		}
		got, err := h.answers(t, model, "--spec-type", k.kind, "--draft-model", head)
		if err != nil {
			h.Refused = cmp.Or(h.Refused, refusal(err.Error()))
			continue
		}
		if plain == nil {
			if plain, err = new(headResult).answers(t, model, "--speculate", "off"); err != nil {
				return nil, err
			}
		}
		if h.compareAll(plain, got); h.Apart == 0 {
			continue
		}
		// A row of some models depends on what is computed beside it, beyond rounding.
		other, err := new(headResult).answers(t, model, "--speculate", "off", "--batch-size", "48", "--ubatch-size",
			"48")
		if err != nil {
			return nil, err
		}
		var self headResult
		if self.compareAll(plain, other); self.Apart > 0 {
			h.Self = self.Gap
		}
	}
	return found, nil
}

// archOf returns the architecture of a model.
func archOf(path string) (ggufgen.Arch, error) {
	in, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return "", err
	}
	kvs, _, err := gguffile.Read(in, st.Size())
	for _, kv := range kvs {
		if name, ok := kv.Value.(string); ok && kv.Key == "general.architecture" {
			return ggufgen.Arch(name), nil
		}
	}
	return "", err
}

// answers starts a daemon, asks it and counts the drafts of its head. An error is that of a daemon that does not start;
// what else goes wrong is h.Failed.
func (h *headResult) answers(t tools, model string, args ...string) (list []headAnswer, err error) {
	ours, err := startOurs(t.ours, model, append([]string{"-c", fmt.Sprint(headContext), "--parallel", "4",
		"--batch-size", "64", "--ubatch-size", "64"}, args...)...)
	if err != nil {
		return nil, err
	}
	defer ours.stop()
	f, err := ours.facts()
	if err != nil {
		return nil, err
	}
	if h.Memory = f.memory(); f.Model.Encoder || f.Capabilities.Context <= headTokens {
		h.Refused = "the model generates nothing"
		return nil, errors.New(h.Refused)
	}
	most := min(f.Capabilities.Context, headContext) - headTokens - 1
	ask := func(tokens []int32, more map[string]any) answer {
		q := body(tokens[:min(len(tokens), most)], headTokens, true, false)
		for k, v := range more {
			q[k] = v
		}
		var a answer
		if err := ours.post("/completion", q, &a); err != nil && h.Failed == "" {
			h.Failed = err.Error()
		}
		return a
	}
	add := func(tokens []int32) { list = append(list, headAnswer{answer: ask(tokens, nil)}) }
	for i, n := range []int{5, 40, 130, 602} {
		add(prompt(uint64(i), n))
	}
	for seed := range 3 {
		list = append(list, headAnswer{ask(prompt(70, 64), map[string]any{"temperature": 0.8, "seed": seed + 1}), true})
	}
	add(slices.Concat(prompt(2, 130), prompt(20, 9))) // a prefix
	trunk := prompt(40, 200)
	if drop, err := ours.begin(trunk[:min(200, most)], headTokens); err == nil {
		add(slices.Concat(trunk[:180], prompt(41, 10)))
		drop()
		add(trunk)
	}
	four := make([]headAnswer, 4)
	var wait sync.WaitGroup
	var mu sync.Mutex
	for i := range four {
		wait.Go(func() {
			a, err := ours.complete(prompt(uint64(50+i), min(260, most)), headTokens, true)
			mu.Lock()
			defer mu.Unlock()
			if four[i].answer = a; err != nil && h.Failed == "" {
				h.Failed = err.Error()
			}
		})
	}
	wait.Wait()
	h.Drafted, h.Accepted, err = ours.drafted()
	if err != nil && h.Failed == "" {
		h.Failed = err.Error()
	}
	return append(list, four...), nil
}

// drafted returns the number of tokens that the head has drafted, and of those that were accepted.
func (s *server) drafted() (drafted, accepted int, err error) {
	r, err := s.http.Get(daemonproc.Base + "/metrics")
	if err != nil {
		return 0, 0, err
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(io.LimitReader(r.Body, 8<<20)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if !strings.Contains(name, `source="head"`) {
			continue
		}
		n, _ := strconv.ParseFloat(value, 64)
		switch {
		case strings.HasPrefix(name, "uma_speculation_drafted_tokens_total"):
			drafted += int(n)
		case strings.HasPrefix(name, "uma_speculation_accepted_tokens_total"):
			accepted += int(n)
		}
	}
	return drafted, accepted, nil
}

// sampled adds the comparison of two answers that were drawn with one seed. Where they part, the rows must be the same
// but for rounding: then the draw lay between two tokens.
func (h *headResult) sampled(want, got *answer) {
	h.Answers++
	for i := range want.Probs {
		if i >= len(got.Probs) {
			h.Apart, h.Gap = h.Apart+1, unlisted
			return
		}
		w, g := &want.Probs[i], &got.Probs[i]
		if w.ID == g.ID {
			h.Tokens++
			continue
		}
		gap := float64(unlisted)
		for _, a := range w.Top {
			for _, b := range g.Top {
				if a.ID == b.ID && a.Logprob != nil && b.Logprob != nil {
					if d := math.Abs(*a.Logprob - *b.Logprob); gap == unlisted || d > gap {
						gap = d
					}
				}
			}
		}
		h.Gap = max(h.Gap, gap, 1e-9)
		if gap > nearTie {
			h.Apart++
		}
		return
	}
}

// headsTable is the part of docs/architectures.md about heads.
func headsTable(results []*result) string {
	var b strings.Builder
	b.WriteString(headsIntro)
	for _, r := range results {
		if len(r.Heads) == 0 || !slices.ContainsFunc(headKinds, func(k struct {
			arch ggufgen.Arch
			kind string
		}) bool {
			h := r.Heads[string(k.arch)]
			return h != nil && h.Refused == ""
		}) {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s |", strings.TrimSuffix(r.File, ".gguf"), r.Memory)
		for _, k := range headKinds {
			fmt.Fprintf(&b, " %s |", r.Heads[string(k.arch)].text())
		}
		b.WriteString("\n")
	}
	return b.String()
}

const headsIntro = `
## Heads with a file

A head in a separate file drafts for models of these architectures, of whose layers llama.cpp yields the inputs
(EAGLE-3, DFlash) or whose cells it shares (the assistant of Gemma 4); with the others the daemon does not start, and
says so. Each model is served with a random head, whose guesses come true by chance alone, and asked for prompts of 5
to 602 tokens, a prefix, a fork, three sampled answers with a seed, and four answers at once that do not fit into the
context together. **=** means that every token is the one without drafts; a tie is as above. Where answers part, the
table says how far they part without drafts in steps of at most 48 tokens in the place of 64. Behind it are the guesses
that came true, and all.

| model | memory | EAGLE-3 | DFlash | assistant |
|---|---|---|---|---|
`

// addHeads fills result.Heads, unless the model is not served.
func (r *result) addHeads(t tools, model string) {
	if r.Refused != "" {
		return
	}
	dir, err := os.MkdirTemp("", "archs")
	if err != nil {
		return
	}
	defer os.RemoveAll(dir)
	if r.Heads, err = withHeads(t, model, dir); err != nil {
		r.Heads = map[string]*headResult{"eagle3": {cell: cell{Failed: err.Error()}}}
	}
	for _, h := range r.Heads {
		r.Memory = cmp.Or(r.Memory, h.Memory)
	}
}

// headsText says what was found about heads, or why none is used.
func (r *result) headsText() (text string) {
	for _, k := range headKinds {
		if h := r.Heads[string(k.arch)]; h != nil {
			text += fmt.Sprintf("; %s: %s", k.arch, strings.TrimSpace(h.text()+" "+h.Failed+h.Refused))
		}
	}
	return text
}

// headsOnly writes the table of heads into the page, in the place of the one there.
func headsOnly(results []*result, doc string) error {
	section := headsTable(results)
	if doc == "" {
		fmt.Print(section)
	} else {
		page, err := os.ReadFile(doc)
		if err != nil {
			return err
		}
		title, _, _ := strings.Cut(strings.TrimSpace(section), "\n")
		before, rest, ok := strings.Cut(string(page), "\n"+title+"\n")
		i := strings.Index(rest, string(damaged[:strings.IndexByte(string(damaged[1:]), '\n')+1]))
		if !ok || i < 0 {
			return fmt.Errorf("%s has no part %q", doc, title)
		}
		if err := os.WriteFile(doc, []byte(before+section+rest[i:]), 0o644); err != nil {
			return err
		}
	}
	for _, r := range results {
		if r.apart() {
			return fmt.Errorf("%s: %s", r.File, r.headsText())
		}
	}
	return nil
}
