package template

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

type conversation struct {
	Messages            []map[string]any `json:"messages"`
	AddGenerationPrompt bool             `json:"add_generation_prompt"`
	EnableThinking      *bool            `json:"enable_thinking"`
	Tools               []any            `json:"tools"`
}

func (c conversation) input() Input {
	in := Input{native: true, AddGenerationPrompt: c.AddGenerationPrompt, BOS: "<s>", EOS: "</s>",
		Extra: map[string]any{},
		Now:   time.Date(2026, 3, 7, 9, 5, 2, 0, time.UTC)}
	for _, m := range c.Messages {
		msg := Message{Role: m["role"].(string), Content: m["content"].(string), Extra: m}
		msg.ReasoningContent, _ = m["reasoning_content"].(string)
		in.Messages = append(in.Messages, msg)
	}
	if c.EnableThinking != nil {
		in.Extra["enable_thinking"] = *c.EnableThinking
	}
	if c.Tools != nil {
		in.Extra["tools"] = c.Tools
	}
	return in
}

func load(t testing.TB, name string) *Template {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", name+".jinja"))
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := Compile(string(src))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return tmpl
}

// The golden outputs are Jinja2's own (testdata/golden.py).
func TestGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Conversations map[string]conversation
		Golden        map[string]struct{ Out, Refused *string }
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	templates := map[string]*Template{}
	for key, want := range golden.Golden {
		name, conv, _ := strings.Cut(key, "/")
		if templates[name] == nil {
			templates[name] = load(t, name)
		}
		got, err := templates[name].Render(golden.Conversations[conv].input())
		switch {
		case want.Refused != nil:
			if !errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), *want.Refused) {
				t.Errorf("%s: %q, %v\nwant it refused with %q", key, got, err, *want.Refused)
			}
		case err != nil:
			t.Errorf("%s: %v\nwant %q", key, err, *want.Out)
		case got != *want.Out:
			t.Errorf("%s:\n got %q\nwant %q", key, got, *want.Out)
		}
	}
	if len(golden.Golden) < 80 {
		t.Errorf("only %d golden outputs", len(golden.Golden))
	}
}

func TestCheck(t *testing.T) {
	think := func(r Report) Report { r.OpenTag, r.CloseTag = "<think>", "</think>"; return r }
	for name, want := range map[string]Report{
		"chatml":  {PrefixStable: true, System: true},
		"llama3":  {PrefixStable: true, System: true},
		"mistral": {PrefixStable: false, System: true}, // a blank before the answer that is not in the prompt
		"gemma":   {PrefixStable: true, System: true},
		"qwen3": think(Report{PrefixStable: true, DropsThinking: true, ReadsReasoning: true,
			ThinkingSwitch: "enable_thinking", System: true}),
		"deepseek-r1": think(Report{PrefixStable: false, DropsThinking: true, OpensThinking: true, System: true}),
		"parts":       {PrefixStable: false, System: true}, // "Assistant:" before, "Assistant: " after
		// the channel is not part of the generation prompt
		"harmony": {PrefixStable: false, System: true, ThinkingSwitch: "reasoning_effort",
			OpenTag:  "<|channel|>analysis<|message|>",
			CloseTag: "<|end|><|start|>assistant<|channel|>final<|message|>"},
	} {
		got, err := load(t, name).Check("<s>", "</s>")
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, want)
		}
	}
	for src, want := range map[string]Report{
		ggufgen.ChatMLDropThinking: think(Report{PrefixStable: true, DropsThinking: true,
			ThinkingSwitch: "enable_thinking", System: true}),
		ggufgen.ChatMLKeepThinking: think(Report{PrefixStable: true, ThinkingSwitch: "enable_thinking", System: true}),
	} {
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Check("", ""); err != nil || got != want {
			t.Errorf("%+v, %v\nwant %+v", got, err, want)
		}
	}
}

func TestCompileRefusesWhatCannotWork(t *testing.T) {
	for src, want := range map[string]string{
		"{% for m in messages %}\n{{ m.content | nope }}{% endfor %}": "line 2: unknown filter",
		"{% for m in messages %}":                                     "line 1: missing {% endfor %}",
		"{{ messages[0].content.nope.nope }}":                         "line 1: nope is undefined",
		"Hello":                                                       "leaves out the content of a user message",
		"":                                                            "leaves out the content of a user message",
		"{{ messages | tojson }}{% for i in range(10**9) %}{% endfor %}": "line 1: the template used up its limit",
	} {
		_, err := Compile(src)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `send "prompt"`) {
			t.Errorf("%q: %v\nwant %q and what to do", src, err, want)
		}
	}
}

// TestChosen: a template that leaves out what the user says works where a person has chosen it.
func TestChosen(t *testing.T) {
	for src, deaf := range map[string]bool{"Hello": true, "": true,
		"{% for m in messages %}{{ m.content }}{% endfor %}": false} {
		tmpl, err := CompileChosen(src)
		if err != nil || tmpl.Deaf() != deaf || tmpl.Tools().Syntax == nil {
			t.Fatalf("%q: %v", src, err)
		}
		out, err := tmpl.Render(Input{Messages: []Message{{Role: "system", Content: "Be kind."},
			{Role: "user", Content: "Hi"}, {Role: "assistant", Content: "Hello"}, {Role: "user", Content: "?"}}})
		if want := src; deaf && (err != nil || out != want) {
			t.Errorf("%q: %q, %v", src, out, err)
		}
	}
	if _, err := CompileChosen("{% for m in messages %}"); err == nil {
		t.Error("a broken template is taken")
	}
}

// A message cannot smuggle template code or overwrite a variable.
func TestMessagesAreData(t *testing.T) {
	tmpl := load(t, "chatml")
	evil := "{{ eos_token }}{% for x in messages %}{{ x }}{% endfor %}{# x #}"
	out, err := tmpl.Render(Input{Messages: []Message{{Role: "user", Content: evil,
		Extra: map[string]any{"content": "other"}}},
		EOS: "SECRET", Extra: map[string]any{"messages": []any{}, "eos_token": "x"}})
	if err != nil || !strings.Contains(out, evil) || strings.Contains(out, "SECRET") || strings.Contains(out, "other") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestLongConversationFits(t *testing.T) {
	tmpl := load(t, "qwen3")
	var in Input
	for range 2000 {
		in.Messages = append(in.Messages, Message{Role: "user", Content: strings.Repeat("word ", 400)},
			Message{Role: "assistant", Content: "<think>\n" + strings.Repeat("hm ", 200) + "\n</think>\n\nok"})
	}
	out, err := tmpl.Render(in)
	if err != nil || len(out) < 4_000_000 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// published are chat templates as they come with well-known models.
func published(t *testing.T) map[string]string {
	f, err := os.Open("jinja/testdata/published/templates.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		src, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(h.Name)] = string(src)
	}
}

// Every published template can be used, and renders ten thousand turns, with and without thoughts.
func TestTenThousandTurns(t *testing.T) {
	turns := 10_000
	if testing.Short() {
		turns = 1000
	}
	var in Input
	for i := range turns {
		m := Message{Role: "assistant", Content: fmt.Sprint("answer ", i)}
		if i%2 == 1 {
			m.ReasoningContent = fmt.Sprint("thought ", i)
		}
		in.Messages = append(in.Messages, Message{Role: "user", Content: fmt.Sprint("question ", i)}, m)
	}
	in.Messages = append(in.Messages, Message{Role: "user", Content: "the last question"})
	in.AddGenerationPrompt = true
	templates := published(t)
	if len(templates) < 38 {
		t.Fatalf("only %d templates", len(templates))
	}
	for name, src := range templates {
		tmpl, err := Compile(src)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out, err := tmpl.Render(in)
		if err != nil || !strings.Contains(out, fmt.Sprint("question ", turns-1)) ||
			!strings.Contains(out, "the last question") {
			t.Errorf("%s: %d bytes, %v", name, len(out), err)
		}
	}
}

// Templates that look at all messages from each one, when there are tool calls, get through long work with tools.
func TestManyToolCalls(t *testing.T) {
	var in Input
	for i := range 500 {
		id := fmt.Sprintf("call%05d", i)
		call := map[string]any{"id": id, "type": "function",
			"function": map[string]any{"name": "f", "arguments": map[string]any{"x": i}}}
		in.Messages = append(in.Messages, Message{Role: "user", Content: "question"},
			Message{Role: "assistant", Extra: map[string]any{"tool_calls": []any{call}}},
			Message{Role: "tool", Content: "result", Extra: map[string]any{"tool_call_id": id, "name": "f"}},
			Message{Role: "assistant", Content: "answer"})
	}
	in.Messages = append(in.Messages, Message{Role: "user", Content: "the last question"})
	parameters := map[string]any{"type": "object",
		"properties": map[string]any{"x": map[string]any{"type": "integer", "description": "d"}},
		"required":   []any{"x"}}
	in.Extra = map[string]any{"tools": []any{map[string]any{"type": "function",
		"function": map[string]any{"name": "f", "description": "d", "parameters": parameters}}}}
	for name, src := range published(t) {
		tmpl, err := Compile(src)
		if err != nil {
			continue
		}
		if out, err := tmpl.Render(in); errors.Is(err, ErrTooLarge) || err == nil &&
			!strings.Contains(out, "the last question") {
			t.Errorf("%s: %d bytes, %v", name, len(out), err)
		}
	}
}

func TestConcurrentRender(t *testing.T) {
	tmpl := load(t, "qwen3")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			content := strings.Repeat("x", i)
			for range 100 {
				out, err := tmpl.Render(Input{Messages: []Message{{Role: "user", Content: content}}})
				if want := "<|im_start|>user\n" + content + "<|im_end|>\n"; out != want || err != nil {
					t.Errorf("%q, %v, want %q", out, err, want)
				}
			}
		})
	}
	wg.Wait()
}

// Whatever the messages hold, a well-behaved template renders them unchanged.
func FuzzMessages(f *testing.F) {
	f.Add("user", "hello", "{{ x }}")
	f.Add("assistant", "<think>a</think>b", "\x00\xff")
	tmpl := load(f, "chatml")
	f.Fuzz(func(t *testing.T, role, a, b string) {
		out, err := tmpl.Render(Input{Messages: []Message{{Role: role, Content: a}, {Role: "user", Content: b}}})
		want := "<|im_start|>" + role + "\n" + a + "<|im_end|>\n<|im_start|>user\n" + b + "<|im_end|>\n"
		if role != "system" {
			want = "<|im_start|>system\nYou answer briefly.<|im_end|>\n" + want
		}
		if err != nil || out != want {
			t.Fatalf("%q, %v\nwant %q", out, err, want)
		}
	})
}

// No template makes Compile, Check or Render do anything but answer.
func FuzzCompile(f *testing.F) {
	for _, name := range []string{"chatml", "llama3", "mistral", "gemma", "qwen3", "deepseek-r1", "parts", "harmony"} {
		src, err := os.ReadFile(filepath.Join("testdata", name+".jinja"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(src))
	}
	f.Fuzz(func(t *testing.T, src string) {
		tmpl, err := Compile(src)
		if err == nil {
			_, err = tmpl.Check("<s>", "</s>")
		}
		if err != nil && !errors.Is(err, ErrTemplate) && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
	})
}
