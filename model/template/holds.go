package template

import (
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/toolcall"
)

// holds reports whether a rendering has the texts of msgs, in their order, and the tools. A template may trim a text,
// quote it or take markers out of it: a run of letters, digits and spaces stands for each. The first system message
// may stand anywhere: some templates put it into the last turn; so may text beside calls, which some put behind the
// results. An answer with markup may hold a thought, which templates drop.
func (t *Template) holds(out string, msgs []Message, in *Input) bool {
	if len(in.Tools) > 0 && t.tools.Offered && !strings.Contains(out, in.Tools[0].Name) {
		return false
	}
	at := 0
	for i := range msgs {
		m := &msgs[i]
		if t.rewrites[textKind(m)] || m.Role == "assistant" && strings.ContainsAny(m.Content, "<[◁") {
			continue
		}
		word := plainRun(m.Content)
		if i == 0 && isSystem(m) || len(m.Calls) > 0 {
			if !strings.Contains(out, word) {
				return false
			}
			continue
		}
		next := strings.Index(out[at:], word)
		if next < 0 {
			return false
		}
		at += next + len(word)
	}
	return true
}

// textKind is kindOfMessage, or system.
func textKind(m *Message) kind {
	if isSystem(m) {
		return system
	}
	return kindOfMessage(m)
}

// findRewrites finds the messages whose texts the template rewrites, so that holds never finds them: a conversation
// would be rendered in each manner with every request. It needs t.roles.
func (t *Template) findRewrites() {
	t.rewrites = [kinds]bool{}
	const text = "uma Probe 12 text"
	probe := func(msgs ...Message) {
		in := Input{Messages: msgs, Now: time.Unix(0, 0), steps: probeSteps,
			AddGenerationPrompt: msgs[len(msgs)-1].Role != "assistant"}
		var c changeCount
		prepared := t.prepared(&in, &manner{&t.roles, t.tools.Calls, t.tools.Results}, &c)
		out, err := t.render(&in, prepared)
		for i := range prepared {
			if k := textKind(&prepared[i]); err == nil && strings.Contains(prepared[i].Content, text) &&
				!strings.Contains(out, text) {
				t.rewrites[k] = true
			}
		}
	}
	call := []toolcall.Call{{ID: "umacall01", Name: probeTool.Name, Arguments: `{"uma_word": "x"}`}}
	ask := Message{Role: "user", Content: "uma"}
	probe(Message{Role: "user", Content: text})
	probe(Message{Role: "system", Content: text}, ask)
	probe(ask, Message{Role: "assistant", Content: text}, ask)
	probe(ask, Message{Role: "assistant", Calls: call}, Message{Role: "tool", Content: text, CallID: "umacall01"})
	probe(ask, Message{Role: "assistant", Content: text, Calls: call},
		Message{Role: "tool", Content: "uma", CallID: "umacall01"})
}

// maxRun bounds a run, and what is read of a text to find it.
const (
	maxRun  = 100
	maxRead = 4096
)

// plainRun is the longest run of letters, digits and single spaces in the beginning of a text, at most maxRun bytes.
func plainRun(text string) string {
	best, from := "", 0
	text = text[:min(len(text), maxRead)]
	for i := 0; i <= len(text); i++ {
		if i < len(text) {
			if c := text[i]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
				c == ' ' && i > from && text[i-1] != ' ' {
				continue
			}
		}
		if run := strings.TrimSpace(text[from:i]); len(run) > len(best) {
			best = run
		}
		from = i + 1
	}
	return strings.TrimSpace(best[:min(len(best), maxRun)])
}
