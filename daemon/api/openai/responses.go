package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// responsesTable lists the fields of POST /v1/responses. The request's fields for sampling and thinking are accepted
// too (docs/protocol.md).
var responsesTable = slices.Concat(
	api.Of(api.Taken, "input", "instructions", "tools", "tool_choice", "reasoning", "text", "max_output_tokens",
		"include", "store", "stream", "previous_response_id", "metadata", "truncation", "parallel_tool_calls",
		"top_logprobs", "timings_per_token"),
	api.Of(api.Ignored, "stream_options", "max_tool_calls", "client_metadata", "id", "access_programs",
		"background_options", "image"),
	api.Table{
		{Name: "background", Use: api.Refused, But: []string{"false"}, Why: "answers come on the connection that " +
			"asked"},
		{Name: "conversation", Use: api.Refused, Why: "use previous_response_id"},
		{Name: "prompt", Use: api.Refused, Why: "there are no stored prompts; send input"},
		{Name: "context_management", Use: api.Refused, But: []string{"[]"}, Why: "a context is never cut"},
		{Name: "previous_input_messages", Use: api.Refused, But: []string{"[]"}, Why: "send input"},
		{Name: "enable_response_messages", Use: api.Refused, But: []string{"false"},
			Why: "the answer has no place for it"},
		{Name: "messages", Use: api.Refused, Why: `it belongs to /v1/chat/completions; here it is "input"`},
		{Name: "max_tokens", Use: api.Refused, Why: "here it is max_output_tokens"},
		{Name: "response_format", Use: api.Refused, Why: "here it is text.format"},
	},
)

// responsesBody holds the taken fields.
type responsesBody struct {
	Input           rawJSON           `json:"input"`
	Instructions    *string           `json:"instructions"`
	Tools           rawJSON           `json:"tools"`
	ToolChoice      rawJSON           `json:"tool_choice"`
	Reasoning       *reasoningOptions `json:"reasoning"`
	Text            *textOptions      `json:"text"`
	MaxOutputTokens *int              `json:"max_output_tokens"`
	Include         []string          `json:"include"`
	Store           *bool             `json:"store"`
	Stream          bool              `json:"stream"`
	Previous        *string           `json:"previous_response_id"`
	Metadata        rawJSON           `json:"metadata"`
	Truncation      *string           `json:"truncation"`
	Parallel        *bool             `json:"parallel_tool_calls"`
	TopLogprobs     int               `json:"top_logprobs"`
	api.Telemetry
}

// Opens returns the types of the members that are decoded later, by name.
func (responsesBody) Opens() map[string]any {
	return map[string]any{"input": item{}, "tools": responsesTool{}, "tool_choice": toolChoice{}}
}

type reasoningOptions struct {
	_               struct{} `ignored:"mode,encrypted_content"`
	Effort          *string  `json:"effort"`
	Summary         *string  `json:"summary"`
	GenerateSummary *string  `json:"generate_summary,omitempty"`
	Context         *string  `json:"context,omitempty"` // whose thoughts are kept: "auto", "all_turns", "current_turn"
}

type textOptions struct {
	Format    *textFormat `json:"format"`
	Verbosity *string     `json:"verbosity"`
}

type textFormat struct {
	_      struct{} `ignored:"description"`
	Type   string   `json:"type"`
	Name   string   `json:"name,omitempty"`
	Schema rawJSON  `json:"schema,omitempty"`
	Strict *bool    `json:"strict,omitempty"`
}

const (
	includeEncrypted = "reasoning.encrypted_content"
	includeLogprobs  = "message.output_text.logprobs"
)

// includes are the accepted values of "include". Those without a constant concern tools and images and have no effect.
var includes = []string{includeEncrypted, includeLogprobs, "web_search_call.action.sources", "web_search_call.results",
	"code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
	"message.input_image.image_url"}

// responsesRequest is the translated request, in the format of package wire.
type responsesRequest struct {
	Messages  []api.Message  `json:"messages"`
	Tools     []api.Tool     `json:"tools,omitempty"`
	Choice    any            `json:"tool_choice,omitempty"`
	Parallel  *bool          `json:"parallel_tool_calls,omitempty"`
	Effort    *string        `json:"reasoning_effort,omitempty"`
	Preserve  *bool          `json:"preserve_thinking,omitempty"`
	MaxTokens *int           `json:"max_tokens,omitempty"`
	Format    *wrappedFormat `json:"response_format,omitempty"`
	Logprobs  bool           `json:"logprobs,omitempty"`
	Top       int            `json:"top_logprobs,omitempty"`
	Verbosity *string        `json:"verbosity,omitempty"`
}

// responsesNames are the names of its fields in a body.
var responsesNames = api.Names{"max_tokens": "max_output_tokens", "messages": "input",
	"reasoning_effort": "reasoning.effort", "preserve_thinking": "reasoning.context", "response_format": "text.format",
	"verbosity": "text.verbosity", "tools.function": ""}

type wrappedFormat struct {
	Type   string      `json:"type"`
	Schema *textFormat `json:"json_schema,omitempty"`
}

// serveResponses answers POST /v1/responses.
func (a *responsesAPI) serveResponses(w http.ResponseWriter, r *http.Request) {
	out := a.s.NewWriter(w)
	c, req, err := a.read(r)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	c.w = out
	w.Header().Set("X-Request-Id", c.response.ID)
	a.s.Warn(w, req)
	stream, err := a.s.Start(r.Context(), req)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	defer stream.Close()
	out.Streams, out.Ping = c.stream, req.Ping
	a.s.Follow(out, stream, func(ev *wire.Event) bool { c.take(ev); return !c.done })
}

// read translates a body into a request and the response that will answer it.
func (a *responsesAPI) read(r *http.Request) (*responding, *wire.Request, error) {
	body, err := responsesTable.Body(r)
	if err != nil {
		return nil, nil, err
	}
	in := new(responsesBody)
	if err := body.Into(in); err != nil {
		return nil, nil, err
	}
	if err := in.check(); err != nil {
		return nil, nil, err
	}
	c := &responding{api: a, owner: a.s.Owner(r.Context()), stream: in.Stream, keep: in.Store == nil || *in.Store,
		encrypted: slices.Contains(in.Include, includeEncrypted)}
	c.response.ID = api.NewID("resp_")
	c.summary = in.Reasoning != nil && (in.Reasoning.Summary != nil || in.Reasoning.GenerateSummary != nil)

	conv := conversation{tools: map[string]toolName{}}
	if in.Instructions != nil && *in.Instructions != "" {
		conv.messages = append(conv.messages, api.Message{Role: "system", Content: *in.Instructions})
	}
	if in.Previous != nil {
		old := a.store.get(c.owner, *in.Previous)
		if old == nil {
			return nil, nil,
				api.Refusef("previous_response_id: response %.100q is not stored here, or no longer; send the whole "+
					"conversation as input", *in.Previous)
		}
		c.history = slices.Clip(old.history)
	}
	if c.input, err = readInput(in.Input, func(id string) rawJSON { return a.store.item(c.owner, id) }); err != nil {
		return nil, nil, err
	}
	c.history = append(c.history, c.input...)
	if size := sizeOf(c.history); size > maxStoredBytes { // an item counts for each reference to it
		return nil, nil, &api.Error{Code: wire.PromptTooLarge, Message: fmt.Sprintf(
			"the conversation has %d bytes, referenced items included; it must have at most %d", size, maxStoredBytes)}
	}
	var tools []responsesTool
	if in.Tools != nil {
		if err := json.Unmarshal(in.Tools, &tools); err != nil {
			return nil, nil, api.Refuse("field \"tools\" must be an array of tools: " + err.Error())
		}
	}
	conv.declare(tools, false)
	for i, item := range c.history {
		if err := conv.add(item); err != nil {
			if n := i - (len(c.history) - len(c.input)); n >= 0 {
				return nil, nil, api.Refusef("input[%d]: %v", n, err)
			}
			return nil, nil, api.Refusef("previous_response_id: %v", err)
		}
	}
	if len(conv.messages) == 0 {
		return nil, nil, api.Refuse(`field "input" is empty; it must be a string or an array of items`)
	}
	choice, err := conv.choice(in.ToolChoice)
	if err != nil {
		return nil, nil, err
	}
	want := responsesRequest{Messages: conv.messages, Tools: conv.offered(), Choice: choice, Parallel: in.Parallel,
		MaxTokens: in.MaxOutputTokens}
	if slices.Contains(in.Include, includeLogprobs) {
		want.Logprobs, want.Top = true, in.TopLogprobs
	}
	if in.Reasoning != nil {
		want.Effort = in.Reasoning.Effort
		if want.Preserve, err = in.Reasoning.preserves(); err != nil {
			return nil, nil, err
		}
	}
	if in.Text != nil {
		want.Verbosity = in.Text.Verbosity
	}
	if in.Text != nil && in.Text.Format != nil && in.Text.Format.Type != "text" {
		f := in.Text.Format
		want.Format = &wrappedFormat{Type: f.Type}
		if f.Type == "json_schema" {
			want.Format.Schema = &textFormat{Name: f.Name, Schema: f.Schema, Strict: f.Strict}
		}
	}
	c.conv = &conv
	req, err := body.Request(c.response.ID, &want)
	if err != nil {
		return nil, nil, responsesNames.Of(err)
	}
	req.Notes = append(req.Notes, conv.left...)
	in.Telemetry.Of(req)
	c.Telemetry = in.Telemetry
	req.NoProgress = false // progress events trigger the comments that keep the connection alive
	c.begin(in, req)
	return c, req, nil
}

// preserves translates context; nil leaves it to the chat template.
func (r *reasoningOptions) preserves() (*bool, error) {
	all := false
	switch {
	case r.Context == nil || *r.Context == "auto":
		return nil, nil
	case *r.Context == "all_turns":
		all = true
	case *r.Context != "current_turn":
		return nil, api.Refusef(`field "reasoning.context" is %.40q; it must be "auto", "all_turns" or "current_turn"`,
			*r.Context)
	}
	return &all, nil
}

// check refuses values that the server cannot honour.
func (in *responsesBody) check() error {
	if in.Truncation != nil && *in.Truncation != "disabled" && *in.Truncation != "auto" {
		return api.Refusef(`field "truncation" is %.40q; it must be "auto" or "disabled"`, *in.Truncation)
	}
	if in.MaxOutputTokens != nil && *in.MaxOutputTokens < 1 {
		return api.Refusef(`field "max_output_tokens" is %d; it must be 1 or more`, *in.MaxOutputTokens)
	}
	for _, s := range in.Include {
		if !slices.Contains(includes, s) {
			return api.Refusef(`field "include" has %.60q; it must have values of %q`, s, includes)
		}
	}
	if in.Metadata != nil {
		var m map[string]string
		if err := json.Unmarshal(in.Metadata, &m); err != nil || len(in.Metadata) > wire.MaxMetadataBytes {
			return api.Refusef(`field "metadata" must be an object of strings with up to %d bytes`,
				wire.MaxMetadataBytes)
		}
	}
	return nil
}
