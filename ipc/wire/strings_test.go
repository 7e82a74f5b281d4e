package wire_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

// anyText draws a text as JSON can write it: with control characters, NUL, halves of surrogate pairs, what is not
// printable, what is not in the first plane.
func anyText(t *rapid.T, name string) []rune {
	return rapid.SliceOfN(rapid.OneOf(
		rapid.Int32Range(0, 0x1f), rapid.Int32Range(' ', '~'), rapid.Int32Range(0xd800, 0xdfff),
		rapid.Int32Range(0, 0x10ffff),
		rapid.SampledFrom([]int32{'"', '\\', '/', 0x7f, 0xad, 0x200b, 0x2028, 0x2029, 0xfeff, 0xfffd, 0xffff, 0xe0001,
			0x10ffff}),
	), 1, 10).Draw(t, name)
}

// written writes it in one of the ways that are allowed for each character: raw, a short escape, \u escapes.
func written(t *rapid.T, name string) (lit, text string) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`,
		'\t': `\t`}
	b := []byte{'"'}
	for _, c := range anyText(t, name) {
		way := rapid.IntRange(0, 2).Draw(t, "way")
		must := c < 0x20 || c == '"' || c == '\\' || c >= 0xd800 && c <= 0xdfff
		switch {
		case way == 0 && short[c] != "":
			b = append(b, short[c]...)
		case c >= 0x10000 && way > 0:
			b = fmt.Appendf(b, `\u%04x\u%04X`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
		case must || way == 1:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, string(c)...)
		}
	}
	b = append(b, '"')
	if err := json.Unmarshal(b, &text); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return string(b), text
}

// TestAnyStringInFrames: in every field of text of every message, of the client and of the server, a string means what
// encoding/json says it means, however it is written; and what is written again means the same.
func TestAnyStringInFrames(t *testing.T) {
	p := new(Parser)
	rapid.Check(t, func(t *rapid.T) {
		l, s := written(t, "text")
		def := DefaultRequest()
		read := func(payload string) *Frame {
			f, err := Parse(p, []byte(payload), &def)
			if err != nil {
				t.Fatalf("%s: %v", payload, err)
			}
			if f.Kind == KindRequest {
				again, err := Parse(p, frames.AppendRequest(nil, f.Request, &def)[HeaderBytes:], &def)
				if err != nil || !reflect.DeepEqual(again, f) {
					t.Fatalf("%s is %+v, written again %+v, %v", payload, f.Request, again.Request, err)
				}
			}
			return &f
		}
		bias := ""
		if !IsInteger([]byte(s)) {
			bias = `,"logit_bias":{` + l + `:1}`
		}
		prompt, asked := l, s
		if strings.ContainsRune(s, 0) { // refused there, and there alone
			prompt, asked = `"x"`, "x"
		}
		r := read(`{"id":"a","prompt":` + prompt + `,"stop":[` + l + `],"bad_words":[` + l + `],` +
			`"dry_sequence_breakers":[` + l + `],"think":{"answer_cue":` + l + `},` +
			`"metadata":[` + l + `],"chat_template_kwargs":{"x":` + l + `},"user":` + l + bias + `}`).Request
		if r.Prompt != asked || r.Stop[0] != s || r.BadWords[0] != s || r.DryBreaks[0] != s || r.Think.AnswerCue != s ||
			string(r.Metadata) != "["+l+"]" ||
			string(r.TemplateArgs) != `{"x":`+l+`}` || bias != "" && r.TextBias[0].Text != s {
			t.Fatalf("%s became %+v, want %q", l, r, s)
		}
		r = read(`{"id":"a","messages":[{"role":"user","content":` + l + `},{"role":"user","content":[{"type":"text",` +
			`"text":` + l + `}]},{"role":"assistant","content":` + l + `,"reasoning_content":` + l + `,"name":` + l +
			`}]}`).Request
		if m := r.Messages; m[0].Content != s || m[1].Content != s || m[2].Content != s || m[2].ReasoningContent != s {
			t.Fatalf("%s became %+v, want %q", l, m, s)
		}
		// Ids and the names of cached prefixes have no control characters: they are shown in terminals.
		if ValidID([]byte(s)) {
			if f := read(`{"id":` + l + `,"prompt":"x"}`); f.ID != s {
				t.Fatalf("id %s became %q", l, f.ID)
			}
			if f := read(`{"event":"cancel","id":` + l + `}`); f.ID != s {
				t.Fatalf("id %s became %q", l, f.ID)
			}
			if f := read(`{"event":"why","request":` + l + `}`); f.Why.Request != s {
				t.Fatalf("why %s became %q", l, f.Why.Request)
			}
			if f := read(`{"event":"kv","op":"pin","target":` + l + `}`); f.KV.Target != s {
				t.Fatalf("kv %s became %q", l, f.KV.Target)
			}
		}

		var events frames.Parser
		var ev Event
		event := func(payload string) *Event {
			if err := events.ParseEvent([]byte(payload), &ev); err != nil {
				t.Fatalf("%s: %v", payload, err)
			}
			return &ev
		}
		e := event(`{"event":"token","id":` + l + `,"text":` + l + `,"token_id":1,"phase":"output","logprob":-1,` +
			`"top_logprobs":[{"token_id":1,"text":` + l + `,"logprob":-1}]}`)
		if e.ID != s || string(e.Token.Text) != s || string(e.Token.Top[0].Text) != s {
			t.Fatalf("%s became %+v", l, e.Token)
		}
		const counts = `"usage":{"prompt_tokens":1,"cached_tokens":0,"completion_tokens":0,"think_tokens":0,` +
			`"cache_tier":"none","cache_miss":%s},"timings":{"queue_ms":0,"ttft_ms":0,"prefill_ms":0,"decode_ms":0}`
		e = event(`{"event":"eos","id":"a","reason":"stop","stop":` + l + `,"text":` + l +
			`,"think":{"tokens":1,"ms":1,"ended":"natural","probes":0,"text":` + l + `},` + fmt.Sprintf(counts, l) +
			`,"metadata":` + l + `}`)
		if x := &e.EOS; x.StopText != s || string(x.Text) != s || string(x.Think) != s || x.Usage.CacheMiss != s ||
			string(x.Metadata) != l {
			t.Fatalf("%s became %+v", l, x)
		}
		if e = event(`{"event":"error","id":"a","code":"E_INTERNAL","message":` + l + `}`); e.Error.Message != s {
			t.Fatalf("%s became %+v", l, e.Error)
		}
		for k := KindMetrics; k <= KindKV; k++ {
			if k == KindRequest || k.String() == "" {
				continue
			}
			if e = event(`{"event":"` + k.String() + `","` + k.String() + `":{"tree":` + l +
				`}}`); string(e.Report) != `{"tree":`+l+`}` {
				t.Fatalf("%s became %s", l, e.Report)
			}
		}
	})
}
