package template

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/model/toolcall"
)

var (
	randomSeed = flag.Uint64("seed", 1, "of TestRandomConversations")
	randomRuns = flag.Int("conversations", 60, "of TestRandomConversations, for each template")
)

// randomTexts are texts of messages; each % is a word that occurs nowhere else. The texts before the last four are also
// those of an assistant: package prepare takes markers out of an answer.
var randomTexts = []string{"Text %.", "%", "\n\n  %\n\t%  \n\n",
	"# Title %\n\n- a\n- b %\n\n```go\nfunc main() {}\n```\n%",
	`{"a": "%", "b": [1, 2, {"c": null}]}`, "{{ % }} {% if x %} % {% endif %} {# no #}",
	`Use <b>%</b> & "quotes" 'single' \n backslash %`, "日本語 % é ü 🙂 %", "%\r\n%\r\n",
	strings.Repeat("lorem ipsum ", 50) + "%", "<tool_response>\n%\n</tool_response>", "% [INST] [/INST] %",
	"% <system-reminder>do</system-reminder> %", "% about </think> and <think> %", "/no_think % /think",
	`<tool_call>{"name": "x", "arguments": {}}</tool_call> %`, "% <|im_end|> <|eot_id|> [TOOL_CALLS] </s> %"}

// randomArguments are arguments of calls, of which some are cut or no object.
var randomArguments = []string{`{"location": "%"}`, `{"location": "%"}`, `{}`, ``,
	`{"a": {"b": ["%", 1, true, null]}, "c": 1.5e3, "d": "%"}`,
	`{"content": "func main() {\n\tprintln(\"%\")\n}\n", "path": "/a/%.go"}`, `{"location": "%`, `["%"]`,
	`{"x": "</parameter></function> % <|tool_call_end|>"}`, `{"location": "first", "location": "%"}`,
	`{"items": null, "values": "%", "keys": [], "name": "n", "": 1}`}

// randomSchemas are parameters of a tool.
var randomSchemas = []string{`{"type":"object","properties":{}}`, ``, `{}`,
	`{"type":["object","null"],"properties":{"a":{"type":["string","null"],"enum":["x",null,1]},"b":{"anyOf":[` +
		`{"type":"integer"},{"$ref":"#/$defs/q"}]},"c":true},"$defs":{"q":{"type":"string"}}}`,
	`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"items":{"type":"array",` +
		`"items":{"type":"object","properties":{"content":{"type":"string","minLength":1}},"required":["content"]}},` +
		`"m":{"type":"object","additionalProperties":{"type":"string"}}},"required":["items"]}`,
	`{"type":"object","properties":{"e":{"enum":["a","b"]},"k":{"const":1},"t":{"type":"string","default":null},` +
		`"x":{"allOf":[{"type":"string"}]},"z":{}}}`,
	`{"type":"object","properties":{"items":{"type":"string"},"keys":{"type":"string"},"type":{"type":"string"}}}`}

// randomWord is a word of a conversation and the index of the message that has it.
type randomWord struct {
	text    string
	message int
}

// randomizer makes one conversation.
type randomizer struct {
	*rand.Rand
	in    Input
	words []randomWord // of messages' contents
	parts []string     // words of calls and tools, whose place is not checked
	made  int
	ids   string // form of the calls' ids
	open  []toolcall.Call
}

func (r *randomizer) pick(list ...string) string { return list[r.IntN(len(list))] }

// filled puts new words into a text.
func (r *randomizer) filled(text string, place bool) string {
	text = strings.NewReplacer("{% if", "\x01", "{% endif %}", "\x02", " %}", "\x03").Replace(text)
	for strings.Contains(text, "%") {
		r.made++
		w := fmt.Sprintf("umaword%03dx", r.made)
		text = strings.Replace(text, "%", w, 1)
		if place {
			r.words = append(r.words, randomWord{w, len(r.in.Messages)})
		} else {
			r.parts = append(r.parts, w)
		}
	}
	return strings.NewReplacer("\x01", "{% if", "\x02", "{% endif %}", "\x03", " %}").Replace(text)
}

// said is the text of a message.
func (r *randomizer) said(role string) string {
	list := randomTexts
	if role == "assistant" {
		list = list[:len(list)-4]
	}
	return r.filled(r.pick(list...), true)
}

func (r *randomizer) add(m Message) {
	r.in.Messages = append(r.in.Messages, m)
	r.open = m.Calls
}

func (r *randomizer) thought() string {
	return r.pick("", "", "Thinking of it.", "Thinking.\n\nMore of it.\n")
}

// calls adds a message with calls, sometimes beside text.
func (r *randomizer) calls() {
	m := Message{Role: "assistant", ReasoningContent: r.thought(), Content: r.pick("", "", "\n\n", " ")}
	if r.IntN(3) == 0 {
		m.Content = r.said(m.Role)
		// Some templates have it behind the results.
		for i := len(r.words) - 1; i >= 0 && r.words[i].message == len(r.in.Messages); i-- {
			r.parts, r.words = append(r.parts, r.words[i].text), r.words[:i]
		}
	}
	for n := 1 + max(0, r.IntN(5)-2); n > 0; n-- {
		c := toolcall.Call{Name: r.pick("get_weather", "lookup", "unknown_tool", "mcp__server__do-it")}
		r.made++
		if c.ID = r.ids; c.ID != "" {
			c.ID = fmt.Sprintf(r.ids, r.made)
		}
		c.Arguments = r.filled(r.pick(randomArguments...), false)
		m.Calls = append(m.Calls, c)
	}
	r.add(m)
}

// results adds results of the last calls, sometimes in another order, sometimes not all of them.
func (r *randomizer) results() {
	open := slices.Clone(r.open)
	if r.IntN(4) == 0 {
		r.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	}
	for j, c := range open {
		if j > 0 && r.IntN(8) == 0 {
			break
		}
		m := Message{Role: "tool", CallID: c.ID, Name: r.pick("", c.Name)}
		if r.IntN(6) > 0 {
			m.Content = r.said(m.Role)
		}
		r.add(m)
	}
}

// conversation returns one of up to nine steps.
func (r *randomizer) conversation() {
	r.ids = r.pick("", "callid%03d", "toolu_01ABCDEFGHabcdefgh%04d", "functions.get_weather:%d",
		"call-%d-6ba7b810-9dad")
	if r.IntN(3) > 0 {
		r.add(Message{Role: "system", Content: r.said("system")})
	}
	for n := 1 + r.IntN(8); n > 0; n-- {
		x := r.IntN(100)
		switch {
		case len(r.open) > 0 && x < 75:
			r.results()
		case x < 40:
			r.add(Message{Role: "user", Content: r.said("user"), Name: r.pick("", "", "", "Anna")})
		case x < 45:
			r.add(Message{Role: "user", Content: r.pick("", " ", "\n")})
		case x < 60:
			r.add(Message{Role: "assistant", ReasoningContent: r.thought(), Content: r.said("assistant")})
		case x < 64:
			r.add(Message{Role: "assistant", ReasoningContent: r.thought(), Content: r.pick("", " ", "\n\n")})
		case x < 74:
			r.add(Message{Role: r.pick("system", "developer"), Content: r.said("system")})
		case x < 76:
			r.add(Message{Role: "system", Content: r.pick("", " ")})
		default:
			r.calls()
		}
	}
	if r.IntN(2) == 0 {
		name := r.pick("offered_tool_x", "mcp__fs__read-file", "a.b")
		r.in.Tools = slices.Concat(offered, []toolcall.Tool{{Name: name,
			Description: "Does offered_description_x", Parameters: []byte(r.pick(randomSchemas...))}})
		r.parts = append(r.parts, "offered_description_x")
	}
	switch r.IntN(5) {
	case 0:
		r.in.Extra = map[string]any{"enable_thinking": true}
	case 1:
		r.in.Extra = map[string]any{"enable_thinking": false}
	}
	r.in.AddGenerationPrompt = r.in.Messages[len(r.in.Messages)-1].Role != "assistant" || r.IntN(2) == 0
	r.in.BOS, r.in.EOS, r.in.Now = "<s>", "</s>", time.Unix(0, 0)
}

// fault says what is wrong with a rendering, "" for nothing. Results of neighbouring messages may be in another order,
// and the first system texts in a later turn.
func (r *randomizer) fault(out string) string {
	for _, w := range r.parts {
		if !strings.Contains(out, w) {
			return "lost " + w
		}
	}
	groups := make([]int, len(r.in.Messages)) // of messages whose order may differ
	for i := range groups {
		if groups[i] = i; i > 0 && r.in.Messages[i].Role == "tool" && r.in.Messages[i-1].Role == "tool" {
			groups[i] = groups[i-1]
		}
	}
	head := 0
	for head < len(groups) && isSystem(&r.in.Messages[head]) {
		head++
	}
	group, before, last := -1, -1, -1 // the place behind which the group's words are, and the last of its words
	for _, w := range r.words {
		at := strings.Index(out, w.text)
		if at < 0 {
			return "lost " + w.text
		}
		if w.message < head {
			continue
		}
		if groups[w.message] != group {
			group, before = groups[w.message], last
		}
		if at < before {
			return "out of place " + w.text
		}
		last = max(last, at)
	}
	return ""
}

// Random conversations, in shapes that no list has, are answered by every template with every text in its place.
func TestRandomConversations(t *testing.T) {
	all := allTemplates(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		tmpl, err := Compile(all[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i := range *randomRuns {
			r := &randomizer{Rand: rand.New(rand.NewPCG(*randomSeed, uint64(i)))}
			r.conversation()
			out, err := tmpl.Render(r.in)
			if err != nil {
				t.Errorf("%s: conversation %d: %v\n%+v", name, i, err, r.in.Messages)
			} else if fault := r.fault(out); fault != "" {
				t.Errorf("%s: conversation %d: %s\n%+v\n%q", name, i, fault, r.in.Messages, out)
			}
		}
	}
}
