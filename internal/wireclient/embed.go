package wireclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

// EmbedTexts returns a request for the embeddings of texts, each of length 1.
func EmbedTexts(texts ...string) *wire.Embed {
	e := wire.DefaultEmbed()
	for _, t := range texts {
		e.Inputs = append(e.Inputs, wire.EmbedInput{Text: t})
	}
	return &e
}

// Embeddings are the embeddings of the texts of a request, in their order.
type Embeddings struct {
	// Rows has for each text one vector, or where the pooling is "none" one for each of its tokens.
	Rows      [][][]float32
	Tokens    []int  // of each text
	Truncated []bool // texts of which only so many tokens were read
	Usage     wire.Usage
	Timings   wire.Timings
}

// Vectors returns the one vector of each text. It fails where the pooling is "none".
func (e *Embeddings) Vectors() ([][]float32, error) {
	out := make([][]float32, len(e.Rows))
	for i, rows := range e.Rows {
		if len(rows) != 1 {
			return nil, fmt.Errorf("text %d has %d vectors: the server's pooling is %q", i, len(rows), "none")
		}
		out[i] = rows[0]
	}
	return out, nil
}

// Embed asks for embeddings and waits for all of them. An empty r.ID is replaced by one that is unique on this
// connection. Embed does not keep r. When ctx ends, the daemon cancels the request and Embed returns ctx's cause.
func (c *Client) Embed(ctx context.Context, r *wire.Embed) (*Embeddings, error) {
	s, err := c.StreamEmbeddings(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.Embeddings(len(r.Inputs))
}

// Embeddings reads the stream to its end and returns the embeddings of the n texts of its request.
func (s *Stream) Embeddings(n int) (*Embeddings, error) {
	out := &Embeddings{Rows: make([][][]float32, n), Tokens: make([]int, n), Truncated: make([]bool, n)}
	for {
		ev, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			end := s.End()
			if out.Usage, out.Timings = end.Usage, end.Timings; end.Reason != wire.Stop {
				return nil, fmt.Errorf("embed: ended before all embeddings were complete: %s", end.Reason)
			}
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("embed: %w", err)
		case ev.Kind != wire.EventEmbedding:
			continue
		}
		e := &ev.Embedding
		if e.Index < 0 || e.Index >= n {
			s.Close()
			return nil, fmt.Errorf("embed: the daemon sent an embedding of text %d of %d", e.Index, n)
		}
		out.Rows[e.Index] = append(out.Rows[e.Index], slices.Clone(e.Values))
		out.Tokens[e.Index], out.Truncated[e.Index] = e.Tokens, e.Truncated
	}
}

// StreamEmbeddings sends a request for embeddings and returns the stream of its events, of the kind
// wire.EventEmbedding: those of different texts come in the order in which they are computed. Embeddings cross the
// socket as base64.
func (c *Client) StreamEmbeddings(ctx context.Context, r *wire.Embed) (*Stream, error) {
	if len(r.Inputs) == 0 {
		return nil, errors.New("embed: there is no text")
	}
	s, err := c.Start(ctx, r.ID, nil, func(dst []byte, id string) []byte {
		req := *r
		req.ID, req.Base64 = id, true
		return frames.AppendEmbed(dst, &req)
	})
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	return s, nil
}
