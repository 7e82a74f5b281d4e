package meridian

import (
	"cmp"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/tags"
)

// Begin says where the prompt leaves the model.
type Begin struct {
	Thinking bool // inside a thought that the prompt opened
	Closed   bool // right after a thought that the prompt closed
	Header   bool // inside a message's header
}

// Begin returns where decoding begins after prompt, a rendered conversation. Templates open or close a thought in the
// last bytes of the prompt. continued says that the conversation ends with an answer to be continued; then a marker
// anywhere in the last turn counts. The texts of users, tools and system prompts must not contain markers (Texts).
func (t *Tags) Begin(prompt string, continued bool) (b Begin) {
	if t == nil {
		return b
	}
	if c := t.family.Channels; c != nil {
		return beginIn(c, t.turn(prompt))
	}
	if !continued {
		end := strings.TrimRight(prompt, " \t\r\n")
		ends := func(s string) bool { return strings.HasSuffix(end, strings.TrimSpace(s)) }
		b.Thinking = slices.ContainsFunc(t.family.Open, ends)
		b.Closed = !b.Thinking && slices.ContainsFunc(t.family.Close, ends)
		return b
	}
	turn := t.turn(prompt)
	open, shut := lastOf(turn, t.family.Open), lastOf(turn, t.family.Close)
	b.Thinking = open > shut
	b.Closed = shut > open && strings.TrimSpace(turn[shut:]) == ""
	return b
}

// Started is an answer to be continued: in its thought, if it is Open, else in its content.
type Started struct {
	Thought, Content string
	Open             bool
}

// Continues reports whether prompt, which ends within the answer s, ends where s continues.
func (t *Tags) Continues(prompt string, s Started) bool {
	if t == nil || s.Thought == "" && s.Content == "" || t.assumed && !s.Open {
		return true
	}
	if s.Content != "" && lastOf(s.Content, t.family.Open) >= 0 {
		return true // the client wrote markers itself
	}
	b := t.Begin(prompt, true)
	return b.Thinking == s.Open && !b.Header
}

// Continue returns the prompt whose end is the answer s, to be continued. opening is a prompt that ends where an answer
// begins.
func (t *Tags) Continue(opening string, s Started) string {
	thought, content := s.Thought, s.Content
	if t == nil || t.assumed && !s.Open {
		return opening + content
	}
	f, b := &t.family, t.Begin(opening, false)
	prompt, gap := opening, ""
	switch {
	case b.Thinking:
	case thought == "" && f.Channels == nil:
		return prompt + content
	case thought == "":
		return prompt + f.Channels.Answer + content
	case b.Header || !b.Closed:
		if prompt += f.Open[0]; f.Channels == nil && t.opensLine {
			prompt += "\n"
		}
	default: // the template has closed the thought
		return prompt + content
	}
	if s.Open {
		return prompt + thought
	}
	if thought != "" && strings.HasSuffix(prompt, "\n") && f.Channels == nil {
		gap = "\n"
	}
	prompt += thought + gap + cmp.Or(f.Force, f.Close[0])
	if f.Channels == nil {
		prompt += t.suffix
	}
	return prompt + content
}

// beginIn is Begin for a format with headers.
func beginIn(c *tags.Channels, turn string) (b Begin) {
	start, message, end := lastOf(turn, c.Start), lastOf(turn, []string{c.Message}), lastOf(turn, c.End)
	switch {
	case start > message && start > end:
		b.Header = true
	case message > end:
		head := turn[:message]
		if i := lastOf(head, c.Start[:1]); i >= 0 {
			head = head[i:]
		}
		b.Thinking = strings.Contains(head, c.Think)
	}
	return b
}

// lastOf returns where the last occurrence of any of texts ends in s; -1 when there is none.
func lastOf(s string, texts []string) int {
	at := -1
	for _, x := range texts {
		if i := strings.LastIndex(s, x); i >= 0 {
			at = max(at, i+len(x))
		}
	}
	return at
}

// turn returns the last turn of the prompt: the text after the last control token that is not part of a marker.
func (t *Tags) turn(prompt string) string {
	for end := len(prompt); end > 0; end-- {
		if !t.lasts[prompt[end-1]] {
			continue
		}
		for i := end - 1; i >= max(0, end-t.longest); i-- {
			if t.boundary[prompt[i:end]] {
				return prompt[end:]
			}
		}
	}
	return prompt
}
