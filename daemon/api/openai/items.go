package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Items are the parts of a response's input and output. The store keeps them as JSON; this file translates them into
// messages.

// item has the fields of all supported types of items.
type item struct {
	_ struct{} `kinds:",message,reasoning,function_call,custom_tool_call,function_call_output"`
	_ struct{} `kinds:"custom_tool_call_output,additional_tools,tool_search_call,tool_search_output"`
	_ struct{} `ignored:"status,phase,caller,created_by,async"`

	Type      string  `json:"type"`
	ID        string  `json:"id"`
	Role      string  `json:"role"`
	Content   rawJSON `json:"content"` // a string, parts, or another value; of a reasoning: parts, or nothing
	Summary   []part  `json:"summary"`
	Encrypted *string `json:"encrypted_content"`

	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Arguments rawJSON         `json:"arguments"` // a string; an object is taken too
	Input     string          `json:"input"`     // of a custom tool's call
	Output    rawJSON         `json:"output"`    // a string, parts, or another value
	Tools     []responsesTool `json:"tools"`     // of additional_tools and tool_search_output
	Execution string          `json:"execution"` // of tool_search_call and tool_search_output
}

// Opens returns the types of the members that are decoded later, by name.
func (item) Opens() map[string]any { return map[string]any{"content": part{}, "output": part{}} }

type part struct {
	_ struct{} `kinds:"input_text,output_text,text,reasoning_text,summary_text,refusal"`
	_ struct{} `kinds:"input_file,input_image,input_audio"`
	_ struct{} `ignored:"annotations,logprobs,prompt_cache_breakpoint,file_id,file_url,detail"`

	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal,omitempty"`

	FileData string `json:"file_data,omitempty"` // of an input_file: a data URL
	FileName string `json:"filename,omitempty"`
	// of an input_image: a data URL
	ImageURL string `json:"image_url,omitempty"`
	Audio    struct {
		Data   string `json:"data"`
		Format string `json:"format,omitempty"` // its bytes say it
	} `json:"input_audio,omitzero"`
}

// readInput splits "input" into items: a string becomes a user's message. It gives each item an id, and replaces a
// reference by the item that find returns.
func readInput(raw rawJSON, find func(id string) rawJSON) ([]rawJSON, error) {
	if raw == nil {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		parts := []part{{Type: "input_text", Text: text}}
		return []rawJSON{api.AppendJSON(nil, map[string]any{"id": api.NewID("msg_"), "type": "message", "role": "user",
			"content": parts})}, nil
	}
	var items []rawJSON
	if json.Unmarshal(raw, &items) != nil {
		return nil, api.Refuse(`field "input" must be a string or an array of items`)
	}
	for i, raw := range items {
		var members map[string]rawJSON
		if err := json.Unmarshal(raw, &members); err != nil || members == nil {
			return nil, api.Refusef("input[%d] is %s; it must be an item, an object", i, api.Kind(raw))
		}
		var kind, id string
		for name, dst := range map[string]*string{"type": &kind, "id": &id} {
			if v := members[name]; v != nil && json.Unmarshal(v, dst) != nil {
				return nil, api.Refusef("input[%d]: field %q is %s; it must be a string", i, name, api.Kind(v))
			}
		}
		switch {
		case kind == "item_reference" || kind == "" && members["role"] == nil && id != "":
			if items[i] = find(id); items[i] == nil {
				return nil, api.Refusef("input[%d]: item %.100q is not stored here, or no longer; send the item itself",
					i, id)
			}
		case id == "":
			members["id"] = jsonText(api.NewID("item_"))
			if kind == "" {
				members["type"] = jsonText("message")
			}
			items[i] = api.AppendJSON(nil, members)
		}
	}
	return items, nil
}

// conversation collects the messages and the tools of a request.
type conversation struct {
	messages []api.Message
	declared []api.Tool
	tools    map[string]toolName // by the name that the model uses
	calls    map[string]string   // names of earlier calls by id
	left     wire.Notes          // items that were left out

	hostedSearch bool // OpenAI's servers were to search for deferred tools
}

// leftOut returns the text in the place of something that this server cannot read.
func (c *conversation) leftOut(kind string) string {
	text, note := wire.LeftOut(kind)
	c.left.Add(note)
	return text
}

// add appends an item. Consecutive items of the assistant (thinking, text, calls) become one message, as chat templates
// expect.
func (c *conversation) add(raw rawJSON) error {
	var it item
	if err := json.Unmarshal(raw, &it); err != nil {
		return fmt.Errorf("it is no item: %s", typeErrorOf(err))
	}
	switch it.Type {
	case "message", "":
		return c.message(&it)
	case "reasoning":
		return c.reasoning(&it)
	case "function_call":
		return c.call(&it, argumentsOf(it.Arguments))
	case "custom_tool_call":
		return c.call(&it, string(api.AppendJSON(nil, customInput{it.Input})))
	case "function_call_output", "custom_tool_call_output":
		text, err := c.outputText(it.Output)
		if err != nil {
			return err
		}
		c.messages = append(c.messages, api.Message{Role: "tool", Content: text, ToolCallID: it.CallID,
			Name: c.calls[it.CallID]})
		return nil
	case "additional_tools":
		c.declare(it.Tools, false)
		return nil
	case "tool_search_call":
		if it.Execution != "client" {
			break
		}
		it.Name = clientSearch
		return c.call(&it, argumentsOf(it.Arguments))
	case "tool_search_output":
		if it.Execution != "client" {
			break
		}
		c.messages = append(c.messages, api.Message{Role: "tool", Content: c.found(it.Tools), ToolCallID: it.CallID,
			Name: clientSearch})
		return nil
	}
	if text, ok := summaryOf(&it); ok {
		c.messages = append(c.messages, api.Message{Role: "user", Content: text})
		return nil
	}
	// A hosted tool's call, another server's compaction: the client sends it again with every request.
	text := c.leftOut(it.Type)
	if strings.HasSuffix(it.Type, "_output") || it.Type == "compaction" {
		c.messages = append(c.messages, api.Message{Role: "user", Content: text})
		return nil
	}
	m := c.assistant()
	if m.Content != nil || m.ToolCalls != nil {
		m = c.begin()
	}
	m.Content = text
	return nil
}

// customInput is the arguments of a custom tool's call: the model calls it as a function with one text.
type customInput struct {
	Input string `json:"input"`
}

func argumentsOf(raw rawJSON) string {
	var text string
	switch {
	case len(raw) == 0:
		return "{}"
	case json.Unmarshal(raw, &text) != nil: // an object, or something that the client cannot take back
		return string(raw)
	}
	return text
}

func (c *conversation) message(it *item) error {
	text, err := c.textOf(it.Content, "content")
	if err != nil {
		return err
	}
	switch it.Role {
	case "user":
		c.messages = append(c.messages, api.Message{Role: "user", Content: text})
	case "assistant":
		m := c.assistant()
		if m.Content != nil || m.ToolCalls != nil {
			m = c.begin()
		}
		m.Content = text
	case "system", "developer":
		// Chat templates take one system message, at the beginning.
		if n := len(c.messages); n == 1 && c.messages[0].Role == "system" {
			c.messages[0].Content = fmt.Sprintf("%s\n\n%s", c.messages[0].Content, text)
		} else if n == 0 {
			c.messages = append(c.messages, api.Message{Role: "system", Content: text})
		} else {
			c.messages = append(c.messages, api.Message{Role: it.Role, Content: text})
		}
	default:
		return fmt.Errorf(`field "role" is %.40q; it must be "user", "assistant", "system" or "developer"`, it.Role)
	}
	return nil
}

// assistant returns the message for the assistant's items: the last one if it is the assistant's, else a new one.
func (c *conversation) assistant() *api.Message {
	if n := len(c.messages); n > 0 && c.messages[n-1].Role == "assistant" {
		return &c.messages[n-1]
	}
	return c.begin()
}

func (c *conversation) begin() *api.Message {
	c.messages = append(c.messages, api.Message{Role: "assistant"})
	return &c.messages[len(c.messages)-1]
}

func (c *conversation) reasoning(it *item) error {
	var text string
	var err error
	switch {
	case len(it.Content) > 0 && it.Content[0] == '[':
		text, err = c.textOf(it.Content, "content")
	case it.Encrypted != nil && strings.HasPrefix(*it.Encrypted, encryptedPrefix):
		var b []byte
		if b, err = base64.StdEncoding.DecodeString((*it.Encrypted)[len(encryptedPrefix):]); err == nil {
			text = strings.ToValidUTF8(string(b), "\ufffd")
		}
	case it.Encrypted != nil:
		return nil // another server encrypted it
	default:
		for i, p := range it.Summary {
			if i > 0 {
				text += "\n\n"
			}
			text += p.Text
		}
	}
	if err != nil || text == "" {
		return err
	}
	m := c.assistant()
	if m.Content != nil || m.ToolCalls != nil {
		m = c.begin()
	}
	m.Reasoning += text
	return nil
}

// encryptedPrefix begins encrypted_content, which clients without stored responses send back: the thought's text
// follows in base64.
const encryptedPrefix = "uma1:"

func encrypt(thought string) string {
	return encryptedPrefix + base64.StdEncoding.EncodeToString([]byte(thought))
}

func (c *conversation) call(it *item, arguments string) error {
	if it.Name == "" {
		return fmt.Errorf(`field "name" is missing`)
	}
	name := toolName{namespace: it.Namespace, name: it.Name}.wire()
	if c.calls == nil {
		c.calls = map[string]string{}
	}
	c.calls[it.CallID] = name
	m := c.assistant()
	m.ToolCalls = append(m.ToolCalls, api.NewCall(it.CallID, name, arguments))
	return nil
}

// partFamilies begin the types of parts, those of MCP and of other servers too, whose data is no text for a model.
var partFamilies = []string{"input_", "output_", "text", "refusal", "image", "audio", "video", "file", "document",
	"resource", "computer_"}

// outputText returns the text of a call's output: a string, parts, or any other value as JSON.
func (c *conversation) outputText(raw rawJSON) (string, error) {
	var text string
	var parts []part
	noPart := func(p part) bool { // an object with another type is data of the tool
		return !slices.ContainsFunc(partFamilies, func(family string) bool { return strings.HasPrefix(p.Type, family) })
	}
	switch {
	case len(raw) == 0, string(raw) == "null", json.Unmarshal(raw, &text) == nil,
		json.Unmarshal(raw, &parts) == nil && !slices.ContainsFunc(parts, noPart):
		return c.textOf(raw, "output")
	}
	return string(raw), nil
}

// textOf returns the text of a string or of parts, joined as package wire joins the parts of a message.
func (c *conversation) textOf(raw rawJSON, field string) (string, error) {
	var text string
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	if raw[0] == '{' {
		return string(raw), nil // a result that is an object
	}
	var parts []part
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", fmt.Errorf("field %q must be a string or an array of parts", field)
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		switch p.Type {
		case "input_text", "output_text", "text", "reasoning_text", "summary_text":
			texts[i] = p.Text
		case "refusal":
			texts[i] = p.Refusal
		case wire.KindSound:
			if texts[i] = wire.ImagePart(p.Type, p.Audio.Data); p.Audio.Data == "" {
				texts[i] = c.leftOut(p.Type)
			}
		case "input_image", "image_url", "image":
			if texts[i] = wire.ImagePart(p.Type, p.ImageURL); p.ImageURL == "" {
				texts[i] = c.leftOut(p.Type)
			}
		default:
			text, ok := wire.TextFile("", p.FileData)
			if !ok {
				texts[i] = c.leftOut(p.Type)
				continue
			}
			texts[i] = strings.TrimPrefix(p.FileName+"\n"+text, "\n")
		}
	}
	return strings.Join(texts, "\n"), nil
}

func typeErrorOf(err error) string { return api.Refuse(err.Error()).Message }
