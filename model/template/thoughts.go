package template

import (
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/template/jinja"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// thoughts names the field in which the template reads the past thinking of a message, found by rendering it.
type thoughts struct {
	name  string // of the message's field
	parts bool   // instead, a part of type "thinking" in its content
	// alone: it does not take text beside a thought and calls.
	alone bool
}

// thoughtNames are the fields in which templates look for thinking; the first is the one that servers commonly send.
var thoughtNames = []string{"reasoning_content", "reasoning", "thinking", "thought"}

// findThoughts tries a thought before a call, which every template that keeps any keeps, and where there are no calls
// one before an answer.
func (t *Template) findThoughts() {
	const thought = "uma-thought"
	said := Message{Role: "assistant", ReasoningContent: thought, Content: "uma-said"}
	msgs := []Message{{Role: "user", Content: probeQuestion}, said}
	in := Input{Now: time.Unix(0, 0), native: true, steps: probeSteps}
	if t.tools.Calls {
		c := probeCalls[0]
		msgs[1].Calls, msgs[1].Content = []toolcall.Call{c}, ""
		if t.tools.Results {
			msgs = append(msgs, Message{Role: "tool", Content: probeResult, CallID: c.ID, Name: c.Name})
			in.AddGenerationPrompt = true
		}
		if t.tools.Offered {
			in.Tools = []toolcall.Tool{probeTool}
		}
	}
	shown := func() bool {
		out, err := t.render(&in, msgs)
		return err == nil && strings.Contains(out, thought) &&
			!strings.Contains(out, `'`+thought+`'`) && !strings.Contains(out, `"`+thought+`"`) // the list as text
	}
	for _, name := range thoughtNames {
		if t.thoughts = (thoughts{name: name}); shown() {
			if msgs[1].Content == "" {
				msgs[1].Content = "uma-said"
				_, err := t.render(&in, msgs)
				t.thoughts.alone = err != nil
			}
			return
		}
	}
	if t.thoughts = (thoughts{parts: true}); !shown() {
		t.thoughts = thoughts{name: thoughtNames[0]}
	}
}

// withThought returns the content of a message with its thought as a part.
func withThought(m *Message) []any {
	parts := []any{jinja.NewDict("type", "thinking", "thinking", m.ReasoningContent)}
	if m.Content != "" {
		parts = append(parts, jinja.NewDict("type", "text", "text", m.Content))
	}
	return parts
}
