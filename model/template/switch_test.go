package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/model/tags"
)

// turn is a template of one format with a generation prompt.
func turn(generation string) string {
	return `{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}{% if add_generation_prompt ` +
		`%}assistant: ` + generation + `{% endif %}`
}

// TestSwitch: the switch of a template is found, and settings are translated to its words.
func TestSwitch(t *testing.T) {
	for _, c := range []struct {
		name, source string
		names        string
		want         map[string]string // wish → variables
	}{
		{"none", turn(``), "", map[string]string{"off": "map[]", "on": "map[]", "high": "map[]"}},
		{"enable_thinking that shuts", turn(
			`{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}`),
			"enable_thinking",
			map[string]string{"off": "map[enable_thinking:false]", "on": "map[enable_thinking:true]",
				"minimal": "map[]", "low": "map[enable_thinking:true]"}},
		{"shut unless it is told to think", turn(`<think>{% if not enable_thinking %}</think>{% endif %}`),
			"enable_thinking", map[string]string{"off": "map[enable_thinking:false]",
				"auto": "map[enable_thinking:true]", "": "map[enable_thinking:true]", "minimal": "map[]",
				"low": "map[enable_thinking:true]"}},
		{"shut by its author", turn(`<think>{% if not thinking|default(false) %}</think>{% endif %}`), "thinking",
			map[string]string{"off": "map[thinking:false]", "auto": "map[]", "": "map[]", "on": "map[thinking:true]"}},
		{"another prompt unless it is told to think", turn(`{{ '<think>' if thinking else '</think>' }}`), "thinking",
			map[string]string{"auto": "map[]", "": "map[]", "on": "map[thinking:true]"}},
		{"two names for it", turn(`{% if not thinking is defined %}{% set thinking = enable_thinking|default(false) ` +
			`%}{% endif %}{{ '<think>' if thinking else '</think>' }}`), "enable_thinking thinking",
			map[string]string{"off": "map[enable_thinking:false thinking:false]"}},
		{"a message's field is no variable", turn(`{{ messages[0].thinking }}{{ messages[0]['reasoning'] }}`), "",
			map[string]string{"off": "map[]"}},
		{"a name that is about the past",
			turn(`{% if preserve_thinking %}x{% endif %}{% if keep_past_reasoning %}y{% endif %}`), "",
			map[string]string{"on": "map[]"}},
		{"a variable that is read and changes nothing", turn(`{% set x = enable_thinking %}`), "",
			map[string]string{"on": "map[]"}},
		{"printed effort", turn(`{{ reasoning_effort|default('medium') }}`), "reasoning_effort",
			map[string]string{"off": "map[reasoning_effort:low]", "on": "map[]",
				"medium": "map[reasoning_effort:medium]", "max": "map[reasoning_effort:high]"}},
		{"effort with a word for none",
			turn(`{% if reasoning_effort|default('none') == 'none' %}a{% elif reasoning_effort == 'low' %}b{% else ` +
				`%}c{% endif %}`), "reasoning_effort",
			map[string]string{"off": "map[reasoning_effort:none]", "on": "map[reasoning_effort:high]",
				"low": "map[reasoning_effort:low]"}},
		{"effort only as a word for none",
			turn(`{% set on = not (reasoning_effort is defined and reasoning_effort|lower == 'none') %}{{ '<t>' if ` +
				`on else '' }}`), "", nil},
		{"a mode", turn(`{% if thinking_mode|default('adaptive') == 'enabled' %}e{% elif thinking_mode == 'disabled' ` +
			`%}d{% elif thinking_mode == 'adaptive' %}a{% endif %}`), "thinking_mode",
			map[string]string{"off": "map[thinking_mode:disabled]", "on": "map[thinking_mode:enabled]",
				"auto": "map[thinking_mode:adaptive]", "high": "map[thinking_mode:enabled]"}},
		{"a truth value and an effort",
			turn(`{% if thinking|default(true) %}{{ '<' ~ thinking_effort|default('max') ~ '>' }}{% if ` +
				`thinking_effort is defined and thinking_effort not in ['low', 'high', 'max'] %}{{ ` +
				`raise_exception('no') }}{% endif %}{% endif %}`),
			"thinking thinking_effort", map[string]string{"off": "map[thinking:false]", "on": "map[thinking:true]",
				"low": "map[thinking:true thinking_effort:low]", "xhigh": "map[thinking:true thinking_effort:max]"}},
		{"an effort behind other names",
			turn(`{% set ns = namespace(e=reasoning_effort|default('high')) %}{% if ns.e not in ['high', 'low'] %}{{ ` +
				`raise_exception('no') }}{% endif %}{{ ns.e }}`), "reasoning_effort",
			map[string]string{"medium": "map[reasoning_effort:high]", "minimal": "map[reasoning_effort:low]",
				"off": "map[reasoning_effort:low]"}},
		{"a mode behind another name", turn(
			`{% set mode = thinking_mode|default('auto') %}{{ {'disabled': 'd', 'auto': 'a'}[mode] if mode in ` +
				`['disabled', 'auto'] else 'e' }}{% if mode == 'enabled' %}{% endif %}`), "thinking_mode",
			map[string]string{"off": "map[thinking_mode:disabled]", "auto": "map[thinking_mode:auto]",
				"on": "map[thinking_mode:enabled]"}},
		{"a budget", turn(`{% if thinking_budget is defined %}{{ thinking_budget * 2 }}{% endif %}`), "thinking_budget",
			map[string]string{"off": "map[thinking_budget:0]", "on": "map[]", "budget": "map[thinking_budget:99]"}},
		{"an unknown name", turn(`{% if use_reasoning %}<t>{% endif %}`), "use_reasoning",
			map[string]string{"off": "map[use_reasoning:false]"}},
		{"a word in the text", turn(`{% if '/no_think' in messages[-1].content %}x{% endif %}`), "", nil},
	} {
		tmpl, err := Compile(c.source)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		sw := tmpl.Switch("", "")
		if names := strings.Join(sw.Names(), " "); c.want != nil && names != c.names {
			t.Errorf("%s: names %q, want %q", c.name, names, c.names)
		}
		for wish, want := range c.want {
			th := Thinking{Effort: wish}
			switch wish {
			case "off", "on", "auto":
				th = Thinking{Mode: map[string]Mode{"off": ModeOff, "on": ModeOn, "auto": ModeAuto}[wish]}
			case "budget":
				th = Thinking{Budget: 99}
			}
			if got := fmt.Sprint(sw.Vars(th)); got != want {
				t.Errorf("%s, %s: %s, want %s", c.name, wish, got, want)
			}
		}
		// The template accepts every setting.
		for _, th := range []Thinking{{Mode: ModeOff}, {Mode: ModeOn}, {Mode: ModeAuto}, {Effort: "minimal"},
			{Effort: "medium", Mode: ModeOn}, {Effort: "max", Budget: 7}} {
			if _, err := tmpl.Render(Input{Messages: []Message{{Role: "user", Content: "x"}}, AddGenerationPrompt: true,
				Extra: sw.Vars(th)}); err != nil {
				t.Errorf("%s, %+v: %v", c.name, th, err)
			}
		}
	}
}

// TestDate: templates learn today's date under the names that they use, and a caller's own date counts.
func TestDate(t *testing.T) {
	const llama = `{% if not date_string is defined %}{% set date_string = "26 Jul 2024" %}{% endif %}`
	tmpl, err := Compile(llama + `{{ messages[0].content + date_string }}{{ strftime_now("|%d %b %Y") }}`)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Messages: []Message{{Role: "user", Content: "x"}}, Now: time.Date(2026, 3, 5, 9, 0, 0, 0, time.UTC)}
	for want, extra := range map[string]map[string]any{
		"x05 Mar 2026|05 Mar 2026": nil, "xtoday|05 Mar 2026": {"date_string": "today"},
	} {
		in.Extra = extra
		if got, err := tmpl.Render(in); got != want || err != nil {
			t.Errorf("%v: %q, %v; want %q", extra, got, err, want)
		}
	}
}

// TestSwitchSuffix: a template that reads a word in the user's text is switched with that word, if it removes the word.
func TestSwitchSuffix(t *testing.T) {
	for source, want := range map[string]string{
		`{% for m in messages %}{{ m.content|replace('/no_think', '') }}{% if '/no_think' in m.content ` +
			`%}<think></think>{% endif %}{% endfor %}`: " /no_think",
		`{% for m in messages %}{{ m.content }}{% if '/no_think' in m.content %}<think></think>{% endif %}{% endfor ` +
			`%}`: "",
	} {
		tmpl, err := Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		sw := tmpl.Switch("", "")
		if got := sw.Suffix(Thinking{Mode: ModeOff}); got != want || sw.Suffix(Thinking{Mode: ModeOn}) != "" {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

func TestBuiltin(t *testing.T) {
	in := Input{Messages: []Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi"},
		{Role: "assistant", Content: "Hello"}, {Role: "user", Content: "Bye"}},
		AddGenerationPrompt: true, BOS: "<s>", EOS: "</s>"}
	want := map[string]string{
		"chatml": "<|im_start|>system\nBe " +
			"brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n" +
			"<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
		"llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe " +
			"brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n" +
			"Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n" +
			"Hello<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n" +
			"Bye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		"llama2":  "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]",
		"mistral": "<s>[INST] Be brief.\n\nHi[/INST] Hello</s>[INST] Bye[/INST]",
		"gemma": "<s><start_of_turn>user\nBe " +
			"brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n<start_of_turn>user\n" +
			"Bye<end_of_turn>\n<start_of_turn>model\n",
		"phi3": "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\n" +
			"Bye<|end|>\n<|assistant|>\n",
		"zephyr": "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n" +
			"<|assistant|>\n",
		"vicuna":   "<s>Be brief.\n\nUSER: Hi\nASSISTANT: Hello</s>\nUSER: Bye\nASSISTANT:",
		"deepseek": "<s>Be brief.<｜User｜>Hi<｜Assistant｜>Hello<｜end▁of▁sentence｜><｜User｜>Bye<｜Assistant｜>",
		"command-r": "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be " +
			"brief.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|><|START_OF_TURN_T" +
			"OKEN|><|CHATBOT_TOKEN|>Hello<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_T" +
			"OKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
		"granite": "<|start_of_role|>system<|end_of_role|>Be " +
			"brief.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Hi<|end_of_text|>\n" +
			"<|start_of_role|>assistant<|end_of_role|>Hello<|end_of_text|>\n" +
			"<|start_of_role|>user<|end_of_role|>Bye<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
	}
	doc, err := os.ReadFile("../../docs/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range BuiltinNames() {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/templates.md does not list %s", name)
		}
		text, ok := Builtin(name)
		tmpl, err := Compile(text)
		if !ok || err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := tmpl.Render(in); err != nil || got != want[name] {
			t.Errorf("%s: %v\n got %q\nwant %q", name, err, got, want[name])
		}
	}
	if len(BuiltinNames()) != len(want) {
		t.Errorf("%q", BuiltinNames())
	}
	for _, name := range []string{"", ".", "../chatml", "builtin/chatml", "nosuch"} {
		if _, ok := Builtin(name); ok {
			t.Errorf("%q is a built-in template", name)
		}
	}
}

func TestForVocab(t *testing.T) {
	for tokens, want := range map[string]string{
		"<|im_start|> <|im_end|>": "chatml", "<|start_header_id|> <|eot_id|>": "llama3", "[INST] [/INST]": "mistral",
		"<start_of_turn> <end_of_turn>":  "gemma",
		"<|user|> <|assistant|> <|end|>": "phi3", "<|user|> <|assistant|>": "zephyr", "": DefaultBuiltin,
		"<|im_start|>": DefaultBuiltin,
	} {
		if got := ForVocab(func(s string) bool { return strings.Contains(" "+tokens+" ", " "+s+" ") }); got != want {
			t.Errorf("%q: %s, want %s", tokens, got, want)
		}
	}
}

// TestPublishedTemplates: the family and the switch of templates as they are published, where the collection is
// present.
func TestPublishedTemplates(t *testing.T) {
	published, err := os.ReadFile("../../../shared/golden/templates/templates.tar.gz")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the collection of published templates is not beside the repository; TestSwitch and meridian's " +
			"TestFamilies hold the formats")
	}
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]struct{ open, off, high string }{
		"Apertus-8B-Instruct": {"<|inner_prefix|>", "map[enable_thinking:false]",
			"map[enable_thinking:true]"},
		"Cohere2MoE":    {"<|START_THINKING|>", "map[reasoning:false]", "map[reasoning:true]"},
		"GLM-4.7-Flash": {"<think>", "map[enable_thinking:false]", "map[enable_thinking:true]"},
		"Kimi-K3": {"<|open|>think<|sep|>", "map[thinking:false]",
			"map[thinking:true thinking_effort:high]"},
		"MiniMax-M2":      {"<think>", "map[]", "map[]"},
		"Qwen-Qwen3-0.6B": {"<think>", "map[enable_thinking:false]", "map[enable_thinking:true]"},
		"deepseek-ai-DeepSeek-V3.1": {"<think>", "map[enable_thinking:false thinking:false]",
			"map[enable_thinking:true thinking:true]"},
		"google-gemma-4-31B-it": {"<|channel>thought", "map[enable_thinking:false]",
			"map[enable_thinking:true]"},
		"ibm-granite-granite-3.3-2B-Instruct": {"<think>", "map[thinking:false]", "map[thinking:true]"},
		"muse-glimmer": {" to=self<|message|>", "map[reasoning_strength:low]",
			"map[reasoning_strength:high]"},
		"openai-gpt-oss-120b": {"<|channel|>analysis<|message|>", "map[reasoning_effort:low]",
			"map[reasoning_effort:high]"},
		"poolside-Laguna-XS-2.1": {"<think>", "map[enable_thinking:false]", "map[enable_thinking:true]"},
		"tencent-Hy3": {"<think:opensource>", "map[reasoning_effort:no_think]",
			"map[reasoning_effort:high]"},
		"llama-cpp-rwkv-world":             {"<think>", "map[enable_thinking:false]", "map[enable_thinking:true]"},
		"Qwen3-Coder":                      {"", "map[]", "map[]"},
		"MiMo-VL":                          {"", "map[]", "map[]"},
		"meta-llama-Llama-3.1-8B-Instruct": {"", "map[]", "map[]"},
	}
	zip, err := gzip.NewReader(bytes.NewReader(published))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for files := tar.NewReader(zip); ; {
		h, err := files.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(path.Base(h.Name), ".jinja")
		source, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := Compile(string(source))
		if err != nil {
			continue // the interpreter's own tests name it
		}
		sw := tmpl.Switch("<s>", "</s>")
		for _, th := range []Thinking{{Mode: ModeOff}, {Mode: ModeOn}, {Effort: "medium"},
			{Effort: "max", Budget: 100}} {
			_, err := tmpl.Render(Input{Messages: []Message{{Role: "user", Content: "x"}}, AddGenerationPrompt: true,
				BOS: "<s>", EOS: "</s>", Extra: sw.Vars(th)})
			if err != nil {
				t.Errorf("%s: %+v: %v", name, th, err)
			}
		}
		w, ok := want[name]
		if !ok {
			continue
		}
		seen++
		open := ""
		if f, ok := tags.InTemplate(tmpl.Texts("<s>", "</s>")); ok {
			open = f.Open[0]
		}
		off, high := fmt.Sprint(sw.Vars(Thinking{Mode: ModeOff})), fmt.Sprint(sw.Vars(Thinking{Effort: "high"}))
		if open != w.open || off != w.off || high != w.high {
			t.Errorf("%s: opens with %q, off %s, high %s; want %+v", name, open, off, high, w)
		}
	}
	if seen != len(want) {
		t.Errorf("%d of %d templates were seen", seen, len(want))
	}
}
