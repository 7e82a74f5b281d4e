package openai

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestAnswer: the objects of both endpoints, streamed and whole, byte for byte.
func TestAnswer(t *testing.T) {
	eos := &wire.EOS{Reason: wire.Length, Usage: wire.Usage{PromptTokens: 10, CachedTokens: 4, CompletionTokens: 3,
		ThinkTokens: 1},
		Timings: wire.Timings{Queue: time.Millisecond, TTFT: 4 * time.Millisecond, Prefill: 3 * time.Millisecond,
			Decode: 8 * time.Millisecond}}
	minus := float32(math.Inf(-1))
	tokens := []*wire.Token{
		{Text: []byte("hm"), Phase: wire.Thinking},
		{Text: []byte("\tü\n"), Phase: wire.Output, HasLogprob: true, Logprob: -0.5,
			Top: []wire.TokenLogprob{{Text: []byte("\tü\n"), Logprob: -0.5}, {Text: []byte{0xc3}, Logprob: minus},
				{Text: []byte{0xc3}, Logprob: minus}}},
		{Phase: wire.Output}, // the beginning of a character
		{Text: []byte("x"), Phase: wire.Output, HasLogprob: true, Logprob: -1},
	}
	for _, chat := range []bool{true, false} {
		o := object{chat: chat, id: "i", model: "m\"", fingerprint: "b", created: time.Unix(5, 0)}
		streamed, whole := &choice{eos: eos}, &choice{eos: eos}
		var got []string
		add := func(v any) { got = append(got, string(api.AppendJSON(nil, v))) }
		if p := o.first(streamed); p != nil {
			add(o.chunkOf(p))
		}
		for _, tok := range tokens {
			if p := o.token(streamed, tok); p != nil {
				add(o.chunkOf(p))
			}
			o.keep(whole, tok)
		}
		add(o.chunkOf(o.last(streamed)))
		add(o.whole([]*choice{whole}))
		const timings = `"timings":{"cache_n":4,"prompt_n":6,"prompt_ms":3,"prompt_per_token_ms":0.5,` +
			`"prompt_per_second":2000,"predicted_n":3,"predicted_ms":8,"predicted_per_token_ms":4,` +
			`"predicted_per_second":250,"queue_ms":1,"ttft_ms":4}`
		const usage = `"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,` +
			`"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}`
		head := func(kind string) string {
			return `{"id":"i","object":"` + kind + `","created":5,"model":"m\"","system_fingerprint":"b","choices":`
		}
		text := head("text_completion")
		want := []string{
			text + `[{"index":0,"text":"\tü\n","logprobs":{"tokens":["\tü\n"],"token_logprobs":[-0.5],` +
				`"top_logprobs":[{"\tü\n":-0.5,"�":-9999}],"text_offset":[0]},"finish_reason":null}]}`,
			text + `[{"index":0,"text":"x","logprobs":{"tokens":["x"],"token_logprobs":[-1],"top_logprobs":[{}],` +
				`"text_offset":[3]},"finish_reason":null}]}`,
			text + `[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}],` + timings + `}`,
			text + `[{"index":0,"text":"\tü\nx","logprobs":{"tokens":["\tü\n","x"],"token_logprobs":[-0.5,-1],` +
				`"top_logprobs":[{"\tü\n":-0.5,"�":-9999},{}],"text_offset":[0,3]},"finish_reason":"length"}],` +
				usage + `,` + timings + `}`,
		}
		if chat {
			const first = `{"token":"\tü\n","logprob":-0.5,"bytes":[9,195,188,10],"top_logprobs":[{"token":"\tü\n",` +
				`"logprob":-0.5,"bytes":[9,195,188,10]},{"token":"\ufffd","logprob":-9999,"bytes":[195]},` +
				`{"token":"\ufffd","logprob":-9999,"bytes":[195]}]}`
			const second = `{"token":"x","logprob":-1,"bytes":[120],"top_logprobs":[]}`
			chunk := head("chat.completion.chunk")
			want = []string{
				chunk + `[{"index":0,"delta":{"role":"assistant","content":null},"logprobs":null,` +
					`"finish_reason":null}]}`,
				chunk + `[{"index":0,"delta":{"reasoning_content":"hm"},"logprobs":null,"finish_reason":null}]}`,
				chunk + `[{"index":0,"delta":{"content":"\tü\n"},"logprobs":{"content":[` + first +
					`],"refusal":null},"finish_reason":null}]}`,
				chunk + `[{"index":0,"delta":{"content":"x"},"logprobs":{"content":[` + second +
					`],"refusal":null},"finish_reason":null}]}`,
				chunk + `[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],` + timings + `}`,
				head("chat.completion") + `[{"index":0,"message":{"role":"assistant","content":"\tü\nx",` +
					`"reasoning_content":"hm"},"logprobs":{"content":[` + first + `,` + second +
					`],"refusal":null},"finish_reason":"length"}],` + usage + `,` + timings + `}`,
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("chat %v:\n got %s\nwant %s", chat, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
}
