package client_test

import (
	"log"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

func dial(t *testing.T, s *clienttest.Server) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), s.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// daemon starts a fake daemon and returns its socket. A program passes "" to Dial instead, for the real daemon's
// socket.
func daemon() (socket string, stop func()) {
	server := &clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		question := r.Messages[len(r.Messages)-1].Content
		end := wire.EOS{ID: r.ID, Reason: wire.Stop, Usage: wire.Usage{PromptTokens: 12, CompletionTokens: 3}}
		switch {
		case len(question) > 100:
			c.Error(wire.Error{ID: r.ID, Code: wire.QueueLimit, Message: "the queue is full", RetryAfter: time.Second})
			return
		case r.Stream:
			for _, word := range []string{"It ", "scatters ", "light."} {
				c.Token(r.ID, word, wire.Output)
			}
			end.Streamed = true
		default:
			end.Text = []byte("It scatters light.")
		}
		c.EOS(end)
	}}
	if err := server.Listen(); err != nil {
		log.Fatal(err)
	}
	return server.Path, server.Stop
}
