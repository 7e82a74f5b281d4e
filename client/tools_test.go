package client_test

import (
	"reflect"
	"testing"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestTools: a tool goes out, its call comes back, whole and in parts, and so does its result.
func TestTools(t *testing.T) {
	calls := []wire.ToolCall{{ID: "call_1", Name: "get_weather", Arguments: `{"city":"Bern"}`}}
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		last := r.Messages[len(r.Messages)-1]
		switch {
		case len(r.Tools) != 1 || r.Tools[0].Name != "get_weather" ||
			string(r.Tools[0].Parameters) != `{"type":"object"}` || r.ToolChoice.Mode != wire.ToolRequired:
			c.Error(wire.Error{ID: r.ID, Code: wire.BadRequest, Message: "other tools"})
		case last.Role == "tool":
			said := r.Messages[len(r.Messages)-2]
			if !reflect.DeepEqual(said.ToolCalls, calls) || last.ToolCallID != "call_1" || last.Name != "get_weather" {
				c.Error(wire.Error{ID: r.ID, Code: wire.BadRequest, Message: "another conversation"})
				return
			}
			c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Text: []byte("It is " + last.Content)})
		case r.Stream:
			c.Send(func(dst []byte) []byte {
				dst = wire.AppendToolCall(dst, &wire.ToolCallDelta{ID: r.ID, CallID: "call_1", Name: "get_weather"})
				return wire.AppendToolCall(dst, &wire.ToolCallDelta{ID: r.ID, Arguments: []byte(`{"city":"Bern"}`)})
			})
			c.EOS(wire.EOS{ID: r.ID, Reason: wire.Calls, Streamed: true})
		default:
			c.EOS(wire.EOS{ID: r.ID, Reason: wire.Calls, ToolCalls: calls})
		}
	}}).Start(t)
	c := dial(t, s)
	r := client.NewRequest(client.User("Weather in Bern?"))
	r.Tools = []client.Tool{{Name: "get_weather", Parameters: []byte(`{"type":"object"}`)}}
	r.ToolChoice = "required"

	a, err := c.Chat(t.Context(), r)
	if err != nil || len(a.Calls) != 1 || a.Calls[0] != client.ToolCall(calls[0]) || a.End.Reason != client.Calls {
		t.Fatalf("%+v, %v", a, err)
	}
	r.Messages = append(r.Messages, a.Message(), client.ToolResult(a.Calls[0], "12 degrees"))
	if a, err = c.Chat(t.Context(), r); err != nil || a.Text != "It is 12 degrees" || a.Calls != nil {
		t.Errorf("%+v, %v", a, err)
	}

	r.Messages = r.Messages[:1]
	stream, err := c.Stream(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var name, arguments string
	for stream.End() == nil {
		ev, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.ToolCall != nil {
			name, arguments = name+ev.ToolCall.Name, arguments+string(ev.ToolCall.Arguments)
		}
	}
	if name != "get_weather" || arguments != `{"city":"Bern"}` || stream.End().Reason != client.Calls {
		t.Errorf("%s(%s), %+v", name, arguments, stream.End())
	}
}
