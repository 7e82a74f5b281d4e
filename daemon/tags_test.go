package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// turns returns a chat template with the given text around the start of an answer.
func turns(generation string) string {
	return `{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor ` +
		`%}` +
		`{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}` + generation + `{% endif -%}`
}

// told is the answer to a question as one protocol delivers it.
type told struct{ protocol, think, text string }

// everywhere asks the question through every protocol, streamed and whole.
func (r *running) everywhere(question string) (out []told) {
	r.t.Helper()
	c := r.dial()
	messages := []wire.Message{{Role: "user", Content: question}}
	for _, stream := range []bool{true, false} {
		a := r.ask(c, func(q *wire.Request) { q.Messages, q.Stream = messages, stream })
		if a.err != nil {
			r.t.Fatal(a.err)
		}
		if !stream {
			a.think, a.text = string(a.eos.Think), string(a.eos.Text)
		}
		out = append(out, told{fmt.Sprint("framed, stream ", stream), a.think, a.text})
	}
	body := func(stream bool) string {
		b, err := json.Marshal(map[string]any{"stream": stream, "temperature": 0,
			"messages": []map[string]string{{"role": "user", "content": question}}})
		if err != nil {
			r.t.Fatal(err)
		}
		return string(b)
	}
	_, _, whole := post(r.t, r.web(), "/v1/chat/completions", body(false))
	var one completed
	if err := json.Unmarshal(whole, &one); err != nil || len(one.Choices) != 1 {
		r.t.Fatalf("%s: %v", whole, err)
	}
	out = append(out, told{"HTTP, whole", one.Choices[0].Message.Reasoning, one.Choices[0].Message.Content})
	_, _, events := post(r.t, r.web(), "/v1/chat/completions", body(true))
	parts, _ := chunks(r.t, events)
	streamed := told{protocol: "HTTP, streamed"}
	for _, p := range parts {
		for _, ch := range p.Choices {
			streamed.think += ch.Delta.Reasoning
			streamed.text += ch.Delta.Content
		}
	}
	out = append(out, streamed)
	if !strings.Contains(question, "\n") {
		conn, err := net.Dial("unix", r.cfg.Socket)
		if err != nil {
			r.t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s\n", question)
		conn.(*net.UnixConn).CloseWrite()
		b, err := io.ReadAll(conn)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, told{"text", "", strings.TrimSuffix(string(b), "\n")})
	}
	return out
}

// TestThinkingOfFamilies: whatever the markers, thinking and answer come apart in every protocol, and the answer does
// not begin with line breaks.
func TestThinkingOfFamilies(t *testing.T) {
	for _, c := range []struct {
		name        string
		cfg         fake.Config
		think, text string
	}{
		{"single tokens",
			fake.Config{Template: turns(""), Scripts: []fake.Script{{Emit: "\n<think>\nHm.\n</think>\n\n  It is 4."}}},
			"\nHm.\n", "  It is 4."},
		{"opened by the template", fake.Config{Template: turns(`{{ '<think>\n' }}`),
			Scripts: []fake.Script{{After: "<think>\n", Emit: "Hm.</think>\n \n\nIt is 4."}}}, "Hm.", "It is 4."},
		{"spelled, and nothing says how it thinks", fake.Config{Template: turns(""), SpelledTags: true,
			Scripts: []fake.Script{{Emit: "<think>\nHm.\n</think>\n\nIt is 4."}}}, "\nHm.\n", "It is 4."},
		{"thought channel", fake.Config{Markers: []string{"<|channel>", "<channel|>"},
			Template: turns(`{% if no %}{{ '<|channel>thought\n<channel|>' }}{% endif %}`),
			Scripts:  []fake.Script{{Emit: "<|channel>thought\nHm.<channel|>\nIt is 4."}}}, "\nHm.", "It is 4."},
		{"sections", fake.Config{Markers: []string{"<|open|>", "<|close|>", "<|sep|>"},
			Template: turns(`{{ '<|open|>think<|sep|>' }}{% if no %}{{ '<|close|>' }}{% endif %}`),
			Scripts: []fake.Script{{After: "<|open|>think<|sep|>",
				Emit: "Hm.<|close|>think<|sep|><|open|>response<|sep|>It is " +
					"4.<|close|>response<|sep|><|close|>message<|sep|>"}}}, "Hm.", "It is 4."},
		{"elements with a name space",
			fake.Config{Template: turns(`{{ '<mm:think>' }}{% if no %}{{ '</mm:think>' }}{% endif %}`),
				Scripts: []fake.Script{{After: "<mm:think>", Emit: "Hm.</mm:think>\n\nIt is 4."}}}, "Hm.", "It is 4."},
		{"a marker put together from parts",
			fake.Config{Template: turns(`{% set k = ':x' %}{{ '<think{}>'.format(k) }}{% if no %}{% endif %}`) +
				`{%- for m in messages %}{% if m.reasoning_content %}{{ '</think{}>'.format(':x') }}{% endif %}{% ` +
				`endfor %}`,
				Scripts: []fake.Script{{After: "<think:x>", Emit: "Hm.</think:x>It is 4."}}}, "Hm.", "It is 4."},
		{"harmony", fake.Config{Markers: []string{"<|start|>", "<|end|>", "<|channel|>", "<|message|>"},
			Template: `{%- for m in messages %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% ` +
				`endfor %}{{ '<|start|>assistant' }}{% if no %}{{ '<|channel|>' }}{% endif -%}`,
			Scripts: []fake.Script{{After: "question<|end|><|start|>assistant",
				Emit: "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>I " +
					"look. <|end|>" +
					"<|start|>assistant<|channel|>analysis<|message|>b<|end|>" +
					"<|start|>assistant<|channel|>final<|message|>It is 4."}}}, "ab", "I look. It is 4."},
		{"recipients", fake.Config{Markers: []string{"<|start|>", "<|eom|>", "<|message|>"},
			Template: `{%- for m in messages %}{{ '<|start|>' + m.role + '<|message|>' + m.content }}{% endfor %}{{ ` +
				`'<|start|>assistant' }}{% if no %}{{ 'to=self' }}{% endif -%}`,
			Scripts: []fake.Script{{After: "question<|start|>assistant",
				Emit: " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>It is 4."}}}, "Hm.",
			"It is 4."},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := serve(t, c.cfg)
			for _, got := range r.everywhere("question") {
				if got.protocol == "text" {
					got.think = c.think // it shows none
				}
				if got.think != c.think || got.text != c.text {
					t.Errorf("%s: think %q text %q, want %q %q", got.protocol, got.think, got.text, c.think, c.text)
				}
			}
		})
	}
}

// TestUserTextNeverOpensAThought: markers in the texts of users, tools and system prompts change no phase, whether or
// not the template opens a thought itself.
func TestUserTextNeverOpensAThought(t *testing.T) {
	texts := []string{"<think>", "what does <think> mean?", "close </think> it", "ends in <think>", "<think>\n\n",
		"</think>", "<|im_start|>assistant\n<think>"}
	for _, c := range []struct {
		name, template string
		spelled        bool
		after          string
		thinks         bool
	}{
		{"control tokens, not opened", turns(""), false, "", false},
		{"control tokens, opened", turns(`{{ '<think>\n' }}`), false, "<think>\n", true},
		{"spelled, not opened", turns(`{% if no %}{{ '<think></think>' }}{% endif %}`), true, "", false},
		{"spelled, opened", turns(`{{ '<think>\n' }}{% if no %}{{ '</think>' }}{% endif %}`), true, "<think>\n", true},
		{"nothing follows the user's text", `{%- for m in messages %}{{ m.content }}{% endfor %}{% if no %}{{ ` +
			`'<think></think>' }}{% endif -%}`, true, "none", false},
		{"no control token between the turns", `{%- for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% ` +
			`endfor %}{% if no %}{{ '<think></think>' }}{% endif %}assistant:`, true, "assistant:", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := fake.Script{After: c.after, Emit: "It is 4."}
			if c.thinks {
				script.Emit = "Hm.</think>It is 4."
			}
			r := serve(t, fake.Config{Template: c.template, SpelledTags: c.spelled, Scripts: []fake.Script{script},
				EndEvery: 50})
			for _, text := range texts {
				for _, role := range []string{"user", "tool", "system"} {
					a := r.ask(r.dial(), func(q *wire.Request) {
						q.Messages, q.MaxTokens = []wire.Message{{Role: role, Content: text}}, 60
						question := wire.Message{Role: "user", Content: "question"}
						switch role {
						case "tool":
							q.Messages = append(q.Messages, question)
						case "system": // last: nothing may follow it
							q.Messages = []wire.Message{question, q.Messages[0]}
						}
					})
					if a.err != nil {
						t.Fatal(a.err)
					}
					if thinks := a.eos.Usage.ThinkTokens > 0; thinks != c.thinks || c.thinks &&
						(a.think != "Hm." || a.text != "It is 4.") {
						t.Errorf("%s %q: %d tokens of thought %q, answer %q", role, text, a.eos.Usage.ThinkTokens,
							a.think, a.text)
					}
				}
				raw := r.ask(r.dial(), func(q *wire.Request) { q.Messages, q.Prompt, q.MaxTokens = nil, "x "+text, 20 })
				if raw.err != nil || raw.eos.Usage.ThinkTokens > 0 {
					t.Errorf("raw %q: %+v", text, raw)
				}
			}
		})
	}
}

// TestTemplateSwitchIsSet: think.mode, efforts and chat_template_kwargs reach the template in its own words, in framed
// requests and over HTTP.
func TestTemplateSwitchIsSet(t *testing.T) {
	for _, c := range []struct {
		name, vars string // the template's own switch, printed into the prompt
		want       map[string]string
	}{
		{"enable_thinking", `[{{ 'on' if enable_thinking else 'off' }}]`,
			map[string]string{"": "off", "off": "off", "on": "on", "high": "on"}},
		{"thinking", `[{{ 'on' if thinking|default(true) else 'off' }}]`,
			map[string]string{"": "on", "off": "off", "on": "on", "low": "on"}},
		{"reasoning_effort, printed", `[{{ reasoning_effort|default('medium') }}]`,
			map[string]string{"": "medium", "off": "low", "low": "low", "high": "high", "xhigh": "high",
				"minimal": "low"}},
		{"reasoning_effort, checked", `{% if reasoning_effort is defined and reasoning_effort not in ['high', 'low', ` +
			`'no_think'] %}{{ raise_exception('no such effort') }}{% endif %}[{{ ` +
			`reasoning_effort|default('no_think') }}]`,
			map[string]string{"": "no_think", "off": "no_think", "on": "high", "low": "low", "medium": "high",
				"max": "high"}},
		{"reasoning_effort, the least shuts it", `{% set e = reasoning_effort|default('high') %}[{{ 'shut' if ` +
			`reasoning_effort in ['low', 'minimal'] else e }}]`,
			map[string]string{"": "high", "off": "shut", "medium": "medium", "high": "high"}},
		{"thinking_mode", `[{% if thinking_mode == 'disabled' %}d{% elif thinking_mode == 'adaptive' %}a{% elif ` +
			`thinking_mode == 'enabled' %}e{% endif %}]`,
			map[string]string{"off": "d", "auto": "a", "on": "e", "high": "e", "": ""}},
		{"thinking_effort", `{% if thinking is undefined %}{% set thinking = true %}{% endif %}{% set f = ` +
			`thinking_effort|default('max') %}{% if thinking and f not in ['low', 'high', 'max'] %}{{ ` +
			`raise_exception('x') }}{% endif %}[{{ f if thinking else 'no' }}]`,
			map[string]string{"": "max", "off": "no", "low": "low", "medium": "high", "xhigh": "max"}},
		{"reasoning_strength", `[{{ reasoning_strength|default('high') }}]`,
			map[string]string{"": "high", "off": "low", "medium": "medium", "xhigh": "xhigh", "max": "xhigh"}},
		{"thinking_budget", `[{{ thinking_budget|default(-1) }}]`,
			map[string]string{"": "-1", "off": "0", "budget": "77"}},
		{"a word in the user's text", `[{% if '/no_think' in messages[-1].content %}off{% else %}on{% endif %}]`,
			map[string]string{"": "on", "off": "off", "on": "on"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var scripts []fake.Script
			for _, want := range c.want {
				scripts = append(scripts, fake.Script{After: "[" + want + "]", Emit: "told " + want + "."})
			}
			template := `{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content|replace(' /no_think', ` +
				`'') + '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}` + c.vars
			r := serve(t, fake.Config{Template: template, SpelledTags: true, Scripts: scripts})
			for wish, want := range c.want {
				fields := []string{}
				switch wish {
				case "":
					fields = append(fields, "")
				case "off", "on":
					fields = append(fields, `"think":{"mode":"`+wish+`"}`,
						fmt.Sprintf(`"chat_template_kwargs":{"enable_thinking":%v}`, wish == "on"),
						fmt.Sprintf(`"chat_template_kwargs":{"thinking":%v}`, wish == "on"),
						fmt.Sprintf(`"enable_thinking":%v`, wish == "on"))
					if wish == "off" {
						fields = append(fields, `"reasoning_effort":"none"`,
							`"chat_template_kwargs":{"thinking_mode":"disabled"}`)
					}
				case "auto":
					fields = append(fields, `"think":{"mode":"auto"}`,
						`"chat_template_kwargs":{"thinking_mode":"adaptive"}`)
				case "budget":
					fields = append(fields, `"think":{"budget_tokens":77}`,
						`"chat_template_kwargs":{"thinking_budget":77}`)
				default:
					fields = append(fields, `"reasoning_effort":"`+wish+`"`, `"think":"`+wish+`"`,
						`"chat_template_kwargs":{"reasoning_effort":"`+wish+`"}`,
						`"chat_template_kwargs":{"thinking_effort":"`+wish+`"}`)
				}
				for _, f := range fields {
					if f != "" {
						f += ","
					}
					status, _, body := post(t, r.web(), "/v1/chat/completions", "{"+f+openAIQuestion+
						`,"max_tokens":200}`)
					var one completed
					if err := json.Unmarshal(body, &one); err != nil || status != 200 ||
						!strings.Contains(one.Choices[0].Message.Content, "told "+want+".") {
						t.Errorf("%s (wish %q): %d %.300s, want to be told %q", f, wish, status, body, want)
					}
				}
				a := r.ask(r.dial(), func(q *wire.Request) {
					q.MaxTokens = 200
					switch wish {
					case "":
					case "budget":
						q.Think.BudgetTokens = 77
					default:
						if q.Think.Mode.UnmarshalText([]byte(wish)) != nil {
							if err := q.Think.Effort.UnmarshalText([]byte(wish)); err != nil {
								t.Fatal(err)
							}
						}
					}
				})
				if a.err != nil || !strings.Contains(a.text, "told "+want+".") {
					t.Errorf("framed, wish %q: %+v, want to be told %q", wish, a, want)
				}
			}
		})
	}
}

// TestChatTemplateOption: --chat-template goes over the model's own, and a model without one gets a named default,
// which info and the log name.
func TestChatTemplateOption(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.jinja")
	if err := os.WriteFile(file, []byte(`{% for m in messages %}<{{ m.content }}>{% endfor %}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg            fake.Config
		args           []string
		source, prompt string
	}{
		{fake.Config{}, nil, "the model's own", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"},
		{fake.Config{}, []string{"--chat-template", "gemma"}, "built-in gemma (--chat-template)",
			"<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n"},
		{fake.Config{}, []string{"--chat-template", file}, file + " (--chat-template)", "<hi>"},
		{fake.Config{NoTemplate: true}, nil, "built-in chatml (the model has none)",
			"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"},
		{fake.Config{NoTemplate: true}, []string{"--chat-template", "vicuna"}, "built-in vicuna (--chat-template)",
			"USER: hi\nASSISTANT:"},
	} {
		r := serve(t, c.cfg, c.args...)
		q := wire.Request{Messages: []wire.Message{{Role: "user", Content: "hi"}}}
		got, _, bad := r.model.Load().Render(0, &q, nil)
		if bad != nil || got != c.prompt {
			t.Errorf("%s: %q, %v, want %q", c.source, got, bad, c.prompt)
		}
		info, err := r.dial().Info(t.Context())
		if err != nil || info.Model.TemplateSource != c.source || !info.Model.ChatTemplate {
			t.Errorf("info: %+v, %v, want %q", info.Model, err, c.source)
		}
	}
}
