// Command think bounds the thinking of a request. A budget is never exceeded: the daemon closes the think block, and
// the answer follows.
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

	r := client.NewRequest(client.User(cmp.Or(strings.Join(os.Args[1:], " "), "How much is 47 times 36?")))
	r.Temperature = new(0.0)
	r.MaxTokens = 400
	r.Think = client.Think{Mode: "on", BudgetTokens: 24}
	answer, err := c.Chat(ctx, r)
	if err != nil {
		log.Fatal(err)
	}
	thought := answer.End.Thought
	fmt.Println(answer.Text)
	fmt.Printf("%d of 24 tokens of thought, ended: %s\n", thought.Tokens, cmp.Or(thought.Ended, "none"))
}
