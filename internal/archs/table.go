package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
)

// sums are the totals of a run.
type sums struct{ models, archs, equal, ties, apart, refused, alone int }

func count(results []*result) (s sums) {
	archs := map[string]bool{}
	for _, r := range results {
		s.models++
		gap := 0.0
		for _, c := range r.Cells {
			gap = max(gap, c.Gap)
		}
		switch {
		case r.Refused != "":
			s.refused++
			continue
		case r.apart():
			s.apart++
		case len(r.Cells) == 0 || strings.HasPrefix(r.Note, "not compared"):
			s.alone++
		case gap > 0:
			s.ties++
		default:
			s.equal++
		}
		archs[r.Arch] = true
	}
	s.archs = len(archs)
	return s
}

func (s sums) String() string {
	return fmt.Sprintf("%d models; %d of them, of %d architectures, load. %d answer as llama-server does, token for "+
		"token;\n%d part at a near tie; %d differ; %d were not compared; %d are refused",
		s.models, s.models-s.refused-s.alone, s.archs, s.equal, s.ties, s.apart, s.alone, s.refused)
}

const intro = `# Architectures

` + "`make archs`" + ` writes this page. It takes a small random model of each architecture that llama.cpp knows
(llama.cpp's own test program test-llama-archs writes most of them, ` + "`scripts/archs/more.cpp`" + ` the others),
gives it a vocabulary of 127 bytes and serves it with uma-serve and with llama-server of the same tree. Both answer
greedily; the ids of the tokens and their log-probabilities are compared.

| column | what is asked |
|---|---|
| prompts | eight prompts of 5 to 1,200 tokens |
| chunks | three of them in steps of at most 48 tokens |
| two at a time | two requests in one step |
| prefix | an earlier prompt, the beginning of its answer, and nine other tokens |
| guessed | a prompt, its answer and half of the prompt again, twice: tokens are guessed, wrong and right ones |
| fork | a request that begins as one that is being answered, and that one again |
| resumed | a request whose client left after its first token, asked again |
| restart | a prompt of the process before, asked of a new process with the same cache directory |

**=** means that every token is equal. **tie 0.002** means that an answer parts where two tokens are 0.002 apart in
log-probability; up to %v, such tokens are equally right, as the two programs add the same products in another order.
**parts** is a larger gap, and a fault. Where an answer parts, llama-server is asked once more, in steps of one token;
where that differs from its own answer in one step, the notes say so.

Memory is what the model keeps of a text: cells for every token (full), cells for the last tokens in some layers
(window), a state (recurrent), or both (hybrid). An encoder keeps none, and its row compares the embeddings of the
eight prompts; there **=** means that no number of a normalised embedding differs by more than %v. Reused is how many
tokens of a prompt were not computed again: prefix / fork / resumed / restart.

%sNot covered are clip, gptj and wavtokenizer-dec, which answer nothing by themselves, nor do eagle3, dflash and
gemma4-assistant, heads whose drafts have a table below, and plm and rwkv6qwen2, of which llama.cpp makes no model from
metadata alone.

`

// byKind says what the kinds of memory allow.
//
//go:embed kinds.md
var byKind string

// damaged follows the table. Its reasons are those of explained in runtime/llama/readers_test.go.
//
//go:embed damaged.md
var damaged []byte

// table is docs/architectures.md.
func table(results []*result) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, intro, nearTie, sameEmbedding, byKind)
	fmt.Fprintf(&b, "%s.\n\n", count(results))
	fmt.Fprintf(&b, "| model | memory | %s | largest difference | reused | notes |\n|---|---%s|---|---|---|\n",
		strings.Join(kinds, " | "), strings.Repeat("|---", len(kinds)))
	for _, r := range results {
		name := strings.TrimSuffix(r.File, ".gguf")
		if r.Refused != "" {
			fmt.Fprintf(&b, "| %s | refused |%s | | | %s |\n", name, strings.Repeat(" |", len(kinds)), plain(r.Refused))
			continue
		}
		delta := 0.0
		var cells, notes []string
		if r.Note != "" {
			notes = append(notes, r.Note)
		}
		for _, k := range kinds {
			c := r.Cells[k]
			if c == nil {
				c = &cell{}
			}
			cells = append(cells, c.text())
			delta = max(delta, c.Delta)
			if c.Failed != "" && !slices.Contains(notes, c.Failed) {
				notes = append(notes, k+": "+c.Failed)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, r.Memory, strings.Join(cells, " | "), small(delta),
			reused(r), plain(strings.Join(notes, "; ")))
	}
	b.WriteString(headsTable(results))
	b.Write(damaged)
	return b.Bytes()
}

// reused returns the column of that name.
func reused(r *result) string {
	var parts []string
	for _, k := range []string{"prefix", "fork", "resumed", "restart"} {
		n, _, _ := strings.Cut(r.Shared[k], " ")
		if n == "" {
			n = "–"
		}
		parts = append(parts, n)
	}
	if strings.Join(parts, "") == "––––" {
		return ""
	}
	return strings.Join(parts, " / ")
}

// small writes a difference with one digit.
func small(v float64) string {
	if v == 0 || math.IsInf(v, 0) {
		return "0"
	}
	return fmt.Sprintf("%.0e", v)
}

// plain keeps a text from ending its cell.
func plain(s string) string {
	s = strings.NewReplacer("|", "/", "\n", " ").Replace(s)
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}
