package daemon

import (
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestWholeCalls: an answer that is a call as a whole, without its template's markers, is a call; JSON that is none
// stays text, and so does a call where tools are not to be called or the answer is to be JSON.
func TestWholeCalls(t *testing.T) {
	const bare = `{"name": "get_weather", "arguments": {"location": "Bern"}}`
	object := wire.Format{Kind: wire.FormatRegex, Payload: `[^<]*`}
	for _, c := range []struct {
		name, emit string
		choice     wire.ToolMode
		format     wire.Format
		call       bool
	}{
		{"bare", bare, wire.ToolAuto, wire.Format{}, true},
		{"after a thought", "<think>so</think>\n" + bare, wire.ToolAuto, wire.Format{}, true},
		{"in a block", "```json\n" + bare + "\n```", wire.ToolAuto, wire.Format{}, true},
		{"with text", bare + " it is", wire.ToolAuto, wire.Format{}, false},
		{"other JSON", `{"name": "Bo", "age": 7}`, wire.ToolAuto, wire.Format{}, false},
		{"no tools", bare, wire.ToolNone, wire.Format{}, false},
		{"another form", bare, wire.ToolAuto, object, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{{Emit: c.emit}}}, "-c", "16384")
			for _, stream := range []bool{true, false} {
				q := wire.DefaultRequest()
				q.Sampling.Temperature, q.Messages, q.Stream, q.MaxTokens = 0,
					[]wire.Message{{Role: "user", Content: "question"}}, stream, 400
				q.Tools, q.ToolChoice.Mode, q.Format = weatherTools, c.choice, c.format
				a := r.called(&q)
				switch {
				case c.call && (len(a.calls) != 1 || a.calls[0].Name != "get_weather" || a.text != "" ||
					a.reason != string(wire.Calls)):
					t.Errorf("stream %v: %v", stream, a)
				case !c.call && (a.text != c.emit || len(a.calls) != 0 || a.reason != string(wire.Stop)):
					t.Errorf("stream %v: %v", stream, a)
				}
			}
			r.nothingLeft()
		})
	}
}
