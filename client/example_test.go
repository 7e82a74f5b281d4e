package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/client"
)

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
	r.Temperature = new(0.2)
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
		if token.Phase == client.Output { // not client.Thinking
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
	if refused, ok := errors.AsType[*client.ServerError](err); ok && refused.Code == client.QueueLimit {
		fmt.Println("busy; retry after", refused.RetryAfter)
	}
	// Output: busy; retry after 1s
}
