// Package heldout contains the problems for evaluating uma-tiny. The training data (models/train/tasks.py, held_out)
// excludes them in any wording. models/train/heldout.py writes the file.
package heldout

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// Problem is a question with its only correct answer.
type Problem struct {
	Task     string `json:"task"`
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

//go:embed problems.jsonl
var lines string

// Problems returns the built-in problems, 110 of each task.
func Problems() []Problem {
	ps, err := Parse(lines)
	if err != nil {
		panic(err) // cannot happen: the file is part of the binary
	}
	return ps
}

// Parse reads problems, one JSON object per line. The error names the line.
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
