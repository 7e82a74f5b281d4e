package api

import "encoding/json"

// The messages and tools of a translated body, in the format of package wire (docs/protocol.md): members of what an API
// gives to [Body.Request].

// Message is a message.
type Message struct {
	Role       string            `json:"role"`
	Content    any               `json:"content"` // a string, parts, or nil: none
	Reasoning  string            `json:"reasoning_content,omitempty"`
	ToolCalls  []Call            `json:"tool_calls,omitempty"`
	ToolCallID string            `json:"tool_call_id,omitempty"`
	Name       string            `json:"name,omitempty"`
	Images     []json.RawMessage `json:"images,omitempty"` // package wire puts a placeholder in their place
}

// Call is an earlier call of a tool. NewCall makes one.
type Call struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments any    `json:"arguments"` // JSON, or a string that holds it
	} `json:"function"`
}

// NewCall returns a call of a function. arguments are JSON, or a string that holds it.
func NewCall(id, name string, arguments any) Call {
	c := Call{ID: id, Type: "function"}
	c.Function.Name, c.Function.Arguments = name, arguments
	return c
}

// Tool is a tool that is offered or chosen. NewTool makes one.
type Tool struct {
	Type     string   `json:"type"`
	Function Function `json:"function"`
	Deferred bool     `json:"defer_loading,omitempty"` // offered from where the conversation refers to it on
}

// Function describes a tool to the model. For a tool that is chosen, the name is enough.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      bool            `json:"strict,omitempty"`
}

// NewTool returns the tool of a function.
func NewTool(f Function) Tool { return Tool{Type: "function", Function: f} }

// Allowed is the tool_choice that allows some of the tools.
type Allowed struct {
	Type    string       `json:"type"`
	Allowed AllowedTools `json:"allowed_tools"`
}

// AllowedTools are the tools of Allowed.
type AllowedTools struct {
	Mode  string `json:"mode"` // "auto" or "required"
	Tools []Tool `json:"tools"`
}

// NewAllowed returns the tool_choice that allows tools.
func NewAllowed(mode string, tools []Tool) Allowed {
	return Allowed{"allowed_tools", AllowedTools{mode, tools}}
}

// Think is the thinking that is asked for.
type Think struct {
	Mode   string `json:"mode"`
	Budget *int   `json:"budget_tokens,omitempty"`
}
