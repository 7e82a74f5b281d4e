package anthropic

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// answer is a message object.
type answer struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"` // "message"
	Role         string         `json:"role"`
	Model        string         `json:"model"`
	Content      []contentBlock `json:"content"`
	StopReason   *string        `json:"stop_reason"`
	StopSequence *string        `json:"stop_sequence"`
	Usage        usage          `json:"usage"`
}

// contentBlock is text, thinking or a tool_use.
type contentBlock struct {
	Type      string  `json:"type"`
	Text      *string `json:"text,omitempty"`
	Thinking  *string `json:"thinking,omitempty"`
	Signature *string `json:"signature,omitempty"`
	ID        string  `json:"id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Input     rawJSON `json:"input,omitempty"`

	// Thought is the thinking before a tool_use, where thinking has no blocks. Clients send blocks back as they got
	// them, with the tool's result, and the model continues from its thought.
	Thought string `json:"uma_thought,omitempty"`
}

// usage counts cached tokens separately.
type usage struct {
	Input      int `json:"input_tokens"`
	CacheWrite int `json:"cache_creation_input_tokens"` // always 0
	CacheRead  int `json:"cache_read_input_tokens"`
	Output     int `json:"output_tokens"`
}

// event is an event of a stream. Its fields depend on its type.
type event struct {
	Type    string        `json:"type"`
	Message *answer       `json:"message,omitempty"`
	Index   *int          `json:"index,omitempty"`
	Block   *contentBlock `json:"content_block,omitempty"`
	Delta   *delta        `json:"delta,omitempty"`
	Usage   *usage        `json:"usage,omitempty"`
}

type delta struct {
	Type      string  `json:"type,omitempty"`
	Text      *string `json:"text,omitempty"`
	Thinking  *string `json:"thinking,omitempty"`
	Signature *string `json:"signature,omitempty"`
	JSON      *string `json:"partial_json,omitempty"`

	*ending // of message_delta
}

type ending struct {
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

// pingEvery is the interval of ping events while a long prompt is computed, or a thought that is not shown.
const pingEvery = time.Second

// answering is the state of one unfinished message. Its blocks are opened, extended and closed one after the other.
type answering struct {
	s *api.Server
	w *api.Writer
	wants
	answer
	begun  bool // message_start was written
	open   *contentBlock
	text   []byte // of the open block
	pinged time.Time
	done   bool

	thought []byte // that is hidden, for the next call
}

// serveMessages answers POST /v1/messages.
func serveMessages(s *api.Server, w http.ResponseWriter, r *http.Request) {
	c := &answering{s: s, w: s.NewWriter(w)}
	c.answer = answer{ID: api.NewID("msg_"), Type: "message", Role: "assistant", Model: s.Model(),
		Content: []contentBlock{}}
	w.Header().Set("Request-Id", c.ID)
	req, err := c.read(r)
	if err != nil {
		c.fail(api.AsError(err))
		return
	}
	s.Warn(w, req)
	stream, err := s.Start(r.Context(), req)
	if err != nil {
		c.fail(api.AsError(err))
		return
	}
	defer stream.Close()
	c.w.Streams, c.w.Ping = c.stream, req.Ping
	s.Follow(c.w, stream, func(ev *wire.Event) bool { c.take(ev); return !c.done })
}

func (c *answering) read(r *http.Request) (*wire.Request, error) {
	req, wants, err := readBody(c.ID, r)
	if err != nil {
		return nil, err
	}
	c.wants = wants
	req.Progress, req.NoProgress = c.stream, !c.stream // message_start contains the prompt's token count
	return req, nil
}

// serveCount answers POST /v1/messages/count_tokens.
func serveCount(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	req, _, err := readBody(api.NewID("msg_"), r)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	p, err := s.Render(r.Context(), req)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	out.JSON(http.StatusOK, struct {
		Input int `json:"input_tokens"`
	}{len(p.Tokens)})
}

// take handles an event of the request: it sends the message's events.
func (c *answering) take(ev *wire.Event) {
	switch ev.Kind {
	case wire.EventProgress:
		c.start(usage{Input: ev.Progress.Total - ev.Progress.Cached, CacheRead: ev.Progress.Cached})
		c.ping()
	case wire.EventToken:
		c.token(&ev.Token)
	case wire.EventToolCall:
		c.call(&ev.ToolCall)
	case wire.EventError:
		c.fail((*api.Error)(&ev.Error))
	case wire.EventEOS:
		if e := api.Cut(&ev.EOS); e != nil {
			c.fail(e)
			return
		}
		c.end(&ev.EOS)
	}
}

// ping tells a client that waits for the first block, or for the end of a thought, that there is progress.
func (c *answering) ping() {
	if now := c.s.Now(); now.Sub(c.pinged) >= pingEvery {
		c.pinged = now
		c.send(event{Type: "ping"})
	}
}

func (c *answering) send(e event) {
	if c.stream {
		c.w.Event(e.Type, &e)
	}
}

// start sends message_start, once.
func (c *answering) start(u usage) {
	if c.begun {
		return
	}
	c.begun = true
	c.Usage = u
	c.send(event{Type: "message_start", Message: &c.answer})
}

func (c *answering) token(t *wire.Token) {
	if len(t.Text) == 0 {
		return
	}
	kind := "text"
	if t.Phase == wire.Thinking {
		kind = "thinking"
		if c.thoughts == hidden {
			c.thought = append(c.thought, t.Text...)
			c.start(c.Usage)
			c.ping()
			return
		}
	}
	if c.open == nil || c.open.Type != kind {
		c.close()
		b := &contentBlock{Type: kind}
		if kind == "text" {
			b.Text = new(string)
		} else {
			b.Thinking, b.Signature = new(string), new(string)
		}
		c.begin(b)
	}
	c.text = append(c.text, t.Text...)
	if kind == "thinking" && c.thoughts == sealed {
		c.ping()
		return
	}
	text := string(t.Text)
	d := delta{Type: "text_delta", Text: &text}
	if kind == "thinking" {
		d = delta{Type: "thinking_delta", Thinking: &text}
	}
	c.delta(d)
}

func (c *answering) delta(d delta) {
	index := len(c.Content)
	c.send(event{Type: "content_block_delta", Index: &index, Delta: &d})
}

// begin opens a block.
func (c *answering) begin(b *contentBlock) {
	c.start(c.Usage)
	index, shown := len(c.Content), *b
	c.open, c.text = b, c.text[:0]
	c.send(event{Type: "content_block_start", Index: &index, Block: &shown})
}

func (c *answering) call(t *wire.ToolCallDelta) {
	if t.Name != "" {
		c.close()
		c.begin(&contentBlock{Type: "tool_use", ID: t.CallID, Name: t.Name, Input: rawJSON("{}"),
			Thought: string(c.thought)})
		c.thought = nil
	}
	if c.open == nil || c.open.Type != "tool_use" || len(t.Arguments) == 0 {
		return
	}
	c.text = append(c.text, t.Arguments...)
	part := string(t.Arguments)
	c.delta(delta{Type: "input_json_delta", JSON: &part})
}

// close ends the open block, if there is one.
func (c *answering) close() {
	b := c.open
	if b == nil {
		return
	}
	text, index := string(c.text), len(c.Content)
	switch b.Type {
	case "text":
		b.Text = &text
	case "thinking":
		sign := signature
		if c.thoughts == sealed {
			sign, text = seal(text), ""
		}
		b.Thinking, b.Signature = &text, &sign
		c.delta(delta{Type: "signature_delta", Signature: &sign})
	default:
		b.Input = inputOf(c.text)
	}
	c.send(event{Type: "content_block_stop", Index: &index})
	c.Content, c.open = append(c.Content, *b), nil
}

// inputOf returns the arguments of a call as an object, an empty one for incomplete arguments.
func inputOf(arguments []byte) rawJSON {
	if checked, err := wire.CheckJSON(arguments); err == nil && len(checked) > 0 && checked[0] == '{' {
		return append(rawJSON(nil), checked...)
	}
	return rawJSON("{}")
}

// end completes the message.
func (c *answering) end(e *wire.EOS) {
	why := api.Ended(e, c.open != nil && c.open.Type == "tool_use" && !json.Valid(c.text))
	c.close()
	u := usage{Input: e.Usage.PromptTokens - e.Usage.CachedTokens, CacheRead: e.Usage.CachedTokens,
		Output: e.Usage.CompletionTokens}
	if len(c.Content) == 0 { // an empty answer has an empty block
		c.start(u)
		c.begin(&contentBlock{Type: "text", Text: new(string)})
		c.close()
	}
	reason := map[wire.Reason]string{wire.Stop: "end_turn", wire.Length: "max_tokens", wire.Calls: "tool_use"}[why]
	if why == wire.Stop && e.StopText != "" {
		reason, c.StopSequence = "stop_sequence", &e.StopText
	}
	c.StopReason, c.Usage, c.done = &reason, u, true
	if !c.stream {
		c.w.JSON(http.StatusOK, &c.answer)
		return
	}
	c.send(event{Type: "message_delta", Delta: &delta{ending: &ending{c.StopReason, c.StopSequence}}, Usage: &u})
	c.send(event{Type: "message_stop"})
}

// fail ends the answer with an error: as its status or, after the first event, as a last event.
func (c *answering) fail(e *api.Error) {
	if c.done {
		return
	}
	c.done = true
	if c.w.Begun() {
		c.w.Event("error", failure(e))
		return
	}
	Fail(c.w, e)
}
