package toolturns

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// queuedEvent is an event that waits for the first ones.
type queuedEvent struct {
	kind   string
	fields map[string]any
}

// head writes the head of the answer, once.
func (a *answer) head() {
	if !a.begun && a.stream {
		a.begun = true
		a.w.Header().Set("Content-Type", "text/event-stream")
		a.w.Header().Set("Cache-Control", "no-cache")
		a.w.WriteHeader(http.StatusOK)
	}
}

func (a *answer) flush() { _ = http.NewResponseController(a.w).Flush() } // of a client that has left: ctx ends

// event sends an event of a stream.
func (a *answer) event(kind string, fields map[string]any) {
	switch {
	case !a.stream:
		return
	case !a.opened:
		a.queued = append(a.queued, queuedEvent{kind, fields})
		return
	}
	a.head()
	fields["type"], fields["sequence_number"] = kind, a.sequence
	a.sequence++
	fmt.Fprintf(a.w, "event: %s\ndata: %s\n\n", kind, encode(fields))
	a.flush()
}

// comment keeps the connection alive.
func (a *answer) comment() {
	if a.stream {
		a.head()
		io.WriteString(a.w, ": waiting for a tool\n\n")
		a.flush()
	}
}

// open adds an output item, and tells of it.
func (a *answer) open(item map[string]any, index *int) {
	*index = len(a.out)
	a.out = append(a.out, item)
	a.event("response.output_item.added", map[string]any{"output_index": *index, "item": item})
}

// listed tells the client which tools a server has.
func (a *answer) listed(l *label, defs []setup.Tool, err error) {
	if l.told && err == nil {
		return
	}
	item := map[string]any{"id": api.NewID("mcpl_"), "type": "mcp_list_tools", "server_label": l.name,
		"tools": []any{}, "error": nil}
	kind := "response.mcp_list_tools.completed"
	if err != nil {
		item["error"], kind = err.Error(), "response.mcp_list_tools.failed"
	} else {
		tools := []any{}
		for _, t := range defs {
			tools = append(tools, map[string]any{"name": t.Name, "description": t.Description,
				"input_schema": t.Schema, "annotations": nil})
		}
		item["tools"] = tools
	}
	var index int
	a.open(item, &index)
	at := func() map[string]any { return map[string]any{"item_id": item["id"], "output_index": index} }
	a.event("response.mcp_list_tools.in_progress", at())
	a.event(kind, at())
	a.event("response.output_item.done", map[string]any{"output_index": index, "item": item})
}

// turnState reads the events of one turn.
type turnState struct {
	a         *answer
	first     bool
	calls     map[string]*call // by the id of the model's item
	indexes   map[int]int      // of the turn's items in the response
	run       []*call
	approvals []*call
	foreign   int // calls that the client carries out
	items     []json.RawMessage
	object    map[string]json.RawMessage
	complete  bool
	failed    bool
}

// read reads a stream to its end.
func (t *turnState) read(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case bytes.HasPrefix(line, []byte(":")):
			if t.a.stream && t.a.begun {
				fmt.Fprintf(t.a.w, "%s\n\n", line)
				t.a.flush()
			}
		case bytes.HasPrefix(line, []byte("data: {")):
			if err := t.event(line[len("data: "):]); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if t.object == nil {
		return errors.New("the answer ended early")
	}
	return nil
}

// modelEvent has the members of a model process's event that are changed.
type modelEvent struct {
	Type     string                     `json:"type"`
	Index    *int                       `json:"output_index"`
	ItemID   string                     `json:"item_id"`
	Item     json.RawMessage            `json:"item"`
	Response map[string]json.RawMessage `json:"response"`
}

// functionCall is an item of the model's process.
type functionCall struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func (t *turnState) event(data []byte) error {
	var e modelEvent
	fields := map[string]any{}
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("an event that cannot be read: %w", err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	for name, v := range raw {
		fields[name] = v
	}
	a := t.a
	switch e.Type {
	case "response.created", "response.in_progress":
		if t.first && a.id == "" {
			_ = json.Unmarshal(e.Response["id"], &a.id) // "" is seen below
		}
		if t.first && (!a.opened || e.Type == "response.in_progress" && a.sequence == 1) {
			waiting := a.queued
			a.queued, a.opened = nil, true
			fields["response"] = a.respond(e.Response, []any{})
			a.event(e.Type, fields)
			if e.Type == "response.created" {
				a.queued = waiting
				return nil
			}
			for _, h := range waiting {
				a.event(h.kind, h.fields)
			}
		}
		return nil
	case "response.completed", "response.incomplete", "response.failed":
		t.object, t.complete, t.failed = e.Response, e.Type == "response.completed", e.Type == "response.failed"
		var u usage
		if json.Unmarshal(e.Response["usage"], &u) == nil {
			a.usage.add(&u)
		}
		return nil
	case "error":
		return fmt.Errorf("%.1000s", data)
	}
	var item functionCall
	if e.Item != nil {
		if err := json.Unmarshal(e.Item, &item); err != nil && item.Type == "" {
			return err
		}
	}
	if e.Index == nil {
		return fmt.Errorf("an event %.60q without an index", e.Type)
	}
	switch {
	case e.Type == "response.output_item.added":
		if tool := a.tools[item.Name]; tool != nil && item.Type == "function_call" {
			t.begin(&item, tool)
			return nil
		}
		t.indexes[*e.Index] = len(a.out)
		a.out = append(a.out, e.Item)
	case e.Type == "response.output_item.done":
		t.items = append(t.items, e.Item)
		if c := t.calls[item.ID]; c != nil {
			t.end(c, item.Arguments)
			return nil
		}
		if item.Type == "function_call" || item.Type == "custom_tool_call" || item.Type == "tool_search_call" {
			t.foreign++
		}
		at, ok := t.indexes[*e.Index]
		if !ok {
			return fmt.Errorf("an item %d that ends without a beginning", *e.Index)
		}
		a.out[at] = e.Item
	default:
		if c := t.calls[e.ItemID]; c != nil {
			t.arguments(c, e.Type, fields)
			return nil
		}
	}
	fields["output_index"] = t.indexes[*e.Index]
	a.event(e.Type, fields)
	return nil
}

// begin takes a call of a server's tool. One that needs approval is told of when its arguments are whole.
func (t *turnState) begin(item *functionCall, tool *tool) {
	c := &call{itemID: api.NewID("mcp_"), callID: item.CallID, server: tool.label.name, tool: tool.def.Name, index: -1}
	t.calls[item.ID] = c
	if !tool.label.always(c.tool) {
		t.a.open(c.item("in_progress"), &c.index)
	}
}

// arguments passes on parts of a call's arguments.
func (t *turnState) arguments(c *call, kind string, fields map[string]any) {
	if c.index < 0 {
		return
	}
	switch kind {
	case "response.function_call_arguments.delta":
		kind = "response.mcp_call_arguments.delta"
	case "response.function_call_arguments.done":
		kind = "response.mcp_call_arguments.done"
		delete(fields, "name")
	default:
		return
	}
	fields["item_id"], fields["output_index"] = c.itemID, c.index
	t.a.event(kind, fields)
}

// end takes the end of a call: it is carried out after the turn, or the client is asked.
func (t *turnState) end(c *call, arguments string) {
	c.arguments = arguments
	if c.index >= 0 {
		t.run = append(t.run, c)
		return
	}
	a := t.a
	c.approval = approvalID(digest(c.server, &a.tools[wireName(c.server, c.tool)].def, arguments))
	item := map[string]any{"id": c.approval, "type": "mcp_approval_request", "server_label": c.server, "name": c.tool,
		"arguments": arguments}
	a.open(item, &c.index)
	a.event("response.output_item.done", map[string]any{"output_index": c.index, "item": item})
	t.approvals = append(t.approvals, c)
}

// respond returns a response of the model's process as the client sees it.
func (a *answer) respond(object map[string]json.RawMessage, output []any) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, v := range object {
		out[name] = v
	}
	for name, v := range a.tellUser {
		out[name] = v
	}
	out["id"], out["output"] = encode(a.id), encode(output)
	if string(object["usage"]) != "null" && object["usage"] != nil {
		out["usage"] = encode(a.usage)
	}
	return out
}

// finish ends the response after its last turn.
func (a *answer) finish(t *turnState, failed string) {
	if len(a.out) == 0 {
		a.out = []any{}
	}
	object := a.respond(t.object, a.out)
	if a.keep && failed == "" {
		a.store(t, encode(object))
	}
	if !a.stream {
		a.w.Header().Set("Content-Type", "application/json")
		a.w.Write(append(encode(object), '\n'))
		return
	}
	kind := "response.incomplete"
	switch {
	case t.failed:
		kind = "response.failed"
	case t.complete:
		kind = "response.completed"
	}
	a.event(kind, map[string]any{"response": object})
}

// store keeps what the next request of the conversation needs.
func (a *answer) store(t *turnState, object []byte) {
	k := &kept{owner: a.owner, id: a.id, pending: t.approvals, object: object}
	_ = json.Unmarshal(t.object["id"], &k.last) // a response of ours
	for _, l := range a.labels {
		k.labels = append(k.labels, l.name)
	}
	for _, c := range t.run { // the model's process has the calls, and not their outputs
		k.outputs = append(k.outputs, outputItem(c))
	}
	a.s.kept.put(k)
}

// passError passes on the error with which a model's process answers.
func (a *answer) passError(resp *http.Response) {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what has come tells more than that more should have
	if a.begun || a.opened {
		a.fail(&api.Error{Code: wire.InternalFailure, Message: fmt.Sprintf("the model's process answered %s: %.1000s",
			resp.Status, body)})
		return
	}
	for _, name := range []string{"Content-Type", "Retry-After", "X-Should-Retry"} {
		if v := resp.Header.Get(name); v != "" {
			a.w.Header().Set(name, v)
		}
	}
	a.w.WriteHeader(resp.StatusCode)
	a.w.Write(body)
}

// fail ends the response with an error.
func (a *answer) fail(e *api.Error) {
	if !a.begun {
		a.s.Fail(a.w, a.r, (*wire.Error)(e))
		return
	}
	a.opened, a.queued = true, nil
	object := a.respond(a.object, a.out)
	object["status"] = json.RawMessage(`"failed"`)
	object["error"] = encode(map[string]string{"code": "server_error", "message": e.Message})
	a.event("response.failed", map[string]any{"response": object})
}
