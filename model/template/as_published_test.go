package template

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/model/template/jinja"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

func unzipped(t *testing.T, name string, dst any) {
	t.Helper()
	f, err := os.Open("jinja/testdata/published/" + name)
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
		Opening bool   `json:"add_generation_prompt"`
		BOS     string `json:"bos_token"`
		EOS     string `json:"eos_token"`
	}
	extra map[string]any // other variables
}

// UnmarshalJSON reads the other variables too.
func (c *publishedCase) UnmarshalJSON(data []byte) error {
	type plain publishedCase
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	var all struct{ Vars map[string]any }
	err := json.Unmarshal(data, &all)
	for _, name := range []string{"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"} {
		delete(all.Vars, name)
	}
	c.extra = all.Vars
	return err
}

// asPython is JSON with the white space of Python's json.dumps, as clients in Python send it.
func asPython(data []byte) string {
	v, err := jinja.ParseJSON(data)
	if err != nil {
		return string(data)
	}
	tmpl, err := jinja.Compile("{{ v|tojson }}")
	if err != nil {
		return string(data)
	}
	out, err := tmpl.Render(map[string]any{"v": v}, jinja.DefaultLimits, time.Time{})
	if err != nil {
		return string(data)
	}
	return out
}

// input returns the conversation; false where a client cannot send it so.
func (c *publishedCase) input() (in Input, ok bool) {
	in = Input{AddGenerationPrompt: c.Vars.Opening, BOS: c.Vars.BOS, EOS: c.Vars.EOS,
		Now: time.Date(2026, 3, 7, 9, 5, 2, 0, time.UTC)}
	in.Extra = c.extra
	for _, m := range c.Vars.Messages {
		msg := Message{Role: m.Role, ReasoningContent: m.Reasoning, Name: m.Name, CallID: m.CallID}
		if m.Content != nil && json.Unmarshal(m.Content, &msg.Content) != nil {
			return in, false
		}
		for _, c := range m.Calls {
			arguments := string(c.Function.Arguments)
			if json.Unmarshal(c.Function.Arguments, &arguments) != nil {
				arguments = asPython(c.Function.Arguments)
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

// whyDifferent says why a rendering without a note is meant to differ from the published one, "" for no known reason.
func whyDifferent(got, want string) string {
	const today, theirs = "07 Mar 2026", "26 Jul 2024"
	has := func(text string) bool { return strings.Contains(got, text) && !strings.Contains(want, text) }
	lacks := func(text string) bool { return strings.Contains(want, text) && !strings.Contains(got, text) }
	switch got = strings.ReplaceAll(got, today, theirs); {
	case got == want:
		return "date_string is today's date, as with llama.cpp; the published rendering has the template's default"
	case has("You can call the functions below."):
		return "tools that the template does not show are described in the system message"
	case lacks(`"return"`), lacks("<return>"), lacks(`"strict"`), lacks("-> dict"):
		return "a request's tools have a name, a description and parameters, and no other members"
	case lacks("None"):
		return "a message without content is handed over as the template takes it, never as the word None"
	case has("thought"), has("<think>t</think>"):
		return "a past thought is handed over under the name that the template reads"
	case lacks(`"{\"`), lacks("{{"), lacks(`json type="object"`):
		return "arguments are rendered as an object, not as a string that holds one"
	case has("é"):
		return "arguments are rendered as they were written, where the template takes a text"
	case lacks("<|tool_call_start|>[]"), lacks("[AVAILABLE_TOOLS][]"), lacks("assistant<|im_end|>"):
		return "an empty list of calls or tools is none"
	case strings.Count(got, "to=functions.now") > strings.Count(want, "to=functions.now"):
		return "a call always has the type function"
	case strings.Count(got, "<|function_call|>") > strings.Count(want, "<|function_call|>"):
		return "calls of which the template renders one are divided into messages"
	case has(`{"text": "Text one", "title"`):
		return "this test does not keep the order of documents' members"
	}
	return ""
}

// What is prepared for a template is rendered as published wherever the published rendering is whole.
func TestPreparedAsPublished(t *testing.T) {
	var cases []publishedCase
	var golden map[string]map[string]struct{ Out, Refused, Error *string }
	unzipped(t, "conversations.json.gz", &cases)
	unzipped(t, "golden.json.gz", &golden)
	sources := published(t)
	tried, same, changed, unknown := 0, 0, 0, 0
	reasons := map[string]int{}
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
				if len(notes) > 0 {
					break
				}
				changed++
				if why := whyDifferent(out, *want.Out); why != "" {
					reasons[why]++
					continue
				}
				unknown++
				t.Logf("%s: %s: %v\n got %q\nwant %q", name, cases[i].Name, notes, out, *want.Out)
			}
		}
	}
	if same < 1540 {
		t.Errorf("%d of %d outputs are as published; want 1540", same, tried)
	}
	for why, n := range reasons {
		t.Logf("%d: %s", n, why)
	}
	if unknown > 0 {
		t.Errorf("%d renderings differ from the published ones without a note or a known reason", unknown)
	}
	t.Logf("of %d published outputs %d are rendered as published, %d are changed without a note", tried, same, changed)
}
