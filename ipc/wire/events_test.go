package wire_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

// TestEventsAreThoseOfFrames: an event that is handed over as a value is what a client reads of its frame, and the
// queue has its own copy.
func TestEventsAreThoseOfFrames(t *testing.T) {
	inf := float32(math.Inf(-1))
	list := []*Event{
		{Kind: EventToken, ID: "a", Token: Token{ID: "a", Text: []byte("wörd"), TokenID: 7, Phase: Output}},
		{Kind: EventToken, ID: "a", Token: Token{ID: "a", Text: []byte{}, TokenID: 8, Phase: Thinking, HasLogprob: true,
			Logprob: inf, Top: []TokenLogprob{{Token: 1, Text: []byte("x"), Logprob: 1e-9},
				{Token: 2, Text: []byte{0xc3}, Logprob: inf}}}},
		EOSEvent(&EOS{ID: "a", Reason: Stop, StopText: "END", Streamed: true, Text: []byte("not sent"),
			ToolCalls: []ToolCall{{Name: "f"}}, Usage: Usage{PromptTokens: 3, CacheTier: TierHost, CacheMiss: "why"},
			Timings: Timings{Queue: time.Millisecond}, Metadata: []byte(`{"a":[1]}`)}),
		EOSEvent(&EOS{ID: "b", Reason: Length, Text: []byte("text"), Think: []byte("thought"),
			Thought:   ThinkSummary{Tokens: 2, Time: time.Second, Ended: "natural"},
			ToolCalls: []ToolCall{{ID: "c", Name: "f", Arguments: "{}"}}}),
		ErrorEvent(&Error{ID: "a", Code: ContextLength, Message: "long", NPrompt: 9, NCtx: 8, RetryAfter: time.Second}),
		ErrorEvent(&Error{Code: ShuttingDown, Message: "gone"}),
		ProgressEvent(&Progress{ID: "a", Processed: 1, Total: 2, Cached: 1, Elapsed: time.Second, Position: 3}),
		{Kind: EventToolCall, ID: "a", ToolCall: ToolCallDelta{ID: "a", CallID: "c", Name: "f",
			Arguments: []byte("{")}},
		{Kind: EventEmbedding, ID: "e", Embedding: Embedding{ID: "e", Index: 1, Row: -1, Values: []float32{1, -0.5},
			Tokens: 3}},
		ReportEvent(KindKV, "q", []byte(`{"x":1}`)),
		JSONEvent(KindWhy, "", map[string][]int{"requests": {}}),
	}
	var queue Events
	for range 3 { // later rounds use the memory of earlier ones
		size := 0
		for _, ev := range list {
			kept := ev.Token.Text
			if len(kept) > 0 { // the sender uses its memory again
				ev.Token.Text = append([]byte(nil), kept...)
			}
			queue.Add(ev)
			clear(ev.Token.Text)
			ev.Token.Text = kept
			size += ev.Bytes()
		}
		if queue.Len() != len(list) || queue.Bytes() != size {
			t.Errorf("%d events of %d bytes, want %d of %d", queue.Len(), queue.Bytes(), len(list), size)
		}
		for i, ev := range list {
			var want Event
			if err := new(frames.Parser).ParseEvent(AppendEvent(nil, ev)[HeaderBytes:], &want); err != nil {
				t.Fatal(err)
			}
			first := queue.First()
			got := queue.Next()
			if first != got {
				t.Errorf("event %d is not the first", i)
			}
			// A slot has the fields of its kind; those of other kinds are of earlier events.
			of := Event{Kind: got.Kind, ID: got.ID}
			switch got.Kind {
			case EventToken:
				of.Token = got.Token
			case EventEOS:
				of.EOS = got.EOS
			case EventError:
				of.Error = got.Error
			case EventProgress:
				of.Progress = got.Progress
			case EventToolCall:
				of.ToolCall = got.ToolCall
			case EventEmbedding:
				of.Embedding = got.Embedding
			case EventReport:
				of.ReportKind, of.Report = got.ReportKind, got.Report
			}
			if !sameEvent(&of, &want) {
				t.Errorf("event %d:\n%+v\nof its frame:\n%+v", i, of, want)
			}
		}
		if queue.Next() != nil || queue.First() != nil {
			t.Error("an event too many")
		}
		queue.Reset()
	}
}

// sameEvent compares; a slice without values is as none.
func sameEvent(a, b *Event) bool {
	x, y := *a, *b
	for _, ev := range []*Event{&x, &y} {
		if len(ev.Token.Text) == 0 {
			ev.Token.Text = nil
		}
		if len(ev.Token.Top) == 0 {
			ev.Token.Top = nil
		}
	}
	return reflect.DeepEqual(&x, &y)
}

// TestEventLines: the newline protocol has the text of an answer, and errors and reports as lines.
func TestEventLines(t *testing.T) {
	var out []byte
	for _, ev := range []*Event{
		{Kind: EventToken, Token: Token{Text: []byte("a b")}}, ProgressEvent(&Progress{Total: 1}),
		EOSEvent(&EOS{Reason: Stop}), ErrorEvent(&Error{Code: QueueLimit, Message: "full"}),
		ReportEvent(KindMetrics, "", []byte("{}")),
	} {
		out = AppendEventLine(out, ev)
	}
	if want := "a b\nerror: E_LIMIT_QUEUE: full\n{}\n"; string(out) != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// TestClone: a request and its copy share nothing that either changes.
func TestClone(t *testing.T) {
	p := new(Parser)
	def := DefaultRequest()
	f, err := Parse(p, []byte(`{"id":"a","messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[`+
		`{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}],"stop":["s"],"logit_bias":[[1,2]],`+
		`"tools":[{"type":"function","function":{"name":"f"}}],"metadata":{"m":1}}`), &def)
	if err != nil {
		t.Fatal(err)
	}
	r := f.Request
	c := r.Clone()
	if !reflect.DeepEqual(r, c) {
		t.Fatalf("%+v\n%+v", r, c)
	}
	c.Messages[0].Content, c.Messages[1].ToolCalls[0].Name, c.Stop[0], c.Tools[0].Name = "y", "g", "t", "g"
	c.Sampling.LogitBias[0].Token, c.Metadata[2] = 9, 'n'
	if r.Messages[0].Content != "x" || r.Messages[1].ToolCalls[0].Name != "f" || r.Stop[0] != "s" ||
		r.Tools[0].Name != "f" || r.Sampling.LogitBias[0].Token != 1 || string(r.Metadata) != `{"m":1}` {
		t.Errorf("the request changed: %+v", r)
	}
}
