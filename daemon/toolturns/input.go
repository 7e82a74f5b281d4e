package toolturns

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
)

// mcpTool is a tool of the type "mcp" of a request.
type mcpTool struct {
	Type          string          `json:"type"`
	Label         string          `json:"server_label"`
	URL           string          `json:"server_url"`
	Connector     string          `json:"connector_id"`
	Allowed       json.RawMessage `json:"allowed_tools"`
	Approval      json.RawMessage `json:"require_approval"`
	Headers       json.RawMessage `json:"headers"`
	Authorization string          `json:"authorization"`
}

// names is {"tool_names": […]}.
type names struct {
	Names []string `json:"tool_names"`
}

// mcpItem is an item of the input that concerns MCP.
type mcpItem struct {
	Type      string  `json:"type"`
	ID        string  `json:"id"`
	Label     string  `json:"server_label"`
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Output    *string `json:"output"`
	Error     any     `json:"error"`
	Request   string  `json:"approval_request_id"`
	Approve   *bool   `json:"approve"`
	Reason    string  `json:"reason"`
}

// digest returns that of an approval: server, definition of the tool, arguments.
func digest(server string, t *setup.Tool, arguments string) string {
	h := sha256.Sum256(encode([]any{server, t.Name, t.Description, t.Schema, arguments}))
	return hex.EncodeToString(h[:16])
}

// approvalID returns the id of a request for approval.
func approvalID(digest string) string { return "mcpr_" + strings.ToLower(rand.Text()[:16]) + digest }

// digestOf returns the digest of an approval request's id, "none" of an id that has none.
func digestOf(id string) string {
	if len(id) != len("mcpr_")+16+32 {
		return "none"
	}
	return id[len("mcpr_")+16:]
}

// read translates the body.
func (a *answer) read(body []byte) *api.Error {
	if err := json.Unmarshal(body, &a.doc); err != nil || a.doc == nil {
		return api.Refuse("the body must be a JSON object")
	}
	var store, stream *bool
	var calls *int
	var previous *string
	for name, dst := range map[string]any{"store": &store, "stream": &stream, "max_tool_calls": &calls,
		"previous_response_id": &previous} {
		if v := a.doc[name]; v != nil && json.Unmarshal(v, dst) != nil {
			return api.Refusef("field %q has the wrong type", name)
		}
	}
	a.keep, a.stream, a.maxCalls = store == nil || *store, stream != nil && *stream, maxCalls
	if calls != nil {
		if *calls < 1 {
			return api.Refusef(`field "max_tool_calls" is %d; it must be 1 or more`, *calls)
		}
		a.maxCalls = min(*calls, maxCalls)
	}
	delete(a.doc, "max_tool_calls")
	a.tellUser = map[string]json.RawMessage{}
	for _, name := range []string{"tools", "tool_choice", "previous_response_id", "max_tool_calls", "store"} {
		if v := a.doc[name]; v != nil {
			a.tellUser[name] = v
		}
	}
	var privileged bool
	a.owner, privileged = a.s.Owner(a.r)
	if previous != nil {
		if a.previous = a.s.kept.get(a.owner, *previous); a.previous != nil {
			a.doc["previous_response_id"] = encode(a.previous.last)
		}
	}
	a.doc["stream"] = json.RawMessage("true")
	if e := a.readTools(privileged); e != nil {
		return e
	}
	if e := a.readChoice(); e != nil {
		return e
	}
	return a.readInput()
}

// readTools finds the MCP servers among the tools. Their own tools are listed later.
func (a *answer) readTools(privileged bool) *api.Error {
	var tools []json.RawMessage
	if v := a.doc["tools"]; v != nil && json.Unmarshal(v, &tools) != nil {
		return api.Refuse(`field "tools" must be an array of tools`)
	}
	others := []json.RawMessage{}
	for i, raw := range tools {
		var t mcpTool
		var kind struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(raw, &kind) != nil || kind.Type != "mcp" {
			others = append(others, raw)
			continue
		}
		if err := json.Unmarshal(raw, &t); err != nil {
			return api.Refusef("tools[%d]: %v", i, err)
		}
		l, e := a.label(&t, privileged)
		if e != nil {
			e.Message = fmt.Sprintf("tools[%d]: %s", i, e.Message)
			return e
		}
		if slices.ContainsFunc(a.labels, func(o *label) bool { return o.name == l.name }) {
			return api.Refusef("tools[%d]: server_label %q is there twice", i, l.name)
		}
		a.labels = append(a.labels, l)
	}
	taken := map[string]bool{}
	for _, raw := range others {
		var t struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &t) == nil {
			taken[t.Name] = true
		}
	}
	for _, l := range a.labels {
		defs, err := a.s.Box.List(a.ctx, l.name)
		l.told = l.told || a.previous != nil && slices.Contains(a.previous.labels, l.name)
		if l.broken = err; err != nil {
			a.s.Log.Warn("the tools of an MCP server cannot be listed", "server", l.name, "error", err)
		}
		a.listed(l, defs, err)
		for _, def := range defs {
			name := wireName(l.name, def.Name)
			if err != nil || l.allow != nil && !slices.Contains(l.allow, def.Name) {
				continue
			}
			if o := a.tools[name]; o != nil { // a__b and c, a and b__c
				return api.Refusef("tool %s of MCP server %s and tool %s of %s have one name for the model, %s; "+
					"leave one out of allowed_tools", o.def.Name, o.label.name, def.Name, l.name, name)
			}
			if taken[name] {
				return api.Refusef("the function %q has the name of tool %s of MCP server %s; give it another one",
					name, def.Name, l.name)
			}
			a.tools[name] = &tool{l, def}
			others = append(others, encode(map[string]any{"type": "function", "name": name,
				"description": def.Description, "parameters": def.Schema, "strict": false}))
		}
	}
	a.doc["tools"] = encode(others)
	return nil
}

// label reads an MCP server of a request.
func (a *answer) label(t *mcpTool, privileged bool) (*label, *api.Error) {
	s := a.s.Box.Server(t.Label)
	switch {
	case t.Label == "":
		return nil, api.Refuse(`field "server_label" is missing; it must be the NAME of a table [mcp.NAME]`)
	case s == nil:
		return nil, api.Refusef(`server_label %.40q is not configured; the configuration file names servers as `+
			`[mcp.NAME]`, t.Label)
	case !s.Everyone && !privileged:
		a.s.Box.Refused(s.Name, setup.RefusedUser)
		return nil, api.Refusef("MCP server %s is for root and the server's user only; everyone = true in [mcp.%s] "+
			"lets every client use it", s.Name, s.Name)
	case t.Connector != "" || t.URL != "" && t.URL != s.URL:
		return nil, api.Refuse("only servers of the configuration file are used; leave server_url and connector_id " +
			"out")
	case t.Authorization != "" || len(t.Headers) > 0 && string(t.Headers) != "null":
		return nil, api.Refusef("headers and authorization belong into [mcp.%s] of the configuration file; leave "+
			"them out", s.Name)
	}
	l := &label{name: t.Label, always: func(string) bool { return true }}
	if v := t.Allowed; len(v) > 0 && string(v) != "null" {
		var n names
		if json.Unmarshal(v, &l.allow) != nil && json.Unmarshal(v, &n) != nil {
			return nil, api.Refuse(`field "allowed_tools" must be a list of names`)
		}
		if l.allow == nil {
			l.allow = append([]string{}, n.Names...)
		}
	}
	return l, l.readApproval(t.Approval)
}

// readApproval reads require_approval. What it does not say needs approval.
func (l *label) readApproval(v json.RawMessage) *api.Error {
	if len(v) == 0 || string(v) == "null" || string(v) == `"always"` {
		return nil
	}
	if string(v) == `"never"` {
		l.always = func(string) bool { return false }
		return nil
	}
	var by struct {
		Always *names `json:"always"`
		Never  *names `json:"never"`
	}
	d := json.NewDecoder(bytes.NewReader(v))
	d.DisallowUnknownFields()
	if d.Decode(&by) != nil || by.Always == nil && by.Never == nil {
		return api.Refuse(`field "require_approval" must be "always", "never", or {"always": {"tool_names": […]}, ` +
			`"never": {"tool_names": […]}}`)
	}
	l.always = func(tool string) bool { return by.Never == nil || !slices.Contains(by.Never.Names, tool) }
	return nil
}

// readChoice translates a tool_choice of the type "mcp".
func (a *answer) readChoice() *api.Error {
	var c struct {
		Type  string `json:"type"`
		Label string `json:"server_label"`
		Name  string `json:"name"`
	}
	if v := a.doc["tool_choice"]; v == nil || v[0] != '{' || json.Unmarshal(v, &c) != nil || c.Type != "mcp" {
		return nil
	}
	for _, l := range a.labels {
		if l.name == c.Label && l.broken != nil {
			return api.Refusef("tool_choice: the tools of MCP server %s cannot be listed: %v", l.name, l.broken)
		}
	}
	chosen := []any{}
	for name, t := range a.tools {
		if t.label.name == c.Label && (c.Name == "" || c.Name == t.def.Name) {
			chosen = append(chosen, map[string]string{"type": "function", "name": name})
		}
	}
	switch {
	case len(chosen) == 0:
		return api.Refusef("tool_choice: MCP server %.40q has no tool %.80q here", c.Label, c.Name)
	case c.Name != "":
		a.doc["tool_choice"] = encode(chosen[0])
	default:
		a.doc["tool_choice"] = encode(map[string]any{"type": "allowed_tools", "mode": "required", "tools": chosen})
	}
	return nil
}

// readInput translates the items of MCP into function calls and their outputs.
func (a *answer) readInput() *api.Error {
	var items []json.RawMessage
	v := bytes.TrimSpace(a.doc["input"])
	switch {
	case len(v) > 0 && v[0] == '[':
		if json.Unmarshal(v, &items) != nil {
			return api.Refuse(`field "input" must be a string or an array of items`)
		}
	case len(v) > 0 && v[0] == '"':
		items = []json.RawMessage{encode(map[string]any{"type": "message", "role": "user",
			"content": json.RawMessage(v)})}
	default:
		return nil // the model's process says what is wrong
	}
	requests := map[string]*call{}
	if a.previous != nil {
		for _, c := range a.previous.pending {
			own := *c // another request may continue from the same response
			requests[c.approval] = &own
		}
		a.input = append(a.input, a.previous.outputs...)
	}
	answered := map[string]bool{}
	var rest []json.RawMessage
	for i, raw := range items {
		var it mcpItem
		var kind struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(raw, &kind) != nil || !strings.HasPrefix(kind.Type, "mcp_") {
			rest = append(rest, raw)
			continue
		}
		if err := json.Unmarshal(raw, &it); err != nil {
			return api.Refusef("input[%d]: %v", i, err)
		}
		switch it.Type {
		case "mcp_list_tools":
			for _, l := range a.labels {
				l.told = l.told || l.name == it.Label
			}
		case "mcp_call":
			c := &call{callID: it.ID, server: it.Label, tool: it.Name, arguments: it.Arguments}
			if it.Output != nil {
				c.output = *it.Output
			} else {
				c.err = string(encode(it.Error))
			}
			rest = append(rest, callItem(c), outputItem(c))
		case "mcp_approval_request":
			c := &call{callID: "call_" + it.ID, server: it.Label, tool: it.Name, arguments: it.Arguments,
				approval: it.ID}
			requests[it.ID] = c
			rest = append(rest, callItem(c))
		case "mcp_approval_response":
			c := requests[it.Request]
			if c == nil || it.Approve == nil || answered[it.Request] {
				return api.Refusef(`input[%d]: approval_request_id %.100q is not one of this conversation that `+
					`waits, or "approve" is missing`, i, it.Request)
			}
			answered[it.Request] = true
			if *it.Approve {
				c.digest = digestOf(it.Request)
				a.approved = append(a.approved, c)
				continue
			}
			a.s.Box.Refused(c.server, setup.RefusedApproval)
			c.err = strings.TrimSpace("the user did not approve this call " + it.Reason)
			a.input = append(a.input, outputItem(c))
		default:
			return api.Refusef("input[%d]: there are no items of type %.60q", i, it.Type)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(requests)) {
		if c := requests[id]; !answered[id] {
			c.err = "the user did not answer the question whether to approve this call"
			rest = placed(rest, c)
			a.unanswered(c)
		}
	}
	// Outputs follow their calls, which are in the answer before or among the items.
	if a.previous != nil {
		a.after = rest
	} else {
		a.input = append(rest, a.input...)
	}
	return nil
}

// placed returns items with the output of an unanswered call of the input behind the call.
func placed(items []json.RawMessage, c *call) []json.RawMessage {
	want := string(callItem(c))
	for i, raw := range items {
		if string(raw) == want {
			return slices.Insert(items, i+1, outputItem(c))
		}
	}
	return items
}

// unanswered adds the output of an unanswered call of the answer before, whose item the model's process has.
func (a *answer) unanswered(c *call) {
	if a.previous != nil &&
		slices.ContainsFunc(a.previous.pending, func(o *call) bool { return o.approval == c.approval }) {
		a.input = append(a.input, outputItem(c))
	}
}

// callItem returns a call as the model's process knows it.
func callItem(c *call) json.RawMessage {
	return encode(map[string]any{"type": "function_call", "call_id": c.callID, "name": wireName(c.server, c.tool),
		"arguments": c.arguments})
}

// outputItem returns the output of a call as the model's process knows it.
func outputItem(c *call) json.RawMessage {
	text := c.output
	if c.err != "" {
		text = "error: " + c.err
	}
	return encode(map[string]any{"type": "function_call_output", "call_id": c.callID, "output": text})
}
