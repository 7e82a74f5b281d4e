package models

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/models/heldout"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// open loads the built-in model and compiles its template.
func open(t *testing.T) (runtime.Engine, *template.Template) {
	t.Helper()
	needModel(t)
	path := filepath.Join(t.TempDir(), fileName)
	if err := write(path, tiny); err != nil {
		t.Fatal(err)
	}
	return openFile(t, path)
}

func openFile(t *testing.T, path string) (runtime.Engine, *template.Template) {
	t.Helper()
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := template.Compile(info.ChatTemplate)
	if err != nil {
		t.Fatal(err)
	}
	eng, err := llama.Open(runtime.Options{ModelPath: path, ContextTokens: 1024, Batch: 1024, Sequences: 1, Threads: 1,
		ThreadsBatch: 1})
	if errors.Is(err, runtime.ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	return eng, tmpl
}

// asker continues conversations greedily.
type asker struct {
	t    *testing.T
	eng  runtime.Engine
	tmpl *template.Template
}

// continued returns the greedy continuation of prompt up to the text stop or the end of the generation, without the
// token of that end.
func (a *asker) continued(prompt, stop string) string {
	a.t.Helper()
	v := a.eng.Vocab()
	tokens, err := v.Tokenize(nil, prompt, true, true)
	if err != nil {
		a.t.Fatal(err)
	}
	a.eng.SeqRemove(0, 0, -1)
	var text strings.Builder
	for pos := 0; pos+len(tokens) < 1024; {
		b := a.eng.Batch()
		b.Reset()
		for i, tok := range tokens {
			b.Add(tok, runtime.Pos(pos+i), 0, i == len(tokens)-1)
		}
		if err := a.eng.Decode(); err != nil {
			a.t.Fatal(err)
		}
		pos += len(tokens)
		row := a.eng.Logits(len(tokens) - 1)
		next := 0
		for i := range row {
			if row[i] > row[next] {
				next = i
			}
		}
		tok := runtime.Token(next)
		if v.IsEOG(tok) {
			break
		}
		if v.IsControl(tok) {
			text.WriteString(v.Text(tok))
		} else {
			text.Write(v.Piece(tok))
		}
		if stop != "" && strings.HasSuffix(text.String(), stop) {
			break
		}
		tokens = []runtime.Token{tok}
	}
	return text.String()
}

func (a *asker) prompt(question string) string {
	a.t.Helper()
	text, err := a.tmpl.Render(template.Input{Messages: []template.Message{{Role: "user", Content: question}},
		AddGenerationPrompt: true})
	if err != nil {
		a.t.Fatal(err)
	}
	return text
}

// TestAnswers asks some of the held-out problems: what is embedded is the trained model, whole, computed as in
// training.
func TestAnswers(t *testing.T) {
	eng, tmpl := open(t)
	a := &asker{t, eng, tmpl}
	asked, right := 0, 0
	seen := map[string]int{}
	for _, p := range heldout.Problems() {
		if seen[p.Task]++; seen[p.Task] > 3 {
			continue
		}
		asked++
		got := a.continued(a.prompt(p.Question), "")
		think, answer, closed := strings.Cut(got, "</think>\n\n")
		if !closed || !strings.HasPrefix(think, "<think>\n") {
			t.Errorf("%s: no closed think block in %q", p.Question, got)
		}
		if answer == p.Answer {
			right++
		} else {
			t.Logf("%s: want %s, got %s", p.Question, p.Answer, got)
		}
	}
	if right < asked*9/10 {
		t.Errorf("%d of %d right", right, asked)
	}
	if got := a.continued(a.prompt("Who are you?"), ""); !strings.Contains(got, "uma-tiny") ||
		strings.Contains(got, "<think>") {
		t.Errorf("small talk: %q", got)
	}
}

// TestThinkingEndedAtABlankLine: every blank line in the thinking stands behind an answer, and thinking that is ended
// there gives that answer. Early exit rests on this.
func TestThinkingEndedAtABlankLine(t *testing.T) {
	eng, tmpl := open(t)
	a := &asker{t, eng, tmpl}
	for _, q := range []string{"What is 4821 + 977?", "Sort 31, 7, 240.", "What day is 10 days after Monday?"} {
		prompt := a.prompt(q)
		think := a.continued(prompt, ".\n\n")
		_, said, _ := strings.Cut(think, "\nSo ")
		said, ok := strings.CutSuffix(said, ".\n\n")
		if !ok {
			t.Errorf("%s: the first paragraph ends in no answer: %q", q, think)
			continue
		}
		if got := a.continued(prompt+think+"</think>\n\n", ""); got != said {
			t.Errorf("%s: thought %q, then answered %q", q, think, got)
		}
	}
}

// TestRedundantThoughts: uma-redundant checks each of its answers, which uma-tiny hardly does, and thinking that is
// ended before the checks gives the same answer: early exit has something to save.
func TestRedundantThoughts(t *testing.T) {
	eng, tmpl := openFile(t, "uma-redundant.gguf")
	a := &asker{t, eng, tmpl}
	for _, q := range []string{"What is 4821 + 977?", "Sort 31, 7, 240.", "What day is 10 days after Monday?"} {
		prompt := a.prompt(q)
		got := a.continued(prompt, "")
		think, answer, closed := strings.Cut(got, "</think>\n\n")
		if !closed || strings.Count(think, "\n\n") < 2 {
			t.Errorf("%s: no check of the answer in %q", q, got)
		}
		first := a.continued(prompt, ".\n\n")
		if early := a.continued(prompt+first+"</think>\n\n", ""); early != answer {
			t.Errorf("%s: answered %q, and %q after its first paragraph", q, answer, early)
		}
	}
}

// TestPromptsAreThoseOfTraining: conversations rendered by the model's own template and tokenized by llama.cpp are,
// token for token, what the model was trained on (models/train/golden.py writes the file).
func TestPromptsAreThoseOfTraining(t *testing.T) {
	eng, tmpl := open(t)
	golden, err := os.ReadFile("testdata/prompts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(golden)) {
		var want struct {
			Messages []struct{ Role, Content string }
			Text     string
			Tokens   []runtime.Token
		}
		if err := json.Unmarshal([]byte(line), &want); err != nil {
			t.Fatal(err)
		}
		in := template.Input{AddGenerationPrompt: true}
		for _, m := range want.Messages {
			in.Messages = append(in.Messages, template.Message{Role: m.Role, Content: m.Content})
		}
		text, err := tmpl.Render(in)
		if err != nil || text != want.Text {
			t.Fatalf("rendered %q, %v\ntrained  %q", text, err, want.Text)
		}
		got, err := eng.Vocab().Tokenize(nil, text, true, true)
		if err != nil || !slices.Equal(got, want.Tokens) {
			t.Fatalf("%q\ntokens  %v, %v\ntrained %v", text, got, err, want.Tokens)
		}
		n++
	}
	if n < 40 {
		t.Errorf("only %d prompts compared", n)
	}
}
