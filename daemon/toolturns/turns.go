// Package toolturns answers requests to /v1/responses with tools of MCP servers. An answer becomes turns: a
// model's process answers with calls, the calls are carried out by package toolbox, and their results are the input of
// the next turn. The model's process knows the tools as functions and nothing of MCP.
//
// A call is carried out when the request's require_approval says so, or when the client has approved it: the id of an
// approval request holds a digest of the tool's definition and of the arguments, and a tool that has changed since is
// not called.
package toolturns

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Limits of an answer.
const (
	maxTurns    = 16       // of one response
	maxCalls    = 64       // of tools, in one response
	maxEvent    = 16 << 20 // bytes of an event of a model's process
	aliveEvery  = 5 * time.Second
	maxOutBytes = 16 << 20 // of all results together
)

// Box carries out calls: a toolbox.Box.
type Box interface {
	Server(name string) *setup.Server
	List(ctx context.Context, name string) ([]setup.Tool, error)
	Call(ctx context.Context, name, tool string, arguments json.RawMessage) (*setup.Result, error)
	// Refused counts a call, or a request for a server's tools, that this package refuses.
	Refused(name string, why setup.Refusal)
}

// Server answers the requests. Its fields are constant.
type Server struct {
	Box   Box
	Known []setup.Server // of the configuration
	Log   *slog.Logger
	// Ask has a model's process answer a body of /v1/responses, in the name of the client of ctx.
	Ask func(ctx context.Context, body []byte) (*http.Response, error)
	// Owner returns the client's user, and whether it may use servers that are not for everyone.
	Owner func(r *http.Request) (owner uint32, privileged bool)
	// Fail answers with an error in the form of the API.
	Fail func(w http.ResponseWriter, r *http.Request, e *wire.Error)

	kept store
}

// Stored answers a request about a response that this package has made; false: there is none of this id.
func (s *Server) Stored(w http.ResponseWriter, r *http.Request) bool {
	owner, _ := s.Owner(r)
	k := s.kept.get(owner, r.PathValue("id"))
	if k == nil || r.Method != http.MethodGet && r.Method != http.MethodDelete {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodDelete {
		s.kept.drop(k)
		fmt.Fprintf(w, "{\"id\":%q,\"object\":\"response\",\"deleted\":true}\n", k.id)
		return true
	}
	w.Write(append(k.object, '\n'))
	return true
}

// ServeList answers GET /mcp/servers with the servers that the client may use. s may be nil: there are none.
func (s *Server) ServeList(w http.ResponseWriter, r *http.Request) {
	type server struct {
		Name string `json:"name"`
	}
	list := []server{}
	if s != nil {
		_, privileged := s.Owner(r)
		for i := range s.Known {
			if k := &s.Known[i]; k.Everyone || privileged {
				list = append(list, server{k.Name})
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(encode(map[string]any{"servers": list}), '\n'))
}

// ServeHTTP answers POST /v1/responses.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.Fail(w, r, &wire.Error{Code: wire.BadRequest, Message: "the body did not come whole: " + err.Error()})
		return
	}
	a := &answer{s: s, w: w, r: r, ctx: r.Context(), tools: map[string]*tool{}}
	if e := a.read(body); e != nil {
		s.Fail(w, r, (*wire.Error)(e))
		return
	}
	a.run()
}

// answer is one response.
type answer struct {
	s   *Server
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context

	owner    uint32
	stream   bool
	keep     bool
	doc      map[string]json.RawMessage // the body, for the model's process
	tellUser map[string]json.RawMessage // members of the response as the client sent them: tools, tool_choice, …
	labels   []*label
	tools    map[string]*tool // by the name that the model uses
	previous *kept
	input    []json.RawMessage // of the next turn
	after    []json.RawMessage // behind the outputs of approved calls
	approved []*call           // that the client has approved just now
	maxCalls int

	out      []any // the response's output so far
	sequence int
	begun    bool // the head of the answer is written
	opened   bool // the first events are written
	queued   []queuedEvent
	id       string
	object   map[string]json.RawMessage // the response as in the model's process
	usage    usage
	calls    int
	outBytes int
}

// label is an MCP server as the request names it.
type label struct {
	name   string
	allow  []string // nil = all
	always func(tool string) bool
	told   bool  // the client has its list of tools already
	broken error // its tools could not be listed
}

// tool is a tool that the model is offered.
type tool struct {
	label *label
	def   setup.Tool
}

// wireName returns the name by which the model calls a tool.
func wireName(server, tool string) string { return server + "__" + tool }

// call is a call of a tool.
type call struct {
	itemID, callID string
	index          int
	server, tool   string
	arguments      string
	approval       string // the id of its request
	digest         string // of the approval
	output, err    string
}

// usage sums the turns.
type usage struct {
	Input     int `json:"input_tokens"`
	InputWith struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output     int `json:"output_tokens"`
	OutputWith struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

func (u *usage) add(o *usage) {
	u.Input += o.Input
	u.InputWith.Cached += o.InputWith.Cached
	u.Output += o.Output
	u.OutputWith.Reasoning += o.OutputWith.Reasoning
	u.Total += o.Total
}

// run answers, turn after turn.
func (a *answer) run() {
	for _, c := range a.approved {
		c.itemID = api.NewID("mcp_")
		a.open(c.item("in_progress"), &c.index)
		a.carryOut(c)
		a.input = append(a.input, outputItem(c))
	}
	if len(a.after) > 0 {
		a.input = append(a.input, a.after...)
	}
	first := true
	for turn := 0; ; turn++ {
		body := a.turnBody()
		resp, err := a.s.Ask(a.ctx, body)
		if err != nil {
			a.fail(api.AsError(err))
			return
		}
		if resp.StatusCode != http.StatusOK {
			a.passError(resp)
			return
		}
		t := &turnState{a: a, first: first, calls: map[string]*call{}, indexes: map[int]int{}}
		first = false
		err = t.read(resp.Body)
		resp.Body.Close()
		if err != nil {
			a.fail(&api.Error{Code: wire.InternalFailure, Message: "the model's process: " + err.Error()})
			return
		}
		if t.object == nil || t.failed {
			a.finish(t, "failed")
			return
		}
		a.object = t.object
		goOn := len(t.run) > 0 && len(t.approvals) == 0 && t.foreign == 0 && t.complete
		a.input = append(a.input, t.items...)
		for _, c := range t.run {
			a.carryOut(c)
			a.input = append(a.input, outputItem(c))
		}
		if a.ctx.Err() != nil {
			return
		}
		if goOn && turn+1 < maxTurns {
			a.free(turn+2 == maxTurns || a.calls >= a.maxCalls)
			continue
		}
		a.finish(t, "")
		return
	}
}

// free gives the model its choice back after a turn: a call that was required has been made. last: there is one more
// turn, which can only answer.
func (a *answer) free(last bool) {
	switch v := string(a.doc["tool_choice"]); {
	case last:
		a.doc["tool_choice"] = json.RawMessage(`"none"`)
	case v != "" && v != `"none"`:
		a.doc["tool_choice"] = json.RawMessage(`"auto"`)
	}
}

// turnBody is the body of the next turn.
func (a *answer) turnBody() []byte {
	if a.input != nil {
		a.doc["input"] = encode(a.input)
	}
	return encode(a.doc)
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("toolturns: " + err.Error()) // maps and structs of texts
	}
	return b
}

// carryOut calls a tool and tells the client of it.
func (a *answer) carryOut(c *call) {
	a.event("response.mcp_call.in_progress", map[string]any{"item_id": c.itemID, "output_index": c.index})
	t := a.tools[wireName(c.server, c.tool)]
	a.calls++
	refused := func(why setup.Refusal, format string, args ...any) {
		a.s.Box.Refused(c.server, why)
		c.err = fmt.Sprintf(format, args...)
	}
	switch {
	case t == nil:
		refused(setup.RefusedTool, "MCP server %s has no tool %s now", c.server, c.tool)
	case c.digest != "" && c.digest != digest(c.server, &t.def, c.arguments):
		refused(setup.RefusedTool, "the tool %s of MCP server %s has changed since the call was approved; it was not "+
			"called", c.tool, c.server)
	case a.calls > a.maxCalls:
		refused(setup.RefusedLimit, "the response has made %d calls, the most; it was not called", a.maxCalls)
	case a.outBytes > maxOutBytes:
		refused(setup.RefusedLimit, "the results of the response have more than %d bytes; it was not called",
			maxOutBytes)
	case !json.Valid([]byte(c.arguments)):
		refused(setup.RefusedArguments, "the arguments are no JSON; it was not called")
	default:
		r, err := a.waitFor(c)
		switch {
		case err != nil:
			c.err = err.Error()
			a.s.Log.Warn("a call of an MCP server's tool has failed", "server", c.server, "tool", c.tool, "error", err)
		case r.Failed:
			c.err = r.Text
		default:
			c.output = r.Text
		}
	}
	a.outBytes += len(c.output) + len(c.err)
	item := c.item("completed")
	kind := "response.mcp_call.completed"
	if c.err != "" {
		kind = "response.mcp_call.failed"
	}
	a.out[c.index] = item
	a.event(kind, map[string]any{"item_id": c.itemID, "output_index": c.index})
	a.event("response.output_item.done", map[string]any{"output_index": c.index, "item": item})
}

// waitFor calls the tool, and keeps the client's connection alive meanwhile.
func (a *answer) waitFor(c *call) (r *setup.Result, err error) {
	done := make(chan struct{})
	go func() {
		r, err = a.s.Box.Call(a.ctx, c.server, c.tool, json.RawMessage(c.arguments))
		close(done)
	}()
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return r, err
		case <-tick.C:
			a.comment()
		}
	}
}

// item returns the output item of a call.
func (c *call) item(status string) map[string]any {
	item := map[string]any{"id": c.itemID, "type": "mcp_call", "status": status, "server_label": c.server,
		"name": c.tool, "arguments": c.arguments, "output": nil, "error": nil, "approval_request_id": nil}
	if c.approval != "" {
		item["approval_request_id"] = c.approval
	}
	if status == "completed" {
		if c.err != "" {
			item["status"], item["error"] = "failed", c.err
		} else {
			item["output"] = c.output
		}
	}
	return item
}
