// Command openai uses OpenAI's chat completions over the Unix socket. A library for that API takes the same
// http.Client:
//
//	openai.NewClient(option.WithBaseURL("http://uma/v1"), option.WithHTTPClient(client.HTTP("")))
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/uma-serve/uma-serve/client"
)

func main() {
	question := cmp.Or(strings.Join(os.Args[1:], " "), "What is 4821 + 977?")
	body, err := json.Marshal(map[string]any{
		"model":       "default",
		"messages":    []map[string]string{{"role": "user", "content": question}},
		"temperature": 0,
		"max_tokens":  400,
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.HTTP("").Post("http://uma/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		log.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		log.Fatalf("%s: %s", resp.Status, answer.Error.Message)
	}
	fmt.Println(answer.Choices[0].Message.Content)
}
