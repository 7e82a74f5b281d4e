// Command gollama is a program for go-llama.cpp that shares the daemon's model: its import is the only change.
package main

import (
	"flag"
	"fmt"
	"log"
	"strings"

	llama "github.com/uma-serve/uma-serve/client/gollama" // was: github.com/go-skynet/go-llama.cpp
)

func main() {
	model := flag.String("m", "", "the model's `file` or name; the daemon's, whichever it is, unless given")
	tokens := flag.Int("n", 256, "tokens of the answer")
	flag.Parse()
	question := "What is 4821 + 977?"
	if flag.NArg() > 0 {
		question = strings.Join(flag.Args(), " ")
	}
	l, err := llama.New(*model, llama.SetContext(512), llama.EnableF16Memory, llama.SetGPULayers(99))
	if err != nil {
		log.Fatal(err)
	}
	defer l.Free()
	prompt := "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n"
	n, _, err := l.TokenizeString(prompt)
	if err != nil {
		log.Fatal(err)
	}
	if n < 10 {
		log.Fatalf("%d tokens: the markers of a chat are not in this model's vocabulary", n)
	}
	piece := func(text string) bool {
		fmt.Print(strings.TrimLeft(text, "\n"))
		return true
	}
	_, err = l.Predict(prompt, llama.SetTokenCallback(piece), llama.SetTokens(*tokens), llama.SetTemperature(0),
		llama.SetPenalty(1), llama.SetThreads(2))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println()
}
