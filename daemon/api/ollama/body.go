package ollama

import (
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// common lists the fields of both endpoints that differ from the request's fields in docs/protocol.md. format, think,
// tools, logprobs and top_logprobs are fields of a request.
var common = slices.Concat(
	api.Of(api.Taken, "model", "stream", "options", "keep_alive"),
	api.Of(api.Ignored, "truncate", "shift", "id", "metadata"),
	api.Table{{Name: "_debug_render_only", Use: api.Refused, But: []string{"false"},
		Why: "POST /apply-template shows the prompt"}},
)

var chatTable = slices.Concat(api.Of(api.Taken, "messages"), common, api.Table{
	{Name: "prompt", Use: api.Refused, But: []string{`""`}, Why: "it belongs to /api/generate"},
})

var generateTable = slices.Concat(
	api.Of(api.Taken, "prompt", "suffix", "system", "context", "raw", "images"), common,
	api.Table{
		{Name: "template", Use: api.Refused, But: []string{`""`}, Why: "--chat-template sets it; send raw for " +
			"another format"},
		{Name: "messages", Use: api.Refused, Why: "they belong to /api/chat"},
		{Name: "tools", Use: api.Refused, But: []string{"[]"}, Why: "they belong to /api/chat"},
		{Name: "width", Use: api.Refused, But: []string{"0"}, Why: "this server writes text"},
		{Name: "height", Use: api.Refused, But: []string{"0"}, Why: "this server writes text"},
		{Name: "steps", Use: api.Refused, But: []string{"0"}, Why: "this server writes text"},
	},
)

// optionsTable lists the members of "options". The sampling options have the names of a request's fields.
var optionsTable = slices.Concat(
	api.Of(api.Taken, "num_predict"),
	// Options of loading a model, which is already loaded.
	api.Of(api.Ignored, "num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "use_mlock", "num_thread", "numa",
		"low_vram", "f16_kv", "vocab_only", "num_keep", "penalize_newline", "draft_num_predict",
		"embedding_only", "logits_all"),
	api.Table{{Name: "messages", Use: api.Refused, Why: "it is no option"},
		{Name: "prompt", Use: api.Refused, Why: "it is no option"}},
)

type commonBody struct {
	Model     string  `json:"model"`
	Stream    *bool   `json:"stream"` // absent: true
	Options   rawJSON `json:"options"`
	KeepAlive rawJSON `json:"keep_alive"` // see KeepAlive
}

// request translates a body's members and options, and more, into a request.
func (b *commonBody) request(id string, body *api.Body, more any) (*wire.Request, error) {
	if _, _, err := KeepAlive(b.KeepAlive); err != nil {
		return nil, err
	}
	if b.Options != nil {
		options, err := body.Under("options", optionsTable, b.Options)
		if err != nil {
			e := api.AsError(err)
			return nil, &api.Error{Code: e.Code, Message: "options: " + e.Message}
		}
		var in struct {
			Predict *int `json:"num_predict"`
		}
		if err := options.Into(&in); err != nil {
			return nil, err
		}
		if err := body.Join(options); err != nil {
			return nil, err
		}
		names := api.Names{}
		for _, name := range options.Passed() {
			names[name] = "options." + name
		}
		req, err := body.Request(id, more)
		if err != nil {
			return nil, names.Of(err)
		}
		if in.Predict != nil {
			if *in.Predict > wire.MaxTokensLimit {
				return nil, api.Refusef(`field "options.num_predict" is %d; it must be at most %d`, *in.Predict,
					wire.MaxTokensLimit)
			}
			req.MaxTokens, req.FillOnly = max(*in.Predict, 0), false // 0 and less: as many as fit
		}
		return req, nil
	}
	return body.Request(id, more)
}

type chatBody struct {
	commonBody
	Messages []message `json:"messages"`
}

type message struct {
	_          struct{}  `ignored:"created_at,done"`
	Role       string    `json:"role"`
	Content    string    `json:"content"`
	Thinking   string    `json:"thinking,omitempty"`
	Images     []rawJSON `json:"images,omitempty"`
	ToolCalls  []call    `json:"tool_calls,omitempty"`
	ToolName   string    `json:"tool_name,omitempty"`
	ToolCallID string    `json:"tool_call_id,omitempty"`
}

type call struct {
	_        struct{}     `ignored:"type,index"`
	ID       string       `json:"id,omitempty"`
	Function callFunction `json:"function"`
}

type callFunction struct {
	Index     int     `json:"index"`
	Name      string  `json:"name"`
	Arguments rawJSON `json:"arguments"` // an object
}

// messagesOf translates messages.
func messagesOf(list []message) []api.Message {
	out := make([]api.Message, len(list))
	for i := range list {
		m := &list[i]
		out[i] = api.Message{Role: strings.ToLower(m.Role), Content: m.Content, Reasoning: m.Thinking,
			ToolCallID: m.ToolCallID, Name: m.ToolName, Images: m.Images}
		for _, c := range m.ToolCalls {
			if c.Function.Arguments == nil {
				c.Function.Arguments = rawJSON("{}")
			}
			out[i].ToolCalls = append(out[i].ToolCalls, api.NewCall(c.ID, c.Function.Name, c.Function.Arguments))
		}
	}
	return out
}

type generateBody struct {
	commonBody
	Prompt  string    `json:"prompt"`
	Suffix  string    `json:"suffix"`
	System  string    `json:"system"`
	Context []int32   `json:"context"`
	Raw     bool      `json:"raw"`
	Images  []rawJSON `json:"images"`
}
