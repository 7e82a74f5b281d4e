package template

import (
	"errors"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/tags"
)

// Report has the properties of a template, found by rendering small conversations with it.
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
	// ThinkingSwitch are the variables that thinking is switched with ("enable_thinking", "reasoning_effort"), or "".
	ThinkingSwitch string `json:"thinking_switch"`
	// OpenTag and CloseTag are the thinking markers the template mentions, or "".
	OpenTag  string `json:"open_tag"`
	CloseTag string `json:"close_tag"`
	System   bool   `json:"system"` // takes a system message
}

// Texts returns the template with what it renders: the markers that it writes, those that it puts together from parts
// included. A NUL stands between them: with a line break there a marker at a text's end would seem to have one.
func (t *Template) Texts(bos, eos string) string {
	var b strings.Builder
	b.WriteString(t.source)
	for _, s := range t.tmpl.Strings() { // without their escapes
		b.WriteByte(0)
		b.WriteString(s)
	}
	turn := []Message{{Role: "user", Content: "question-1"}}
	answered := append(turn[:1:1], Message{Role: "assistant", Content: "answer-1", ReasoningContent: "thought-1"})
	sw := t.Switch(bos, eos)
	for _, in := range []Input{
		{Messages: turn, AddGenerationPrompt: true},
		{Messages: turn, AddGenerationPrompt: true, Extra: sw.Vars(Thinking{Mode: ModeOn})},
		{Messages: turn, AddGenerationPrompt: true, Extra: sw.Vars(Thinking{Mode: ModeOff})},
		{Messages: answered, Extra: sw.Vars(Thinking{Mode: ModeOn})},
	} {
		in.BOS, in.EOS, in.Now = bos, eos, time.Unix(0, 0)
		if out, err := t.Render(in); err == nil {
			b.WriteByte(0)
			b.WriteString(out)
		}
	}
	return b.String()
}

// Check renders small conversations to see what the template does. The error is Render's, for a template that
// cannot render a user's first message.
func (t *Template) Check(bos, eos string) (Report, error) {
	var r Report
	render := func(msgs []Message, extra map[string]any) (string, error) {
		return t.Render(Input{Messages: msgs, AddGenerationPrompt: true, BOS: bos, EOS: eos, Extra: extra,
			Now: time.Unix(0, 0)})
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
	family := tags.Plain
	if f, ok := tags.InTemplate(t.Texts(bos, eos)); ok {
		family = f
		r.OpenTag, r.CloseTag = f.Open[0], f.Close[0]
	}
	if second, err := render(answer("answer-1", ""), nil); err == nil {
		r.PrefixStable = strings.HasPrefix(second, first+"answer-1")
	} else if !errors.Is(err, ErrRefused) {
		return r, err
	}

	const thought = "thought-1"
	opening, closing := family.Open[0], family.Close[0]
	if out, err := render(answer(opening+"\n"+thought+"\n"+closing+"\n\nanswer-1", ""), nil); err == nil {
		r.DropsThinking = !strings.Contains(out, thought)
	}
	inTurn := []Message{ask, {Role: "assistant", Content: "answer-1", ReasoningContent: thought}}
	if out, err := render(inTurn, nil); err == nil {
		r.ReadsReasoning = strings.Contains(out, thought)
	}

	r.ThinkingSwitch = strings.Join(t.Switch(bos, eos).Names(), ", ")
	r.OpensThinking = r.OpenTag != "" && strings.HasSuffix(strings.TrimSpace(first), r.OpenTag)
	r.System = t.roles.after[start][system]
	return r, nil
}
