package toolcall

import (
	"strings"
	"testing"
)

// TestCallsInThought: a turn that ends with calls in a thought that the model does not close has these calls, and its
// thought ends before them. Calls that the model only thinks of are thought, as is all of a thought that is closed.
func TestCallsInThought(t *testing.T) {
	const hermes = "<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>"
	const now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"
	for _, c := range []struct{ syntax, text, thought, calls string }{
		{"hermes", "Need ls.\n" + hermes, "Need ls.\n", "call bash {\"command\": \"ls\"}\n"},
		{"hermes", hermes + "\n" + now + "\n", "", "call bash {\"command\": \"ls\"}\ncall now {}\n"},
		{"hermes", "As in " + hermes + " or so.", "As in " + hermes + " or so.", ""},
		{"hermes", "As in " + hermes + "\nor so.", "As in ", "text \"\\nor so.\"\ncall bash {\"command\": \"ls\"}\n"},
		{"hermes", "As in " + hermes + "\nor " + now, "As in " + hermes + "\nor ", "call now {}\n"},
		{"hermes", "As in " + hermes + " or " + now, "As in " + hermes + " or ", "call now {}\n"},
		{"hermes", "The <tool_call> element is <b>", "The <tool_call> element is <b>", ""},
		{"hermes", "a < b <tool_call>x</tool_call> é", "a < b <tool_call>x</tool_call> é", ""},
		{"kimi-k2", "Two.<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_begin|>" +
			"functions.bash:1<|tool_call_argument_begin|>{\"command\": \"ls\"}", "Two.",
			"call now {} id=functions.now:0\ncall bash {\"command\": \"ls\"} id=functions.bash:1\n"},
		{"qwen3-coder", "Need ls.\n<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n" +
			"</tool_call>", "Need ls.\n", "call bash {\"command\":\"ls\"}\n"},
	} {
		spec := ByName(c.syntax).Resolve(nil)
		for size := 1; size <= len(c.text); size++ {
			for _, closed := range []bool{false, true} {
				th := NewThought(spec, testTools(t))
				got := ""
				for at := 0; at < len(c.text); at += size {
					got += string(th.Push([]byte(c.text[at:min(len(c.text), at+size)])))
				}
				var calls Collect
				if closed {
					got += string(th.Close())
				} else {
					rest, events := th.Finish(false)
					got += string(rest)
					calls.Add(events)
				}
				thought, want := c.thought, c.calls
				if closed {
					thought, want = c.text, ""
				}
				space := func(s string) string { return strings.TrimRight(s, " \n") }
				if space(got) != space(thought) || closed && got != thought || report(&calls) != want {
					t.Fatalf("%s, pieces of %d, closed %v: %q:\nthought %q\n%s", c.syntax, size, closed, c.text, got,
						report(&calls))
				}
			}
		}
		for cut := range c.text {
			th := NewThought(spec, testTools(t))
			got := string(th.Push([]byte(c.text[:cut])))
			rest, events := th.Finish(true)
			got += string(rest)
			var calls Collect
			calls.Add(events)
			if len(got) > cut || got != c.text[:len(got)] {
				t.Fatalf("%s: %q cut at %d: %q", c.syntax, c.text, cut, got)
			}
			for _, r := range calls.Reasons {
				if r != Unfinished {
					t.Errorf("%q cut at %d: %s", c.text, cut, r)
				}
			}
		}
	}
}

// Text of a thought that holds no marker passes without an allocation.
func TestThoughtAllocatesNothing(t *testing.T) {
	th := NewThought(ByName("hermes").Resolve(nil), testTools(t))
	pieces := [][]byte{[]byte("So "), []byte("a < b, "), []byte("<tool"), []byte("s> é")}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		th.Push(pieces[i%len(pieces)])
		i++
	}); n != 0 {
		t.Errorf("%v allocations a piece", n)
	}
}

// A long call is read in linear time.
func TestLongCallInThought(t *testing.T) {
	th := NewThought(ByName("hermes").Resolve(nil), testTools(t))
	text := []byte(`<tool_call>{"name": "bash", "arguments": {"command": "` + strings.Repeat("x", DefaultMaxBytes))
	n := len(th.Push(text))
	rest, events := th.Finish(false)
	if n += len(rest); n != len(text) || len(events) > 0 { // it is too long for a call
		t.Errorf("%d of %d bytes, %v", n, len(text), events)
	}
}
