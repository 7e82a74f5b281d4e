package client_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// lengths embeds a text as the number of its bytes and the number of its words, in the order last to first.
func lengths(c *clienttest.Conn, e *wire.Embed) {
	total := 0
	for i := len(e.Inputs) - 1; i >= 0; i-- {
		text := e.Inputs[i].Text
		if text == "" {
			c.Error(wire.Error{ID: e.ID, Code: wire.BadRequest, Message: "a text is empty"})
			return
		}
		v := wire.Embedding{ID: e.ID, Index: i, Row: -1, Tokens: len(text), Truncated: text == "long",
			Values: []float32{float32(len(text)), float32(len(strings.Fields(text)))}}
		if text == "outside" {
			v.Index = 7
		}
		c.Send(func(dst []byte) []byte { return wire.AppendEmbedding(dst, &v, e.Base64) })
		if text == "rows" {
			v.Row = 1
			c.Send(func(dst []byte) []byte { return wire.AppendEmbedding(dst, &v, e.Base64) })
		}
		total += len(text)
	}
	reason := wire.Stop
	if e.Inputs[0].Text == "cancel" {
		reason = wire.Cancelled
	}
	c.EOS(wire.EOS{ID: e.ID, Reason: reason, Streamed: true, Usage: wire.Usage{PromptTokens: total}})
}

func TestEmbed(t *testing.T) {
	c := dial(t, (&clienttest.Server{Embed: lengths}).Start(t))
	got, err := c.Embed(t.Context(), client.EmbedTexts("one two", "three", "long"))
	if err != nil {
		t.Fatal(err)
	}
	vectors, err := got.Vectors()
	if err != nil || len(vectors) != 3 || !slices.Equal(vectors[0], []float32{7, 2}) ||
		!slices.Equal(vectors[1], []float32{5, 1}) {
		t.Errorf("%v %v", vectors, err)
	}
	if got.Usage.PromptTokens != 16 || !slices.Equal(got.Tokens, []int{7, 5, 4}) ||
		!slices.Equal(got.Truncated, []bool{false, false, true}) {
		t.Errorf("%+v", got)
	}
	if got, err = c.Embed(t.Context(), client.RankTexts("asked", "a", "bc")); err != nil || got.Rows[1][0][0] != 2 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = c.Embed(t.Context(), client.EmbedTexts("rows")); err != nil || len(got.Rows[0]) != 2 {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := got.Vectors(); err == nil ||
		!strings.Contains(err.Error(), `text 0 has 2 vectors: the server's pooling is "none"`) {
		t.Errorf("%v", err)
	}
	for text, says := range map[string]string{"": "a text is empty", "cancel": "ended before all embeddings were " +
		"complete: cancelled", "outside": "an embedding of text 7 of 1"} {
		if _, err := c.Embed(t.Context(), client.EmbedTexts(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := c.Embed(t.Context(), client.EmbedTexts()); err == nil ||
		!strings.Contains(err.Error(), "there is no text") {
		t.Errorf("%v", err)
	}
	var refused *client.ServerError
	if _, err := dial(t, (&clienttest.Server{}).Start(t)).Embed(t.Context(), client.EmbedTexts("a")); !errors.As(err,
		&refused) || refused.Code != client.NotSupported {
		t.Errorf("%v", err)
	}
}
