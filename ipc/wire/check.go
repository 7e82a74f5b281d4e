package wire

import (
	"fmt"
	"slices"
)

// Requests are made by Parse, or handed over within a process as values. What is checked of a whole request is the same
// for both, and is here.

// TextBytes returns the size of a request's text: prompt, suffix, messages and tools.
func (r *Request) TextBytes() int {
	n := len(r.Prompt) + len(r.Suffix)
	for i := range r.Messages {
		m := &r.Messages[i]
		n += len(m.Content) + len(m.ReasoningContent) + len(m.Name) + len(m.ToolCallID)
		for _, c := range m.ToolCalls {
			n += len(c.ID) + len(c.Name) + len(c.Arguments)
		}
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	return n
}

// TextBytes returns the size of the texts, the query once for each of them.
func (e *Embed) TextBytes() int {
	n := 0
	for i := range e.Inputs {
		n += len(e.Inputs[i].Text)
	}
	if e.Query != nil {
		n += len(*e.Query) * len(e.Inputs)
	}
	return n
}

// Check returns a *RequestError if r, which Parse has made, cannot be sent: its id is no id, or its text has more than
// maxPromptBytes; 0 = no limit.
func (r *Request) Check(maxPromptBytes int) error { return check(r.ID, r.tooLong(maxPromptBytes)) }

// Check is Request.Check for embeddings.
func (e *Embed) Check(maxPromptBytes int) error { return check(e.ID, e.tooLong(maxPromptBytes)) }

func check(id, tooLong string) error {
	switch {
	case !validID([]byte(id)):
		return &RequestError{Code: BadRequest, Message: fmt.Sprintf(
			"field %q is %s; it must be a string of 1…%d bytes or an integer", "id", quoted([]byte(id)), MaxIDBytes)}
	case tooLong != "":
		return &RequestError{ID: id, Code: PromptTooLarge, Message: tooLong}
	}
	return nil
}

// tooLong says that the text has more than limit bytes; "" if it does not, or limit is 0.
func (r *Request) tooLong(limit int) string {
	n := r.TextBytes()
	if limit <= 0 || n <= limit {
		return ""
	}
	name := "prompt"
	if r.Messages != nil {
		name = "messages"
	}
	return fmt.Sprintf("field %q has %d bytes of text; --max-prompt-bytes is %d", name, n, limit)
}

// tooLong is Request.tooLong for embeddings.
func (e *Embed) tooLong(limit int) string {
	n := e.TextBytes()
	switch {
	case limit <= 0 || n <= limit:
		return ""
	case e.Query != nil:
		return fmt.Sprintf("fields %q and %q have %d bytes of text, the query once for each document; "+
			"--max-prompt-bytes is %d", "query", "input", n, limit)
	}
	return fmt.Sprintf("field %q has %d bytes of text; --max-prompt-bytes is %d", "input", n, limit)
}

// Clone returns a copy that can be changed without changing r.
func (r *Request) Clone() *Request {
	c := *r
	c.PromptTokens = slices.Clone(r.PromptTokens)
	c.Messages = slices.Clone(r.Messages)
	for i := range c.Messages {
		c.Messages[i].ToolCalls = slices.Clone(c.Messages[i].ToolCalls)
	}
	c.Sampling.LogitBias = slices.Clone(r.Sampling.LogitBias)
	c.Sampling.StopTokens = slices.Clone(r.Sampling.StopTokens)
	c.Sampling.AllowedTokens = slices.Clone(r.Sampling.AllowedTokens)
	c.TextBias, c.BadWords, c.DryBreaks = slices.Clone(r.TextBias), slices.Clone(r.BadWords), slices.Clone(r.DryBreaks)
	c.Tools, c.Notes, c.Stop = slices.Clone(r.Tools), slices.Clone(r.Notes), slices.Clone(r.Stop)
	c.LoRA = slices.Clone(r.LoRA)
	c.TemplateArgs, c.Metadata = slices.Clone(r.TemplateArgs), slices.Clone(r.Metadata)
	return &c
}

// Clone returns a copy that can be changed without changing e.
func (e *Embed) Clone() *Embed {
	c := *e
	c.Inputs = slices.Clone(e.Inputs)
	for i := range c.Inputs {
		c.Inputs[i].Tokens = slices.Clone(c.Inputs[i].Tokens)
	}
	c.Metadata = slices.Clone(e.Metadata)
	return &c
}
