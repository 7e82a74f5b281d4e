package real

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed testdata/prompts.txt
var promptsText string

//go:embed testdata/schemas.jsonl
var schemasText []byte

//go:embed testdata/tools.json
var toolsText []byte

// Text is a document to compute perplexities of and to share prefixes of.
//
//go:embed testdata/text.txt
var Text string

// ThinkTemplate is a chat template in ChatML that opens a thought, with an example of one that checks its answer again:
// it makes a model that was not trained to think reason before it answers with a number.
//
//go:embed testdata/think.jinja
var ThinkTemplate string

// Prompts are 200 short prompts: facts, code, JSON, sums, other languages.
func Prompts() []string {
	lines := strings.Split(strings.TrimSpace(promptsText), "\n")
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(l, `\n`, "\n")
	}
	return lines
}

// Schemas are 100 JSON schemas whose answers are short.
func Schemas() ([]Schema, error) {
	var out []Schema
	for d := json.NewDecoder(bytes.NewReader(schemasText)); d.More(); {
		var s Schema
		if err := d.Decode(&s); err != nil {
			return nil, fmt.Errorf("testdata/schemas.jsonl: %w", err)
		}
		out = append(out, s)
	}
	return out, nil
}

// Tools are ten tools and 50 questions that one of them answers.
func Tools() ([]Tool, []Task, error) {
	var t struct {
		Tools []Tool `json:"tools"`
		Tasks []Task `json:"tasks"`
	}
	if err := json.Unmarshal(toolsText, &t); err != nil {
		return nil, nil, fmt.Errorf("testdata/tools.json: %w", err)
	}
	return t.Tools, t.Tasks, nil
}
