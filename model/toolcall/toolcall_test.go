package toolcall

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/tools.md lists every syntax, in the order in which they are tried, and every reason.
func TestDocumentListsSyntaxes(t *testing.T) {
	doc, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	column := func(head string) (names []string) {
		_, table, found := strings.Cut(string(doc), head)
		if !found {
			t.Fatalf("docs/tools.md has no table %q", head)
		}
		for _, line := range strings.Split(table, "\n")[2:] {
			m := regexp.MustCompile(`^\| ([^|]+) \|`).FindStringSubmatch(line)
			if m == nil {
				break
			}
			names = append(names, m[1])
		}
		return names
	}
	want := []string{}
	for i := range Syntaxes {
		want = append(want, Syntaxes[i].Name)
	}
	if got := column("| syntax | for example |"); strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("docs/tools.md lists the syntaxes\n%q\nthe code has\n%q", got, want)
	}
	want = want[:0]
	for _, r := range Reasons {
		want = append(want, string(r))
	}
	if got := column("| reason | the call |"); strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("docs/tools.md lists the reasons\n%q\nthe code has\n%q", got, want)
	}
}

// Plain text passes through a parser without an allocation, whatever its pieces are; so do the arguments of a call,
// once the buffers have grown.
func TestTextAllocatesNothing(t *testing.T) {
	tools := testTools(t)
	pieces := [][]byte{[]byte("Plain"), []byte(" text"), []byte(", "), []byte("\n\n"), []byte("a < b"), []byte(" [x]"),
		[]byte("<to"), []byte("ol"), []byte(" é"), []byte(" 1")}
	for _, name := range []string{"hermes", "llama-3", "gemma-4", "harmony", "mistral-args"} {
		p := NewParser(ByName(name).Resolve(nil), tools, Options{})
		p.Push([]byte("The answer begins. "))
		i := 0
		if n := testing.AllocsPerRun(1000, func() {
			p.Push(pieces[i%len(pieces)])
			i++
		}); n != 0 {
			t.Errorf("%s: %v allocations a piece", name, n)
		}
	}
	p := NewParser(ByName("hermes").Resolve(nil), tools, Options{Stream: true})
	p.Push([]byte(`<tool_call>{"name": "bash", "arguments": {"command": "` + strings.Repeat("x", 20_000)))
	if n := testing.AllocsPerRun(1000, func() { p.Push(pieces[1]) }); n > 0.1 {
		t.Errorf("%v allocations a piece of arguments", n)
	}
}

// A call longer than MaxBytes is text, wherever the text is cut, and what follows is read as usual.
func TestMaxBytes(t *testing.T) {
	tools := testTools(t)
	spec := ByName("hermes").Resolve(nil)
	long := `<tool_call>{"name": "bash", "arguments": {"command": "` + strings.Repeat("x", 300) + `"}}</tool_call>`
	short := `<tool_call>{"name": "now"}</tool_call>`
	for _, size := range []int{1, 7, 1000} {
		var pieces [][]byte
		for text := long + short; text != ""; {
			n := min(size, len(text))
			pieces = append(pieces, []byte(text[:n]))
			text = text[n:]
		}
		c := parse(spec, tools, Options{MaxBytes: 200}, pieces...)
		if want := "call now {}\nmalformed: too_long\n"; string(c.Text) != long || !strings.HasSuffix(report(c), want) {
			t.Errorf("pieces of %d: %s", size, report(c))
		}
	}
	c := parse(spec, tools, Options{MaxBytes: 400}, []byte(long))
	if len(c.Calls) != 1 {
		t.Errorf("%s", report(c))
	}
}

// With Stream, arguments come while they are written, and a call that breaks ends with Malformed of its index.
func TestStreamedEvents(t *testing.T) {
	p := NewParser(ByName("qwen3-coder").Resolve(nil), testTools(t), Options{Stream: true})
	var got []string
	for _, piece := range []string{"<tool_call>\n<function=write_file>", "\n<parameter=path>\na",
		".txt\n</parameter>\n", "<parameter=content>\nline",
		" one\nline", " two\n</para", "meter>\n</function>", "\n</tool_call>"} {
		for _, e := range p.Push([]byte(piece)) {
			got = append(got,
				strings.TrimRight([]string{"text", "start " + e.Name, "arguments", "end", "malformed"}[e.Kind]+" "+
					string(e.Text), " "))
		}
	}
	want := []string{"start write_file", "arguments {", `arguments "path":"a`, "arguments .txt", `arguments "`,
		`arguments ,"content":"line`, "arguments  one\\nline", "arguments  two", `arguments "`, "arguments }", "end"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	p = NewParser(ByName("hermes").Resolve(nil), testTools(t), Options{Stream: true})
	p.Push([]byte(`<tool_call>{"name": "bash", "arguments": {"command": "l`))
	if !p.Busy() {
		t.Error("not busy within a call")
	}
	events := p.Finish()
	if e := events[len(events)-1]; e.Kind != Malformed || e.Index != 0 || e.Reason != Unfinished || p.Calls() != 0 {
		t.Errorf("%+v", e)
	}
}

// TestPlain: once an answer is known to have no calls, what was held back and all that follows is text as it is.
func TestPlain(t *testing.T) {
	for _, syntax := range []string{"hermes", "llama-3", "json"} {
		for _, text := range []string{
			`{"name": "Bo", "age": 7}`, ` {"a": "<tool_call>", "b": [1, 2]}  `, "[\n  1,\n  2 ]\n",
			`{"name": "bash", "x": "<tool_call>{}</tool_call>"}`,
			`{"id": "7", "arguments": {"a": 1}}`, "```json\n{}\n```",
		} {
			for cut := range min(len(text), 12) {
				p := NewParser(ByName(syntax).Resolve(nil), testTools(t), Options{})
				var c Collect
				c.Add(p.Push([]byte(text[:cut])))
				p.Plain()
				for _, b := range []byte(text[cut:]) {
					if c.Add(p.Push([]byte{b})); len(c.Text) == 0 || c.Text[len(c.Text)-1] != b {
						t.Fatalf("%s: %q cut at %d: %q is not shown at once", syntax, text, cut, b)
					}
				}
				c.Add(p.Finish())
				if string(c.Text) != text || len(c.Calls) != 0 || len(c.Reasons) != 0 {
					t.Errorf("%s: %q cut at %d: %s", syntax, text, cut, report(&c))
				}
			}
		}
	}
}
