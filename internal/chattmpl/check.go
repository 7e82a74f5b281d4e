package chattmpl

import (
	"errors"
	"strings"
	"time"
)

// Report is what a template does, found by rendering small conversations with it.
type Report struct {
	// PrefixStable: what was rendered and generated up to turn N is, byte for byte, the beginning of what is
	// rendered for turn N+1 (answers without thinking). Only then can the KV cells of past turns all be kept.
	PrefixStable bool `json:"prefix_stable"`
	// DropsThinking: the thinking of past turns is left out of the next prompt, so that at least the cells from
	// the first dropped block on must be computed again.
	DropsThinking bool `json:"drops_thinking"`
	// ReadsReasoning: a message's reasoning_content is rendered, at least in the turn it belongs to.
	ReadsReasoning bool `json:"reads_reasoning"`
	// OpensThinking: the generation prompt itself opens the thinking block, so that generation begins inside it.
	OpensThinking bool `json:"opens_thinking"`
	// ThinkingSwitch is the variable that turns thinking off when false ("enable_thinking", "thinking"), or "".
	ThinkingSwitch string `json:"thinking_switch"`
	// OpenTag and CloseTag are the thinking markers the template mentions, or "".
	OpenTag  string `json:"open_tag"`
	CloseTag string `json:"close_tag"`
	System   bool   `json:"system"` // takes a system message
}

// tags are the thinking markers of known model families.
var tags = [][2]string{
	{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<|START_THINKING|>", "<|END_THINKING|>"},
	{"<seed:think>", "</seed:think>"}, {"<thinking>", "</thinking>"}, {"<reasoning>", "</reasoning>"}, {"◁think▷", "◁/think▷"},
}

// Check renders small conversations to see what the template does. The error is Render's, for a template that
// cannot render a user's first message.
func (t *Template) Check(bos, eos string) (Report, error) {
	var r Report
	render := func(msgs []Message, extra map[string]any) (string, error) {
		return t.Render(Input{Messages: msgs, AddGenerationPrompt: true, BOS: bos, EOS: eos, Extra: extra, Now: time.Unix(0, 0)})
	}
	ask := Message{Role: "user", Content: "question-1"}
	again := Message{Role: "user", Content: "question-2"}
	answer := func(content, reasoning string) []Message {
		return []Message{ask, {Role: "assistant", Content: content, ReasoningContent: reasoning}, again}
	}
	first, err := render([]Message{ask}, nil)
	if err != nil {
		return r, err
	}
	for _, tag := range tags {
		if strings.Contains(t.source, tag[1]) {
			r.OpenTag, r.CloseTag = tag[0], tag[1]
			break
		}
	}
	if second, err := render(answer("answer-1", ""), nil); err == nil {
		r.PrefixStable = strings.HasPrefix(second, first+"answer-1")
	} else if !errors.Is(err, ErrRefused) {
		return r, err
	}

	const thought = "thought-1"
	opening, closing := r.OpenTag, r.CloseTag
	if closing == "" {
		opening, closing = tags[0][0], tags[0][1]
	}
	if out, err := render(answer(opening+"\n"+thought+"\n"+closing+"\n\nanswer-1", ""), nil); err == nil {
		r.DropsThinking = !strings.Contains(out, thought)
	}
	inTurn := []Message{ask, {Role: "assistant", Content: "answer-1", ReasoningContent: thought}}
	if out, err := render(inTurn, nil); err == nil {
		r.ReadsReasoning = strings.Contains(out, thought)
	}

	for _, name := range []string{"enable_thinking", "thinking"} {
		on, err1 := render([]Message{ask}, map[string]any{name: true})
		off, err2 := render([]Message{ask}, map[string]any{name: false})
		if err1 == nil && err2 == nil && on != off {
			r.ThinkingSwitch = name
			break
		}
	}
	r.OpensThinking = r.OpenTag != "" && strings.HasSuffix(strings.TrimSpace(first), r.OpenTag)
	if out, err := render([]Message{{Role: "system", Content: "system-1"}, ask}, nil); err == nil {
		r.System = strings.Contains(out, "system-1")
	}
	return r, nil
}
