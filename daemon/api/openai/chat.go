package openai

import (
	"errors"
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// chatTable lists the fields that differ from the request's fields in docs/protocol.md.
var chatTable = slices.Concat(
	api.Of(api.Taken, "messages", "stream", "stream_options", "n", "timings_per_token",
		"include_stop_str_in_output", "no_stop_trim", "return_token_ids"),
	api.Of(api.Ignored, "id", "metadata"),
	api.Table{
		{Name: "prompt", Use: api.Refused, Why: `it belongs to /v1/completions; here it is "messages"`},
		{Name: "suffix", Use: api.Refused, But: []string{`""`}, Why: "it belongs to /v1/completions"},
	},
)

// chatBody holds the taken fields.
type chatBody struct {
	Messages rawJSON `json:"messages"`
}

// options are the fields that both endpoints have.
type options struct {
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options"`
	N             *int           `json:"n"`
	// vLLM's and SGLang's name for: the stop string that ended the answer is a part of it.
	IncludeStop bool `json:"include_stop_str_in_output"`
	NoStopTrim  bool `json:"no_stop_trim"`
	TokenIDs    bool `json:"return_token_ids"` // vLLM's
	api.Telemetry
}

type streamOptions struct {
	_            struct{} `ignored:"include_obfuscation,continuous_usage_stats"`
	IncludeUsage bool     `json:"include_usage"`
}

// maxAnswers is the maximum number of answers of one HTTP request (n for each prompt).
const maxAnswers = 128

// answers returns "n", 1 by default.
func (o *options) answers() (int, error) {
	if o.N == nil {
		return 1, nil
	}
	if *o.N < 1 || *o.N > maxAnswers {
		return 0, api.Refuse(`field "n" must be an integer of 1…128`)
	}
	return *o.N, nil
}

// serveChat answers POST /v1/chat/completions.
func serveChat(s *api.Server, w http.ResponseWriter, r *http.Request) {
	c := newCompletion(s, w, true)
	requests, err := c.readChat(r)
	if err != nil {
		c.fail(api.AsError(err))
		return
	}
	c.run(r, requests)
}

func (c *completion) readChat(r *http.Request) ([]*wire.Request, error) {
	body, err := chatTable.Body(r)
	if err != nil {
		return nil, err
	}
	var in chatBody
	var opts options
	if err := errors.Join(body.Into(&in), body.Into(&opts)); err != nil {
		return nil, err
	}
	if in.Messages == nil {
		return nil, api.Refuse(`field "messages" is missing; it must be an array of {"role":…,"content":…}`)
	}
	req, err := body.Request(c.id, struct {
		Messages rawJSON `json:"messages"`
	}{in.Messages})
	if err != nil {
		return nil, err
	}
	if n := len(req.Messages); n >= 2 && req.Continue != wire.ContinueOff && req.Messages[n-1].Role == "assistant" &&
		req.Messages[n-2].Role == "assistant" {
		return nil, api.Refuse(`field "messages" ends with two messages of the assistant; at most one can be continued`)
	}
	n, err := opts.answers()
	if err != nil {
		return nil, err
	}
	c.want(&opts, req)
	return c.several(nil, req, n), nil
}
