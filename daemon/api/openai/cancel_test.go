package openai

import (
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestCancelledWithinACall: a cancelled answer has stopped, unless its last call is incomplete.
func TestCancelledWithinACall(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"a":1}`: `"finish_reason":"stop"`,
		`{"a":`:   `"finish_reason":"length"`,
	} {
		b := &apitest.Backend{Answer: func(*wire.Request) []wire.Event {
			return slices.Concat(apitest.Call(0, "c", "f", arguments), []wire.Event{apitest.EOS(wire.Cancelled)})
		}}
		url := apitest.Serve(t, b, Routes)
		for _, stream := range []string{"true", "false"} {
			status, _, body := apitest.Do(t, "POST", url+"/v1/chat/completions",
				`{"messages":[{"role":"user","content":"x"}],"tools":[],"stream":`+stream+"}", 0)
			if status != 200 || !strings.Contains(body, want) {
				t.Errorf("%s, stream %s: %d %s", arguments, stream, status, body)
			}
		}
	}
}
