package wire_test

import (
	"strings"
	"testing"

	. "github.com/uma-serve/uma-serve/ipc/wire"
)

// Definitions of deferred tools stand where the conversation first refers to them.
func TestDeferredToolsStandWhereTheyAreReferredTo(t *testing.T) {
	tool := func(name, more string) string {
		return `{"type":"function","function":{"name":"` + name + `","parameters":{"type":"object"}}` + more + `}`
	}
	deferred := `,"defer_loading":true`
	const user = `{"role":"user","content":"q"}`
	reference := func(names ...string) string {
		parts := []string{`{"type":"text","text":"found"}`}
		for _, n := range names {
			parts = append(parts, `{"type":"tool_reference","tool_name":"`+n+`"}`)
		}
		return strings.Join(parts, ",")
	}
	const defined = `The tool %s can be called now. Its definition:` + "\n" +
		`{"type":"function","function":{"name":"%s","parameters":{"type":"object"}}}`
	definition := func(name string) string { return strings.ReplaceAll(defined, "%s", name) }
	for _, c := range []struct {
		name, messages, tools, choice string
		want                          []string // contents
		callable, head                string
	}{
		{"none referred to", user, tool("a", "") + "," + tool("b", deferred), "", []string{"q"}, "a", "a"},
		{"inside the function, as chat completions have it", user,
			tool("a", "") + `,{"type":"function","function":{"name":"b","defer_loading":true}}`, "", []string{"q"}, "a",
			"a"},
		{"two at once, then again",
			user + `,{"role":"tool","content":[` + reference("b", "c") + `]},{"role":"tool","content":[` +
				reference("c", "a", "gone") + `]}`,
			tool("a", "") + "," + tool("b", deferred) + "," + tool("c", deferred) + "," + tool("d", deferred), "",
			[]string{"q", "found\n" + definition("b") + "\n" + definition("c"), "found\nThe tool c is available.\n" +
				"The tool a is available.\nThe tool gone is available."}, "abc", "a"},
		{"in an assistant's message", user + `,{"role":"assistant","content":[` + reference("b") + `]}`,
			tool("a", "") + "," + tool("b", deferred), "", []string{"q", "found\n\nThe tool b is available."}, "a",
			"a"},
		{"all of them", user, tool("a", deferred) + "," + tool("b", deferred), "", []string{"q"}, "ab", "ab"},
		{"one is to be called", user, tool("a", "") + "," + tool("b", deferred),
			`,"tool_choice":{"type":"function","function":{"name":"b"}}`, []string{"q"}, "ab", "ab"},
	} {
		f, err := Parse(new(Parser), []byte(`{"id":"1","messages":[`+c.messages+`],"tools":[`+c.tools+`]`+c.choice+`}`),
			&Request{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		r := f.Request
		for i, m := range r.Messages {
			if m.Content != c.want[i] {
				t.Errorf("%s: message %d is %q, not %q", c.name, i, m.Content, c.want[i])
			}
		}
		callable, head := "", ""
		for i := range r.Tools {
			if r.Tools[i].Callable() {
				callable += r.Tools[i].Name
			}
			if !r.Tools[i].Deferred {
				head += r.Tools[i].Name
			}
		}
		if callable != c.callable || head != c.head {
			t.Errorf("%s: callable %q, in the head %q; not %q and %q", c.name, callable, head, c.callable, c.head)
		}
	}
	_, err := Parse(new(Parser),
		[]byte(`{"id":"1","messages":[`+user+`],"tools":[`+tool("a", `,"defer_loading":3`)+`]}`), &Request{})
	if err == nil || !strings.Contains(err.Error(), `tools[0].defer_loading`) {
		t.Errorf("an error that names the field, not %v", err)
	}
}
