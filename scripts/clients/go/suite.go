// Command clients runs Go's client libraries against a daemon at UMA_URL and writes a JSON line of each feature. It is
// a separate module, so that the libraries are no dependencies of the daemon.
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
	url := os.Getenv("UMA_URL") + "/v1"
	suite("github.com/openai/openai-go/v3", openaiFeatures(url))
	suite("github.com/tmc/langchaingo", langchainFeatures(url))
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
