package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// What OpenAI's clients read, as types of encoding/json: chat completions and the older completions, with the extensions
// that llama-server's clients know (reasoning_content, timings, prompt_progress).

type openAIObject struct {
	ID       string          `json:"id"`
	Object   string          `json:"object"`
	Created  int64           `json:"created"`
	Model    string          `json:"model"`
	Choices  []openAIChoice  `json:"choices"`
	Progress *openAIProgress `json:"prompt_progress,omitempty"`
	Usage    *openAIUsage    `json:"usage,omitempty"`
	Timings  *openAITimings  `json:"timings,omitempty"`
}

type openAIChoice struct {
	Index    int            `json:"index"`
	Delta    *openAIMessage `json:"delta,omitempty"`   // of a chat's chunk
	Message  *openAIMessage `json:"message,omitempty"` // of a chat's whole answer
	Text     *string        `json:"text,omitempty"`    // of completions
	Logprobs any            `json:"logprobs"`          // *chatLogprobs, *textLogprobs or nil
	Finish   *string        `json:"finish_reason"`
}

type openAIMessage struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"`
	Reasoning *string `json:"reasoning_content,omitempty"`
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
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

type openAIProgress struct {
	Total     int     `json:"total"`
	Processed int     `json:"processed"`
	TimeMs    float64 `json:"time_ms"`
}

type openAIUsage struct {
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

// openAITimings are llama-server's: what was computed, how long it took.
type openAITimings struct {
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

// openAIFailure is the body of an error.
type openAIFailure struct {
	Error struct {
		Code    int    `json:"code"`
		Type    string `json:"type"`
		Message string `json:"message"`
		UMACode string `json:"uma_code"`
		NPrompt *int   `json:"n_prompt_tokens,omitempty"`
		NCtx    *int   `json:"n_ctx,omitempty"`
	} `json:"error"`
}

// appendPlain appends v without HTML's escapes and without a line's end.
func appendPlain(dst []byte, v any) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("wire: OpenAI's answer: " + err.Error()) // plain structs of finite numbers and strings
	}
	return append(dst, bytes.TrimSuffix(out.Bytes(), []byte{'\n'})...)
}

// OpenAIAnswer writes the answer to one request. Its methods append JSON objects without a line's end.
type OpenAIAnswer struct {
	ID      string // of the answer: "chatcmpl-…"
	Model   string
	Created time.Time
	Chat    bool // chat completions; otherwise completions

	begun  bool // a chunk has named the role
	offset int  // characters of text so far, for completions' logprobs

	// Of an answer that comes whole.
	text, think []byte
	chat        chatLogprobs
	legacy      textLogprobs
}

func (a *OpenAIAnswer) object(name string, choices ...openAIChoice) *openAIObject {
	if a.Chat {
		name = "chat." + name
	}
	if choices == nil {
		choices = []openAIChoice{}
	}
	return &openAIObject{ID: a.ID, Object: name, Created: a.Created.Unix(), Model: a.Model, Choices: choices}
}

func (a *OpenAIAnswer) chunk(choices ...openAIChoice) *openAIObject {
	if a.Chat {
		return a.object("completion.chunk", choices...)
	}
	return a.object("text_completion", choices...)
}

// AppendToken appends the chunk of a token. Completions have no place for thinking: there it is left out, and the chunk
// is empty.
func (a *OpenAIAnswer) AppendToken(dst []byte, t *Token) []byte {
	if !a.Chat && t.Phase == Thinking || len(t.Text) == 0 && !t.HasLogprob {
		return dst
	}
	text := string(t.Text)
	var c openAIChoice
	switch {
	case !a.Chat:
		c.Text = &text
	case t.Phase == Thinking:
		c.Delta = &openAIMessage{Reasoning: &text}
	default:
		c.Delta = &openAIMessage{Content: &text}
	}
	if a.Chat && !a.begun {
		c.Delta.Role, a.begun = "assistant", true
	}
	if t.HasLogprob && t.Phase != Thinking {
		if a.Chat {
			c.Logprobs = &chatLogprobs{[]chatLogprob{chatLogprobOf(t)}}
		} else {
			l := new(textLogprobs)
			l.add(t, a.offset)
			c.Logprobs = l
		}
	}
	a.offset += utf8.RuneCount(t.Text)
	return appendPlain(dst, a.chunk(c))
}

// finite is a log-probability as JSON can hold it.
func finite(p float32) float32 {
	if !(p >= MinLogprob) { // also NaN
		return MinLogprob
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

func chatLogprobOf(t *Token) chatLogprob {
	l := chatLogprob{tokenLogprobOf(t.Text, t.Logprob), make([]tokenLogprob, len(t.Top))}
	for i := range t.Top {
		l.Top[i] = tokenLogprobOf(t.Top[i].Text, t.Top[i].Logprob)
	}
	return l
}

// add appends a token. Of two alternatives with one text the more probable counts.
func (l *textLogprobs) add(t *Token, offset int) {
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

// AppendProgress appends a chunk that says how much of the prompt is computed.
func (a *OpenAIAnswer) AppendProgress(dst []byte, p *Progress) []byte {
	o := a.chunk()
	o.Progress = &openAIProgress{p.Total, p.Processed, Ms(max(p.Elapsed, 0))}
	return appendPlain(dst, o)
}

// AppendLast appends the chunk that ends the answer, with the reason.
func (a *OpenAIAnswer) AppendLast(dst []byte, e *EOS) []byte {
	reason, empty := string(e.Reason), ""
	c := openAIChoice{Finish: &reason}
	switch {
	case !a.Chat:
		c.Text = &empty
	case a.begun:
		c.Delta = &openAIMessage{}
	default:
		c.Delta = &openAIMessage{Role: "assistant", Content: &empty}
	}
	o := a.chunk(c)
	o.Timings = timingsOf(e)
	return appendPlain(dst, o)
}

// AppendUsage appends the chunk that stream_options.include_usage asks for, after the last.
func (a *OpenAIAnswer) AppendUsage(dst []byte, e *EOS) []byte {
	o := a.chunk()
	o.Usage = usageOf(e)
	return appendPlain(dst, o)
}

// Keep adds a token to an answer that comes whole.
func (a *OpenAIAnswer) Keep(t *Token) {
	if t.Phase == Thinking {
		a.think = append(a.think, t.Text...)
		return
	}
	switch {
	case !t.HasLogprob:
	case a.Chat:
		a.chat.Content = append(a.chat.Content, chatLogprobOf(t))
	default:
		a.legacy.add(t, a.offset)
	}
	a.text = append(a.text, t.Text...)
	a.offset += utf8.RuneCount(t.Text)
}

// AppendWhole appends the whole answer.
func (a *OpenAIAnswer) AppendWhole(dst []byte, e *EOS) []byte {
	reason, text, name := string(e.Reason), string(a.text), "completion"
	c := openAIChoice{Finish: &reason}
	if a.Chat {
		c.Message = &openAIMessage{Role: "assistant", Content: &text}
		if think := string(a.think); think != "" {
			c.Message.Reasoning = &think
		}
		if len(a.chat.Content) > 0 {
			c.Logprobs = &a.chat
		}
	} else {
		c.Text, name = &text, "text_completion"
		if len(a.legacy.Tokens) > 0 {
			c.Logprobs = &a.legacy
		}
	}
	o := a.object(name, c)
	o.Usage, o.Timings = usageOf(e), timingsOf(e)
	return appendPlain(dst, o)
}

func usageOf(e *EOS) *openAIUsage {
	u := &openAIUsage{Prompt: e.Usage.PromptTokens, Completion: e.Usage.CompletionTokens, Total: e.Usage.PromptTokens + e.Usage.CompletionTokens}
	u.PromptWith.Cached, u.CompletionWith.Reasoning = e.Usage.CachedTokens, e.Usage.ThinkTokens
	return u
}

func timingsOf(e *EOS) *openAITimings {
	rate := func(n int, d time.Duration) float64 { // to a thousandth
		if n <= 0 || d <= 0 {
			return 0
		}
		return math.Floor(min(float64(n)/d.Seconds(), 1e12)*1000) / 1000
	}
	n := e.Usage.PromptTokens - e.Usage.CachedTokens
	ms := func(d time.Duration) float64 { return Ms(max(d, 0)) }
	return &openAITimings{
		CacheN: e.Usage.CachedTokens, PromptN: n, PromptMs: ms(e.Timings.Prefill), PromptPerSecond: rate(n, e.Timings.Prefill),
		AnswerN: e.Usage.CompletionTokens, AnswerMs: ms(e.Timings.Decode), AnswerPerSecond: rate(e.Usage.CompletionTokens-1, e.Timings.Decode),
		QueueMs: ms(e.Timings.Queue), TTFTMs: ms(e.Timings.TTFT),
	}
}

// AppendOpenAIError appends an error as OpenAI's clients read it.
func AppendOpenAIError(dst []byte, e *Error) []byte {
	var f openAIFailure
	f.Error.Code, f.Error.Type = OpenAIStatus(e.Code)
	f.Error.Message, f.Error.UMACode = e.Message, string(e.Code)
	if e.Code == ContextLength {
		f.Error.NPrompt, f.Error.NCtx = &e.NPrompt, &e.NCtx
	}
	return appendPlain(dst, &f)
}

// OpenAIStatus is the HTTP status of an error, and its type in the body.
func OpenAIStatus(c Code) (status int, kind string) {
	switch c {
	case BadRequest, InvalidJSON, DuplicateID:
		return 400, "invalid_request_error"
	case ContextLength:
		return 400, "exceed_context_size_error"
	case PromptTooLarge, FrameTooLarge:
		return 413, "invalid_request_error"
	case Timeout:
		return 408, "invalid_request_error"
	case QueueLimit:
		return 429, "rate_limit_error"
	case SessionLimit, ModelUnready, ShuttingDown:
		return 503, "unavailable_error"
	}
	return 500, "server_error"
}
