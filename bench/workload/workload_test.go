package workload

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReference holds the mix to the values that the reference implementation draws from its default seed.
func TestReference(t *testing.T) {
	p, err := New("synthetic", DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Requests) != 240 {
		t.Fatalf("%d requests, want 240", len(p.Requests))
	}
	want := []struct {
		kind               string
		template, think, n int
	}{{Chat, 4, 0, 84}, {Reasoning, 3, 2161, 212}, {Chat, 3, 0, 144}, {Chat, 2, 0, 205}, {Chat, 1, 0, 235},
		{Chat, 3, 0, 118}, {Chat, 2, 0, 238}, {Reasoning, 1, 2633, 279}}
	for i, w := range want {
		r := p.Requests[i]
		text := chatTemplates[w.template]
		if w.kind == Reasoning {
			text = reasoningTemplates[w.template]
		}
		if r.Kind != w.kind || r.Think != w.think || r.Output != w.n ||
			!strings.HasPrefix(r.Messages[0].Content, text) || r.ID != fmt.Sprintf("syn-%06d", i) {
			t.Errorf("request %d is %+v, want %+v", i, r, w)
		}
	}
	var reasoning, think, over2048, over4096, output int
	for _, r := range p.Requests {
		if r.Kind == Reasoning {
			reasoning++
			think += r.Think
		}
		if r.Think > 2048 {
			over2048++
		}
		if r.Think > 4096 {
			over4096++
		}
		output += r.Output
	}
	if mean := float64(think) / float64(reasoning); reasoning != 94 || math.Abs(mean-3089.55) > .005 ||
		over4096 != 24 || over2048 != 67 ||
		math.Abs(float64(output)/240-180.3) > .05 {
		t.Errorf("%d reasoning, %d above 2048, %d above 4096, mean think %.2f, mean output %.2f", reasoning, over2048,
			over4096, mean, float64(output)/240)
	}
	for i, gap := range []float64{.397764, .120563, .002057, .136233, .026444} {
		if got := (p.Requests[i+1].At - p.Requests[i].At).Seconds(); math.Abs(got-gap) > 1e-6 {
			t.Errorf("gap %d is %.6f s, want %.6f", i, got, gap)
		}
	}
	if p.Requests[0].At != 0 {
		t.Errorf("the first arrives at %v", p.Requests[0].At)
	}
}

func TestShuffleIsPythons(t *testing.T) {
	xs := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	shuffle(newRandom(DefaultSeed), xs)
	if got, want := fmt.Sprint(xs), "[6 8 4 1 3 5 7 0 2 9]"; got != want {
		t.Errorf("shuffled to %s, want %s", got, want)
	}
}

// TestEveryWorkload: each is valid, measures something and is the same when made again.
func TestEveryWorkload(t *testing.T) {
	dir := t.TempDir()
	chats, problems := filepath.Join(dir, "s.json"), filepath.Join(dir, "m.jsonl")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(chats, `[{"id":"a","conversations":[{"from":"gpt","value":"x"},
		{"from":"human","value":"How are you?"},{"from":"gpt","value":"Fine"}]},
		{"id":"b","conversations":[{"from":"human","value":"  "}]},
		{"id":"c","conversations":[{"from":"user","value":"`+strings.Repeat("long ", 200)+`"}]},
		{"id":"d","conversations":[{"from":"human","value":"`+strings.Repeat("x", 4097)+`"}]}]`)
	write(problems, `{"problem":"What is 1+1?","solution":"\\boxed{2}","answer":"2","subject":"Algebra","level":1,`+
		`"unique_id":"t/1"}`+"\n"+
		`{"problem":"Half?","solution":"It is $\\boxed{\\frac{1}{2}}$","subject":"Algebra"}`+"\n")
	for _, n := range Names {
		t.Run(n.Name, func(t *testing.T) {
			o := DefaultOptions()
			o.File, o.MathFile, o.Problems = chats, problems, []Problem{{"add", "What is 1+1?", "2"}}
			if n.Name == "math500" {
				o.File = problems
			}
			p, err := New(n.Name, o)
			if err != nil {
				t.Fatal(err)
			}
			again, err := New(n.Name, o)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := json.Marshal(p)
			b, _ := json.Marshal(again)
			if string(a) != string(b) {
				t.Error("made again it differs")
			}
			seen := map[string]bool{}
			for _, r := range p.Requests {
				if seen[r.ID] {
					t.Fatalf("id %s is used twice", r.ID)
				}
				seen[r.ID] = true
				if r.Grader != "" && r.Answer == "" {
					t.Errorf("%s is graded without an answer", r.ID)
				}
			}
			switch n.Name {
			case "sharegpt":
				// Two entries can be used: 12 characters ask for the least, 1000 for a third.
				if len(p.Requests) != 240 || p.Requests[0].Output+p.Requests[1].Output != 32+333 {
					t.Errorf("%d requests, outputs %d and %d", len(p.Requests), p.Requests[0].Output,
						p.Requests[1].Output)
				}
			case "math500":
				if a := p.Requests[0].Answer + p.Requests[1].Answer; a != `2\frac{1}{2}` && a != `\frac{1}{2}2` {
					t.Errorf("answers %s", a)
				}
			case "mix":
				n := 0
				for _, r := range p.Requests {
					if r.Kind == Reasoning {
						n++
					}
				}
				if n != 96 {
					t.Errorf("%d of 240 are problems, want 96", n)
				}
			case "schemas":
				if free, held := p.Requests[0], p.Requests[1]; free.Schema != "" || !free.Exact || held.Exact ||
					!json.Valid([]byte(held.Schema)) {
					t.Errorf("%+v, %+v", free, held)
				}
			case "edit":
				text := p.Requests[0].Messages[0].Content
				_, rest, _ := strings.Cut(text, "Rename the type ")
				from, _, _ := strings.Cut(rest, " to ")
				if strings.Contains(text, "NAME") || strings.Count(text, from) < 10 {
					t.Error(text)
				}
				o.Salt = "other-"
				if other, err := New("edit", o); err != nil || other.Requests[0].Messages[0].Content == text {
					t.Errorf("another plan asks the same, %v", err)
				}
			}
		})
	}
}

func TestOptionErrors(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--arrival-rate":    func(o *Options) { o.Rate = math.NaN() },
		"--reasoning-ratio": func(o *Options) { o.ReasoningRatio = 2 },
		"--scale":           func(o *Options) { o.Scale = 0 },
		"not one request":   func(o *Options) { o.Duration = time.Millisecond },
		"--context":         func(o *Options) { o.Context = 5 },
		"ten million":       func(o *Options) { o.Rate = 1e9 },
		"4096 clients":      func(o *Options) { o.Clients = 5000 },
	} {
		o := DefaultOptions()
		change(&o)
		if _, err := New("synthetic", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	for name, want := range map[string]string{"nope": "is none of", "sharegpt": "--file", "mix": "--math-file",
		"heldout": "no entry"} {
		if _, err := New(name, DefaultOptions()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", name, want, err)
		}
	}
}

func TestRight(t *testing.T) {
	for _, c := range []struct {
		text, answer string
		want         bool
	}{
		{`so it is \boxed{42}.`, "42", true}, {`\boxed{41}, no: \boxed{42}`, "42", true}, {"Therefore\n42", "42", true},
		{`\boxed{42`, "42", false},
		{`\boxed{\dfrac{1}{2}}`, `\frac12`, true}, {`\boxed{0.5}`, `\frac{1}{2}`, true},
		{`\boxed{-\frac{3}{4}}`, "-0.75", true},
		{`\boxed{1,234}`, "1234", true}, {`\boxed{(1,234)}`, "1234", false}, {`\boxed{90^\circ}`, "90", true},
		{`\boxed{\text{east}}`, "east", true},
		{`\boxed{\left(3, \frac{\pi}{2}\right)}`, `\left( 3, \frac{\pi}{2} \right)`, true}, {`\boxed{}`, "", false},
		{`\boxed{1e999999999}`, "1", false},
		{`\boxed{1/0}`, "1", false},
	} {
		r := Request{Grader: "math", Answer: c.answer}
		if got := r.Right(c.text); got != c.want {
			t.Errorf("%q for %q: %v", c.text, c.answer, got)
		}
	}
	r := Request{Grader: "exact", Answer: "7"}
	if !r.Right(" 7\n") || r.Right("7.") {
		t.Error("exact means the text, spaces around it aside")
	}
}

func FuzzDatasets(f *testing.F) {
	f.Add(`[{"conversations":[{"from":"human","value":"x"}]}]`)
	f.Add("{\"problem\":\"x\",\"answer\":\"1\"}\n{}")
	f.Add("[1]")
	f.Fuzz(func(t *testing.T, text string) {
		decode(bufio.NewReader(strings.NewReader(text)), func(v json.RawMessage) error {
			if !json.Valid(v) {
				t.Errorf("not JSON: %q", v)
			}
			return nil
		})
	})
}

func FuzzRight(f *testing.F) {
	f.Add(`\boxed{\frac{1}{2}}`, "0.5")
	f.Fuzz(func(t *testing.T, text, answer string) {
		r := Request{Grader: "math", Answer: answer}
		r.Right(text)
		if plain(answer) != "" && !equalMath(answer, answer) {
			t.Errorf("%q is not equal to itself", answer)
		}
	})
}
