package loadgen

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/bench/workload"
)

// Targets are the supported servers.
var Targets = []string{"uma", "llama-server", "ollama", "openai"}

// Job is the input of a client process.
type Job struct {
	Target  string // of Targets
	Address string // path of a Unix socket, or a URL (http://host:port, with a path before /v1 if need be)
	Model   string // its name for ollama and openai servers
	KeyEnv  string // environment variable that holds the server's API key, "" = none

	Requests []workload.Request
	Workers  int // > 0: closed loop

	Temperature float32
	Seed        uint64        // request i is sampled with Seed + i
	Timeout     time.Duration // of one request; 0 = none
	// Extra are fields for the body of HTTP requests, over the client's own: {"ignore_eos":true}.
	Extra json.RawMessage `json:",omitempty"`
	// EarlyExit and ThinkBudget are think.early_exit and think.budget_tokens of the reasoning requests to uma; "" and 0
	// = the server's.
	EarlyExit   string
	ThinkBudget int
}

// Record is the result of a request. Times are ns since the start of the run.
type Record struct {
	Index int   `json:"index"` // in Job.Requests
	Due   int64 `json:"due"`   // the time at which it should have been sent
	Sent  int64 `json:"sent"`
	End   int64 `json:"end"`

	Think   []int64 `json:"think,omitempty"`   // arrivals of the tokens of thought
	Output  []int64 `json:"output,omitempty"`  // arrivals of the tokens of the answer
	Visible int64   `json:"visible,omitempty"` // arrival of the first text of the answer; 0 = never

	PromptTokens     int    `json:"prompt_tokens,omitempty"` // as the server reports, 0 = unknown
	CachedTokens     int    `json:"cached_tokens,omitempty"`
	CompletionTokens int    `json:"completion_tokens,omitempty"`
	ThinkTokens      int    `json:"think_tokens,omitempty"`
	ThinkEnded       string `json:"think_ended,omitempty"` // wire.ThinkEnds
	Reason           string `json:"reason,omitempty"`      // reason of the answer's end
	Right            bool   `json:"right,omitempty"`       // of a graded request
	Graded           bool   `json:"graded,omitempty"`

	Err     string `json:"error,omitempty"`
	Cut     bool   `json:"cut,omitempty"`     // the workload ended it
	Skipped string `json:"skipped,omitempty"` // the server has no such protocol

	text strings.Builder // of the answer, when a grader or a later turn needs it
}

// First returns the arrival of the first token, 0 if there was none.
func (r *Record) First() int64 {
	switch {
	case len(r.Think) > 0 && (len(r.Output) == 0 || r.Think[0] <= r.Output[0]):
		return r.Think[0]
	case len(r.Output) > 0:
		return r.Output[0]
	}
	return 0
}

// Thought returns the number of thinking tokens: the server's count, or else the client's.
func (r *Record) Thought() int { return max(r.ThinkTokens, len(r.Think)) }

// Answered returns the number of tokens of the answer.
func (r *Record) Answered() int {
	if n := r.CompletionTokens - r.ThinkTokens; r.CompletionTokens > 0 && n >= 0 {
		return n
	}
	return len(r.Output)
}

// Result is the output of a client process.
type Result struct {
	Records []*Record `json:"records"` // those that were sent, by index
	WallNs  int64     `json:"wall_ns"`
	CPUNs   int64     `json:"cpu_ns"` // processor time of the client during the run; 0 where the system does not say
}

func (j *Job) check() error {
	switch {
	case !slices.Contains(Targets, j.Target):
		return fmt.Errorf("target %q is none of %s", j.Target, strings.Join(Targets, ", "))
	case j.Address == "":
		return fmt.Errorf("target %s needs an address", j.Target)
	case len(j.Requests) == 0:
		return fmt.Errorf("there are no requests to send")
	case len(j.Extra) > 0 && json.Unmarshal(j.Extra, &map[string]json.RawMessage{}) != nil:
		return fmt.Errorf("the extra fields are not a JSON object")
	}
	for i := range j.Requests {
		switch r := &j.Requests[i]; {
		case r.After >= i || r.After < -1:
			return fmt.Errorf("request %d comes after number %d", i, r.After)
		case j.Target != "uma" && (r.Model != "" || r.Schema != ""):
			return fmt.Errorf("request %d has a model or a schema; only target uma takes these", i)
		}
	}
	return nil
}
