package ollama

import (
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// serveChat answers POST /api/chat.
func serveChat(s *api.Server, w http.ResponseWriter, r *http.Request) {
	a := newAnswer(s, w, true)
	var in chatBody
	body, err := read(r, chatTable, &in)
	if err != nil {
		a.fail(api.AsError(err))
		return
	}
	a.begin(&in.commonBody)
	if len(in.Messages) == 0 {
		a.loaded(r, &in.commonBody)
		return
	}
	req, err := in.request(a.id, body, struct {
		Messages []api.Message `json:"messages"`
	}{messagesOf(in.Messages)})
	if err != nil {
		a.fail(api.AsError(err))
		return
	}
	a.run(r, req)
}

// serveGenerate answers POST /api/generate.
func serveGenerate(s *api.Server, w http.ResponseWriter, r *http.Request) {
	a := newAnswer(s, w, false)
	var in generateBody
	body, err := read(r, generateTable, &in)
	if err != nil {
		a.fail(api.AsError(err))
		return
	}
	a.begin(&in.commonBody)
	if in.Prompt == "" {
		a.loaded(r, &in.commonBody)
		return
	}
	req, err := a.generate(r, body, &in)
	if err != nil {
		a.fail(api.AsError(err))
		return
	}
	a.run(r, req)
}

// generate translates a body into a request: a raw prompt, fill-in-the-middle, or a message.
func (a *answer) generate(r *http.Request, body *api.Body, in *generateBody) (*wire.Request, error) {
	switch {
	case in.Raw && (in.System != "" || len(in.Context) > 0):
		return nil, api.Refuse(`field "raw" is true: "system" and "context" have no place in a raw prompt`)
	case in.Suffix != "" && (in.Raw || in.System != "" || len(in.Context) > 0):
		return nil, api.Refuse(`field "suffix" cannot be combined with "raw", "system" or "context"`)
	case in.Suffix != "":
		req, err := in.request(a.id, body, struct {
			Prompt string `json:"prompt"`
			Suffix string `json:"suffix"`
		}{in.Prompt, in.Suffix})
		return in.withoutImages(req), err
	case in.Raw:
		req, err := in.request(a.id, body, struct {
			Prompt  string `json:"prompt"`
			Markers bool   `json:"parse_special"`
		}{in.Prompt, true})
		return in.withoutImages(req), err
	}
	var messages []api.Message
	if in.System != "" {
		messages = append(messages, api.Message{Role: "system", Content: in.System})
	}
	req, err := in.request(a.id, body, struct {
		Messages []api.Message `json:"messages"`
	}{append(messages, api.Message{Role: "user", Content: in.Prompt, Images: in.Images})})
	if err != nil {
		return nil, err
	}
	if len(in.Context) == 0 {
		a.context = func(written []int32) []int32 {
			p, err := a.s.Render(r.Context(), req)
			if err != nil {
				return nil // ended by the client
			}
			return slices.Concat(p.Tokens, written)
		}
		return req, nil
	}
	// The rendered message continues the earlier tokens, which begin with the BOS.
	p, err := a.s.Render(r.Context(), req)
	if err != nil {
		return nil, err
	}
	start, err := a.s.Tokenize(r.Context(), "", true, false)
	if err != nil {
		return nil, err
	}
	if len(p.Tokens) > len(start) && slices.Equal(p.Tokens[:len(start)], start) {
		p.Tokens = p.Tokens[len(start):]
	}
	req.Messages, req.PromptTokens = nil, slices.Concat(in.Context, p.Tokens)
	a.context = func(written []int32) []int32 { return slices.Concat(req.PromptTokens, written) }
	return req, nil
}

// withoutImages notes that the images of a raw prompt, which has no place for them, were left out. req may be nil.
func (in *generateBody) withoutImages(req *wire.Request) *wire.Request {
	if req != nil && len(in.Images) > 0 {
		_, note := wire.LeftOut("image")
		note.Times = len(in.Images)
		req.Notes.Add(note)
	}
	return req
}
