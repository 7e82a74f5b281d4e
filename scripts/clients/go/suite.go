// Command clients runs Go's client libraries, or those whose names are its arguments, against a daemon at UMA_URL and
// writes a JSON line of each feature. It is a separate module, so that the libraries are no dependencies of the daemon.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const (
	model    = "uma-tiny"
	system   = "You are a calculator."
	question = "What is 4821 + 977?"
	result   = "5798" // the built-in model gets this right with temperature 0
	ask      = "What is the weather in Paris?"
	toolName = "get_weather"

	limit = time.Minute // for one feature
)

// weather is the JSON Schema of the tool's arguments, sum that of an answer.
var (
	weather = map[string]any{
		"type": "object",
		"properties": map[string]any{
			"city": map[string]any{"type": "string", "enum": []string{"Paris", "Oslo"}},
			"days": map[string]any{"type": "integer", "minimum": 1, "maximum": 7},
		},
		"required":             []string{"city", "days"},
		"additionalProperties": false,
	}
	sum = map[string]any{
		"type": "object",
		"properties": map[string]any{"sum": map[string]any{"type": "integer", "minimum": 0,
			"maximum": 99999}},
		"required":             []string{"sum"},
		"additionalProperties": false,
	}
)

type feature struct {
	name string
	test func(context.Context) error
}

// row is one line of the table.
type row struct {
	Client  string `json:"client"`
	Version string `json:"version"`
	Feature string `json:"feature"`
	OK      bool   `json:"ok"`
	Error   string `json:"error"`
}

func main() {
	url := os.Getenv("UMA_URL")
	ollama, err := ollamaFeatures(url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	clients := []struct {
		name, module string
		features     []feature
	}{
		{"openai-go", "github.com/openai/openai-go/v3", openaiFeatures(url + "/v1")},
		{"langchaingo", "github.com/tmc/langchaingo", langchainFeatures(url + "/v1")},
		{"anthropic-sdk-go", "github.com/anthropics/anthropic-sdk-go", anthropicFeatures(url)},
		{"ollama-go", "github.com/ollama/ollama", ollama},
	}
	known := []string{}
	for _, c := range clients {
		known = append(known, c.name)
		if len(os.Args) < 2 || slices.Contains(os.Args[1:], c.name) {
			suite(c.module, c.features)
		}
	}
	for _, name := range os.Args[min(len(os.Args), 1):] {
		if !slices.Contains(known, name) {
			fmt.Fprintf(os.Stderr, "there is no client %q; there are %s\n", name, strings.Join(known, ", "))
			os.Exit(2)
		}
	}
}

func suite(module string, features []feature) {
	out := json.NewEncoder(os.Stdout)
	for _, f := range features {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		err := f.test(ctx)
		cancel()
		r := row{Client: module, Version: version(module), Feature: f.name, OK: err == nil}
		if err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module })
	if i < 0 {
		return ""
	}
	return strings.TrimPrefix(info.Deps[i].Version, "v")
}

// all returns the first error.
func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func holds(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%q does not hold %q", text, part)
	}
	return nil
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func validWeather(arguments string) error {
	var a struct {
		City string
		Days int
	}
	d := json.NewDecoder(strings.NewReader(arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return fmt.Errorf("arguments %q: %w", arguments, err)
	}
	return check((a.City == "Paris" || a.City == "Oslo") && a.Days >= 1 && a.Days <= 7, "arguments %q", arguments)
}

func validSum(text string) error {
	var a struct{ Sum *int }
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return fmt.Errorf("answer %q: %w", text, err)
	}
	return check(a.Sum != nil && *a.Sum >= 0 && *a.Sum <= 99999, "answer %q", text)
}

// validObject checks an answer in JSON of any form: whole, or begun when the answer's length is at its limit.
func validObject(text, finish string) error {
	if finish == "length" {
		return check(strings.HasPrefix(strings.TrimSpace(text), "{"), "answer %q", text)
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return fmt.Errorf("answer %q: %w", text, err)
	}
	return nil
}

// vectors checks embeddings of length 1 of three texts, the first and the last of which are equal.
func vectors[T float32 | float64](list [][]T) error {
	if len(list) != 3 {
		return fmt.Errorf("%d embeddings, want 3", len(list))
	}
	for _, v := range list {
		square := 0.0
		for _, x := range v {
			square += float64(x) * float64(x)
		}
		if len(v) <= 16 || square < 0.999 || square > 1.001 {
			return fmt.Errorf("an embedding of %d values has the square length %g", len(v), square)
		}
	}
	return check(slices.Equal(list[0], list[2]) && !slices.Equal(list[0], list[1]),
		"equal texts have different embeddings, or different ones the same")
}
