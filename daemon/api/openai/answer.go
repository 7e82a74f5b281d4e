package openai

import (
	"encoding/json"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

type rawJSON = json.RawMessage

// jsonText is s as JSON, where null has to be told from a text.
func jsonText(s string) rawJSON { return api.AppendJSON(nil, s) }

var null = rawJSON("null")

// answerObject is what clients read: a whole answer or a chunk.
type answerObject struct {
	ID          string        `json:"id"`
	Object      string        `json:"object"`
	Created     int64         `json:"created"`
	Model       string        `json:"model"`
	Fingerprint string        `json:"system_fingerprint"`
	Choices     []*choicePart `json:"choices"`
	Progress    *progress     `json:"prompt_progress,omitempty"`
	Usage       *usage        `json:"usage,omitempty"`
	Timings     *timings      `json:"timings,omitempty"`
}

type choicePart struct {
	Index    int      `json:"index"`
	Delta    *message `json:"delta,omitempty"`   // of a chat's chunk
	Message  *message `json:"message,omitempty"` // of a chat's whole answer
	Text     *string  `json:"text,omitempty"`    // of completions
	Logprobs any      `json:"logprobs"`          // *chatLogprobs, *textLogprobs or nil
	Finish   *string  `json:"finish_reason"`

	timings *timings // of the chunk that this part is alone in
}

type message struct {
	Role      string     `json:"role,omitempty"`
	Content   rawJSON    `json:"content,omitempty"` // a string, or null
	Reasoning *string    `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// toolCall is a call, or in a chunk a part of one: the first has the id and the name, the others more of the arguments.
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
	Logprobs []float32            `json:"token_logprobs"`
	Top      []map[string]float32 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"` // in characters
}

type progress struct {
	Total     int     `json:"total"`
	Cache     int     `json:"cache"`
	Processed int     `json:"processed"`
	TimeMs    float64 `json:"time_ms"`
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

// timings are llama-server's: what was computed, how long it took.
type timings struct {
	CacheN          int     `json:"cache_n"`
	PromptN         int     `json:"prompt_n"`
	PromptMs        float64 `json:"prompt_ms"`
	PromptPerSecond float64 `json:"prompt_per_second"`
	AnswerN         int     `json:"predicted_n"`
	AnswerMs        float64 `json:"predicted_ms"`
	AnswerPerSecond float64 `json:"predicted_per_second"`
	QueueMs         float64 `json:"queue_ms"`
	TTFTMs          float64 `json:"ttft_ms"`
}

// choice is one answer on its way.
type choice struct {
	index  int
	again  bool   // another choice has the same prompt
	echo   string // the prompt, which the text begins with
	begun  bool   // a chunk has gone out
	offset int    // characters of text so far, for completions' logprobs
	eos    *wire.EOS

	// Of an answer that comes whole.
	text, think []byte
	probs       []chatLogprob
	legacy      textLogprobs
	calls       []toolCall
}

func (o *object) of(kind string, parts []*choicePart) *answerObject {
	if parts == nil {
		parts = []*choicePart{}
	}
	return &answerObject{ID: o.id, Object: kind, Created: o.created.Unix(), Model: o.model, Fingerprint: o.fingerprint, Choices: parts}
}

// chunkOf is a chunk of these parts.
func (o *object) chunkOf(parts ...*choicePart) *answerObject {
	kind := "text_completion"
	if o.chat {
		kind = "chat.completion.chunk"
	}
	a := o.of(kind, parts)
	if len(parts) == 1 {
		a.Timings = parts[0].timings
	}
	return a
}

// first is what a choice begins with before its first token: a chat's role, or the prompt that is echoed. nil: nothing.
func (o *object) first(ch *choice) *choicePart {
	switch {
	case o.chat:
		return &choicePart{Index: ch.index, Delta: &message{Role: "assistant", Content: null}}
	case ch.echo != "":
		return &choicePart{Index: ch.index, Text: &ch.echo}
	}
	return nil
}

// token is the part of a token. Completions have no place for thinking: there it is left out. nil: there is nothing to say.
func (o *object) token(ch *choice, t *wire.Token) *choicePart {
	if !o.chat && t.Phase == wire.Thinking || len(t.Text) == 0 && !t.HasLogprob {
		return nil
	}
	text := string(t.Text)
	part := &choicePart{Index: ch.index}
	switch {
	case !o.chat:
		part.Text = &text
	case text == "": // log-probabilities alone
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

// toolCall is the part of a call's part.
func (o *object) toolCall(ch *choice, t *wire.ToolCallPart) *choicePart {
	c := toolCall{Index: &t.Index, Function: functionCall{Name: t.Name, Arguments: string(t.Arguments)}}
	if t.Name != "" {
		c.ID, c.Type = t.CallID, "function"
	}
	return &choicePart{Index: ch.index, Delta: &message{ToolCalls: []toolCall{c}}}
}

// last is the part that ends a choice, with the reason.
func (o *object) last(ch *choice) *choicePart {
	reason, empty := string(ch.eos.Reason), ""
	part := &choicePart{Index: ch.index, Finish: &reason, timings: timingsOf([]*choice{ch})}
	if o.chat {
		part.Delta = &message{}
	} else {
		part.Text = &empty
	}
	return part
}

// keep adds a token to an answer that comes whole.
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

// keepCall adds a part of a call to an answer that comes whole.
func (ch *choice) keepCall(t *wire.ToolCallPart) {
	if t.Name != "" {
		ch.calls = append(ch.calls, toolCall{ID: t.CallID, Type: "function", Function: functionCall{Name: t.Name}})
	}
	if n := len(ch.calls); n > 0 {
		ch.calls[n-1].Function.Arguments += string(t.Arguments)
	}
}

// whole is the whole answer.
func (o *object) whole(choices []*choice) *answerObject {
	kind := "text_completion"
	if o.chat {
		kind = "chat.completion"
	}
	var parts []*choicePart
	for _, ch := range choices {
		reason := string(ch.eos.Reason)
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

// finite is a log-probability as JSON can hold it.
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

// add appends a token. Of two alternatives with one text the more probable counts.
func (l *textLogprobs) add(t *wire.Token, offset int) {
	top := make(map[string]float32, len(t.Top))
	for i := range t.Top {
		text := strings.ToValidUTF8(string(t.Top[i].Text), "\ufffd")
		if _, ok := top[text]; !ok {
			top[text] = finite(t.Top[i].Logprob)
		}
	}
	l.Tokens, l.Logprobs = append(l.Tokens, string(t.Text)), append(l.Logprobs, finite(t.Logprob))
	l.Top, l.Offsets = append(l.Top, top), append(l.Offsets, offset)
}

// usageOf counts all choices. Those of one prompt have its tokens once: they share it.
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

// timingsOf are those of the only choice, nil where there are several.
func timingsOf(choices []*choice) *timings {
	if len(choices) != 1 {
		return nil
	}
	e := choices[0].eos
	rate := func(n int, d time.Duration) float64 { // to a thousandth
		if n <= 0 || d <= 0 {
			return 0
		}
		return math.Floor(min(float64(n)/d.Seconds(), 1e12)*1000) / 1000
	}
	n := e.Usage.PromptTokens - e.Usage.CachedTokens
	ms := func(d time.Duration) float64 { return wire.Ms(max(d, 0)) }
	return &timings{
		CacheN: e.Usage.CachedTokens, PromptN: n, PromptMs: ms(e.Timings.Prefill), PromptPerSecond: rate(n, e.Timings.Prefill),
		AnswerN: e.Usage.CompletionTokens, AnswerMs: ms(e.Timings.Decode), AnswerPerSecond: rate(e.Usage.CompletionTokens-1, e.Timings.Decode),
		QueueMs: ms(e.Timings.Queue), TTFTMs: ms(e.Timings.TTFT),
	}
}
