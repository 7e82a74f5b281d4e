package template

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/toolcall"
)

// Past selects what becomes of the thoughts of earlier turns. Those of the turn in progress, between its tool calls,
// are the template's own matter.
type Past uint8

const (
	PastDefault Past = iota // as the template decides
	PastDropped
	PastKept
)

// pastVar is a variable that decides whether thoughts of earlier turns are rendered: clear_thinking, preserve_thinking,
// drop_thinking, truncate_history_thinking, keep_past_thinking, think_render_option and otherwise.
type pastVar struct {
	name       string
	keep, drop any
}

// PastNames returns the variables that the template reads about thoughts of earlier turns.
func (s *Switch) PastNames() (names []string) {
	for _, v := range s.past {
		names = append(names, v.name)
	}
	return names
}

// DropsPast reports whether the template drops thoughts of earlier turns by a variable. Where it has none, the caller
// leaves them out of the messages.
func (s *Switch) DropsPast() bool { return len(s.past) > 0 }

// setPast adds the variables for p.
func (s *Switch) setPast(vars map[string]any, p Past) {
	for _, v := range s.past {
		switch p {
		case PastKept:
			vars[v.name] = v.keep
		case PastDropped:
			vars[v.name] = v.drop
		}
	}
}

// LeaveOutPast removes the thoughts before the last question.
func LeaveOutPast(msgs []Message) {
	past := false
	for i := len(msgs) - 1; i >= 0; i-- {
		if past {
			msgs[i].ReasoningContent = ""
		}
		past = past || msgs[i].Role == "user"
	}
}

// aboutPast reports whether a variable's name is about thoughts of earlier turns.
func aboutPast(name string) bool {
	return (strings.Contains(name, "think") || strings.Contains(name, "reason")) &&
		slices.ContainsFunc([]string{"preserve", "keep", "drop", "skip", "clear", "retain", "history", "previous",
			"past", "last", "render", "interleav", "truncat", "strip"},
			func(part string) bool { return strings.Contains(name, part) })
}

// findPast finds the variables about thoughts of earlier turns: those that change how many thoughts are rendered of a
// conversation with earlier turns, and nothing of a first question. settings are variables beside which it looks.
func (t *Template) findPast(s *Switch, bos, eos string, settings []map[string]any) {
	base := Input{BOS: bos, EOS: eos, Now: time.Unix(0, 0), AddGenerationPrompt: true}
	user := Message{Role: "user", Content: probeQuestion}
	said := Message{Role: "assistant", Content: "uma-said", ReasoningContent: pastThought}
	first, plain, called := base, base, base
	first.Messages = []Message{user}
	plain.Messages = []Message{user, said, user, said, user}
	talks := []Input{first, plain}
	if t.tools.Calls && t.tools.Results {
		c := probeCalls[0]
		call := Message{Role: "assistant", Calls: []toolcall.Call{c}, ReasoningContent: pastThought}
		result := Message{Role: "tool", Content: probeResult, CallID: c.ID, Name: c.Name}
		called.Messages = []Message{user, call, result, said, user, call, result, said, user}
		if t.tools.Offered {
			called.Tools = []toolcall.Tool{probeTool}
		}
		talks = append(talks, called)
	}
	for _, v := range t.tmpl.Variables() {
		if !aboutPast(v.Name) || strings.Contains(v.Name, ".") {
			continue
		}
		values := []any{true, false}
		if len(v.Words) > 0 {
			values = values[:0]
			for _, word := range v.Words {
				values = append(values, word)
			}
		}
		for _, with := range settings {
			if found, ok := t.pastVar(v.Name, values, talks, with); ok {
				s.past = append(s.past, found)
				break
			}
		}
	}
}

// pastThought occurs in no template.
const pastThought = "uma-thought"

// pastVar finds which of the values renders most of the thoughts in talks, and which renders least.
func (t *Template) pastVar(name string, values []any, talks []Input, with map[string]any) (v pastVar, ok bool) {
	v.name = name
	most, least, first := -1, 0, ""
	for _, value := range values {
		shown, failed := 0, false
		for i, in := range talks {
			in.Extra = map[string]any{name: value}
			maps.Copy(in.Extra, with)
			out, err := t.Render(in)
			failed = failed || err != nil
			shown += strings.Count(out, pastThought)
			if i == 0 && most < 0 {
				first = out
			}
			if i == 0 && out != first {
				return v, false
			}
		}
		switch {
		case failed:
			continue
		case most < 0:
			v.keep, v.drop, most, least = value, value, shown, shown
		case shown > most:
			v.keep, most = value, shown
		case shown < least:
			v.drop, least = value, shown
		}
	}
	return v, most > least
}
