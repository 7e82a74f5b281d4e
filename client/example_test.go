package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/client/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

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

func Example() {
	socket, stop := daemon()
	defer stop()
	ctx := context.Background()

	c, err := client.Dial(ctx, socket) // "" is the default socket
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	r := client.NewRequest(client.System("Answer in one sentence."), client.User("Why is the sky blue?"))
	r.MaxTokens = 100
	r.Sampling.Temperature = 0.2
	answer, err := c.Chat(ctx, r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	fmt.Println(answer.End.Reason, answer.End.Usage.CompletionTokens)
	// Output:
	// It scatters light.
	// stop 3
}

func ExampleClient_Stream() {
	socket, stop := daemon()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // its end cancels the request
	defer cancel()

	c, err := client.Dial(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Stream(ctx, client.NewRequest(client.User("Why is the sky blue?")))
	if err != nil {
		log.Fatal(err)
	}
	for token, err := range s.Tokens() {
		if err != nil {
			log.Fatal(err)
		}
		if token.Phase == wire.Output { // not wire.Thinking
			fmt.Printf("%s", token.Text)
		}
	}
	fmt.Printf("\n%d prompt tokens\n", s.End().Usage.PromptTokens)
	// Output:
	// It scatters light.
	// 12 prompt tokens
}

func ExampleServerError() {
	socket, stop := daemon()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, socket)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = c.Chat(ctx, client.NewRequest(client.User(strings.Repeat("Why? ", 50))))
	if refused, ok := errors.AsType[*client.ServerError](err); ok && refused.Code == wire.QueueLimit {
		fmt.Println("busy; retry after", refused.RetryAfter)
	}
	// Output: busy; retry after 1s
}
