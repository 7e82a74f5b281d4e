package openai

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/llamaform"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

type rawJSON = json.RawMessage

// jsonText encodes s for a field that may also be null.
func jsonText(s string) rawJSON { return api.AppendJSON(nil, s) }

var null = rawJSON("null")

type timings = api.Timings

// answerObject is a whole answer or a chunk.
type answerObject struct {
	ID          string        `json:"id"`
	Object      string        `json:"object"`
	Created     int64         `json:"created"`
	Model       string        `json:"model"`
	Fingerprint string        `json:"system_fingerprint"`
	Choices     []*choicePart `json:"choices"`
	Progress    *api.Progress `json:"prompt_progress,omitempty"`
	Usage       any           `json:"usage,omitempty"` // *usage, or null before the last chunk
	Timings     *timings      `json:"timings,omitempty"`
	PromptIDs   []int32       `json:"prompt_token_ids,omitempty"` // of a chat, with return_token_ids

	Verbose *llamaform.Final `json:"__verbose,omitempty"` // as llama-server has it
}

type choicePart struct {
	Index    int      `json:"index"`
	Delta    *message `json:"delta,omitempty"`   // of a chat's chunk
	Message  *message `json:"message,omitempty"` // of a chat's whole answer
	Text     *string  `json:"text,omitempty"`    // of completions
	Logprobs any      `json:"logprobs"`          // *chatLogprobs, *textLogprobs or nil
	Finish   *string  `json:"finish_reason"`

	TokenIDs  []int32 `json:"token_ids,omitempty"`        // of the part, with return_token_ids
	PromptIDs []int32 `json:"prompt_token_ids,omitempty"` // of a completion, with return_token_ids

	timings *timings         // for a chunk with only this part
	verbose *llamaform.Final // likewise
}

type message struct {
	Role      string     `json:"role,omitempty"`
	Content   rawJSON    `json:"content,omitempty"` // a string, or null
	Reasoning *string    `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// toolCall is a tool call. In a chunk it is a part: the first one has id and name, the following ones have arguments.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in chunks
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
	Refusal *struct{}     `json:"refusal"` // always null
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"` // a []byte would be base64
}

// textLogprobs has one entry for each token in each of its arrays.
type textLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []*float32           `json:"token_logprobs"` // null for the first token of an echoed prompt
	Top      []map[string]float32 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"` // in characters
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	PromptWith struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionWith struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// choice is the state of one unfinished answer.
type choice struct {
	index  int
	again  bool              // an earlier choice has the same prompt
	echo   string            // the prompt that precedes the text ("echo")
	begun  bool              // a chunk was written
	offset int               // characters of text so far, for completions' logprobs
	plain  *llamaform.Answer // the same answer, for "verbose"; nil without
	ids    *tokenIDs         // for "return_token_ids"; nil without
	meter  api.Meter
	eos    *wire.EOS
	args   []byte // of the newest tool call
	called bool   // there is one

	// Without streaming.
	text, think []byte
	probs       []chatLogprob
	legacy      textLogprobs
	calls       []toolCall
}

func (o *object) of(kind string, parts []*choicePart) *answerObject {
	if parts == nil {
		parts = []*choicePart{}
	}
	return &answerObject{ID: o.id, Object: kind, Created: o.created.Unix(), Model: o.model, Fingerprint: o.fingerprint,
		Choices: parts}
}

// chunkOf returns a chunk with these parts.
func (o *object) chunkOf(parts ...*choicePart) *answerObject {
	kind := "text_completion"
	if o.chat {
		kind = "chat.completion.chunk"
	}
	a := o.of(kind, parts)
	if o.usage {
		a.Usage = null
	}
	if len(parts) == 1 {
		a.Timings, a.Verbose = parts[0].timings, parts[0].verbose
	}
	return a
}

// first returns the part before the first token: a chat's role, or the echoed prompt; nil if there is none.
func (o *object) first(ch *choice) *choicePart {
	switch {
	case o.chat:
		return &choicePart{Index: ch.index, Delta: &message{Role: "assistant", Content: null}}
	case ch.echo != "":
		part := &choicePart{Index: ch.index, Text: &ch.echo}
		if len(ch.legacy.Tokens) > 0 {
			part.Logprobs = &ch.legacy
		}
		return part
	}
	return nil
}

// prompt keeps a token of the echoed prompt, for its log-probabilities.
func (ch *choice) prompt(t *wire.Token) {
	ch.legacy.add(t, ch.offset)
	// what begins a sequence is not in the text
	if len(ch.legacy.Tokens) > 1 || strings.HasPrefix(ch.echo, string(t.Text)) {
		ch.offset += utf8.RuneCount(t.Text)
	}
}

// token returns the part for a token, nil if it is empty. Completions omit thinking: their format has no field for it.
func (o *object) token(ch *choice, t *wire.Token) *choicePart {
	if !o.chat && t.Phase == wire.Thinking || len(t.Text) == 0 && !t.HasLogprob {
		return nil
	}
	text := string(t.Text)
	part := &choicePart{Index: ch.index}
	switch {
	case !o.chat:
		part.Text = &text
	case text == "": // only log-probabilities
		part.Delta = &message{}
	case t.Phase == wire.Thinking:
		part.Delta = &message{Reasoning: &text}
	default:
		part.Delta = &message{Content: jsonText(text)}
	}
	if t.HasLogprob && t.Phase != wire.Thinking {
		if o.chat {
			part.Logprobs = &chatLogprobs{Content: []chatLogprob{chatLogprobOf(t)}}
		} else {
			l := new(textLogprobs)
			l.add(t, ch.offset)
			part.Logprobs = l
		}
	}
	ch.offset += utf8.RuneCount(t.Text)
	return part
}

// reason returns finish_reason.
func (ch *choice) reason() string {
	return string(api.Ended(ch.eos, ch.called && !json.Valid(ch.args)))
}

// toolCall returns the part for a part of a tool call.
func (o *object) toolCall(ch *choice, t *wire.ToolCallDelta) *choicePart {
	ch.follow(t)
	c := toolCall{Index: &t.Index, Function: functionCall{Name: t.Name, Arguments: string(t.Arguments)}}
	if t.Name != "" {
		c.ID, c.Type = t.CallID, "function"
	}
	return &choicePart{Index: ch.index, Delta: &message{ToolCalls: []toolCall{c}}}
}

// last returns the part that ends a choice, with finish_reason.
func (o *object) last(ch *choice) *choicePart {
	reason, empty := ch.reason(), ""
	part := &choicePart{Index: ch.index, Finish: &reason, timings: timingsOf([]*choice{ch})}
	if o.chat {
		part.Delta = &message{}
	} else {
		part.Text = &empty
	}
	return part
}

// keep adds a token to an answer without streaming.
func (o *object) keep(ch *choice, t *wire.Token) {
	if t.Phase == wire.Thinking {
		ch.think = append(ch.think, t.Text...)
		return
	}
	switch {
	case !t.HasLogprob:
	case o.chat:
		ch.probs = append(ch.probs, chatLogprobOf(t))
	default:
		ch.legacy.add(t, ch.offset)
	}
	ch.text = append(ch.text, t.Text...)
	ch.offset += utf8.RuneCount(t.Text)
}

// follow keeps the arguments of the newest tool call, to know whether it is complete.
func (ch *choice) follow(t *wire.ToolCallDelta) {
	if t.Name != "" {
		ch.args, ch.called = ch.args[:0], true
	}
	ch.args = append(ch.args, t.Arguments...)
}

// keepCall adds a part of a tool call to an answer without streaming.
func (ch *choice) keepCall(t *wire.ToolCallDelta) {
	ch.follow(t)
	if t.Name != "" {
		ch.calls = append(ch.calls, toolCall{ID: t.CallID, Type: "function", Function: functionCall{Name: t.Name}})
	}
	if n := len(ch.calls); n > 0 {
		ch.calls[n-1].Function.Arguments = string(ch.args)
	}
}

// whole returns the choice of an answer without streaming.
func (o *object) whole(choices []*choice) *answerObject {
	kind := "text_completion"
	if o.chat {
		kind = "chat.completion"
	}
	var parts []*choicePart
	for _, ch := range choices {
		reason := ch.reason()
		part := &choicePart{Index: ch.index, Finish: &reason}
		if o.chat {
			part.Message = &message{Role: "assistant", Content: jsonText(string(ch.text)), ToolCalls: ch.calls}
			if len(ch.text) == 0 && len(ch.calls) > 0 {
				part.Message.Content = null
			}
			if think := string(ch.think); think != "" {
				part.Message.Reasoning = &think
			}
			if len(ch.probs) > 0 {
				part.Logprobs = &chatLogprobs{Content: ch.probs}
			}
		} else {
			text := ch.echo + string(ch.text)
			part.Text = &text
			if len(ch.legacy.Tokens) > 0 {
				part.Logprobs = &ch.legacy
			}
		}
		parts = append(parts, part)
	}
	a := o.of(kind, parts)
	a.Usage, a.Timings = usageOf(choices), timingsOf(choices)
	return a
}

// finite bounds a log-probability to a finite value, which JSON can hold.
func finite(p float32) float32 {
	if !(p >= wire.MinLogprob) { // also NaN
		return wire.MinLogprob
	}
	return min(p, 0)
}

func tokenLogprobOf(text []byte, p float32) tokenLogprob {
	l := tokenLogprob{Token: string(text), Logprob: finite(p), Bytes: make([]int, len(text))}
	for i, c := range text {
		l.Bytes[i] = int(c)
	}
	return l
}

func chatLogprobOf(t *wire.Token) chatLogprob {
	l := chatLogprob{tokenLogprobOf(t.Text, t.Logprob), make([]tokenLogprob, len(t.Top))}
	for i := range t.Top {
		l.Top[i] = tokenLogprobOf(t.Top[i].Text, t.Top[i].Logprob)
	}
	return l
}

// add appends a token. Of two alternatives with the same text it keeps the more probable one.
func (l *textLogprobs) add(t *wire.Token, offset int) {
	top := make(map[string]float32, len(t.Top))
	for i := range t.Top {
		text := strings.ToValidUTF8(string(t.Top[i].Text), "\ufffd")
		if _, ok := top[text]; !ok {
			top[text] = finite(t.Top[i].Logprob)
		}
	}
	l.Tokens, l.Offsets = append(l.Tokens, string(t.Text)), append(l.Offsets, offset)
	if !t.HasLogprob {
		l.Logprobs, l.Top = append(l.Logprobs, nil), append(l.Top, nil)
		return
	}
	p := finite(t.Logprob)
	l.Logprobs, l.Top = append(l.Logprobs, &p), append(l.Top, top)
}

// usageOf sums up all choices. A prompt shared by several choices counts once.
func usageOf(choices []*choice) *usage {
	u := new(usage)
	for _, ch := range choices {
		e := &ch.eos.Usage
		if !ch.again {
			u.Prompt += e.PromptTokens
			u.PromptWith.Cached += e.CachedTokens
		}
		u.Completion += e.CompletionTokens
		u.CompletionWith.Reasoning += e.ThinkTokens
	}
	u.Total = u.Prompt + u.Completion
	return u
}

// timingsOf returns the timings of a single choice, nil for several.
func timingsOf(choices []*choice) *timings {
	if len(choices) != 1 {
		return nil
	}
	t := api.TimingsOf(choices[0].eos)
	return &t
}
