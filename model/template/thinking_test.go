package template

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/model/toolcall"
)

// familyOutputs are the outputs of testdata/thinking.py for one template.
type familyOutputs struct {
	Published bool
	SHA256    string
	Outputs   map[string]*string
}

// engineTemplate is a template of the engine's source, "" where that is not on this machine.
func engineTemplate(name, sum string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	files, _ := filepath.Glob(filepath.Join(cache, "uma-serve/engine/*/tree/models/templates", name+".jinja"))
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && fmt.Sprintf("%x", sha256.Sum256(b)) == sum {
			return string(b)
		}
	}
	return ""
}

// thinkingTalks are the conversations of testdata/thinking.py.
func thinkingTalks() map[string]Input {
	find := toolcall.Tool{Name: "find", Description: "Finds things.", Parameters: []byte(`{"type": "object", ` +
		`"properties": {"thing": {"type": "string", "description": "what"}}, "required": ["thing"]}`)}
	user := func(text string) Message { return Message{Role: "user", Content: text} }
	said := func(thought string) Message {
		return Message{Role: "assistant", ReasoningContent: thought, Content: "On the mat."}
	}
	called := Message{Role: "assistant", ReasoningContent: "I should look.",
		Calls: []toolcall.Call{{ID: "call00001", Name: "find", Arguments: `{"thing": "cat"}`}}}
	result := Message{Role: "tool", Content: "on the mat", CallID: "call00001", Name: "find"}
	a, b := user("Where is the cat?"), user("And the dog?")
	return map[string]Input{
		"turns":  {Messages: []Message{a, said("It may be in."), b}},
		"tools":  {Messages: []Message{a, called, result, said("So it is in."), b}, Tools: []toolcall.Tool{find}},
		"within": {Messages: []Message{a, called, result}, Tools: []toolcall.Tool{find}},
	}
}

// TestThinkingAsJinja2: a mode, an effort and the choice about past thoughts render, with the templates of families
// that think, what Jinja2 renders with the template's own words for it, byte for byte.
func TestThinkingAsJinja2(t *testing.T) {
	f, err := os.Open("testdata/thinking.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var families map[string]familyOutputs
	if err := json.NewDecoder(z).Decode(&families); err != nil {
		t.Fatal(err)
	}
	settings := map[string]Thinking{"default": {}, "off": {Mode: ModeOff}, "on": {Mode: ModeOn}, "low": {Effort: "low"},
		"medium": {Effort: "medium"}, "high": {Effort: "high"}, "max": {Effort: "max"}, "keep": {Past: PastKept},
		"drop": {Past: PastDropped}}
	sources, talks := published(t), thinkingTalks()
	compared, tried := 0, 0
	for name, family := range families {
		source := sources[name+".jinja"]
		if !family.Published {
			source = engineTemplate(name, family.SHA256)
		}
		if source == "" {
			t.Logf("%s: its template is not on this machine", name)
			continue
		}
		tmpl, err := Compile(source)
		if err != nil {
			t.Fatal(name, err)
		}
		tried++
		sw := tmpl.Switch("<s>", "</s>")
		for key, want := range family.Outputs {
			if want == nil {
				continue // Jinja2 itself fails
			}
			setting, talk, _ := strings.Cut(key, " ")
			th, ok := settings[setting]
			in, ok2 := talks[talk]
			if !ok || !ok2 {
				t.Fatalf("%s: %q is not known", name, key)
			}
			in.AddGenerationPrompt, in.BOS, in.EOS, in.Extra = true, "<s>", "</s>", sw.Vars(th)
			in.Now = time.Date(2026, 3, 7, 9, 5, 2, 0, time.UTC)
			in.Messages = slices.Clone(in.Messages)
			if suffix := sw.Suffix(th); suffix != "" {
				in.Messages[len(in.Messages)-1].Content += suffix
			}
			if th.Past == PastDropped && !sw.DropsPast() {
				LeaveOutPast(in.Messages)
			}
			got, err := tmpl.Render(in)
			compared++
			if err != nil || got != *want {
				t.Errorf("%s, %s, %v: %v\n got %q\nwant %q", name, key, in.Extra, err, got, *want)
			}
		}
	}
	t.Logf("%d outputs of %d templates compared", compared, tried)
	if tried < 17 || compared < 400 {
		t.Errorf("%d outputs of %d templates compared", compared, tried)
	}
}

// TestPast: the variable about past thoughts is found with its values, and no other is taken for one.
func TestPast(t *testing.T) {
	const thought = `{% if m.reasoning_content and (WHEN) %}[{{ m.reasoning_content }}]{% endif %}`
	for when, want := range map[string]string{
		`clear_thinking is defined and not clear_thinking`: "[clear_thinking] map[clear_thinking:false]",
		`preserve_thinking`: "[preserve_thinking] map[preserve_thinking:true]",
		`past_reasoning == 'all' or past_reasoning == 'x' and loop.last`: "[past_reasoning] map[past_reasoning:all]",
		`thinking and not drop_thinking`:                                 "[drop_thinking] map[drop_thinking:false]",
		`enable_thinking or keep_thinking`:                               "[keep_thinking] map[keep_thinking:true]",
		`loop.last`:                                                      "[] map[]",
		`preserve_thinking or true`:                                      "[] map[]",
		`reasoning_kept`:                                                 "[] map[]", // no such name is known
	} {
		source := `{% for m in messages %}{{ m.role + ': ' + m.content }}` + strings.Replace(thought, "WHEN", when, 1) +
			"\n" + `{% endfor %}{% if thinking %}think{% endif %}{% if enable_thinking %}think{% endif %}`
		tmpl, err := Compile(source)
		if err != nil {
			t.Fatal(when, err)
		}
		sw := tmpl.Switch("", "")
		if got := fmt.Sprint(sw.PastNames(), sw.Vars(Thinking{Past: PastKept})); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	// A variable that changes the opening of an answer is about more than the past.
	tmpl, err := Compile(`{% for m in messages %}{{ m.role + m.content }}{% if not skip_thinking %}{{ ` +
		`m.reasoning_content }}{% endif %}{% endfor %}{% if not skip_thinking %}<think>{% endif %}`)
	if err != nil {
		t.Fatal(err)
	}
	if names := tmpl.Switch("", "").PastNames(); names != nil {
		t.Errorf("%q", names)
	}
}
