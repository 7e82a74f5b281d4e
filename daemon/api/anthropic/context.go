package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// contextEdits is context_management. The server makes the edit of thoughts alone: the others remove texts from the
// conversation, which it never does.
type contextEdits struct {
	Edits []contextEdit `json:"edits"`
}

type contextEdit struct {
	_    struct{} `ignored:"clear_at_least,clear_tool_inputs,exclude_tools,instructions,pause_after_compaction,trigger"`
	Type string   `json:"type"`
	Keep rawJSON  `json:"keep"` // of clearThinking: "all" or keptTurns
}

// Opens returns the types of the members that are decoded later, by name.
func (contextEdit) Opens() map[string]any { return map[string]any{"keep": keptTurns{}} }

type keptTurns struct {
	Type  string `json:"type"` // "all" or "thinking_turns"
	Value *int   `json:"value"`
}

// clearThinking is the edit that clears thoughts of earlier turns.
const clearThinking = "clear_thinking_20251015"

// edit makes the edit of thoughts. The template keeps the thoughts of all turns or of the last one; for the last N the
// older thoughts are removed first.
func (want *request) edit(c *contextEdits) error {
	if c == nil {
		return nil
	}
	for i, e := range c.Edits {
		if e.Type != clearThinking {
			continue
		}
		turns, err := e.turns(fmt.Sprintf("context_management.edits[%d].keep", i))
		if err != nil {
			return err
		}
		keep := turns != 1
		want.Preserve = &keep
		if turns > 1 {
			want.clearThoughts(turns)
		}
	}
	return nil
}

// turns returns the number of turns whose thoughts are kept; 0: all.
func (e *contextEdit) turns(field string) (int, error) {
	if len(e.Keep) == 0 || string(e.Keep) == "null" {
		return 1, nil
	}
	keep := keptTurns{Type: "all"}
	if !bytes.Equal(e.Keep, []byte(`"all"`)) {
		if err := json.Unmarshal(e.Keep, &keep); err != nil {
			keep.Type = ""
		}
	}
	switch {
	case keep.Type == "all":
		return 0, nil
	case keep.Type == "thinking_turns" && keep.Value != nil && *keep.Value >= 1:
		return *keep.Value, nil
	}
	return 0, api.Refusef(`field %q is %.60s; it must be "all" or {"type":"thinking_turns","value":N} with N of 1 or `+
		`more`, field, e.Keep)
}

// clearThoughts leaves out the thoughts of all turns but the last n that have any. A turn ends at a user's message.
func (want *request) clearThoughts(n int) {
	has := false // the turn at hand has a thought
	for i := len(want.Messages) - 1; i >= 0; i-- {
		m := &want.Messages[i]
		switch {
		case m.Role == "user" && has:
			n, has = n-1, false
		case m.Role != "assistant" || m.Reasoning == "":
		case n == 0:
			m.Reasoning = ""
		default:
			has = true
		}
	}
}
