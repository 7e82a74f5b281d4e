// Package real checks the answers of a published model: uma-serve's beside those of llama-server of the same llama.cpp,
// over their sockets. Generated models, which the other tests use, have no text to be right or wrong about.
//
// Both servers compute with other kernels, so sums differ in their last bits and greedy texts part where two tokens are
// almost equally likely. A parting is judged by the gap between the two tokens in each server's log-probabilities; the
// comparison then continues behind llama-server's token, so that every token is compared.
package real

import (
	"fmt"
	"io"
	"strings"
)

// Check is one line of a report.
type Check struct {
	Name    string   `json:"name"`
	OK      bool     `json:"ok"`
	Skipped bool     `json:"skipped,omitempty"` // the model has nothing to check; Summary says why
	Summary string   `json:"summary"`
	Failed  []string `json:"failed,omitempty"` // failures, at most maxFailures
	// Explained are differences that are no failures, each with its reason.
	Explained []string `json:"explained,omitempty"`
	Seconds   float64  `json:"seconds"`
	Details   any      `json:"details,omitempty"`
}

// maxFailures is the most failures that a check names.
const maxFailures = 10

// Fail notes a failure.
func (c *Check) Fail(format string, args ...any) {
	c.OK = false
	if len(c.Failed) < maxFailures {
		c.Failed = append(c.Failed, fmt.Sprintf(format, args...))
	}
}

// Report is the result of all checks of one model.
type Report struct {
	Model  string  `json:"model"`
	Ours   string  `json:"ours"`   // version of uma-serve
	Theirs string  `json:"theirs"` // version of llama-server
	Checks []Check `json:"checks"`
}

// OK reports whether no check failed.
func (r *Report) OK() bool {
	for _, c := range r.Checks {
		if !c.OK && !c.Skipped {
			return false
		}
	}
	return true
}

// Markdown writes the report as rows of one table; head writes the table's head first.
func (r *Report) Markdown(w io.Writer, head bool) {
	if head {
		fmt.Fprint(w, "| model | check | | result | s |\n|---|---|---|---|---|\n")
	}
	for _, c := range r.Checks {
		state := "passed"
		switch {
		case c.Skipped:
			state = "skipped"
		case !c.OK:
			state = "**FAILED**"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.0f |\n", r.Model, c.Name, state, c.Summary, c.Seconds)
	}
}

// Failures writes the failures, and what was explained, a line each.
func (r *Report) Failures(w io.Writer) {
	for _, c := range r.Checks {
		for _, f := range c.Failed {
			fmt.Fprintf(w, "%s, %s: %s\n", r.Model, c.Name, strings.ReplaceAll(f, "\n", "\n    "))
		}
		for _, e := range c.Explained {
			fmt.Fprintf(w, "%s, %s, explained: %s\n", r.Model, c.Name, e)
		}
	}
}
