package ollama

import (
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// chatLine is an answer of /api/chat, or a part of one.
type chatLine struct {
	Model      string      `json:"model"`
	CreatedAt  string      `json:"created_at"`
	Message    chatMessage `json:"message"`
	Done       bool        `json:"done"`
	DoneReason string      `json:"done_reason,omitempty"`
	Logprobs   []logprob   `json:"logprobs,omitempty"`
	*metrics
}

type chatMessage struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Thinking  string `json:"thinking,omitempty"`
	ToolCalls []call `json:"tool_calls,omitempty"`
}

// generateLine is an answer of /api/generate, or a part of one.
type generateLine struct {
	Model      string    `json:"model"`
	CreatedAt  string    `json:"created_at"`
	Response   string    `json:"response"`
	Thinking   string    `json:"thinking,omitempty"`
	Done       bool      `json:"done"`
	DoneReason string    `json:"done_reason,omitempty"`
	Context    []int32   `json:"context,omitempty"`
	Logprobs   []logprob `json:"logprobs,omitempty"`
	*metrics
}

// metrics are fields of the last line. Times are in nanoseconds.
type metrics struct {
	Total          int64 `json:"total_duration"`
	Load           int64 `json:"load_duration"` // 0: the model is loaded
	PromptCount    int   `json:"prompt_eval_count"`
	PromptDuration int64 `json:"prompt_eval_duration"`
	Count          int   `json:"eval_count"`
	Duration       int64 `json:"eval_duration"`
}

type logprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs,omitempty"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes,omitempty"` // a []byte would be base64
}

// answer is the state of one unfinished answer.
type answer struct {
	s      *api.Server
	w      *api.Writer
	head   http.ResponseWriter // for headers, before the first write
	id     string
	began  time.Time
	model  string // the client's name for it
	chat   bool
	stream bool
	done   bool
	// context holds the tokens of prompt and answer at the end; nil if the API does not return them.
	context func(written []int32) []int32

	written []int32 // tokens, if context is not nil
	part    part    // since the last line
}

// part is the content of a line.
type part struct {
	text, think string
	calls       []call
	logprobs    []logprob

	open      *call // a call with incomplete arguments
	arguments []byte
}

func newAnswer(s *api.Server, w http.ResponseWriter, chat bool) *answer {
	a := &answer{s: s, w: s.NewWriter(w), head: w, id: api.NewID("ollama-"), began: s.Now(), chat: chat}
	w.Header().Set("X-Request-Id", a.id) // for uma-cli why and /cancel: bodies have no id
	return a
}

// begin sets the fields that all bodies have.
func (a *answer) begin(b *commonBody) {
	a.model, a.stream = b.Model, b.Stream == nil || *b.Stream
	if a.model == "" {
		a.model = a.s.Model()
	}
}

// loaded answers a body without a prompt, which asks ollama to load the model.
func (a *answer) loaded(r *http.Request, b *commonBody) {
	keep, set, err := KeepAlive(b.KeepAlive)
	if err == nil {
		err = a.s.Await(r.Context())
	}
	if err != nil {
		a.fail(api.AsError(err))
		return
	}
	reason := "load"
	if set && keep == 0 {
		reason = "unload"
	}
	a.w.JSON(http.StatusOK, a.line(reason, nil))
}

// run starts the request and writes its answer.
func (a *answer) run(r *http.Request, req *wire.Request) {
	a.s.Warn(a.head, req)
	stream, err := a.s.Start(r.Context(), req)
	if err != nil {
		a.fail(api.AsError(err))
		return
	}
	defer stream.Close()
	if a.stream { // lines have no comments: one without text
		a.w.KeepAlive = func() { a.w.Line(a.line("", nil)) }
	}
	a.w.Ping = req.Ping
	a.s.Follow(a.w, stream, func(ev *wire.Event) bool { a.take(ev); return !a.done })
}

func (a *answer) take(ev *wire.Event) {
	switch ev.Kind {
	case wire.EventError:
		a.fail((*api.Error)(&ev.Error))
	case wire.EventToken:
		a.token(&ev.Token)
	case wire.EventToolCall:
		a.toolCall(&ev.ToolCall)
	case wire.EventEOS:
		if e := api.Cut(&ev.EOS); e != nil {
			a.fail(e)
			return
		}
		a.end(&ev.EOS)
	}
}

func (a *answer) token(t *wire.Token) {
	if a.context != nil && t.TokenID >= 0 {
		a.written = append(a.written, t.TokenID)
	}
	if len(t.Text) == 0 && !t.HasLogprob {
		return
	}
	p := &a.part
	p.close()
	if t.Phase == wire.Thinking {
		p.think += string(t.Text)
	} else {
		p.text += string(t.Text)
	}
	if t.HasLogprob && t.Phase != wire.Thinking {
		p.logprobs = append(p.logprobs, logprobOf(t))
	}
	a.tell()
}

// toolCall adds a part of a tool call. ollama's API has only complete calls.
func (a *answer) toolCall(t *wire.ToolCallDelta) {
	p := &a.part
	if t.Name != "" {
		p.close()
		a.tell()
		p.open = &call{ID: t.CallID, Function: callFunction{Index: t.Index, Name: t.Name}}
	}
	p.arguments = append(p.arguments, t.Arguments...)
}

// close completes the open call. It drops a call that the end of the answer cut off, and reports that.
func (p *part) close() (cut bool) {
	if p.open == nil {
		return false
	}
	if len(p.arguments) == 0 {
		p.arguments = []byte("{}")
	}
	if cut = !json.Valid(p.arguments); !cut {
		p.open.Function.Arguments = rawJSON(p.arguments)
		p.calls = append(p.calls, *p.open)
	}
	p.open, p.arguments = nil, nil
	return cut
}

// tell writes the part since the last line, if the answer streams.
func (a *answer) tell() {
	if p := &a.part; a.stream && (p.text != "" || p.think != "" || p.calls != nil || p.logprobs != nil) {
		a.w.Line(a.line("", nil))
	}
}

// end writes the last line, or the whole answer.
func (a *answer) end(e *wire.EOS) {
	cut := a.part.close()
	a.tell()
	reason := "stop"
	if api.Ended(e, cut) == wire.Length {
		reason = "length"
	}
	ns := func(d time.Duration) int64 { return int64(max(d, 0)) }
	last := a.line(reason, &metrics{
		Total: ns(a.s.Now().Sub(a.began)), PromptCount: e.Usage.PromptTokens, PromptDuration: ns(e.Timings.Prefill),
		Count: e.Usage.CompletionTokens, Duration: ns(e.Timings.Decode),
	})
	if a.done = true; a.stream {
		a.w.Line(last)
		return
	}
	a.w.JSON(http.StatusOK, last)
}

// line returns the line for the part since the last one; with a reason it is the last line.
func (a *answer) line(reason string, m *metrics) any {
	p := a.part
	a.part = part{open: p.open, arguments: p.arguments}
	now := a.s.Now().UTC().Format(time.RFC3339Nano)
	if a.chat {
		return &chatLine{a.model, now, chatMessage{"assistant", p.text, p.think, p.calls}, reason != "", reason,
			p.logprobs, m}
	}
	l := &generateLine{Model: a.model, CreatedAt: now, Response: p.text, Thinking: p.think, Done: reason != "",
		DoneReason: reason, Logprobs: p.logprobs, metrics: m}
	if m != nil && a.context != nil {
		l.Context = a.context(a.written)
	}
	return l
}

// fail ends the answer with an error: as its status or, after the first line, as a last line.
func (a *answer) fail(e *api.Error) {
	if a.done {
		return
	}
	if a.done = true; a.w.Begun() {
		a.w.Line(failureOf(e))
		a.w.Flush()
		return
	}
	Fail(a.w, e)
}

func tokenLogprobOf(text []byte, p float32) tokenLogprob {
	if !(p >= wire.MinLogprob) || math.IsInf(float64(p), 0) { // also NaN
		p = wire.MinLogprob
	}
	l := tokenLogprob{Token: string(text), Logprob: min(p, 0)}
	for _, c := range text {
		l.Bytes = append(l.Bytes, int(c))
	}
	return l
}

func logprobOf(t *wire.Token) logprob {
	l := logprob{tokenLogprob: tokenLogprobOf(t.Text, t.Logprob)}
	for i := range t.Top {
		l.Top = append(l.Top, tokenLogprobOf(t.Top[i].Text, t.Top[i].Logprob))
	}
	return l
}
