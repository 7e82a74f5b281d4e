// Command stream prints an answer as it comes, the thinking on standard error.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/uma-serve/uma-serve/client"
)

func main() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	r := client.NewRequest(client.User(cmp.Or(strings.Join(os.Args[1:], " "), "What is 4821 + 977?")))
	r.Temperature = new(0.0)
	r.MaxTokens = 400
	s, err := c.Stream(ctx, r)
	if err != nil {
		log.Fatal(err)
	}
	for token, err := range s.Tokens() {
		if err != nil {
			log.Fatal(err)
		}
		out := os.Stdout
		if token.Phase == client.Thinking {
			out = os.Stderr
		}
		out.Write(token.Text)
	}
	fmt.Println()
}
