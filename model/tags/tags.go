// Package tags is the one table of the texts by which model families mark their thinking. The phase router
// (package meridian), the template report (model/template) and the inspection of model files (model/gguf) all
// read it, so they cannot disagree.
//
// A family is chosen by what a chat template writes, then by what a vocabulary holds, never by a model's name.
package tags

import (
	"slices"
	"strings"
)

// Family has the markers by which a family of models separates thinking from the answer.
type Family struct {
	Name  string   // as docs/templates.md lists it
	Open  []string // open a thought; the first is the one that is forced
	Close []string // end it; the first is the one that is forced, unless Force is set
	Force string   // the text forced to end a thought, where that is more than a marker; "" is Close[0]
	// ForceCall is the text forced instead before a call of a tool, where Force begins a text; "" is Force.
	ForceCall string

	// Hidden are markers of the answer that are never shown, such as the token that opens it.
	Hidden []string
	// Aside: a thought behind text of the answer is thinking too, however many a turn may have. It ends with any of
	// Hidden.
	Aside bool
	// Wrap are the texts around the whole answer: the first is dropped where the answer begins, the second where it
	// ends. Both are ordinary text elsewhere.
	Wrap [2]string
	// Channels is set for formats whose messages have a header; nil for the others.
	Channels *Channels

	// Signs identify the family in a template: one of these lists, all of whose texts the template has.
	Signs [][]string
	// Vocab are the tokens by which a vocabulary identifies the family; nil where a vocabulary proves nothing.
	Vocab []string
}

// Channels is a format in which a turn is a row of messages, each with a header that says what the message is.
type Channels struct {
	Turn    string   // begins a message of the model: the text before its header
	Answer  string   // the header of an answer, to the end of Message
	Start   []string // begin a header; a second one within a header continues it
	Message string   // ends the header
	End     []string // end a message
	Think   string   // a header that holds this text makes its message a thought
	User    string   // a header that holds this text makes its message one to the user, without calls; "": none does
	Call    string   // a header that holds this text makes its message a call of a tool; "" where no header does
}

// Families are the known formats, the more specific first: a template that mentions two gets the earlier.
var Families = []Family{
	{
		Name:  "harmony",
		Open:  []string{"<|channel|>analysis<|message|>"},
		Close: []string{"<|end|><|start|>assistant<|channel|>final<|message|>"},
		Channels: &Channels{
			Turn: "<|start|>assistant", Answer: "<|channel|>final<|message|>",
			Start: []string{"<|start|>", "<|channel|>"}, Message: "<|message|>", Think: "analysis",
			Call: "to=functions.",
			End:  []string{"<|end|>", "<|return|>", "<|call|>"},
		},
		Signs: [][]string{{"<|channel|>", "<|message|>"}},
		Vocab: []string{"<|channel|>", "<|message|>", "<|start|>"},
	},
	{
		Name:  "recipients",
		Open:  []string{" to=self<|message|>"},
		Close: []string{"<|eom|><|start|>assistant to=user<|message|>"},
		Channels: &Channels{
			Turn: "<|start|>assistant", Answer: " to=user<|message|>",
			Start: []string{"<|start|>"}, Message: "<|message|>", Think: "to=self", User: "to=user",
			End: []string{"<|eom|>", "<|eot|>"},
		},
		Signs: [][]string{{"<|start|>assistant", "to=self", "<|message|>"}},
	},
	{
		Name:  "sections",
		Open:  []string{"<|open|>think<|sep|>"},
		Close: []string{"<|close|>think<|sep|>", "<|open|>response<|sep|>"}, // it may leave the end out
		Force: "<|close|>think<|sep|><|open|>response<|sep|>", ForceCall: "<|close|>think<|sep|>",
		Hidden: []string{"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>",
			"<|end_of_msg|>"},
		Signs: [][]string{{"<|open|>", "<|close|>", "<|sep|>"}},
		Vocab: []string{"<|open|>", "<|close|>", "<|sep|>"},
	},
	{
		Name:   "thought channel",
		Open:   []string{"<|channel>thought"},
		Close:  []string{"<channel|>"},
		Hidden: []string{"<|channel>", "<channel|>"}, Aside: true,
		Signs: [][]string{{"<|channel>", "<channel|>"}},
		Vocab: []string{"<|channel>", "<channel|>"},
	},
	{
		Name:   "content token",
		Open:   []string{"<|think|>"},
		Close:  []string{"<|end|>", "<|content|>"},
		Force:  "<|end|><|begin|>assistant<|content|>",
		Hidden: []string{"<|begin|>assistant", "<|content|>", "<|end|>"},
		Signs:  [][]string{{"<|think|>", "<|content|>"}},
		Vocab:  []string{"<|think|>", "<|content|>", "<|begin|>"},
	},
	{
		Name:   "final response",
		Open:   []string{"Here are my reasoning steps:"},
		Close:  []string{"[BEGIN FINAL RESPONSE]"},
		Hidden: []string{"[END FINAL RESPONSE]"},
		Signs:  [][]string{{"[BEGIN FINAL RESPONSE]"}},
	},
	{
		Name:  "spoken",
		Open:  []string{"Here is my thought process:", "Here's my thought process:"},
		Close: []string{"Here is my response:", "Here's my response:"},
		Signs: [][]string{{"Here is my thought process:", "Here is my response:"}},
	},
	{
		Name: "response tag", Open: []string{"<think>"}, Close: []string{"</think>"},
		Wrap:  [2]string{"<response>", "</response>"},
		Signs: [][]string{{"<think></think>", "<response></response>"}},
	},
	{
		Name: "answer tag", Open: []string{"<think>"}, Close: []string{"</think>"},
		Wrap:  [2]string{"<answer>", "</answer>"},
		Signs: [][]string{{"</think>", "<answer>", "</answer>"}},
	},
	{
		Name: "command", Open: []string{"<|START_THINKING|>"}, Close: []string{"<|END_THINKING|>"},
		Hidden: []string{"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
		Signs:  [][]string{{"<|START_THINKING|>", "<|END_THINKING|>"}},
		Vocab:  []string{"<|START_THINKING|>", "<|END_THINKING|>"},
	},
	{
		Name: "solution", Open: []string{"<|begin_of_thought|>"}, Close: []string{"<|end_of_thought|>"},
		Hidden: []string{"<|begin_of_solution|>", "<|end_of_solution|>"},
		Signs:  [][]string{{"<|begin_of_thought|>", "<|end_of_thought|>"}},
		Vocab:  []string{"<|begin_of_thought|>", "<|end_of_thought|>"},
	},
	pair("brackets", "[THINK]", "[/THINK]"),
	pair("inner", "<|inner_prefix|>", "<|inner_suffix|>"),
	pair("triangles", "◁think▷", "◁/think▷"),
	{
		Name: "unused tokens", Open: []string{"<unused94>thought", "<unused94>"}, Close: []string{"<unused95>"},
		Signs: [][]string{{"<unused94>", "<unused95>"}}, // every Gemma vocabulary has them: they prove nothing there
	},
}

// Plain is the most common format. It is assumed where neither the file nor its template says how the model thinks.
var Plain = pair("element", "<think>", "</think>")

func pair(name, open, shut string) Family {
	return Family{Name: name, Open: []string{open}, Close: []string{shut}, Signs: [][]string{{open, shut}},
		Vocab: []string{open, shut}}
}

// words are the names of elements that hold thinking, the more common first.
var words = []string{"think", "thinking", "thought", "thoughts", "reasoning"}

// InTemplate returns the family whose markers a template writes. text is the template, with what it renders appended
// where that is known: a template may put its markers together from parts.
func InTemplate(text string) (Family, bool) {
	for _, f := range Families {
		for _, signs := range f.Signs {
			if !slices.ContainsFunc(signs, func(s string) bool { return !strings.Contains(text, s) }) {
				return f, true
			}
		}
	}
	// A family of elements: <think>, <mm:think>, <think:opensource>, <thinking>, …
	best, rank := "", len(words)
	for rest := text; ; {
		i := strings.Index(rest, "</")
		if i < 0 {
			break
		}
		rest = rest[i+2:]
		end := strings.IndexByte(rest, '>')
		if end < 0 || end > maxElementBytes {
			continue
		}
		if r := wordOf(rest[:end]); r >= 0 && (r < rank || r == rank && len(rest[:end]) > len(best)) {
			best, rank = rest[:end], r
		}
	}
	if best == "" {
		return Family{}, false
	}
	return pair("element", "<"+best+">", "</"+best+">"), true
}

const maxElementBytes = 64

// wordOf returns the index in words of an element's name, or of its first or last part ("mm:think", "think_v2"); -1
// where it has none of them.
func wordOf(name string) int {
	for i := range len(name) {
		if c := name[i]; !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == ':' ||
			c == '_' || c == '-' || c == '.') {
			return -1
		}
	}
	if i := slices.Index(words, name); i >= 0 {
		return i
	}
	prefix, local, found := strings.Cut(name, ":")
	if !found {
		return -1
	}
	if i := slices.Index(words, local); i >= 0 {
		return i
	}
	return slices.Index(words, prefix)
}

// InVocab returns the family whose markers a vocabulary has as tokens. has reports whether a text is one.
func InVocab(has func(text string) bool) (Family, bool) {
	all := append([]Family{Plain}, Families...)
	all = append(all, pair("element", "<mm:think>", "</mm:think>"), pair("element", "<seed:think>", "</seed:think>"),
		pair("element", "<think:opensource>", "</think:opensource>"))
	for _, w := range words[1:] {
		all = append(all, pair("element", "<"+w+">", "</"+w+">"))
	}
	for _, f := range all {
		if len(f.Vocab) > 0 && !slices.ContainsFunc(f.Vocab, func(s string) bool { return !has(s) }) {
			return f, true
		}
	}
	return Family{}, false
}
