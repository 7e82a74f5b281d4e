// Package heldout holds the problems uma-tiny is examined with: none of them, in whatever wording, is among those it was
// trained on (models/train/tasks.py, held_out). models/train/heldout.py writes the file.
package heldout

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// Problem is one question with the only answer that counts.
type Problem struct {
	Task     string `json:"task"`
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

//go:embed problems.jsonl
var lines string

// Problems are the built-in ones, 110 of each task.
func Problems() []Problem {
	ps, err := Parse(lines)
	if err != nil {
		panic(err) // the file is part of the binary
	}
	return ps
}

// Parse reads problems, one JSON object a line. The error names the line.
func Parse(text string) ([]Problem, error) {
	var ps []Problem
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var p Problem
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if p.Task == "" || p.Question == "" || p.Answer == "" {
			return nil, fmt.Errorf(`line %d: needs "task", "question" and "answer"`, i+1)
		}
		ps = append(ps, p)
	}
	return ps, nil
}
