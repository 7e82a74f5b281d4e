package client

import (
	"bytes"
	"context"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Request, Message, Token and EOS are messages of the protocol; Tool and ToolCall are parts of them. Package ipc/wire
// has the others.
type (
	Request  = wire.Request
	Message  = wire.Message
	Token    = wire.Token
	EOS      = wire.EOS
	Tool     = wire.Tool
	ToolCall = wire.ToolCall
)

// System returns a system message: instructions for the whole conversation.
func System(text string) Message { return Message{Role: "system", Content: text} }

// User returns a message of the user.
func User(text string) Message { return Message{Role: "user", Content: text} }

// Image is a picture or a sound in a message.
type Image = wire.Image

// Picture returns a picture: a data: URL, base64, or "fd:0", "fd:1", … for a file of StreamFiles. Sound is the same for
// a sound.
func Picture(data string) Image { return Image{Kind: "image_url", Data: data} }

// Sound returns a sound.
func Sound(data string) Image { return Image{Kind: wire.KindSound, Data: data} }

// UserWith returns a message of the user whose text is behind pictures and sounds.
func UserWith(text string, images ...Image) Message {
	return Message{Role: "user", Content: strings.Repeat(wire.ImageMark, len(images)) + text, Images: images}
}

// Assistant returns an earlier answer. As the last message it is continued.
func Assistant(text string) Message { return Message{Role: "assistant", Content: text} }

// ToolResult returns the result of a call that an answer asked for.
func ToolResult(call ToolCall, text string) Message {
	return Message{Role: "tool", Name: call.Name, ToolCallID: call.ID, Content: text}
}

// NewRequest returns a request for a conversation, with the daemon's default for every other field. For raw text
// without a chat template, pass no messages and set Prompt.
func NewRequest(messages ...Message) *Request {
	r := wire.DefaultRequest()
	r.Messages = messages
	return &r
}

// Answer is a complete answer.
type Answer struct {
	Text     string
	Thinking string     // the text of the think block, "" without one
	Calls    []ToolCall // of the request's Tools, in the order of the answer
	End      EOS        // the reason, the usage and the timings; Text, Think and ToolCalls are nil
}

// Message returns the answer as a message of the conversation that continues. The results of its calls follow it.
func (a *Answer) Message() Message {
	return Message{Role: "assistant", Content: a.Text, ReasoningContent: a.Thinking, ToolCalls: a.Calls}
}

// Chat sends a request and waits for the complete answer. It does not keep or change r, and ignores r.Stream. Errors
// are those of Stream.Next.
func (c *Client) Chat(ctx context.Context, r *Request) (*Answer, error) {
	whole := *r
	whole.Stream, whole.Progress = false, false
	s, err := c.Stream(ctx, &whole)
	if err != nil {
		return nil, err
	}
	for s.End() == nil {
		if _, err := s.Next(); err != nil {
			return nil, err
		}
	}
	end := *s.End()
	a := &Answer{Text: string(end.Text), Thinking: string(end.Think), Calls: end.ToolCalls, End: end}
	a.End.Text, a.End.Think, a.End.ToolCalls, a.End.Metadata = nil, nil, nil, bytes.Clone(end.Metadata)
	return a, nil
}
