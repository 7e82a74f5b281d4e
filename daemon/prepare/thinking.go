package prepare

import (
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/template"
)

// templateThinking returns the thinking mode, effort and budget that the chat template gets: the request's, else the
// server's default. limit is the answer's maximum length in tokens; a named effort is a share of it.
func (m *Model) templateThinking(w *wire.Request, limit int) template.Thinking {
	t := template.Thinking{Effort: w.Think.Effort.String()}
	switch mode := m.thinkMode(w); {
	case mode == meridian.ModeOff:
		t.Mode = template.ModeOff
	case mode == meridian.ModeOn:
		t.Mode = template.ModeOn
	case w.Think.Mode == wire.ThinkAuto:
		t.Mode = template.ModeAuto
	}
	if b := w.Think.Budget(limit); b != wire.NoBudget {
		t.Budget = b
	}
	switch w.Think.Preserve {
	case wire.PreserveOff:
		t.Past = template.PastDropped
	case wire.PreserveOn:
		t.Past = template.PastKept
	}
	return t
}

// thoughtsDropped reports whether a rendering lacks the thought of a message before the last question. A template may
// indent a thought: its first line is looked for.
func thoughtsDropped(text string, msgs []wire.Message) bool {
	for i := range msgs[:lastUser(msgs)] {
		if msgs[i].Role != "assistant" {
			continue
		}
		line, _, _ := strings.Cut(strings.TrimSpace(msgs[i].ReasoningContent), "\n")
		at := strings.Index(text, line)
		if at < 0 {
			return true
		}
		text = text[at+len(line):]
	}
	return false
}

// lastUser returns the index of the last message of a user, 0 where there is none.
func lastUser(msgs []wire.Message) int {
	for i := len(msgs) - 1; i > 0; i-- {
		if msgs[i].Role == "user" {
			return i
		}
	}
	return 0
}
