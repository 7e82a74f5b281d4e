package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// textTable is what differs from a request's own fields (docs/protocol.md).
var textTable = slices.Concat(
	api.Of(api.Taken, "prompt", "stream", "stream_options", "n", "echo"),
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
	raw, err := api.ReadBody(r)
	if err != nil {
		return nil, err
	}
	body, err := textTable.Read(raw)
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
	prompts, err := readPrompts(in.Prompt)
	if err != nil {
		return nil, err
	}
	if len(prompts)*n > maxAnswers {
		return nil, api.Refuse(fmt.Sprintf("%d prompts with %d answers each are more than the %d answers that one request may ask for", len(prompts), n, maxAnswers))
	}
	req, err := body.Request(c.id, struct {
		Prompt string `json:"prompt"`
	}{"x"}) // takes the place of each prompt
	if err != nil {
		return nil, err
	}
	if in.Echo && req.Sampling.Logprobs > 0 {
		return nil, api.Refuse(`field "echo" with "logprobs" is not supported by this server (only generated tokens have log-probabilities); leave one of them out`)
	}
	c.want(&opts)
	for _, p := range prompts {
		text := p.text
		if req.Prompt, req.PromptTokens, err = p.resolve(c.s, r); err != nil {
			return nil, err
		}
		switch {
		case req.Prompt == "" && len(req.PromptTokens) == 0:
			return nil, api.Refuse(`field "prompt" is empty`)
		case req.PromptTokens != nil && req.Suffix != "":
			return nil, api.Refuse(`field "suffix" belongs to a "prompt" that is text`)
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

// prompt is one of a body's prompts: a text, or parts that are texts and token ids.
type prompt struct {
	text  string
	parts []promptPart // nil: text
}

type promptPart struct {
	text  string
	token int32
	isID  bool
}

const promptMust = "a string, an array of token ids, or an array of these"

// readPrompts reads the forms of "prompt": a string, token ids, an array of strings, an array of arrays of token ids.
// As llama-server has it, an array of ids may have strings among them.
func readPrompts(raw rawJSON) ([]prompt, error) {
	if raw == nil {
		return nil, api.Refuse(`field "prompt" is missing; it must be ` + promptMust)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if text == "" {
			return nil, api.Refuse(`field "prompt" is empty`)
		}
		return []prompt{{text: text}}, nil
	}
	var list []rawJSON
	if json.Unmarshal(raw, &list) != nil {
		return nil, api.Refuse(`field "prompt" must be ` + promptMust)
	}
	if len(list) == 0 {
		return nil, api.Refuse(`field "prompt" is empty`)
	}
	ids := slices.ContainsFunc(list, isNumber)
	if ids {
		p, err := mixed(`"prompt"`, list)
		return []prompt{p}, err
	}
	var prompts []prompt
	for i, r := range list {
		name := fmt.Sprintf(`"prompt[%d]"`, i)
		var inner []rawJSON
		switch {
		case r[0] == '"' && json.Unmarshal(r, &text) == nil:
			if text == "" {
				return nil, api.Refuse("field " + name + " is empty")
			}
			prompts = append(prompts, prompt{text: text})
		case json.Unmarshal(r, &inner) == nil && len(inner) > 0:
			p, err := mixed(name, inner)
			if err != nil {
				return nil, err
			}
			prompts = append(prompts, p)
		default:
			return nil, api.Refuse("field " + name + ` must be a string or an array of token ids`)
		}
	}
	return prompts, nil
}

func isNumber(r rawJSON) bool { return r[0] == '-' || r[0] >= '0' && r[0] <= '9' }

// mixed reads a prompt of token ids with strings among them.
func mixed(name string, list []rawJSON) (p prompt, err error) {
	for i, r := range list {
		part := promptPart{isID: isNumber(r)}
		if part.isID {
			err = json.Unmarshal(r, &part.token)
		} else {
			err = json.Unmarshal(r, &part.text)
		}
		if err != nil || part.token < 0 || string(r) == "null" {
			return p, api.Refuse(fmt.Sprintf("field %s has the entry %.40q at %d; it must be a token id of 0…2147483647 or a string", name, r, i))
		}
		p.parts = append(p.parts, part)
	}
	return p, nil
}

// resolve is the prompt as a request has it: its text, or token ids.
func (p *prompt) resolve(s *api.Server, r *http.Request) (text string, tokens []int32, err error) {
	if p.parts == nil {
		return p.text, nil, nil
	}
	for i, part := range p.parts {
		if part.isID {
			tokens = append(tokens, part.token)
			continue
		}
		more, err := s.Tokenize(r.Context(), part.text, i == 0, false)
		if err != nil {
			return "", nil, err
		}
		tokens = append(tokens, more...)
	}
	return "", tokens, nil
}
