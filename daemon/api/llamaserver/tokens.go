package llamaserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

var (
	tokenizeTable = append(api.Of(api.Taken, "content", "add_special", "parse_special", "with_pieces"),
		api.Of(api.Ignored, "model")...)
	detokenizeTable = append(api.Of(api.Taken, "tokens"), api.Of(api.Ignored, "model")...)
	// templateTable lists the fields that differ from a request's; most of a request's fields have no effect here.
	templateTable = slices.Concat(
		api.Of(api.Taken, "messages"),
		api.Of(api.Ignored, "id", "metadata", "stream", "stream_options", "n"),
		api.Table{{Name: "prompt", Use: api.Refused, Why: `here it is "messages"`}},
	)
)

type tokenizeBody struct {
	Content rawJSON `json:"content"` // a string, or strings and token ids
	Special bool    `json:"add_special"`
	Markers *bool   `json:"parse_special"` // absent: true
	Pieces  bool    `json:"with_pieces"`
}

type tokenPiece struct {
	ID    int32 `json:"id"`
	Piece any   `json:"piece"` // a string, or an array of bytes if it is not UTF-8
}

// serveTokenize answers POST /tokenize.
func serveTokenize(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	tokens, pieces, err := tokenize(s, r)
	switch {
	case err != nil:
		fail(out, err)
	case pieces != nil:
		out.JSON(http.StatusOK, struct {
			Tokens []tokenPiece `json:"tokens"`
		}{pieces})
	default:
		out.JSON(http.StatusOK, struct {
			Tokens []int32 `json:"tokens"`
		}{append([]int32{}, tokens...)})
	}
}

// tokenize returns the tokens of a body, and their pieces if the body asks for them.
func tokenize(s *api.Server, r *http.Request) (tokens []int32, pieces []tokenPiece, err error) {
	var in tokenizeBody
	if _, err := readTable(r, tokenizeTable, &in, false); err != nil {
		return nil, nil, err
	}
	if in.Pieces {
		pieces = []tokenPiece{}
	}
	facts, err := factsOf(s, r)
	if err != nil {
		return nil, nil, err
	}
	text, err := readContent(in.Content)
	switch {
	case err != nil:
		return nil, nil, err
	case facts.MaxPromptBytes > 0 && text.Bytes() > facts.MaxPromptBytes:
		return nil, nil, tooLong("content", text.Bytes(), facts)
	}
	if tokens, err = text.Tokens(r.Context(), s, in.Special, in.Markers == nil || *in.Markers); err != nil {
		return nil, nil, err
	}
	for i := range tokens {
		if !in.Pieces {
			break
		}
		b, err := s.Detokenize(tokens[i : i+1])
		if err != nil {
			return nil, nil, err
		}
		pieces = append(pieces, pieceOf(tokens[i], b))
	}
	return tokens, pieces, nil
}

// tooLong is the error for a field with too much text.
func tooLong(field string, n int, facts *api.Facts) error {
	return &api.Error{Code: wire.PromptTooLarge,
		Message: fmt.Sprintf("field %q has %d bytes of text; --max-prompt-bytes is %d", field, n, facts.MaxPromptBytes)}
}

// readContent parses a text, or texts and token ids. Absent content has no tokens.
func readContent(raw rawJSON) (in api.Input, err error) {
	var list []rawJSON
	switch {
	case raw == nil || json.Unmarshal(raw, &in.Text) == nil:
		return in, nil
	case json.Unmarshal(raw, &list) == nil:
		return api.ReadMixed("content", list)
	}
	return in, api.Refuse(`field "content" must be a string, or an array of strings and token ids`)
}

func pieceOf(id int32, b []byte) tokenPiece {
	if utf8.Valid(b) {
		return tokenPiece{id, string(b)}
	}
	numbers := make([]int, len(b))
	for i, c := range b {
		numbers[i] = int(c)
	}
	return tokenPiece{id, numbers}
}

// serveDetokenize answers POST /detokenize.
func serveDetokenize(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	var in struct {
		Tokens []int32 `json:"tokens"`
	}
	_, err := readTable(r, detokenizeTable, &in, false)
	var text []byte
	if err == nil {
		_, err = factsOf(s, r)
	}
	if err == nil {
		text, err = s.Detokenize(in.Tokens)
	}
	if err != nil {
		fail(out, err)
		return
	}
	out.JSON(http.StatusOK, struct {
		Content string `json:"content"` // invalid UTF-8 becomes U+FFFD
		Prompt  string `json:"prompt"`  // vLLM's name
	}{string(text), string(text)})
}

// rendered returns the prompt of a conversation.
func rendered(s *api.Server, r *http.Request) (*api.Prompt, error) {
	var in struct {
		Messages rawJSON `json:"messages"`
	}
	body, err := readTable(r, templateTable, &in, true)
	if err != nil {
		return nil, err
	}
	if in.Messages == nil {
		return nil, api.Refuse(`field "messages" is missing; it must be an array of {"role":…,"content":…}`)
	}
	req, err := body.Request("template", &in)
	if err != nil {
		return nil, err
	}
	return s.Render(r.Context(), req)
}

// serveTemplate answers POST /apply-template. A BOS at the start is left out where the tokenizer adds one, so that the
// prompt can be tokenized with add_special.
func serveTemplate(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	p, err := rendered(s, r)
	if err != nil {
		fail(out, err)
		return
	}
	text := p.Text
	if f := s.Facts(); f != nil && f.AddsBOS {
		text = strings.TrimPrefix(text, f.BOS)
	}
	out.JSON(http.StatusOK, struct {
		Prompt string `json:"prompt"`
	}{text})
}

// serveCount answers POST /v1/chat/completions/input_tokens.
func serveCount(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	p, err := rendered(s, r)
	if err != nil {
		fail(out, err)
		return
	}
	out.JSON(http.StatusOK, struct {
		Object string `json:"object"`
		Tokens int    `json:"input_tokens"`
	}{"response.input_tokens", len(p.Tokens)})
}
