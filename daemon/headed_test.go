package daemon

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

var harmonyMarkers = []string{"<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>",
	"<|return|>"}

const (
	hm       = "<|channel|>analysis<|message|>Hm."
	another  = "<|end|><|start|>assistant"
	inWords  = "<|channel|>final<|message|>In words."
	nowCall  = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"
	roleCall = " to=functions.now<|channel|>commentary json<|message|>{}"
)

// headedTests are outputs of a model of gpt-oss's format while a grammar constrains its answer, and the beginning of
// the thought that is expected. Where the grammar forbids the scripted output, the fake engine writes noise, which may
// think again.
var headedTests = []struct{ name, emit, think string }{
	{"an answer in words", hm + another + inWords, "Hm."},
	{"no thought", inWords, ""},
	{"words without a header", "In words.", ""},
	{"two thoughts", hm + another + hm + another + inWords, "Hm.Hm."},
	{"text before the answer", hm + another + "<|channel|>commentary<|message|>I look." + another + inWords, "Hm."},
	{"a call", hm + another + nowCall + "<|call|>", "Hm."},
	{"a call, the other header", hm + another + roleCall + "<|call|>", "Hm."},
	{"a call of no tool", hm + another + "<|channel|>commentary to=functions.odd json<|message|>{}<|call|>", "Hm."},
	{"the turn ends in the thought", hm, "Hm."},
	{"the turn ends at once", "", ""},
	{"the turn ends in the first header", "<|channel|>", ""},
	{"the turn ends between messages", hm + "<|end|>", "Hm."},
	{"the turn ends in the second header", hm + another, "Hm."},
	{"the turn ends in the answer's header", hm + another + "<|channel|>fin", "Hm."},
	{"the next message without an end", hm + "<|start|>assistant" + inWords, "Hm."},
	{"the next header without an end", hm + inWords, "Hm."},
	{"an end of a header in a thought", hm + "<|message|>Hm." + another + inWords, "Hm.Hm."},
	{"other ends of a message", hm + "<|return|>" + "<|start|>assistant" + inWords, "Hm."},
}

// ofHarmony serves a model that writes emit[i] when it is asked question i.
func ofHarmony(t *testing.T, emit ...string) *running {
	cfg := fake.Config{Template: publishedTemplate(t, "openai-gpt-oss-120b"), Markers: harmonyMarkers}
	for i, text := range emit {
		after := fmt.Sprintf("(%d)<|end|><|start|>assistant", i)
		cfg.Scripts = append(cfg.Scripts, fake.Script{After: after, Emit: text})
	}
	return serve(t, cfg, "-c", "16384")
}

func question(i int, stream bool) *wire.Request {
	q := wire.DefaultRequest()
	q.Messages, q.Stream, q.MaxTokens = []wire.Message{{Role: "user", Content: fmt.Sprintf("(%d)", i)}}, stream, 600
	q.Sampling.Temperature = 0
	return &q
}

func headedServer(t *testing.T) *running {
	var emit []string
	for _, c := range headedTests {
		emit = append(emit, c.emit)
	}
	return ofHarmony(t, emit...)
}

// fits reports whether a is one call of weatherTools with arguments of its schema, of the tool name if it is not "".
func (c called) fits(name string) bool {
	if len(c.calls) != 1 || c.text != "" || c.reason != string(wire.Calls) || name != "" && c.calls[0].Name != name {
		return false
	}
	var args struct {
		Location *string
		Days     *int
	}
	err := json.Unmarshal([]byte(c.calls[0].Arguments), &args)
	switch c.calls[0].Name {
	case "now":
		return isEmpty(c.calls[0].Arguments)
	case "get_weather":
		return err == nil && args.Location != nil
	}
	return false
}

// isEmpty reports whether a text is JSON's empty object.
func isEmpty(text string) bool {
	var v map[string]any
	return json.Unmarshal([]byte(text), &v) == nil && v != nil && len(v) == 0
}

// TestHeadedCallsAreForced: a model whose messages have headers writes the call that the request asks for, whatever it
// would write instead, and its thoughts stay thoughts.
func TestHeadedCallsAreForced(t *testing.T) {
	r := headedServer(t)
	for i, c := range headedTests {
		t.Run(c.name, func(t *testing.T) {
			for _, choice := range []wire.ToolChoice{{Mode: wire.ToolRequired}, {Mode: wire.ToolNamed, Name: "now"}} {
				for _, stream := range []bool{true, false} {
					q := question(i, stream)
					q.Tools, q.ToolChoice, q.Think.BudgetTokens = slices.Clone(weatherTools), choice, 40
					// noise never ends a string: bound the arguments
					q.Tools[0].Parameters = []byte(`{"type":"object","properties":{"location":{"enum":["Bern"]}},` +
						`"required":["location"],"additionalProperties":false}`)
					if a := r.called(q); !a.fits(choice.Name) || !strings.HasPrefix(a.think, c.think) {
						t.Errorf("%v, stream %v: %v", choice, stream, a)
					}
				}
			}
		})
	}
	r.nothingLeft()
}

// TestHeadedForms: the same for an answer that is constrained by a schema.
func TestHeadedForms(t *testing.T) {
	r := headedServer(t)
	for i, c := range headedTests {
		t.Run(c.name, func(t *testing.T) {
			for _, stream := range []bool{true, false} {
				q := question(i, stream)
				q.Format = wire.Format{Kind: wire.FormatSchema, Payload: `{"enum": ["wet", "dry"]}`}
				q.Think.BudgetTokens = 40
				a := r.called(q)
				if a.text != `"wet"` && a.text != `"dry"` || !strings.HasPrefix(a.think, c.think) ||
					a.reason != string(wire.Stop) {
					t.Errorf("stream %v: %v", stream, a)
				}
			}
		})
	}
	r.nothingLeft()
}

// TestHeadedThoughtsEnd: a budget, a mode and a client's request end the thought, and the call or form follows at once.
func TestHeadedThoughtsEnd(t *testing.T) {
	r := ofHarmony(t, hm+" And so on. And so on. And so on."+another+hm+another+inWords)
	for _, c := range []struct {
		edit func(*wire.Request)
		end  string
	}{
		{func(q *wire.Request) { q.Think.BudgetTokens = 8 }, "hard_cap"},
		{func(q *wire.Request) { q.Think.Mode, q.Think.BudgetTokens = wire.ThinkOff, 0 }, ""},
		{func(q *wire.Request) { q.Think.BudgetTokens = 1 }, "hard_cap"},
		{func(q *wire.Request) { q.Think.BudgetTokens = 36 }, "hard_cap"}, // the second thought's beginning
	} {
		for _, bound := range []func(*wire.Request){
			func(q *wire.Request) {
				q.Format = wire.Format{Kind: wire.FormatSchema, Payload: `{"enum": ["wet", "dry"]}`}
			},
			func(q *wire.Request) { q.Tools, q.ToolChoice.Mode = weatherTools[1:], wire.ToolRequired },
		} {
			q := question(0, false)
			c.edit(q)
			bound(q)
			budget := q.Think.BudgetTokens
			res, err := r.dial().Chat(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			text := string(res.Text)
			if len(res.Think) > budget || len(res.ToolCalls) != 1 && text != `"wet"` && text != `"dry"` ||
				res.Thought.Ended != c.end {
				t.Errorf("budget %d: %q %q %v, ended %q", budget, res.Think, text, res.ToolCalls, res.Thought.Ended)
			}
		}
	}
	r.nothingLeft()
}

// TestHeadedCallsAreHeld: a call that the model begins by itself is held from its name on, in each form of header.
func TestHeadedCallsAreHeld(t *testing.T) {
	heads := []string{
		"<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
		"<|channel|>commentary to=functions.NAME<|constrain|>json<|message|>",
		"<|channel|>commentary to=functions.NAME json<|message|>",
		"<|channel|>commentary to=functions.NAME<|message|>",
		"<|channel|>analysis to=functions.NAME code<|message|>",
		" to=functions.NAME<|channel|>commentary json<|message|>",
		" to=functions.NAME<|channel|>commentary <|constrain|>json<|message|>",
		" to=functions.NAME<|channel|>analysis<|message|>",
	}
	var emit []string
	for _, name := range []string{"now", "nothing"} {
		for _, head := range heads {
			for _, before := range []string{"", hm + another, hm + another + "<|channel|>commentary<|message|>I look." +
				another} {
				emit = append(emit, before+strings.Replace(head, "NAME", name, 1)+`{"a":1}<|call|>`)
			}
		}
	}
	r := ofHarmony(t, emit...)
	for i := range emit {
		for _, stream := range []bool{true, false} {
			q := question(i, stream)
			q.Tools, q.ParallelToolCalls = weatherTools[1:], false
			a := r.called(q)
			if len(a.calls) != 1 || a.calls[0].Name != "now" || !isEmpty(a.calls[0].Arguments) ||
				a.reason != string(wire.Calls) || (a.text == "I look.") != strings.Contains(emit[i], "I look.") ||
				(a.think == "Hm.") != strings.Contains(emit[i], "Hm.") {
				t.Errorf("%s, stream %v: %v", emit[i], stream, a)
			}
		}
	}
	r.nothingLeft()
}

// TestHeadedTurns: the output of a model of this format in a request with tools is parsed as written: words, one call,
// several calls. With a schema beside tools, the header decides.
func TestHeadedTurns(t *testing.T) {
	schema := wire.Format{Kind: wire.FormatSchema, Payload: `{"enum": ["wet", "dry"]}`}
	for _, c := range []struct {
		emit   string
		format wire.Format
		want   string
	}{
		{hm + another + inWords, wire.Format{}, `think "Hm." text "In words." reason "stop"`},
		{hm + another + nowCall + another + roleCall + another + inWords, wire.Format{},
			`think "Hm." text "In words." reason "tool_calls" call now{} call now{}`},
		{hm + another + "<|channel|>commentary to=browser.search<|message|>{}" + another + inWords, wire.Format{},
			`think "Hm." text "In words." reason "stop"`},
		{hm + another + "<|channel|>final to=functions.now<|message|>{\"a\":1}<|call|>", wire.Format{},
			`think "Hm." text "" reason "tool_calls" call now{"a":1}`},
		{hm + another + `<|channel|>final<|message|>"dry"`, schema, `think "Hm." text "\"dry\"" reason "stop"`},
		{hm + another + nowCall, schema, `think "Hm." text "" reason "tool_calls" call now{}`},
		{hm + another + roleCall, schema, `think "Hm." text "" reason "tool_calls" call now{}`},
	} {
		r := ofHarmony(t, c.emit)
		for _, stream := range []bool{true, false} {
			q := question(0, stream)
			q.Tools, q.Format = weatherTools[1:], c.format
			if a := r.called(q); a.String() != c.want {
				t.Errorf("%s, stream %v:\n got %v\nwant %s", c.emit, stream, a, c.want)
			}
		}
		r.nothingLeft()
	}
}

// TestHeadsOfRecipients: the format that addresses messages holds calls and forms likewise.
func TestHeadsOfRecipients(t *testing.T) {
	const self, next = " to=self<|message|>Hm.", "<|eom|><|start|>assistant"
	for _, emit := range []string{self + next + " to=user<|message|>In words.<|eot|>", self, self + next, " to=",
		self + "<|eom|>", "", self + next + " to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n" +
			"</atem:invoke>\n</atem:function_calls>"} {
		r := serve(t, fake.Config{Template: publishedTemplate(t, "muse-glimmer"),
			Markers: []string{"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"},
			Scripts: []fake.Script{{After: "(0)<|eot|><|start|>assistant", Emit: emit}}}, "-c", "16384")
		for _, call := range []bool{true, false} {
			q := question(0, true)
			q.Think.BudgetTokens = 20 // noise may think again
			if call {
				q.Tools, q.ToolChoice.Mode, q.ParallelToolCalls = weatherTools[1:], wire.ToolRequired, false
			} else {
				q.Format = wire.Format{Kind: wire.FormatSchema, Payload: `{"enum": ["wet", "dry"]}`}
			}
			a := r.called(q)
			think := ""
			if strings.HasPrefix(emit, self) {
				think = "Hm."
			}
			if !strings.HasPrefix(a.think, think) || call && !a.fits("now") ||
				!call && a.text != `"wet"` && a.text != `"dry"` {
				t.Errorf("%q, call %v: %v", emit, call, a)
			}
		}
		r.nothingLeft()
	}
}

// TestHeadsInText: markers of headers that are text of the vocabulary hold nothing, but the turn goes on to the answer.
func TestHeadsInText(t *testing.T) {
	for _, emit := range []string{"", hm, hm + "<|end|>", hm + another, hm + another + "<|channel|>fin"} {
		r := serve(t, fake.Config{Template: publishedTemplate(t, "openai-gpt-oss-120b"),
			Scripts: []fake.Script{{After: "(0)<|end|><|start|>assistant", Emit: emit},
				{After: "<|message|>", Emit: `"wet"`}}}, "-c", "16384")
		q := question(0, true)
		q.Format = wire.Format{Kind: wire.FormatSchema, Payload: `{"enum": ["wet", "dry"]}`}
		q.MaxTokens = 300
		if a, err := r.dial().Chat(t.Context(), q); err == nil && a.Reason == wire.Stop && string(a.Text) != `"wet"` &&
			string(a.Text) != `"dry"` {
			t.Errorf("%q: %+v", emit, a)
		}
		r.nothingLeft()
	}
}

// TestBudgetLeavesTheHeader: when the budget ends a thought and the tools are on "auto", the model chooses whether it
// calls or answers. It does not think again.
func TestBudgetLeavesTheHeader(t *testing.T) {
	long := "<|channel|>analysis<|message|>" + strings.Repeat("Hm. ", 100)
	for _, c := range []struct{ name, then, text string }{
		{"a call", nowCall + "<|call|>", ""},
		{"a call, the other header", roleCall + "<|call|>", ""},
		{"an answer", inWords + "<|return|>", "In words."},
		{"a thought", hm, "Hm."}, // text that the model means as a thought is the answer
	} {
		cfg := fake.Config{Template: publishedTemplate(t, "openai-gpt-oss-120b"), Markers: harmonyMarkers,
			Scripts: []fake.Script{{After: "(0)<|end|><|start|>assistant", Emit: long},
				{After: "<|end|><|start|>assistant", Emit: c.then}, {After: "final<|message|>", Emit: "Hm."}}}
		r := serve(t, cfg, "-c", "4096")
		for _, stream := range []bool{true, false} {
			q := question(0, stream)
			q.Tools, q.Think.BudgetTokens = weatherTools, 40
			a := r.called(q)
			if c.text == "" && !a.fits("now") || c.text != "" && (a.text != c.text || len(a.calls) > 0) ||
				!strings.HasPrefix(a.think, "Hm. Hm.") || len(a.think) > 80 {
				t.Errorf("%s, stream %v: %v", c.name, stream, a)
			}
		}
		r.nothingLeft()
	}
}
