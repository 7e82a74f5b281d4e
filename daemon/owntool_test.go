package daemon

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestMessageToAToolOfTheModel: gpt-oss writes to tools that it was trained with. What it sends them is no answer; why
// and the metrics tell of it.
func TestMessageToAToolOfTheModel(t *testing.T) {
	const thought = "<|channel|>analysis<|message|>I run it.<|end|><|start|>assistant"
	for name, c := range map[string]struct{ emit, text string }{
		"in the channel": {thought + "<|channel|>commentary to=python <|constrain|>code<|message|>print(1)", ""},
		"in the role":    {thought + " to=container.exec<|channel|>commentary<|message|>ls -l", ""},
		"and an answer": {thought + " to=browser.open<|channel|>commentary<|message|>{}" + another + inWords,
			"In words."},
		"itself, no tool": {thought + "<|channel|>commentary to=assistant<|message|>I look.", "I look."},
	} {
		r := serve(t, fake.Config{Template: publishedTemplate(t, "openai-gpt-oss-120b"),
			Markers: harmonyMarkers,
			Scripts: []fake.Script{{After: "question<|end|><|start|>assistant", Emit: c.emit}}}, "-c", "16384")
		for _, stream := range []bool{true, false} {
			q := wire.DefaultRequest()
			q.ID, q.Stream, q.MaxTokens, q.Sampling.Temperature = "mine", stream, 300, 0
			q.Messages = []wire.Message{{Role: "user", Content: "question"}}
			if got := r.called(&q); got.text != c.text || got.think != "I run it." || len(got.calls) > 0 {
				t.Errorf("%s, stream %v: %s", name, stream, got)
			}
		}
		rep, err := r.dial().Why(t.Context(), wire.WhyQuestion{Request: "mine"})
		if err != nil || len(rep.Requests) == 0 {
			t.Fatalf("%+v, %v", rep, err)
		}
		d := rep.Requests[0].Decisions
		own := func(d reports.Decision) bool { return d.Reason == "call_own_tool" }
		resp, err := r.web().Get("http://uma/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		counted := strings.Contains(string(text), `uma_tool_calls_malformed_total{reason="own_tool"} 2`)
		if want := c.text != "I look."; slices.ContainsFunc(d, own) != want || counted != want {
			t.Errorf("%s: told %+v, counted %v", name, d, counted)
		}
		r.stop()
	}
}
