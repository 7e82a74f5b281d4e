package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// FuzzParse: no payload panics; every error is an answer; the scanner agrees with encoding/json about what JSON is;
// and what was understood means the same when it is written again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","prompt":"hi"}`, `{"event":"cancel","id":7}`, `{"type":"metrics"}`,
		`{"id":"a","prompt":"\ud83d\ude00\ud800"}`, `{"id":1,"messages":[{"role":"user","content":[{"type":"text",` +
			`"text":"a"}],"reasoning":"b"}],"stop":["a"],"seed":-1}`,
		`{"id":"a","prompt":"x","logit_bias":{"5":-1.5,"6":false},"logprobs":true,"top_logprobs":2,"metadata": ` +
			`{"a":[ 1 ]} }`,
		`{"id":"a","prompt":"x","think":{"mode":"on","budget_tokens":5,"soft_budget_tokens":0,"early_exit":"eat",` +
			`"answer_cue":"é","preserve":false}}`,
		`{"id":"a","prompt":"x","think":"low","enable_thinking":true,"chat_template_kwargs":{"thinking_budget":-1}}`,
		`{"event":"end_think","id":1}`, `{"event":"why","request":7}`, `{"event":"why","last":3,"id":"q"}`,
		`{"event":"kv","tree":true}`, `{"event":"kv","op":"drop","target":"all"}`,
		`{"id":"a","prompt":"x","min_tokens":2,"stop_token_ids":[1],"allowed_token_ids":[2,3],"bad_words":["a",""],` +
			`"dry_multiplier":1,"dry_sequence_breakers":[]}`,
		`{"id":"a","prompt":"x","typical_p":0.5,"xtc_probability":1,"mirostat":2,"samplers":"kt","top_n_sigma":1,` +
			`"dynatemp_range":0.5,"logit_bias":{"a b":1}}`, `{"id":"a","messages":[{"role":"assistant","content":"x"}` +
			`],"continue_final_message":true,"add_generation_prompt":false,"chat_template_kwargs":{"x":[1]},` +
			`"max_tokens":0}`,
		`{"id":"a","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",` +
			`"function":{"name":"f","arguments":{"a":"\u0001"}}}]},{"role":"tool","content":"x","tool_call_id":"c",` +
			`"name":"f"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","x":[1e3,` +
			`null,"\u00e9"]},"strict":true}}],"tool_choice":"required","parallel_tool_calls":false}`,
		`{"id":"a","prompt":[1,2],"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,` +
			`"schema":{"a":true}}}}`,
		`{"id":"a","prompt":"x","suffix":"y","structured_outputs":{"choice":["a","b"]}}`,
		`{"id":"a","prompt":"x","grammar":"root ::= \"a\"","format":""}`,
		`{"id":"a","prompt":"x","guided_json":"{\"a\":1}"}`,
		`{"id":"a","prompt":"x","max_tokens":1e2,"slo":{"target_ttft_ms":0.5},"temperature":0.7,"priority":3,` +
			`"top_k":-1}`, `{"event":"embed","id":1,"input":[5]}`,
		`{"event":"embed","id":"a","input":["x",""],"query":"q","truncate":true}`,
		`{"event":"embed","id":"a","input":["x",[1,2],""],"dimensions":4,"normalize":0,"truncate":true,` +
			`"encoding_format":"base64"}`,
		"{\"id\":\"a\",\"x\":\"\xff\"}", `[[[[[[`, `{"id":}`, "{\"a\":\"\x01\"}", `-0.0e+1`,
		`{"id":"\u0061","id":2}`,
	} {
		f.Add([]byte(s))
	}
	p := new(Parser)
	f.Fuzz(func(t *testing.T, in []byte) {
		var s jsontext.Scan
		bad := s.Check(in)
		if strict := json.Valid(in) && utf8.Valid(in); bad == "" && !strict {
			t.Fatalf("accepted, but not JSON: %q", in)
		} else if strict && bad != "" && !strings.Contains(bad, "deeper") && !strings.Contains(bad, "JSON values") {
			t.Fatalf("JSON, but refused: %q: %s", in, bad)
		}
		def := DefaultRequest()
		frame, err := Parse(p, in, &def)
		if err != nil {
			var re *RequestError
			if !errors.As(err, &re) || frame != (Frame{}) || !slices.Contains(Codes, re.Code) || re.Message == "" ||
				len(re.Message) > 500 || !utf8.ValidString(re.Message) ||
				re.ID != "" && !ValidID([]byte(re.ID)) || (re.Code == InvalidJSON) != (bad != "") {
				t.Fatalf("%+v %#v", frame, err)
			}
			e := re.Event()
			payload(t, AppendError(nil, &e))
			return
		}
		if bad != "" {
			t.Fatalf("parsed despite %s", bad)
		}
		var again []byte
		switch frame.Kind {
		case KindRequest:
			again = frames.AppendRequest(nil, frame.Request, nil)
			frame.Request.Notes = nil // what was left out is not written again
		case KindCancel:
			again = frames.AppendCancel(nil, frame.ID)
		case KindEndThink:
			again = frames.AppendEndThink(nil, frame.ID)
		case KindWhy:
			again = frames.AppendWhyQuestion(nil, frame.ID, &frame.Why)
		case KindKV:
			again = frames.AppendKVQuestion(nil, frame.ID, &frame.KV)
		case KindEmbed:
			again = frames.AppendEmbed(nil, frame.Embed)
		default:
			again = frames.AppendAdmin(nil, frame.Kind, frame.ID)
		}
		frame2, err := Parse(p, payload(t, again), &Request{})
		if err != nil || !reflect.DeepEqual(frame, frame2) {
			t.Fatalf("%q\nis %+v %+v\nwritten %q\nis %+v %+v, %v", in, frame, frame.Request, again, frame2,
				frame2.Request, err)
		}
		if frame.Kind == KindRequest {
			if err := frame.Request.Sampling.Validate(); err != nil {
				t.Fatalf("accepted, but the sampler refuses: %v", err)
			}
			short := payload(t, frames.AppendRequest(nil, frame.Request, &def))
			if frame2, err = Parse(p, short, &def); err != nil || !reflect.DeepEqual(frame, frame2) {
				t.Fatalf("%q\nwritten without defaults %q\nis %+v, %v", in, short, frame2.Request, err)
			}
		}
	})
}

// FuzzParseEvent: a client survives any server.
func FuzzParseEvent(f *testing.F) {
	tok, eos, fail, progress := sampleEvents()
	for _, frame := range [][]byte{AppendToken(nil, &tok), AppendEOS(nil, &eos), AppendError(nil, &fail),
		AppendProgress(nil, &progress),
		AppendReport(nil, KindInfo, "x", []byte(`{"a":1}`)),
		AppendEmbedding(nil, &Embedding{ID: "a", Row: 1, Values: []float32{1, -0.5}}, false),
		AppendEmbedding(nil, &Embedding{ID: "a", Row: -1, Values: []float32{1, -0.5}}, true)} {
		f.Add(frame[HeaderBytes:])
	}
	p := new(frames.Parser)
	var ev Event
	f.Fuzz(func(t *testing.T, in []byte) {
		if p.ParseEvent(in, &ev) == nil && !json.Valid(in) {
			t.Fatalf("accepted, but not JSON: %q", in)
		}
	})
}

// FuzzString: the escaper writes what encoding/json writes.
func FuzzString(f *testing.F) {
	f.Add("plain")
	f.Add("\u2028\xff\"\\\n\x00😀\xe2\x80")
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := string(jsontext.AppendString(nil, s)), encoded(t, s); got != want {
			t.Fatalf("%q: %s, want %s", s, got, want)
		}
	})
}

// FuzzRoundTrip: decode(encode(x)) == x for every message, over texts, numbers and flags.
func FuzzRoundTrip(f *testing.F) {
	f.Add("id", "text", []byte("\xe2\x82"), int64(7), uint64(9), float32(0.5), uint16(0xffff))
	f.Add("é", "\u2028\"\\", []byte{}, int64(-1), uint64(0), float32(-3.25), uint16(0))
	f.Fuzz(func(t *testing.T, id, text string, raw []byte, n int64, u uint64, x float32, flags uint16) {
		text = strings.ToValidUTF8(text, "")
		if id = strings.ToValidUTF8(id, ""); !ValidID([]byte(id)) {
			id = "r"
		}
		flag := func(i int) bool { return flags>>i&1 == 1 }
		size := func(limit int64) int { return int(uint64(n) % uint64(limit)) }
		ms := func(i int64) time.Duration {
			return time.Duration(uint64(n+i)%(MaxSLOMs*1000)) * time.Microsecond
		}
		within := func(lo, hi float32) float32 {
			if !(x >= lo) {
				return lo
			}
			return min(x, hi)
		}
		metadata := jsontext.AppendString(nil, text)
		if len(metadata) > MaxMetadataBytes {
			metadata = []byte(`[1, {"a":null} ]`)
		}

		r := Request{ID: id, Stream: flag(0), Progress: flag(1), Speculate: size(20), SpeculateSet: true,
			Priority:  Priority(flags >> 2 & 1),
			MaxTokens: size(MaxTokensLimit), Targets: slo.Targets{TargetTTFT: ms(1), TargetITL: ms(2)},
			Sampling: sampler.Params{Temperature: within(-sampler.MaxTemperature, sampler.MaxTemperature),
				TopK: size(math.MaxInt32), TopP: within(0, 1), MinP: within(0, 1), RepeatPenalty: within(0.01, 10),
				FrequencyPenalty: within(-10, 10), PresencePenalty: within(-10, 10),
				PenaltyLastN: size(MaxTokensLimit) - 1, IgnoreEOS: flag(3), Logprobs: size(sampler.MaxLogprobs + 1),
				TopNSigma: within(-1, sampler.MaxTopNSigma), TypicalP: within(0, 1), XTCProbability: within(0, 1),
				XTCThreshold: within(0, 1), DynatempRange: within(0, 9), DynatempExponent: within(0, 9),
				Mirostat: size(3), MirostatTau: within(0, 9), MirostatEta: within(0, 1), DryMultiplier: within(0, 9),
				DryBase: within(1, 9), DryAllowedLength: size(MaxTokensLimit), DryPenaltyLastN: size(MaxTokensLimit) -
					1,
				MinTokens: size(MaxTokensLimit)}}
		if flag(2) {
			r.Sampling.StopTokens, r.Sampling.AllowedTokens = []int32{int32(size(math.MaxInt32))},
				[]int32{int32(size(math.MaxInt32)), 1}
			r.NoOpening = true
			r.TemplateArgs = append(append([]byte(`{"a":`), jsontext.AppendString(nil, text)...), '}')
		}
		if flag(1) && len(text) > 0 && len(text) <= MaxDryBreakBytes {
			r.TextBias, r.BadWords, r.DryBreaks = []TextBias{{text, within(-sampler.MaxBias, sampler.MaxBias)}},
				[]string{text}, []string{text}
		}
		if r.FillOnly = r.MaxTokens == 0 && flag(0); len(r.TemplateArgs) > MaxTemplateArgsBytes {
			r.TemplateArgs = nil
		}
		if flag(4) {
			r.Sampling.Seed, r.Sampling.SeedSet = u, true
		}
		if flag(5) {
			r.Metadata = metadata
		}
		if flag(6) && len(text) > 0 && len(text) <= MaxStopBytes {
			r.Stop = []string{text, "b"}
		}
		if flag(7) {
			r.Sampling.LogitBias = []sampler.Bias{{Token: int32(size(math.MaxInt32)),
				Bias: within(-sampler.MaxBias, sampler.MaxBias)}, {Token: 1, Bias: float32(math.Inf(-1))}}
		}
		if flag(12) {
			r.Think = Think{Mode: ThinkMode(u % 2 * 3), SoftBudgetTokens: size(100) - 1, EarlyExit: EarlyExit(u % 5)}
			if flag(13) {
				r.Think.BudgetTokens = 100 + size(1000)
			} else if flag(14) {
				r.Think.Effort = Effort(u % 6)
			} else if flag(15) {
				r.Think.Mode = ThinkOff
			}
			if len(text) <= MaxAnswerCueBytes {
				r.Think.AnswerCue = text
			}
		}
		if flag(8) || text == "" {
			r.Messages = []Message{{Role: "system", Content: text},
				{Role: "assistant", Content: "a", ReasoningContent: text}}
			r.Messages = append(r.Messages,
				Message{Role: "assistant", ToolCalls: []ToolCall{{ID: "c", Name: "f", Arguments: text}}},
				Message{Role: "tool", Content: text, ToolCallID: "c", Name: "f"})
			r.Tools = []Tool{{Name: "f", Description: text,
				Parameters: append(append([]byte(`{"a":`), jsontext.AppendString(nil, text)...), '}'), Strict: flag(9)},
				{Name: "g.h"}}
			r.ToolChoice, r.ParallelToolCalls = ToolChoice{Mode: ToolMode(u % 3)}, flag(10)
		} else {
			r.Prompt = strings.ReplaceAll(text, "\x00", "") // a NUL in a prompt is refused
		}
		switch k := FormatKind(u >> 8 % 6); {
		case k == FormatJSON:
			r.Format.Kind = k
		case k == FormatSchema:
			r.Format = Format{Kind: k, Payload: `{"a":[1,null]}`, Name: "n", Strict: flag(11)}
		case k == FormatChoice && text != "":
			r.Format = Format{Kind: k, Choices: []string{text, "b"}}
		case k != FormatChoice && k != FormatNone && text != "":
			r.Format = Format{Kind: k, Payload: text}
		}
		p := new(Parser)
		got, err := Parse(p, payload(t, frames.AppendRequest(nil, &r, nil)), &Request{Stop: []string{"default"}})
		if err != nil || got.Kind != KindRequest || !reflect.DeepEqual(*got.Request, r) {
			t.Fatalf("request\n got %+v, %v\nwant %+v", got.Request, err, r)
		}
		if got, err := Parse(p, payload(t, frames.AppendCancel(nil, id)), &r); err != nil ||
			got != (Frame{Kind: KindCancel, ID: id}) {
			t.Fatalf("cancel %q: %+v, %v", id, got, err)
		}

		if got, err := Parse(p, payload(t, frames.AppendEndThink(nil, id)), &r); err != nil ||
			got != (Frame{Kind: KindEndThink, ID: id}) {
			t.Fatalf("end_think %q: %+v, %v", id, got, err)
		}
		why := payload(t, frames.AppendWhyQuestion(nil, id, &WhyQuestion{Request: id}))
		if got, err := Parse(p, why, &r); err != nil ||
			got != (Frame{Kind: KindWhy, ID: id, Why: WhyQuestion{Request: id}}) {
			t.Fatalf("why %q: %+v, %v", id, got, err)
		}

		tok := Token{ID: id, Text: []byte(text), TokenID: int32(n), Phase: Output, HasLogprob: flag(9)}
		if flag(10) {
			tok.Phase = Thinking
		}
		if flag(9) {
			tok.Logprob = within(MinLogprob, 0)
			tok.Top = []TokenLogprob{{Token: int32(u), Text: raw, Logprob: tok.Logprob},
				{Token: 2, Text: []byte("x"), Logprob: -1}}
		}
		eos := EOS{ID: id, Reason: Reasons[size(int64(len(Reasons)))], StopText: text, Streamed: flag(11),
			Usage:   Usage{size(1e9), size(1e6), size(1e5), size(1e4), CacheTiers[u%4], text, size(1e6), 0},
			Thought: ThinkSummary{size(1e6), ms(9), ThinkEnds[u%uint64(len(ThinkEnds))], size(1e3)},
			Timings: Timings{ms(3), ms(4), ms(5), ms(6)}}
		if !eos.Streamed {
			eos.Text, eos.Think = []byte(text), []byte(text)
			if flag(13) {
				eos.ToolCalls = []ToolCall{{ID: "c", Name: "f", Arguments: text}, {Name: "g"}}
			}
		}
		if flag(5) {
			eos.Metadata = metadata
		}
		fail := Error{ID: id, Code: Codes[size(int64(len(Codes)))], Message: text, RetryAfter: ms(7),
			Predicted: ms(8)}
		if fail.Code == ContextLength {
			fail.NPrompt, fail.NCtx = size(1e9), size(1e6)
		}
		progress := Progress{ID: id, Processed: size(1e6), Total: size(1e9), Cached: size(1e5), Elapsed: ms(8),
			Position: size(1e3)}
		if flag(14) && text != "" { // Loaded goes with Waiting
			progress.Waiting, progress.Loaded = text, float64(size(1001))/1000
		}
		var events frames.Parser
		var ev Event
		read := func(frame []byte, kind EventKind) {
			t.Helper()
			if err := events.ParseEvent(payload(t, frame), &ev); err != nil || ev.Kind != kind || ev.ID != id {
				t.Fatalf("%q: kind %d, id %q, %v", frame, ev.Kind, ev.ID, err)
			}
		}
		read(AppendToken(nil, &tok), EventToken)
		if !equal(ev.Token, tok) {
			t.Fatalf("token\n got %+v\nwant %+v", ev.Token, tok)
		}
		call := ToolCallDelta{ID: id, Index: size(1e6), Arguments: []byte(text)}
		if flag(12) {
			call.CallID, call.Name = text, "f"
		}
		read(AppendToolCall(nil, &call), EventToolCall)
		if !equal(ev.ToolCall, call) {
			t.Fatalf("tool call\n got %+v\nwant %+v", ev.ToolCall, call)
		}
		read(AppendEOS(nil, &eos), EventEOS)
		if !equal(ev.EOS, eos) {
			t.Fatalf("eos\n got %+v\nwant %+v", ev.EOS, eos)
		}
		read(AppendError(nil, &fail), EventError)
		if ev.Error != fail {
			t.Fatalf("error\n got %+v\nwant %+v", ev.Error, fail)
		}
		read(AppendProgress(nil, &progress), EventProgress)
		if ev.Progress != progress {
			t.Fatalf("progress\n got %+v\nwant %+v", ev.Progress, progress)
		}
		body := jsontext.AppendString(nil, text)
		read(AppendReport(nil, KindMetrics, id, body), EventReport)
		if ev.ReportKind != KindMetrics || !bytes.Equal(ev.Report, body) {
			t.Fatalf("report %q, want %q", ev.Report, body)
		}
	})
}

// equal is DeepEqual for which a nil slice equals an empty one: the wire does not tell them apart.
func equal(a, b any) bool { return reflect.DeepEqual(plainOf(a), plainOf(b)) }

func plainOf(v any) any {
	switch v := v.(type) {
	case Token:
		if len(v.Text) == 0 {
			v.Text = nil
		}
		top := slices.Clone(v.Top)
		for i := range top {
			if len(top[i].Text) == 0 {
				top[i].Text = nil
			}
		}
		if v.Top = top; len(top) == 0 {
			v.Top = nil
		}
		return v
	case ToolCallDelta:
		if len(v.Arguments) == 0 {
			v.Arguments = nil
		}
		return v
	case EOS:
		for _, b := range []*[]byte{&v.Text, &v.Think} {
			if len(*b) == 0 {
				*b = nil
			}
		}
		return v
	}
	return v
}
