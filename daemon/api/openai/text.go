package openai

import (
	"errors"
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// textTable lists the fields that differ from the request's fields in docs/protocol.md.
var textTable = slices.Concat(
	api.Of(api.Taken, "prompt", "stream", "stream_options", "n", "echo", "timings_per_token",
		"include_stop_str_in_output", "no_stop_trim", "return_token_ids"),
	api.Of(api.Ignored, "id", "metadata"),
	api.Table{
		{Name: "messages", Use: api.Refused, Why: `it belongs to /v1/chat/completions; here it is "prompt"`},
		{Name: "tools", Use: api.Refused, But: []string{"[]"}, Why: "they belong to /v1/chat/completions"},
	},
)

type textBody struct {
	Prompt rawJSON `json:"prompt"`
	Echo   bool    `json:"echo"`
}

// serveText answers POST /v1/completions.
func serveText(s *api.Server, w http.ResponseWriter, r *http.Request) {
	c := newCompletion(s, w, false)
	requests, err := c.readText(r)
	if err != nil {
		c.fail(api.AsError(err))
		return
	}
	c.run(r, requests)
}

func (c *completion) readText(r *http.Request) (list []*wire.Request, err error) {
	body, err := textTable.Body(r)
	if err != nil {
		return nil, err
	}
	var in textBody
	var opts options
	if err := errors.Join(body.Into(&in), body.Into(&opts)); err != nil {
		return nil, err
	}
	n, err := opts.answers()
	if err != nil {
		return nil, err
	}
	prompts, err := api.ReadPrompts(in.Prompt)
	if err != nil {
		return nil, err
	}
	if len(prompts)*n > maxAnswers {
		return nil, api.Refusef("%d prompts with %d answers each are more than the %d answers that one request may "+
			"ask for", len(prompts), n, maxAnswers)
	}
	req, err := body.Request(c.id, struct {
		Prompt string `json:"prompt"`
	}{"x"}) // a placeholder for each prompt
	if err != nil {
		return nil, err
	}
	if in.Echo {
		req.PromptLogprobs = req.Sampling.Logprobs
	}
	c.want(&opts, req)
	for _, p := range prompts {
		text := p.Text
		// Control tokens are parsed, as llama-server does: prompts of /v1/completions are rendered by their clients.
		req.Prompt, req.PromptTokens, req.ParseSpecial = p.Text, nil, p.IsText() && req.Suffix == ""
		if !p.IsText() {
			if req.PromptTokens, err = p.Tokens(r.Context(), c.s, true, true); err != nil {
				return nil, err
			}
		}
		switch {
		case req.Prompt == "" && len(req.PromptTokens) == 0:
			return nil, api.Refuse(`field "prompt" is empty`)
		case req.PromptTokens != nil && req.Suffix != "":
			return nil, api.Refuse(`field "suffix" needs a "prompt" that is text`)
		}
		if in.Echo && req.PromptTokens != nil {
			piece, err := c.s.Detokenize(req.PromptTokens)
			if err != nil {
				return nil, err
			}
			text = string(piece)
		}
		first := len(c.choices)
		list = c.several(list, req, n)
		if in.Echo {
			for _, ch := range c.choices[first:] {
				ch.echo = text
			}
		}
	}
	return list, nil
}
