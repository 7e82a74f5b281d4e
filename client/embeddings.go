package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/internal/wireclient"
)

// EmbedRequest asks for the embeddings of texts. What it leaves out has the daemon's default. docs/protocol.md
// describes each field by its name in JSON.
type EmbedRequest struct {
	ID     string `json:"-"` // "" = one that is unique on the connection
	Model  string `json:"model,omitempty"`
	Inputs []any  `json:"input"` // each is a string, or the []int32 of its tokens
	// Query, if not nil: the inputs are documents, and each gets one value in the place of its embedding, its score as
	// an answer to Query.
	Query        *string         `json:"query,omitempty"`
	Dimensions   int             `json:"dimensions,omitempty"`
	AnyDimension bool            `json:"any_dimension,omitempty"` // also one that the model was not trained for
	Normalize    *int            `json:"normalize,omitempty"`     // 2: the length becomes 1; -1: not at all
	Truncate     bool            `json:"truncate,omitempty"`      // a text that is too long is cut, not refused
	ParseSpecial bool            `json:"parse_special,omitempty"`
	Priority     Priority        `json:"priority,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
}

// EmbedTexts returns a request for the embeddings of texts, each of length 1.
func EmbedTexts(texts ...string) *EmbedRequest {
	r := &EmbedRequest{}
	for _, t := range texts {
		r.Inputs = append(r.Inputs, t)
	}
	return r
}

// RankTexts returns a request for the scores of documents as answers to query. A document's score is the one value of
// its vector (Embeddings.Vectors); larger is better.
func RankTexts(query string, documents ...string) *EmbedRequest {
	r := EmbedTexts(documents...)
	r.Query = &query
	return r
}

// Embeddings are the embeddings of the texts of a request, in their order.
type Embeddings struct {
	// Rows has for each text one vector, or where the pooling is "none" one for each of its tokens.
	Rows      [][][]float32
	Tokens    []int  // of each text
	Truncated []bool // texts of which only so many tokens were read
	Usage     Usage
	Timings   Timings
}

// Vectors returns the one vector of each text. It fails where the pooling is "none".
func (e *Embeddings) Vectors() ([][]float32, error) {
	return (&wireclient.Embeddings{Rows: e.Rows}).Vectors()
}

// Embed asks for embeddings and waits for all of them. They cross the socket as base64. When ctx ends, the daemon
// cancels the request and Embed returns ctx's cause.
func (c *Client) Embed(ctx context.Context, r *EmbedRequest) (*Embeddings, error) {
	if len(r.Inputs) == 0 {
		return nil, errors.New("embed: there is no text")
	}
	body, err := encode(struct {
		Event    string `json:"event"`
		Encoding string `json:"encoding_format"`
		*EmbedRequest
	}{"embed", "base64", r})
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	s, err := c.start(ctx, r.ID, nil, body)
	if err != nil {
		return nil, err
	}
	e, err := s.Embeddings(len(r.Inputs))
	if err != nil {
		return nil, public(err)
	}
	return &Embeddings{e.Rows, e.Tokens, e.Truncated, usageOf(&e.Usage), Timings(e.Timings)}, nil
}
