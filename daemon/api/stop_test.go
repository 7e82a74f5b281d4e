package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestCancelledWithinACall: a cancelled answer has stopped, unless its last call is incomplete, in each API's words.
func TestCancelledWithinACall(t *testing.T) {
	for _, c := range []struct {
		path         string
		routes       func(*api.Server) []api.Route
		stopped, cut string
	}{
		{"/v1/chat/completions", openai.Routes, `"finish_reason":"stop"`, `"finish_reason":"length"`},
		{"/v1/messages", anthropic.Routes, `"stop_reason":"end_turn"`, `"stop_reason":"max_tokens"`},
		{"/api/chat", ollama.Routes, `"done_reason":"stop"`, `"done_reason":"length"`},
	} {
		for arguments, want := range map[string]string{`{"a":1}`: c.stopped, `{"a":`: c.cut} {
			b := &apitest.Backend{Answer: func(*wire.Request) []wire.Event {
				return slices.Concat(apitest.Call(0, "c", "f", arguments), []wire.Event{apitest.EOS(wire.Cancelled)})
			}}
			url := apitest.Serve(t, b, c.routes)
			for _, stream := range []string{"true", "false"} {
				status, _, body := apitest.Do(t, "POST", url+c.path,
					`{"max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[],"stream":`+stream+"}", 0)
				if status != 200 || !strings.Contains(body, want) {
					t.Errorf("%s, %s, stream %s: %d %s", c.path, arguments, stream, status, body)
				}
			}
		}
	}
}
