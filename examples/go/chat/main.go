// Command chat prints a complete answer.
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
	answer, err := c.Chat(ctx, r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	fmt.Fprintf(os.Stderr, "(%s, %d tokens)\n", answer.End.Reason, answer.End.Usage.CompletionTokens)
}
