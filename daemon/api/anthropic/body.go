package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// messagesTable lists the fields of a body. The request's sampling fields are accepted too (docs/protocol.md).
var messagesTable = slices.Concat(
	api.Of(api.Taken, "messages", "system", "stop_sequences", "stream", "thinking", "tools", "tool_choice",
		"output_config", "output_format", "thread", "context_management"),
	api.Of(api.Ignored, "metadata", "service_tier", "cache_control", "inference_geo", "betas", "id",
		"billing_policy", "diagnostics", "fallback_credit_token", "fallbacks", "speed", "user_profile_id",
		"workspace_id"),
	api.Table{
		{Name: "mcp_servers", Use: api.Refused, But: []string{"[]"}, Why: "this server runs no tools"},
		{Name: "container", Use: api.Refused, Why: "this server runs no tools"},
		{Name: "compaction", Use: api.Refused, Why: "a context is never cut"},
		{Name: "prompt", Use: api.Refused, Why: `here it is "messages"`},
		{Name: "stop", Use: api.Refused, Why: `here it is "stop_sequences"`},
		{Name: "logprobs", Use: api.Refused, But: []string{"false", "0"}, Why: "messages have no place for them"},
	},
)

type body struct {
	Messages      []message     `json:"messages"`
	System        rawJSON       `json:"system"`
	StopSequences []string      `json:"stop_sequences"`
	Stream        bool          `json:"stream"`
	Thinking      *thinking     `json:"thinking"`
	Tools         []tool        `json:"tools"`
	ToolChoice    *toolChoice   `json:"tool_choice"`
	OutputConfig  *outputConfig `json:"output_config"`
	OutputFormat  *outputFormat `json:"output_format"`
	Context       *contextEdits `json:"context_management"`
}

// Opens returns the types of the members that are decoded later, by name.
func (body) Opens() map[string]any { return map[string]any{"system": block{}} }

type rawJSON = json.RawMessage

type message struct {
	_       struct{} `ignored:"id,type,model,stop_reason,stop_sequence,usage,cache_control,clear_at,output_config"`
	Role    string   `json:"role"`
	Content rawJSON  `json:"content"` // a string or blocks
}

// Opens returns the types of the members that are decoded later, by name.
func (message) Opens() map[string]any { return map[string]any{"content": block{}} }

// block has the fields of all supported types of blocks.
type block struct {
	_ struct{} `kinds:"text,thinking,redacted_thinking,tool_use,tool_result,tool_reference,document,search_result"`
	_ struct{} `ignored:"cache_control,citations,data,caller,context,id,toolset_name"`

	Type      string  `json:"type"`
	Text      string  `json:"text"`
	Thinking  string  `json:"thinking"`
	Signature string  `json:"signature"` // of thinking
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Input     rawJSON `json:"input"`
	ToolUseID string  `json:"tool_use_id"`
	Thought   string  `json:"uma_thought"` // of a tool_use, if the client was not shown it
	Content   rawJSON `json:"content"`     // of a tool_result: a string or blocks
	IsError   bool    `json:"is_error"`

	Title    string  `json:"title"`     // of a document or a search_result
	Source   rawJSON `json:"source"`    // of a document: {"type":"text","data":…} or {"type":"content","content":…}
	ToolName string  `json:"tool_name"` // of a tool_reference
}

// Opens returns the types of the members that are decoded later, by name.
func (block) Opens() map[string]any { return map[string]any{"content": block{}} }

type thinking struct {
	_            struct{} `ignored:"block_binding"`
	Type         string   `json:"type"`
	BudgetTokens *int     `json:"budget_tokens"`
	Display      *string  `json:"display"`
}

type tool struct {
	_           struct{} `kinds:",custom" ignored:"cache_control,allowed_callers,input_examples,eager_input_streaming"`
	Type        *string  `json:"type"` // absent or "custom"
	Name        string   `json:"name"`
	Description string   `json:"description"`
	InputSchema rawJSON  `json:"input_schema"`
	Strict      bool     `json:"strict"`
	Deferred    bool     `json:"defer_loading"`
	Width       int      `json:"display_width_px"` // of the client-run tool "computer"
	Height      int      `json:"display_height_px"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel bool   `json:"disable_parallel_tool_use"`
}

type outputConfig struct {
	_      struct{}      `ignored:"task_budget"`
	Effort *string       `json:"effort"`
	Format *outputFormat `json:"format"`
}

type outputFormat struct {
	Type   string  `json:"type"`
	Schema rawJSON `json:"schema"`
}

// request is the translated request, in the format of package wire.
type request struct {
	Messages []api.Message `json:"messages"`
	Stop     []string      `json:"stop,omitempty"`
	Tools    []api.Tool    `json:"tools,omitempty"`
	Choice   any           `json:"tool_choice,omitempty"`
	Parallel *bool         `json:"parallel_tool_calls,omitempty"`
	Think    *api.Think    `json:"think,omitempty"`
	Effort   *string       `json:"reasoning_effort,omitempty"`
	Preserve *bool         `json:"preserve_thinking,omitempty"`
	Format   *wireFormat   `json:"response_format,omitempty"`

	left wire.Notes // parts that were left out
}

// wirePart is a part of a message: a text, or a reference to a tool.
type wirePart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ToolName string `json:"tool_name,omitempty"`
}

type wireFormat struct {
	Type   string      `json:"type"`
	Schema *wireSchema `json:"json_schema,omitempty"`
}

type wireSchema struct {
	Schema rawJSON `json:"schema"`
}

// readBody translates a body into a request.
func readBody(id string, r *http.Request) (req *wire.Request, form wants, err error) {
	fields, err := messagesTable.Body(r)
	if err != nil {
		return nil, form, err
	}
	var in body
	if err := fields.Into(&in); err != nil {
		return nil, form, err
	}
	if fields.Has("thread") {
		return nil, form, errThread
	}
	if !fields.Has("messages") {
		return nil, form, api.Refuse(`field "messages" is missing; it must be an array of {"role":…,"content":…}`)
	}
	want := request{Stop: in.StopSequences}
	if err := want.conversation(&in); err != nil {
		return nil, form, err
	}
	if err := want.useTools(&in); err != nil {
		return nil, form, err
	}
	if want.Think, err = in.Thinking.translate(); err != nil {
		return nil, form, err
	}
	if err := want.edit(in.Context); err != nil {
		return nil, form, err
	}
	if form.thoughts, err = in.Thinking.shows(); err != nil {
		return nil, form, err
	}
	format := in.OutputFormat
	if c := in.OutputConfig; c != nil {
		if want.Think == nil || want.Think.Mode == "auto" && want.Think.Budget == nil { // a budget overrides the effort
			want.Effort = c.Effort
		}
		if c.Format != nil {
			format = c.Format
		}
	}
	if format != nil {
		if format.Type != "json_schema" {
			return nil, form,
				api.Refusef(`the output format's type is %.40q; it must be "json_schema"`, format.Type)
		}
		want.Format = &wireFormat{"json_schema", &wireSchema{format.Schema}}
	}
	if req, err = fields.Request(id, &want); err == nil {
		req.Notes = append(req.Notes, want.left...)
	}
	form.stream = in.Stream
	return req, form, names.Of(err)
}

// names are the names of a request's fields in a body.
var names = api.Names{"stop": "stop_sequences", "think": "thinking", "reasoning_effort": "output_config.effort",
	"preserve_thinking": "context_management",
	"response_format":   "output_format", "tools.function": "", "tools.function.parameters": ".input_schema"}

// conversation translates the system prompt and the messages.
func (want *request) conversation(in *body) error {
	names := map[string]string{} // of calls, by id
	if in.System != nil {
		text, err := want.textOf(in.System, "system", "\n\n")
		if err != nil {
			return err
		}
		if text != "" {
			want.Messages = append(want.Messages, api.Message{Role: "system", Content: text})
		}
	}
	for i, m := range in.Messages {
		field := fmt.Sprintf("messages[%d]", i)
		blocks, err := blocksOf(m.Content, field+".content")
		if err != nil {
			return err
		}
		switch m.Role {
		case "user":
			err = want.user(blocks, field, names)
		case "assistant":
			err = want.assistant(blocks, field, names)
		case "system":
			var text string
			if text, err = want.textOf(m.Content, field+".content", "\n\n"); err == nil {
				want.Messages = append(want.Messages, api.Message{Role: "system", Content: text})
			}
		default:
			err = api.Refusef(`field "%s.role" is %.40q; it must be "user" or "assistant"`, field, m.Role)
		}
		if err != nil {
			return err
		}
	}
	if len(in.Messages) == 0 { // accepted by llama-server: the model speaks first
		want.Messages = append(want.Messages, api.Message{Role: "user", Content: ""})
	}
	return nil
}

// user adds a message for each tool result, and then one for the text.
func (want *request) user(blocks []block, field string, names map[string]string) error {
	var texts []string
	for i, b := range blocks {
		where := fmt.Sprintf("%s.content[%d]", field, i)
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "tool_result":
			m := api.Message{Role: "tool", ToolCallID: b.ToolUseID, Name: names[b.ToolUseID]}
			parts, err := want.references(b.Content, where+".content")
			if err != nil {
				return err
			}
			if m.Content = parts; parts == nil {
				text, err := want.textOf(b.Content, where+".content", "\n")
				if err != nil {
					return err
				}
				if b.IsError {
					text = strings.TrimSuffix("Error: "+text, ": ")
				}
				m.Content = text
			}
			want.Messages = append(want.Messages, m)
		default:
			text, err := want.unread(&b, where)
			if err != nil {
				return err
			}
			texts = append(texts, text)
		}
	}
	if texts != nil || len(blocks) == 0 {
		want.Messages = append(want.Messages, api.Message{Role: "user", Content: strings.Join(texts, "\n")})
	}
	return nil
}

// assistant adds one message with thinking, text and calls.
func (want *request) assistant(blocks []block, field string, names map[string]string) error {
	m := api.Message{Role: "assistant"}
	var texts []string
	for i, b := range blocks {
		where := fmt.Sprintf("%s.content[%d]", field, i)
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "thinking":
			m.Reasoning += b.thought()
		case "redacted_thinking": // encrypted by another server
		case "tool_use":
			arguments := "{}"
			if b.Input != nil {
				arguments = string(b.Input)
			}
			names[b.ID] = b.Name
			m.Reasoning += b.Thought
			m.ToolCalls = append(m.ToolCalls, api.NewCall(b.ID, b.Name, arguments))
		default:
			text, err := want.unread(&b, where)
			if err != nil {
				return err
			}
			texts = append(texts, text)
		}
	}
	if texts != nil || m.ToolCalls == nil {
		m.Content = strings.Join(texts, "\n")
	}
	want.Messages = append(want.Messages, m)
	return nil
}

// useTools translates tools and tool_choice.
func (want *request) useTools(in *body) error {
	hosted := map[string]bool{}
	search := false // for tools, by Anthropic's servers: without it, deferred tools would never be found
	for _, t := range in.Tools {
		search = search || t.Type != nil && strings.HasPrefix(*t.Type, "tool_search_tool")
	}
	for _, t := range in.Tools {
		if t.Type != nil && *t.Type != "custom" {
			if f := clientToolOf(&t); f != nil {
				want.Tools = append(want.Tools,
					api.Tool{Type: "function", Function: *f, Deferred: t.Deferred && !search})
				continue
			}
			// a tool that Anthropic's servers run
			want.left.Add(wire.ToolLeftOut(*t.Type))
			hosted[t.Name] = true
			continue
		}
		want.Tools = append(want.Tools,
			api.Tool{Type: "function", Function: api.Function{Name: t.Name, Description: t.Description,
				Parameters: t.InputSchema, Strict: t.Strict}, Deferred: t.Deferred && !search})
	}
	c := in.ToolChoice
	if c == nil {
		return nil
	}
	switch {
	case c.Type == "tool" && hosted[c.Name], c.Type == "any" && len(want.Tools) == 0 && len(hosted) > 0:
		c.Type = "auto" // a tool that is not offered cannot be called
	}
	switch c.Type {
	case "auto", "none":
		want.Choice = c.Type
	case "any":
		want.Choice = "required"
	case "tool":
		want.Choice = api.NewTool(api.Function{Name: c.Name})
	default:
		return api.Refusef(`field "tool_choice.type" is %.40q; it must be "auto", "any", "tool" or "none"`, c.Type)
	}
	if c.DisableParallel {
		want.Parallel = new(bool)
	}
	return nil
}

// translate converts a thinking configuration; nil means the server's default.
func (t *thinking) translate() (*api.Think, error) {
	if t == nil {
		return nil, nil
	}
	switch t.Type {
	case "disabled":
		return &api.Think{Mode: "off"}, nil
	case "adaptive":
		return &api.Think{Mode: "auto", Budget: t.BudgetTokens}, nil
	case "enabled":
		if t.BudgetTokens == nil || *t.BudgetTokens < 1 {
			return nil, api.Refuse(`field "thinking.budget_tokens" must be 1 or more`)
		}
		return &api.Think{Mode: "on", Budget: t.BudgetTokens}, nil
	}
	return nil, api.Refusef(`field "thinking.type" is %.40q; it must be "enabled", "disabled" or "adaptive"`, t.Type)
}
