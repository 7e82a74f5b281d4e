package chattmpl

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/toolcall"
)

func unzipped(t *testing.T, name string, dst any) {
	t.Helper()
	f, err := os.Open("../jinja/testdata/published/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(dst); err != nil {
		t.Fatal(err)
	}
}

// publishedCase is a conversation of the published outputs, as a client would send it.
type publishedCase struct {
	Name string
	Vars struct {
		Messages []struct {
			Role      string
			Content   json.RawMessage
			Reasoning string `json:"reasoning_content"`
			Name      string
			CallID    string `json:"tool_call_id"`
			Calls     []struct {
				ID       string
				Function struct {
					Name      string
					Arguments json.RawMessage
				}
			} `json:"tool_calls"`
		}
		Tools []struct {
			Function *struct {
				Name, Description string
				Parameters        json.RawMessage
			}
		}
		Opening  bool   `json:"add_generation_prompt"`
		BOS      string `json:"bos_token"`
		EOS      string `json:"eos_token"`
		Thinking *bool  `json:"enable_thinking"`
	}
}

// input returns the conversation; false where a client cannot send it so.
func (c *publishedCase) input() (in Input, ok bool) {
	in = Input{AddGenerationPrompt: c.Vars.Opening, BOS: c.Vars.BOS, EOS: c.Vars.EOS,
		Now: time.Date(2026, 3, 7, 9, 5, 2, 0, time.UTC)}
	if c.Vars.Thinking != nil {
		in.Extra = map[string]any{"enable_thinking": *c.Vars.Thinking}
	}
	for _, m := range c.Vars.Messages {
		msg := Message{Role: m.Role, ReasoningContent: m.Reasoning, Name: m.Name, CallID: m.CallID}
		if m.Content != nil && json.Unmarshal(m.Content, &msg.Content) != nil {
			return in, false
		}
		for _, c := range m.Calls {
			arguments := string(c.Function.Arguments)
			if json.Unmarshal(c.Function.Arguments, &arguments) != nil {
				arguments = string(c.Function.Arguments)
			}
			msg.Calls = append(msg.Calls, toolcall.Call{ID: c.ID, Name: c.Function.Name, Arguments: arguments})
		}
		in.Messages = append(in.Messages, msg)
	}
	for _, tool := range c.Vars.Tools {
		if tool.Function == nil {
			return in, false
		}
		in.Tools = append(in.Tools, toolcall.Tool{Name: tool.Function.Name, Description: tool.Function.Description,
			Parameters: tool.Function.Parameters})
	}
	return in, len(in.Messages) > 0
}

// What is prepared for a template is rendered as published wherever the published rendering is whole.
func TestPreparedAsPublished(t *testing.T) {
	var cases []publishedCase
	var golden map[string]map[string]struct{ Out, Refused, Error *string }
	unzipped(t, "conversations.json.gz", &cases)
	unzipped(t, "golden.json.gz", &golden)
	sources := published(t)
	tried, same, changed := 0, 0, 0
	for name, outcomes := range golden {
		tmpl, err := Compile(sources[name+".jinja"])
		if err != nil {
			t.Fatal(name, err)
		}
		for i := range cases {
			want := outcomes[cases[i].Name]
			in, ok := cases[i].input()
			if !ok || want.Out == nil {
				continue
			}
			tried++
			out, notes, err := tmpl.RenderChanged(in)
			switch {
			case err != nil:
				t.Errorf("%s: %s: %v", name, cases[i].Name, err)
			case out == *want.Out:
				same++
			default:
				if len(notes) == 0 {
					changed++
				}
				t.Logf("%s: %s: %v\n got %q\nwant %q", name, cases[i].Name, notes, out, *want.Out)
			}
		}
	}
	if same < 1490 {
		t.Errorf("%d of %d outputs are as published; want 1490", same, tried)
	}
	t.Logf("of %d published outputs %d are rendered as published, %d are changed without a note", tried, same, changed)
}
