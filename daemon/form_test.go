package daemon

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

const personSchema = `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
	"age": {"type": "integer", "maximum": 99, "minimum": 0}},
	"required": ["name", "age"], "additionalProperties": false}`

// formCases are forms with what their answers must be.
var formCases = []struct {
	name   string
	format wire.Format
	ok     func(string) bool
}{
	{"choice", wire.Format{Kind: wire.FormatChoice, Choices: []string{"perhaps", "certainly", "certainty"}},
		func(s string) bool {
			return slices.Contains([]string{"perhaps", "certainly", "certainty"}, s)
		}},
	{"regex", wire.Format{Kind: wire.FormatRegex, Payload: `[0-9]{3}-(ä|ö)[a-z]{2}`},
		regexp.MustCompile(`^[0-9]{3}-(ä|ö)[a-z]{2}$`).MatchString},
	{"grammar", wire.Format{Kind: wire.FormatGrammar, Payload: "root ::= \"<\" item{2,3} \">\"\nitem ::= [x-z] | " +
		"\"(\" item \")\""}, func(s string) bool {
		return regexp.MustCompile(`^<[()x-z]+>$`).MatchString(s) && strings.Count(s, "(") == strings.Count(s, ")")
	}},
	{"json", wire.Format{Kind: wire.FormatJSON}, func(s string) bool {
		var v map[string]any
		return json.Unmarshal([]byte(s), &v) == nil
	}},
	{"schema", wire.Format{Kind: wire.FormatSchema, Payload: personSchema}, func(s string) bool {
		var v struct {
			Name *string
			Age  *int
		}
		d := json.NewDecoder(strings.NewReader(s))
		d.DisallowUnknownFields()
		return d.Decode(&v) == nil && v.Name != nil && len([]rune(*v.Name)) <= 8 && v.Age != nil && *v.Age >= 0 &&
			*v.Age < 100
	}},
	{"lark", wire.Format{Kind: wire.FormatGrammar, Payload: "%llguidance {}\nstart: \"<\" ITEM~2..3 " +
		"\">\"\nITEM: \"x\"..\"z\""},
		regexp.MustCompile(`^<[x-z]{2,3}>$`).MatchString},
}

// TestFormsHoldAnswers: whatever the model would like to say, the answer has its form; the thought has not.
func TestFormsHoldAnswers(t *testing.T) {
	for _, script := range []struct{ prompt, emit, think string }{
		{"plain", "one, {two}: three", ""},
		{"thinks", "<think>a, {b}</think>one, {two}: three", "a, {b}"},
	} {
		r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: script.emit}}})
		c := r.dial()
		for _, k := range formCases {
			for seed := range uint64(4) {
				a := r.ask(c, func(q *wire.Request) {
					q.Format, q.MaxTokens = k.format, 600
					q.Sampling.Temperature, q.Sampling.Seed, q.Sampling.SeedSet = float32(seed)*0.7, seed, true
				})
				if a.err != nil || a.think != script.think || a.eos.Reason != wire.Stop && k.name != "json" ||
					a.eos.Reason == wire.Stop && !k.ok(a.text) {
					t.Errorf("%s, %s, seed %d: think %q, text %q, %+v, %v", script.prompt, k.name, seed, a.think,
						a.text, a.eos, a.err)
				}
			}
		}
		r.nothingLeft()
	}
}

// TestTheTurnDoesNotEndInTheThought: a model that ends its turn within its thought still gives the answer that the
// request requires: JSON, or a call of a tool.
func TestTheTurnDoesNotEndInTheThought(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>It rains, so"}}}, "-c", "16384")
	for _, bound := range []func(*wire.Request){
		func(q *wire.Request) {
			q.Format = wire.Format{Kind: wire.FormatSchema, Payload: `{"enum": ["wet", "dry"]}`}
		},
		func(q *wire.Request) { q.Tools, q.ToolChoice.Mode = weatherTools[1:], wire.ToolRequired },
	} {
		for _, stream := range []bool{true, false} {
			q := wire.DefaultRequest()
			q.Messages, q.Stream, q.MaxTokens = []wire.Message{{Role: "user", Content: "question"}}, stream, 400
			q.ParallelToolCalls = false
			bound(&q)
			a := r.called(&q)
			answered := len(a.calls) == 1 && json.Valid([]byte(a.calls[0].Arguments)) ||
				a.text == `"wet"` || a.text == `"dry"`
			if a.think != "It rains, so" || !answered {
				t.Errorf("stream %v: %v", stream, a)
			}
		}
	}
	r.nothingLeft()
}

// TestForcedTokensTakeNoRow: where the form leaves no choice tokens come without a row each, and why says how many. A
// client that wants log-probabilities gets a row for every token.
func TestForcedTokensTakeNoRow(t *testing.T) {
	const only = "there is but one thing that this answer can be"
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "anything else"}}}, "--speculate", "off")
	c := r.dial()
	steps := func() int { s, _ := r.metrics.Steps(); return int(s) }
	ask := func(logprobs int) (answer, int, reports.WhyConstraint) {
		before := steps()
		a := r.ask(c, func(q *wire.Request) {
			q.Format = wire.Format{Kind: wire.FormatChoice, Choices: []string{only}}
			q.MaxTokens, q.Sampling.Logprobs = 100, logprobs
		})
		var form reports.WhyConstraint
		r.inLoop(func(l *loop) {
			form = *l.why(wire.WhyQuestion{Last: 1}, 0, time.Now()).Requests[0].Form
		})
		return a, steps() - before, form
	}
	a, took, form := ask(0)
	if a.text != only || a.eos.Reason != wire.Stop || a.eos.Usage.CompletionTokens != len(only) {
		t.Errorf("%q, %+v, %v", a.text, a.eos, a.err)
	}
	if form.ForcedTokens != len(only)-1 || took > 6 || form.Form != "choice" {
		t.Errorf("%+v, %d steps", form, took)
	}
	if a, took, form = ask(1); a.text != only || form.ForcedTokens != 0 || took < len(only) {
		t.Errorf("with log-probabilities: %q, %+v, %d steps", a.text, form, took)
	}
	r.nothingLeft()
}

// TestFormsAreRefusedByName: what cannot be enforced, read or combined is refused before anything is computed.
func TestFormsAreRefusedByName(t *testing.T) {
	r := serve(t, fake.Config{})
	c := r.dial()
	for _, k := range []struct {
		format wire.Format
		edit   func(*wire.Request)
		names  []string
	}{
		{wire.Format{Kind: wire.FormatSchema, Payload: `{"type": "array", "uniqueItems": true}`}, nil,
			[]string{"response_format", "uniqueItems"}},
		{wire.Format{Kind: wire.FormatSchema, Payload: `{"type": "object", "properties": {"a": {"minimum": "x"}}}`},
			nil, []string{"minimum", "/properties/a"}},
		{wire.Format{Kind: wire.FormatSchema, Payload: `{"type": "string", "pattern": "(?<=a)b"}`}, nil,
			[]string{"pattern", "lookbehind"}},
		{wire.Format{Kind: wire.FormatRegex, Payload: `a(b`}, nil, []string{"guided_regex", ")"}},
		{wire.Format{Kind: wire.FormatRegex, Payload: `(a)\1`}, nil, []string{"guided_regex", "backreference"}},
		{wire.Format{Kind: wire.FormatGrammar, Payload: `root ::= a`}, nil, []string{"grammar", `"a"`}},
		{wire.Format{Kind: wire.FormatGrammar, Payload: "root ::= a\na ::= b \"x\"\nb ::= a | \"c\""}, nil,
			[]string{"grammar", "left recursion"}},
		{wire.Format{Kind: wire.FormatGrammar, Payload: `root ::= "x" root`}, nil, []string{"grammar", "no text"}},
		{wire.Format{Kind: wire.FormatGrammar, Payload: `root ::= <[12]>`}, nil,
			[]string{"grammar", "token", "line 1, column 10"}},
		{wire.Format{Kind: wire.FormatGrammar, Payload: `start: <|tool|>`}, nil,
			[]string{"grammar", "a token", "line 1, column 8"}},
		{wire.Format{Kind: wire.FormatJSON}, func(q *wire.Request) { q.Think.AnswerCue = "So:" },
			[]string{"answer_cue", "response_format"}},
	} {
		a := r.ask(c, func(q *wire.Request) {
			if q.Format = k.format; k.edit != nil {
				k.edit(q)
			}
		})
		if a.err == nil ||
			slices.ContainsFunc(k.names, func(n string) bool { return !strings.Contains(a.err.Error(), n) }) {
			t.Errorf("%s %.60s: %v, want an error that names %q", k.format.Kind, k.format.Payload, a.err, k.names)
		}
	}
	r.nothingLeft()
}

// TestFormIsContinued: an answer that the last message began is held to the form as a whole.
func TestFormIsContinued(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "x"}}})
	c := r.dial()
	ask := func(begun string) answer {
		return r.ask(c, func(q *wire.Request) {
			q.Prompt, q.Format, q.MaxTokens = "", wire.Format{Kind: wire.FormatRegex, Payload: `ab[cd]ef`}, 50
			q.Messages = []wire.Message{{Role: "user", Content: "go"}, {Role: "assistant", Content: begun}}
		})
	}
	if a := ask("ab"); a.err != nil || !regexp.MustCompile(`^[cd]ef$`).MatchString(a.text) {
		t.Errorf("%q, %v", a.text, a.err)
	}
	for _, begun := range []string{"xy", "abdef"} { // no beginning of the form, and nothing of it is left
		whole := regexp.MustCompile(`^ab[cd]ef$`)
		if a := ask(begun); a.err != nil || !whole.MatchString(a.text) {
			t.Errorf("after %q: %q, %v", begun, a.text, a.err)
		}
	}
	if a := r.ask(c, func(q *wire.Request) {
		q.Prompt, q.Format, q.Continue = "", wire.Format{Kind: wire.FormatRegex, Payload: `ab`}, wire.ContinueOn
		q.Messages = []wire.Message{{Role: "user", Content: "go"}, {Role: "assistant", Content: "xy"}}
	}); a.err == nil || !strings.Contains(a.err.Error(), "continues") {
		t.Errorf("continued by the client's wish: %q, %v", a.text, a.err)
	}
	r.nothingLeft()
}

// TestManyFormsAtOnce: answers of all forms beside free ones, some of them cancelled, under the race detector.
func TestManyFormsAtOnce(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "one, two, three"}}})
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			c := r.dial()
			if i%6 == 5 {
				if a := r.ask(c, func(q *wire.Request) { q.MaxTokens = 60 }); a.err != nil ||
					!strings.HasPrefix(a.text, "one, two") {
					t.Errorf("a free answer: %q, %v", a.text, a.err)
				}
				return
			}
			k := formCases[i%6]
			a := r.ask(c, func(q *wire.Request) {
				q.Format, q.MaxTokens = k.format, 300
				q.Sampling.Temperature, q.Sampling.Seed, q.Sampling.SeedSet = 1, uint64(i), true
			})
			if a.err != nil || a.eos.Reason == wire.Stop && !k.ok(a.text) {
				t.Errorf("%s: %q, %v", k.name, a.text, a.err)
			}
		})
	}
	wg.Wait()
	r.nothingLeft()
}
