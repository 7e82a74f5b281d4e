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
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  rawJSON         `json:"parameters"`
	Strict      *bool           `json:"strict"`
	Format      *customFormat   `json:"format"` // of a custom tool
	Tools       []responsesTool `json:"tools"`  // of a namespace
}

type customFormat struct {
	Type       string `json:"type"` // "text" or "grammar"
	Syntax     string `json:"syntax"`
	Definition string `json:"definition"`
}

// chatTool is a tool in the format of package wire.
type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	Parameters  rawJSON `json:"parameters,omitempty"`
	Strict      *bool   `json:"strict,omitempty"`
}

// toolName is a tool's name for the client; the model uses a single name.
type toolName struct {
	namespace, name string
	custom          bool // its input is text, not JSON
}

// wire returns the name that the model uses.
func (n toolName) wire() string {
	if n.namespace == "" {
		return n.name
	}
	return n.namespace + "." + n.name
}

// declare adds tools.
func (c *conversation) declare(tools []responsesTool) error { return c.declareIn("", tools) }

func (c *conversation) declareIn(namespace string, tools []responsesTool) error {
	for i := range tools {
		t := &tools[i]
		name := toolName{namespace, t.Name, t.Type == "custom"}
		switch {
		case t.Type == "function":
			c.declared = append(c.declared,
				chatTool{"function", chatFunction{name.wire(), t.Description, t.Parameters, t.Strict}})
		case t.Type == "custom":
			c.declared = append(c.declared,
				chatTool{"function", chatFunction{name.wire(), t.customDescription(), rawJSON(customSchema), nil}})
		case t.Type == "namespace" && namespace == "":
			if err := c.declareIn(t.Name, t.Tools); err != nil {
				return err
			}
			continue
		default:
			c.left.Add(wire.ToolLeftOut(t.Type))
			continue
		}
		c.tools[name.wire()] = name
	}
	return nil
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
	var in struct {
		Type, Name, Namespace, Mode string
		Tools                       []struct{ Type, Name, Namespace string }
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, api.Refuse(`field "tool_choice" must be "auto", "none", "required" or {"type":"function","name":…}`)
	}
	switch in.Type {
	case "function", "custom":
		return chatTool{"function", chatFunction{Name: toolName{in.Namespace, in.Name, false}.wire()}}, nil
	case "allowed_tools":
		allowed := []chatTool{}
		for _, t := range in.Tools {
			if t.Type != "" && t.Type != "function" && t.Type != "custom" {
				continue
			}
			allowed = append(allowed,
				chatTool{"function", chatFunction{Name: toolName{t.Namespace, t.Name, false}.wire()}})
		}
		if len(allowed) == 0 && len(in.Tools) > 0 { // none but tools that OpenAI runs are allowed
			return "none", nil
		}
		return map[string]any{"type": in.Type, in.Type: map[string]any{"mode": cmp.Or(in.Mode, "auto"),
			"tools": allowed}}, nil
	}
	if in.Type == "" {
		return nil, api.Refuse(`field "tool_choice.type" is missing; it must be "function", "custom" or ` +
			`"allowed_tools"`)
	}
	c.left.Add(wire.ToolLeftOut(in.Type)) // a tool that is not offered cannot be called
	return nil, nil
}
