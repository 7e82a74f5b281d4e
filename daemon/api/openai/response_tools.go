package openai

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// responsesTool is a tool in the format of /v1/responses.
type responsesTool struct {
	_ struct{} `kinds:"function,custom,namespace,tool_search" ignored:"allowed_callers,output_schema,async"`

	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  rawJSON         `json:"parameters"`
	Strict      bool            `json:"strict"`
	Format      *customFormat   `json:"format"` // of a custom tool
	Tools       []responsesTool `json:"tools"`  // of a namespace
	Deferred    bool            `json:"defer_loading"`
	Execution   string          `json:"execution"` // of tool_search
}

type customFormat struct {
	Type       string `json:"type"` // "text" or "grammar"
	Syntax     string `json:"syntax"`
	Definition string `json:"definition"`
}

// toolName is a tool's name for the client; the model uses a single name.
type toolName struct {
	namespace, name string
	custom          bool // its input is text, not JSON
	search          bool // the client's search for tools
}

// wire returns the name that the model uses.
func (n toolName) wire() string {
	if n.namespace == "" {
		return n.name
	}
	return n.namespace + "." + n.name
}

// clientSearch is the type of the tool with which a client lets the model search for its tools, and its name.
const clientSearch = "tool_search"

// declare adds tools. deferred: they are offered from where the conversation refers to them on.
func (c *conversation) declare(tools []responsesTool, deferred bool) {
	c.declareIn("", tools, deferred)
}

func (c *conversation) declareIn(namespace string, tools []responsesTool, deferred bool) {
	for i := range tools {
		t := &tools[i]
		name := toolName{namespace: namespace, name: t.Name, custom: t.Type == "custom"}
		f := api.Function{Name: name.wire(), Description: t.Description, Parameters: t.Parameters, Strict: t.Strict}
		switch {
		case t.Type == "function":
		case t.Type == "custom":
			f = api.Function{Name: name.wire(), Description: t.customDescription(), Parameters: rawJSON(customSchema)}
		case t.Type == "namespace" && namespace == "":
			c.declareIn(t.Name, t.Tools, deferred || t.Deferred)
			continue
		case t.Type == clientSearch && t.Execution == "client":
			name = toolName{name: clientSearch, search: true}
			f.Name = clientSearch
		default:
			c.hostedSearch = c.hostedSearch || t.Type == clientSearch
			c.left.Add(wire.ToolLeftOut(t.Type))
			continue
		}
		if _, ok := c.tools[f.Name]; ok && deferred { // found before, or offered from the start
			continue
		}
		c.declared = append(c.declared, api.Tool{Type: "function", Function: f, Deferred: deferred || t.Deferred})
		c.tools[f.Name] = name
	}
}

// offered returns the tools. Those that only a search of OpenAI's servers would find are offered from the start.
func (c *conversation) offered() []api.Tool {
	if c.hostedSearch {
		for i := range c.declared {
			c.declared[i].Deferred = false
		}
	}
	return c.declared
}

// found adds the tools that a client's search has found, and returns the parts of the result that refer to them.
func (c *conversation) found(tools []responsesTool) any {
	c.declare(tools, true)
	parts := []map[string]string{}
	refer := func(namespace string, tools []responsesTool) {
		for i := range tools {
			name := toolName{namespace: namespace, name: tools[i].Name}
			parts = append(parts, map[string]string{"type": "tool_reference", "tool_name": name.wire()})
		}
	}
	for i := range tools {
		if t := &tools[i]; t.Type == "namespace" {
			refer(t.Name, t.Tools)
		} else {
			refer("", tools[i:i+1])
		}
	}
	if len(parts) == 0 {
		return "No tools were found."
	}
	return parts
}

// customSchema is the schema of a custom tool's arguments: one text.
const customSchema = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],` +
	`"additionalProperties":false}`

// customDescription returns a custom tool's description with the format of its text.
func (t *responsesTool) customDescription() string {
	if t.Format == nil || t.Format.Type != "grammar" {
		return t.Description
	}
	return strings.TrimSpace(t.Description + "\n\n\"input\" is a text of this " + t.Format.Syntax + " grammar:\n" +
		t.Format.Definition)
}

// toolChoice is a tool_choice that is an object.
type toolChoice struct {
	_         struct{}     `kinds:",function,custom,allowed_tools"`
	Type      string       `json:"type"`
	Name      string       `json:"name"`
	Namespace string       `json:"namespace"`
	Mode      string       `json:"mode"`
	Tools     []chosenTool `json:"tools"`
}

type chosenTool struct {
	_         struct{} `kinds:",function,custom"`
	Type      string   `json:"type"`
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
}

// choice translates "tool_choice" to the format of package wire.
func (c *conversation) choice(raw rawJSON) (any, error) {
	if raw == nil || len(raw) > 0 && raw[0] == '"' {
		if raw == nil {
			return nil, nil
		}
		if string(raw) == `"required"` && len(c.declared) == 0 && c.left != nil {
			return nil, nil
		}
		return raw, nil
	}
	var in toolChoice
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, api.Refuse(`field "tool_choice" must be "auto", "none", "required" or {"type":"function","name":…}`)
	}
	switch in.Type {
	case "function", "custom":
		name := toolName{namespace: in.Namespace, name: in.Name}
		return api.NewTool(api.Function{Name: name.wire()}), nil
	case "allowed_tools":
		allowed := []api.Tool{}
		for _, t := range in.Tools {
			if t.Type != "" && t.Type != "function" && t.Type != "custom" {
				continue
			}
			allowed = append(allowed,
				api.NewTool(api.Function{Name: toolName{namespace: t.Namespace, name: t.Name}.wire()}))
		}
		if len(allowed) == 0 && len(in.Tools) > 0 { // none but tools that OpenAI runs are allowed
			return "none", nil
		}
		return api.NewAllowed(cmp.Or(in.Mode, "auto"), allowed), nil
	}
	if in.Type == "" {
		return nil, api.Refuse(`field "tool_choice.type" is missing; it must be "function", "custom" or ` +
			`"allowed_tools"`)
	}
	c.left.Add(wire.ToolLeftOut(in.Type)) // a tool that is not offered cannot be called
	return nil, nil
}
