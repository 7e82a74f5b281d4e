package llamaserver

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// vLLM has /tokenize, too: its body has "prompt" or "messages" in place of "content". The answer has the number of
// tokens and the length of the context, which routers read.

var tokenizeVLLMTable = slices.Concat(
	api.Of(api.Taken, "prompt", "messages", "add_special_tokens", "return_token_strs"),
	api.Of(api.Ignored, "id", "metadata", "stream", "stream_options", "n"),
)

type tokenizeVLLMBody struct {
	Prompt   *string `json:"prompt"`
	Messages rawJSON `json:"messages"`
	Special  *bool   `json:"add_special_tokens"`
	Strings  bool    `json:"return_token_strs"`
}

// orVLLM returns a handler that answers bodies of vLLM's form.
func orVLLM(s *api.Server, w http.ResponseWriter, r *http.Request) {
	raw, err := api.ReadBody(r)
	if err != nil {
		fail(s.NewWriter(w), err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	var has struct {
		Prompt, Messages rawJSON
	}
	if json.Unmarshal(raw, &has) == nil && (has.Prompt != nil || has.Messages != nil) {
		serveTokenizeVLLM(s, w, r)
		return
	}
	serveTokenize(s, w, r)
}

// serveTokenizeVLLM answers POST /tokenize in vLLM's form.
func serveTokenizeVLLM(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	tokens, facts, texts, err := tokenizeVLLM(s, r)
	if err != nil {
		fail(out, err)
		return
	}
	out.JSON(http.StatusOK, struct {
		Count   int      `json:"count"`
		Context int      `json:"max_model_len"`
		Tokens  []int32  `json:"tokens"`
		Texts   []string `json:"token_strs"` // null unless it was asked for
	}{len(tokens), facts.Context, append([]int32{}, tokens...), texts})
}

func tokenizeVLLM(s *api.Server, r *http.Request) (tokens []int32, facts *api.Facts, texts []string, err error) {
	var in tokenizeVLLMBody
	body, err := readTable(r, tokenizeVLLMTable, &in, true)
	if err != nil {
		return nil, nil, nil, err
	}
	if facts, err = factsOf(s, r); err != nil {
		return nil, nil, nil, err
	}
	switch {
	case in.Prompt != nil && in.Messages != nil:
		return nil, nil, nil, api.Refuse(`fields "prompt" and "messages" exclude each other`)
	case in.Prompt != nil && facts.MaxPromptBytes > 0 && len(*in.Prompt) > facts.MaxPromptBytes:
		return nil, nil, nil, tooLong("prompt", len(*in.Prompt), facts)
	case in.Prompt != nil:
		tokens, err = s.Tokenize(r.Context(), *in.Prompt, in.Special == nil || *in.Special, true)
	case in.Special != nil && *in.Special:
		return nil, nil, nil, api.Refuse(`field "add_special_tokens" is true; with "messages" the chat template adds ` +
			"them")
	default:
		tokens, err = tokensOf(s, r, body, in.Messages)
	}
	if err != nil || !in.Strings {
		return tokens, facts, nil, err
	}
	texts = make([]string, len(tokens))
	for i := range tokens {
		b, err := s.Detokenize(tokens[i : i+1])
		if err != nil {
			return nil, nil, nil, err
		}
		texts[i] = string(bytes.ToValidUTF8(b, []byte("\ufffd")))
	}
	return tokens, facts, texts, nil
}

// tokensOf returns the tokens of a conversation.
func tokensOf(s *api.Server, r *http.Request, body *api.Body, messages rawJSON) ([]int32, error) {
	req, err := body.Request("tokenize", struct {
		Messages rawJSON `json:"messages"`
	}{messages})
	if err != nil {
		return nil, err
	}
	p, err := s.Render(r.Context(), req)
	if err != nil {
		return nil, err
	}
	return p.Tokens, nil
}
