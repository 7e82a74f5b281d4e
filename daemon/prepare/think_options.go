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

// lastUser is the index of the last message of a user, 0 where there is none.
func lastUser(msgs []wire.Message) int {
	for i := len(msgs) - 1; i > 0; i-- {
		if msgs[i].Role == "user" {
			return i
		}
	}
	return 0
}

// thinkMode returns the request's thinking mode, else the server's default.
func (m *Model) thinkMode(w *wire.Request) meridian.Mode {
	switch w.Think.Mode {
	case wire.ThinkAuto:
		return meridian.ModeAuto
	case wire.ThinkOff:
		return meridian.ModeOff
	case wire.ThinkOn:
		return meridian.ModeOn
	}
	return m.think.ThinkMode
}

// thinkOptions returns the server's thinking defaults, overridden by the request's fields. maxTokens is the answer's
// maximum length.
func (m *Model) thinkOptions(w *wire.Request, maxTokens int, continued bool) meridian.Options {
	o := m.think.Options()
	o.Mode = m.thinkMode(w)
	switch w.Think.EarlyExit {
	case wire.ExitOff:
		o.EarlyExit = meridian.ExitOff
	case wire.ExitEAT:
		o.EarlyExit = meridian.ExitEAT
	case wire.ExitRPDI:
		o.EarlyExit = meridian.ExitRPDI
	case wire.ExitBoth:
		o.EarlyExit = meridian.ExitBoth
	}
	if b := w.Think.Budget(maxTokens); b != wire.NoBudget {
		o.BudgetTokens = b
	}
	if b := w.Think.SoftBudget(); b != wire.NoBudget {
		o.SoftBudgetTokens = b
		if o.BudgetTokens >= 0 {
			o.SoftBudgetTokens = min(b, o.BudgetTokens)
		}
	}
	o.AnswerCue = w.Think.AnswerCue
	if continued && o.Mode == meridian.ModeOn {
		o.Mode = meridian.ModeAuto // a continued answer cannot open a thought
	}
	return o
}
