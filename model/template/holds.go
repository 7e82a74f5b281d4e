package template

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// holds reports whether a rendering has the texts of msgs, in their order, and the tools. A template may trim a text,
// quote it or take markers out of it: a run of letters, digits and spaces stands for each. The first system message
// may be anywhere: some templates put it into the last turn; so may text beside calls, which some put behind the
// results. Templates drop a thought within an answer.
func (t *Template) holds(out string, msgs []Message, in *Input) bool {
	if len(in.Tools) > 0 && t.tools.Offered && !strings.Contains(out, in.Tools[0].Name) {
		return false
	}
	at := 0
	for i := range msgs {
		m := &msgs[i]
		if t.rewrites[textKind(m)] || m.Role == "assistant" && t.mayThink(m.Content) {
			continue
		}
		for j := range m.Calls {
			if !t.alters && !strings.Contains(out, argumentRun(m.Calls[j].Arguments)) {
				return false
			}
		}
		word := plainRun(m.Content)
		switch {
		case i == 0 && isSystem(m):
			if !holdsEach(out, msgs, word) {
				return false
			}
			continue
		case len(m.Calls) > 0:
			if !strings.Contains(out, word) {
				return false
			}
			continue
		}
		for n := strings.Count(m.Content, word); n > 0 && word != ""; n-- { // a text may repeat itself
			next := strings.Index(out[at:], word)
			if next < 0 {
				return false
			}
			at += next + len(word)
		}
	}
	return true
}

// mayThink reports whether an answer has markers of thinking, between which a template may drop a thought.
func (t *Template) mayThink(content string) bool {
	if !strings.ContainsAny(content, "<[◁:") {
		return false
	}
	has := func(marker string) bool { return strings.Contains(content, marker) }
	return slices.ContainsFunc(tags.Plain.Close, has) || slices.ContainsFunc(tags.Plain.Open, has) ||
		slices.ContainsFunc(t.markers, has)
}

// holdsEach reports whether a rendering has word as often as the messages have it: a result may quote the system
// prompt.
func holdsEach(out string, msgs []Message, word string) bool {
	if word == "" {
		return true
	}
	n := 0
	for i := range msgs {
		n += strings.Count(msgs[i].Content, word)
	}
	return strings.Count(out, word) >= n
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
	t.rewrites, t.alters = [kinds]bool{}, false
	const text = "uma Probe 12 text"
	probe := func(msgs ...Message) {
		in := Input{Messages: msgs, Now: time.Unix(0, 0), steps: probeSteps,
			AddGenerationPrompt: msgs[len(msgs)-1].Role != "assistant"}
		var c changeCount
		prepared := t.prepared(&in, &manner{&t.roles, t.tools.Calls, t.tools.Results, false}, &c)
		out, err := t.render(&in, prepared)
		for i := range prepared {
			if k := textKind(&prepared[i]); err == nil && strings.Contains(prepared[i].Content, text) &&
				!strings.Contains(out, text) {
				t.rewrites[k] = true
			}
			for _, c := range prepared[i].Calls {
				t.alters = t.alters || err == nil && !strings.Contains(out, argumentRun(c.Arguments))
			}
		}
	}
	call := []toolcall.Call{{ID: "umacall01", Name: probeTool.Name, Arguments: `{"uma_word": "uma Probe"}`}}
	ask := Message{Role: "user", Content: "uma"}
	probe(Message{Role: "user", Content: text})
	probe(Message{Role: "system", Content: text}, ask)
	probe(ask, Message{Role: "assistant", Content: text}, ask)
	probe(ask, Message{Role: "assistant", Calls: call}, Message{Role: "tool", Content: text, CallID: "umacall01"})
	probe(ask, Message{Role: "assistant", Content: text, Calls: call},
		Message{Role: "tool", Content: "uma", CallID: "umacall01"})
}

// argumentRun is plainRun of the beginning of a call's arguments, in which an escape ends a run: a template may render
// the text that it stands for.
func argumentRun(arguments string) string {
	head := arguments[:min(len(arguments), maxRead)]
	return plainRun(escapes.ReplaceAllString(head, "."))
}

// escapes matches the escapes of a JSON string, numbers and literals, which a template may write in another way.
var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)|[-+0-9.eE]*[0-9][-+0-9.eE]*|true|false|null`)

const (
	maxRun  = 100  // the maximum length of a run
	maxRead = 4096 // bytes of a text that are searched for one
)

// plainRun returns the longest run of letters, digits and single spaces in the beginning of a text, at most maxRun
// bytes.
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
