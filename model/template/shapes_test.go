package template

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/model/toolcall"
)

// moreTemplates is a folder of templates beside the published ones of testdata.
var moreTemplates = flag.String("templates", "", "also try the shapes with the templates of this `folder`")

// shape is a conversation of one kind. Each text holds a word that occurs nowhere else.
type shape struct {
	name  string
	turns string // one letter for each message; see turns
	tools bool   // tools are offered
}

// shapes are the kinds of conversations that clients send. The letters: s system, d developer, u user, a assistant, e
// an assistant's empty message, t an assistant's message that is only a thought, c a message with a call, b a call
// beside text, p two calls, n two calls without ids, r a result, q two results, k two results without ids, R two
// results in the other order, o one result of two calls, z a user's empty message. A point opens the next answer, which
// otherwise follows all but an assistant.
var shapes = []shape{
	{"user", "u", false},
	{"system", "su", false},
	{"turns", "suauau", false},
	{"developer", "du", false},
	{"developer and turns", "duau", false},
	{"two systems", "ssu", false},
	{"two systems and turns", "ssuau", false},
	{"system and developer", "sdu", false},
	{"two developers", "ddu", false},
	{"system last", "suaus", false},
	{"system after a user", "us", false},
	{"system between users", "usu", false},
	{"system after the first turn", "uasu", false},
	{"second system after the first turn", "suasu", false},
	{"developer after the first turn", "suadu", false},
	{"system after an answer", "suas", false},
	{"system between answers", "suasau", false},
	{"two systems after the first turn", "suassu", false},
	{"system after each turn", "susasuasusa", false},
	{"two users", "uu", false},
	{"two users at the start", "suuau", false},
	{"three users", "suauuu", false},
	{"two answers", "uaau", false},
	{"two answers, system", "suaaua", false},
	{"empty answer", "ueu", false},
	{"empty answer, system", "suaueu", false},
	{"thought alone", "utu", false},
	{"empty user", "suaz", false},
	{"assistant first", "au", false},
	{"assistant after system", "sau", false},
	{"assistant first, turns", "sauau", false},
	{"system alone", "s", false},
	{"developer alone", "d", false},
	{"no user", "sa", false},
	{"tools", "u", true},
	{"tools and system", "su", true},
	{"tools and developer", "du", true},
	{"tools, later system", "suasu", true},
	{"call", "ucr", true},
	{"call, no tools", "ucru", false},
	{"call and answer", "sucrau", true},
	{"call beside text", "ubrau", true},
	{"result and user", "ucru", true},
	{"result and two users", "sucruu", true},
	{"result, system", "sucrs", true},
	{"result, developer", "sucrd", true},
	{"result, system, user", "sucrsu", true},
	{"result, system, call", "sucrscr", true},
	{"steps", "sucrcrbrau", true},
	{"call without result", "ucu", true},
	{"call without result, answer", "ucau", true},
	{"call without result, call", "uccr", true},
	{"call without result, system", "sucsu", true},
	{"two calls", "upqau", true},
	{"two calls, one result", "upou", true},
	{"two calls, results in the other order", "upRau", true},
	{"two calls without ids", "unkau", true},
	{"two calls, user", "supqu", true},
	{"no user, call", "scr", true},
	{"no user, answer and call", "sacr", true},
	{"call first", "cru", true},
	{"call after system, user", "scru", true},
	{"result without call", "uru", true},
	{"result first", "ru", true},
	{"result after system", "srau", true},
	{"result after answer", "uaru", true},
	{"empty answer before call", "uecrau", true},
	{"answer before call", "uacrau", true},
	{"answer before call beside text", "uabrau", true},
	{"answer before call, no tools", "suaucrabr", false},
	{"developer, system", "dsu", false},
	{"developer, system, turns", "dsuau", false},
	{"developer, two systems", "dssuau", false},
	{"call last", "uc.", true},
	{"call last, turns", "suaubrc.", true},
	{"call beside text last", "ub.", true},
	{"two calls last", "sup.", true},
	{"empty answer last", "ue", false},
	{"empty answer last, turns", "suaue.", false},
	{"calls beside text and answers", "subrbraubrau", true},
}

// build returns the conversation of a shape and the words of its texts, in order.
func (s *shape) build() (in Input, words []string) {
	n := 0
	word := func(kind string) string {
		n++
		w := fmt.Sprintf("%sword%02dx", kind, n)
		words = append(words, w)
		return w
	}
	calls := 0
	call := func() toolcall.Call {
		calls++
		return toolcall.Call{ID: fmt.Sprintf("callid%03d", calls), Name: "get_weather",
			Arguments: fmt.Sprintf(`{"location": "%s"}`, word("arg"))}
	}
	result := func(back int) Message {
		return Message{Role: "tool", CallID: fmt.Sprintf("callid%03d", calls-back), Content: word("result") + " ok"}
	}
	add := func(m ...Message) { in.Messages = append(in.Messages, m...) }
	for _, kind := range s.turns {
		switch kind {
		case 's':
			add(Message{Role: "system", Content: "System " + word("system") + "."})
		case 'd':
			add(Message{Role: "developer", Content: "Developer " + word("developer") + "."})
		case 'u':
			add(Message{Role: "user", Content: "Question " + word("user") + "?"})
		case 'a':
			add(Message{Role: "assistant", Content: "Answer " + word("answer") + "."})
		case 'e':
			add(Message{Role: "assistant"})
		case 't':
			add(Message{Role: "assistant", ReasoningContent: "Thinking."})
		case 'z':
			add(Message{Role: "user"})
		case 'c':
			add(Message{Role: "assistant", Calls: []toolcall.Call{call()}})
		case 'b':
			add(Message{Role: "assistant", Content: "Looking " + word("beside") + ".", Calls: []toolcall.Call{call()}})
		case 'p':
			add(Message{Role: "assistant", Calls: []toolcall.Call{call(), call()}})
		case 'n':
			m := Message{Role: "assistant", Calls: []toolcall.Call{call(), call()}}
			m.Calls[0].ID, m.Calls[1].ID = "", ""
			add(m)
		case 'r':
			add(result(0))
		case 'o':
			add(result(1))
		case 'q':
			add(result(1), result(0))
		case 'k':
			a, b := result(1), result(0)
			a.CallID, b.CallID = "", ""
			add(a, b)
		case 'R':
			a, b := result(0), result(1)
			add(a, b)
		}
	}
	if s.tools {
		in.Tools = offered
		in.Tools = append(in.Tools[:len(in.Tools):len(in.Tools)], toolcall.Tool{Name: "offered_tool_x",
			Description: "Does offered_description_x", Parameters: []byte(`{"type":"object","properties":{}}`)})
	}
	last := in.Messages[len(in.Messages)-1].Role
	in.AddGenerationPrompt = last != "assistant" || strings.HasSuffix(s.turns, ".")
	in.BOS, in.EOS, in.Now = "<s>", "</s>", time.Unix(0, 0)
	return in, words
}

// fault says what is wrong with a rendering: "" for nothing, "lost …", "out of place …".
func (s *shape) fault(out string, words []string, moved bool) string {
	for _, w := range words {
		if !strings.Contains(out, w) {
			return "lost " + w
		}
	}
	if s.tools && !strings.Contains(out, "offered_description_x") {
		return "lost the description of a tool"
	}
	at := func(w string) int { return strings.Index(out, w) }
	if moved { // the template puts the first system prompt into the last turn
		words = slices.DeleteFunc(slices.Clone(words),
			func(w string) bool { return strings.HasPrefix(w, "system") || strings.HasPrefix(w, "developer") })
	}
	if strings.ContainsAny(s.turns, "pn") { // each call and its result, or all calls first
		sorted := slices.Clone(words)
		slices.SortFunc(sorted, func(a, b string) int { return at(a) - at(b) })
		var args, results []string
		for _, w := range sorted {
			if strings.HasPrefix(w, "arg") {
				args = append(args, w)
			} else if strings.HasPrefix(w, "result") {
				results = append(results, w)
			}
		}
		if !slices.IsSorted(args) || !slices.IsSorted(results) && !strings.Contains(s.turns, "R") {
			return "calls out of place: " + strings.Join(sorted, " ")
		}
		words = slices.DeleteFunc(slices.Clone(words),
			func(w string) bool { return strings.HasPrefix(w, "arg") || strings.HasPrefix(w, "result") })
	}
	for i := 1; i < len(words); i++ {
		if strings.HasPrefix(words[i-1], "beside") {
			continue // Gemma 4 has text behind the calls that it stands beside
		}
		if at(words[i]) < at(words[i-1]) {
			return "out of place " + words[i]
		}
	}
	return ""
}

// allTemplates are the published templates, those of published outputs, the built-in ones, and those of -templates.
func allTemplates(t *testing.T) map[string]string {
	all := published(t)
	maps.Copy(all, outputTemplates(t))
	for _, name := range BuiltinNames() {
		all["builtin "+name], _ = Builtin(name)
	}
	if *moreTemplates != "" {
		files, err := filepath.Glob(filepath.Join(*moreTemplates, "*.jinja"))
		if err != nil || files == nil {
			t.Fatalf("-templates %s: no templates, %v", *moreTemplates, err)
		}
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all[filepath.Base(f)] = string(src)
		}
	}
	return all
}

// Every shape of conversation is answered by every template with every text in its place.
func TestShapesAreAnsweredInPlace(t *testing.T) {
	tried, refused, lost, displaced := 0, 0, 0, 0
	for name, src := range allTemplates(t) {
		tmpl, err := Compile(src)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		usual := shape{turns: "suau"}
		in, words := usual.build()
		in.native = true
		out, err := tmpl.Render(in)
		moved := err == nil && strings.HasPrefix(usual.fault(out, words, false), "out of place")
		for i := range shapes {
			s := &shapes[i]
			tried++
			in, words := s.build()
			out, err := tmpl.Render(in)
			if err != nil {
				refused++
				t.Logf("%s: %s (%s) is refused: %v", name, s.name, s.turns, err)
				if !errors.Is(err, ErrRefused) {
					t.Errorf("%s: %s: %v", name, s.name, err)
				}
				continue
			}
			switch fault := s.fault(out, words, moved); {
			case strings.HasPrefix(fault, "lost"):
				lost++
				t.Logf("%s: %s (%s): %s", name, s.name, s.turns, fault)
			case fault != "":
				displaced++
				t.Logf("%s: %s (%s): %s", name, s.name, s.turns, fault)
			}
		}
	}
	t.Logf("%d shapes on templates: %d refused, %d lose text, %d put it elsewhere", tried, refused, lost, displaced)
	if lost > 0 || float64(refused+displaced) > 0.005*float64(tried) {
		t.Errorf("of %d shapes %d are refused, %d lose text, %d have it in another place; want 0 lost, ≤ 0.5 %% others",
			tried, refused, lost, displaced)
	}
}
