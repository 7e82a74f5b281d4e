// Command cancel cancels a long answer after five tokens. The daemon ends it within one decode step and says what it
// has cost. To give an answer up without its usage, end its context, or leave the loop over its tokens.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/uma-serve/uma-serve/client"
)

func main() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	r := client.NewRequest(client.User("Count to a million."))
	r.MaxTokens = 1500
	r.IgnoreEOS = true // the answer runs until it is cancelled
	s, err := c.Stream(ctx, r)
	if err != nil {
		log.Fatal(err)
	}
	tokens := 0
	for _, err := range s.Tokens() {
		if err != nil {
			log.Fatal(err)
		}
		if tokens++; tokens == 5 {
			if err := s.Cancel(); err != nil {
				log.Fatal(err)
			}
		}
	}
	fmt.Println(s.End().Reason, s.End().Usage.CompletionTokens >= 5)
}
