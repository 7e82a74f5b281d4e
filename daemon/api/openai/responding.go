package openai

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// responding is the state of one unfinished response. Its items are opened, extended and closed one after the other.
type responding struct {
	api   *responsesAPI
	w     *api.Writer
	owner uint32

	stream    bool // send events
	keep      bool // store the finished response
	summary   bool // thinking goes out as a summary, not as reasoning text
	encrypted bool // and as encrypted_content too
	api.Telemetry
	meter api.Meter

	conv    *conversation
	history []rawJSON // all items of the conversation, input included
	input   []rawJSON // those of this request

	response responseObject
	sequence int
	begun    bool      // the first events were written
	told     time.Time // of the newest comment that keeps the connection alive
	done     bool

	open *openItem // nil: between two items
}

// openItem is the unfinished item.
type openItem struct {
	item  *outputItem
	index int
	text  []byte // of its part, or its arguments
	probs []chatLogprob
	name  toolName // of a call
}

// begin fills in the response's fields that are known before the first event.
func (c *responding) begin(in *responsesBody, req *wire.Request) {
	c.response = responseObject{
		ID: c.response.ID, Object: "response", CreatedAt: c.api.s.Now().Unix(), Status: "in_progress",
		Instructions: in.Instructions, MaxTokens: in.MaxOutputTokens,
		Model: c.api.s.Model(), Output: []*outputItem{}, Parallel: req.ParallelToolCalls, Previous: in.Previous,
		ServiceTier: "default", Store: c.keep,
		Temperature: req.Sampling.Temperature, TopP: req.Sampling.TopP, TopLogprobs: req.Sampling.Logprobs,
		ToolChoice: rawJSON(`"auto"`), Tools: rawJSON("[]"),
		Truncation: "disabled", Metadata: rawJSON("{}"), Text: textOptions{Format: &textFormat{Type: "text"}},
	}
	r := &c.response
	if in.Reasoning != nil {
		r.Reasoning = reasoningOptions{Effort: in.Reasoning.Effort, Summary: in.Reasoning.Summary}
	}
	if in.Text != nil && in.Text.Format != nil {
		r.Text.Format = in.Text.Format
	}
	for raw, dst := range map[*rawJSON]*rawJSON{&in.ToolChoice: &r.ToolChoice, &in.Tools: &r.Tools,
		&in.Metadata: &r.Metadata} {
		if *raw != nil {
			*dst = *raw
		}
	}
	if in.Truncation != nil {
		r.Truncation = *in.Truncation
	}
}

// start sends the first two events, once.
func (c *responding) start() {
	if c.begun {
		return
	}
	c.begun = true
	for _, kind := range []string{"response.created", "response.in_progress"} {
		c.send(responseEvent{Type: kind, Response: &c.response})
	}
}

// send writes an event with its sequence number.
func (c *responding) send(e responseEvent) {
	if !c.stream {
		return
	}
	c.start()
	e.Sequence = c.sequence
	c.sequence++
	c.w.Event(e.Type, &e)
}

// aliveEvery is the interval of comments while a long prompt is computed.
const aliveEvery = time.Second

// alive keeps the connection alive while the prompt is computed: with the first events, then with comments.
func (c *responding) alive() {
	now := c.api.s.Now()
	switch {
	case !c.stream:
	case !c.begun:
		c.start()
		c.told = now
	case now.Sub(c.told) >= aliveEvery:
		c.told = now
		c.w.Comment()
	}
}

// progress tells of the prompt: with "return_progress" in an event, else by keeping the connection alive.
func (c *responding) progress(p *wire.Progress) {
	c.meter.Progress(p)
	if !c.Progress {
		c.alive()
		return
	}
	c.start()
	c.send(responseEvent{Type: "response.in_progress", Response: &c.response, Progress: api.ProgressOf(p),
		Timings: c.timings()})
}

// timings returns the timings up to now for an event, nil unless the body asks for them.
func (c *responding) timings() *timings {
	if !c.PerToken {
		return nil
	}
	return c.meter.Timings()
}

// take handles an event of the request: it sends the response's events.
func (c *responding) take(ev *wire.Event) {
	switch ev.Kind {
	case wire.EventProgress:
		c.progress(&ev.Progress)
	case wire.EventToken:
		c.meter.Token(&ev.Token, c.api.s.Now())
		c.token(&ev.Token)
	case wire.EventToolCall:
		c.call(&ev.ToolCall)
	case wire.EventError:
		c.fail((*api.Error)(&ev.Error))
	case wire.EventEOS:
		c.end(&ev.EOS)
	}
}

func (c *responding) token(t *wire.Token) {
	if len(t.Text) == 0 {
		return
	}
	kind := "message"
	if t.Phase == wire.Thinking {
		kind = "reasoning"
	}
	if c.open == nil || c.open.item.Type != kind {
		c.close("completed")
		c.openText(kind)
	}
	o := c.open
	o.text = append(o.text, t.Text...)
	delta := string(t.Text)
	e := responseEvent{ItemID: o.item.ID, OutputIndex: &o.index, ContentIndex: new(int), Delta: &delta,
		Timings: c.timings()}
	switch {
	case kind == "message":
		e.Type, e.Logprobs = "response.output_text.delta", &[]chatLogprob{}
		if t.HasLogprob {
			p := chatLogprobOf(t)
			o.probs, *e.Logprobs = append(o.probs, p), []chatLogprob{p}
		}
	case c.summary:
		e.Type, e.SummaryIndex, e.ContentIndex = "response.reasoning_summary_text.delta", new(int), nil
	default:
		e.Type = "response.reasoning_text.delta"
	}
	c.send(e)
}

// openText opens a message or a reasoning item, and its only part.
func (c *responding) openText(kind string) {
	item := &outputItem{Type: kind, Status: "in_progress"}
	if kind == "message" {
		item.ID, item.Role, item.Content = api.NewID("msg_"), "assistant", &[]outputPart{}
	} else {
		item.ID, item.Summary = api.NewID("rs_"), &[]outputPart{}
	}
	c.add(&openItem{item: item})
	e := c.partEvent("added")
	part := c.part("")
	e.Part = &part
	c.send(e)
}

// add opens an item.
func (c *responding) add(o *openItem) {
	o.index = len(c.response.Output)
	c.open = o
	shown := *o.item
	c.send(responseEvent{Type: "response.output_item.added", OutputIndex: &o.index, Item: &shown})
}

// part returns the open item's part with this text.
func (c *responding) part(text string) outputPart {
	switch {
	case c.open.item.Type == "message":
		probs := c.open.probs
		if probs == nil {
			probs = []chatLogprob{}
		}
		return outputPart{Type: "output_text", Text: text, Annotations: &[]struct{}{}, Logprobs: &probs}
	case c.summary:
		return outputPart{Type: "summary_text", Text: text}
	}
	return outputPart{Type: "reasoning_text", Text: text}
}

// partEvent returns the event for the open item's part; the argument what is "added" or "done".
func (c *responding) partEvent(what string) responseEvent {
	e := responseEvent{ItemID: c.open.item.ID, OutputIndex: &c.open.index}
	if c.open.item.Type == "reasoning" && c.summary {
		e.Type, e.SummaryIndex = "response.reasoning_summary_part."+what, new(int)
	} else {
		e.Type, e.ContentIndex = "response.content_part."+what, new(int)
	}
	return e
}

// call handles a part of a tool call.
func (c *responding) call(t *wire.ToolCallDelta) {
	if t.Name != "" {
		c.close("completed")
		name, ok := c.conv.tools[t.Name]
		if !ok {
			name.name = t.Name
		}
		item := &outputItem{ID: api.NewID("fc_"), Type: "function_call", Status: "in_progress", CallID: t.CallID,
			Name: name.name, Namespace: name.namespace, Arguments: new(string)}
		switch {
		case name.custom:
			item.ID, item.Type, item.Arguments, item.Input = api.NewID("ctc_"), "custom_tool_call", nil, new(string)
		case name.search:
			item.ID, item.Type, item.Name, item.Execution = api.NewID("tsc_"), "tool_search_call", "", "client"
			item.Arguments = rawJSON("{}")
		}
		c.add(&openItem{item: item, name: name})
	}
	o := c.open
	if o == nil || o.item.CallID == "" && o.item.Name == "" || len(t.Arguments) == 0 {
		return
	}
	o.text = append(o.text, t.Arguments...)
	if !o.name.custom && !o.name.search { // their input is known only when its JSON is complete
		delta := string(t.Arguments)
		c.send(responseEvent{Type: "response.function_call_arguments.delta", ItemID: o.item.ID, OutputIndex: &o.index,
			Delta: &delta, Timings: c.timings()})
	}
}

// close closes the open item, if there is one, with this status.
func (c *responding) close(status string) {
	o := c.open
	if o == nil {
		return
	}
	text := string(o.text)
	switch {
	case o.name.custom:
		in := customInput{Input: text} // text that is not the expected JSON goes out unchanged
		if err := json.Unmarshal(o.text, &in); err != nil {
			in.Input = text
		}
		o.item.Input = &in.Input
		c.send(responseEvent{Type: "response.custom_tool_call_input.delta", ItemID: o.item.ID, OutputIndex: &o.index,
			Delta: &in.Input})
		c.send(responseEvent{Type: "response.custom_tool_call_input.done", ItemID: o.item.ID, OutputIndex: &o.index,
			Input: &in.Input})
	case o.name.search:
		if checked, err := wire.CheckJSON(o.text); err == nil && len(checked) > 0 && checked[0] == '{' {
			o.item.Arguments = append(rawJSON(nil), checked...)
		}
	case o.item.Type == "function_call":
		o.item.Arguments = &text
		c.send(responseEvent{Type: "response.function_call_arguments.done", ItemID: o.item.ID, OutputIndex: &o.index,
			Arguments: &text, Name: o.item.Name})
	default:
		c.closeText(text)
	}
	o.item.Status = status
	c.send(responseEvent{Type: "response.output_item.done", OutputIndex: &o.index, Item: o.item})
	c.response.Output = append(c.response.Output, o.item)
	c.open = nil
}

// closeText closes the part of a message or a reasoning item.
func (c *responding) closeText(text string) {
	o := c.open
	part := c.part(text)
	e := responseEvent{ItemID: o.item.ID, OutputIndex: &o.index, ContentIndex: new(int), Text: &text}
	switch {
	case o.item.Type == "message":
		e.Type, e.Logprobs = "response.output_text.done", part.Logprobs
	case c.summary:
		e.Type, e.SummaryIndex, e.ContentIndex = "response.reasoning_summary_text.done", new(int), nil
	default:
		e.Type = "response.reasoning_text.done"
	}
	c.send(e)
	e = c.partEvent("done")
	e.Part = &part
	c.send(e)
	switch {
	case o.item.Type == "message":
		o.item.Content = &[]outputPart{part}
	case c.summary:
		o.item.Summary = &[]outputPart{part}
	default:
		o.item.Content = &[]outputPart{part}
	}
	if o.item.Type == "reasoning" && c.encrypted {
		opaque := encrypt(text)
		o.item.Encrypted = &opaque
	}
}

// end completes the response.
func (c *responding) end(e *wire.EOS) {
	if e.Reason == wire.Shutdown {
		c.fail(api.Cut(e))
		return
	}
	r := &c.response
	last, kind := "completed", "response.completed"
	r.Status = "completed"
	switch e.Reason {
	case wire.Length:
		last, kind, r.Status = "incomplete", "response.incomplete", "incomplete"
		r.Incomplete = &incomplete{"max_output_tokens"}
	case wire.Cancelled:
		// There is no event for it, and agents ask again after response.incomplete.
		last, r.Status = "incomplete", "cancelled"
	}
	if c.open == nil && len(r.Output) == 0 {
		c.openText("message") // an empty answer has a message too
	}
	c.close(last)
	now := c.api.s.Now().Unix()
	r.CompletedAt, r.Usage = &now, usageOfResponse(e)
	c.done = true
	if c.keep {
		c.api.store.put(c)
	}
	if c.stream {
		last := responseEvent{Type: kind, Response: r}
		if c.PerToken {
			t := api.TimingsOf(e)
			last.Timings = &t
		}
		c.send(last)
		return
	}
	c.w.JSON(http.StatusOK, r)
}

func usageOfResponse(e *wire.EOS) *responseUsage {
	u := &responseUsage{Input: e.Usage.PromptTokens, Output: e.Usage.CompletionTokens, Total: e.Usage.PromptTokens +
		e.Usage.CompletionTokens}
	u.InputWith.Cached, u.OutputWith.Reasoning = e.Usage.CachedTokens, e.Usage.ThinkTokens
	return u
}

// fail ends the response with an error: as its status or, after the first event, as a last event.
func (c *responding) fail(e *api.Error) {
	if c.done {
		return
	}
	c.done = true
	if !c.begun && c.w.Begun() {
		c.start()
	}
	if !c.begun {
		inInput.fail(c.w, e)
		return
	}
	c.close("incomplete")
	message := e.Message
	if e.Overflow() {
		message = inInput.overflowMessage(e)
	}
	c.response.Status, c.response.Error = "failed", &responseError{errorCode(e), message}
	c.send(responseEvent{Type: "response.failed", Response: &c.response})
}

// errorCode returns OpenAI's code for an error; agents use it to decide whether to retry.
func errorCode(e *api.Error) string {
	switch e.Code {
	case wire.ContextLength:
		return "context_length_exceeded"
	case wire.QueueLimit:
		return "rate_limit_exceeded"
	case wire.BadRequest, wire.InvalidJSON, wire.PromptTooLarge, wire.FrameTooLarge:
		return "invalid_prompt"
	}
	return "server_error"
}
