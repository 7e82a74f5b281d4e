package wire_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// payload checks a frame and returns its payload.
func payload(t testing.TB, frame []byte) []byte {
	t.Helper()
	s := split.Frames{Max: MaxEventBytes}
	p, rest, err := s.Next(frame)
	if err != nil || p == nil || len(rest) != 0 {
		t.Fatalf("not one frame: %q (%v)", frame, err)
	}
	if !json.Valid(p) || !utf8.Valid(p) {
		t.Fatalf("not JSON: %q", p)
	}
	return p
}

func TestEncodeEvents(t *testing.T) {
	inf := float32(math.Inf(-1))
	for _, c := range []struct{ name, got, want string }{
		{"token", string(payload(t,
			AppendToken(nil, &Token{ID: "a", Text: []byte("hé\"\n"), TokenID: 7, Phase: Output}))),
			`{"event":"token","id":"a","text":"hé\"\n","token_id":7,"phase":"output"}`},
		{"logprobs", string(payload(t,
			AppendToken(nil, &Token{ID: "a", TokenID: 7, Phase: Thinking, HasLogprob: true, Logprob: -0.25,
				Top: []TokenLogprob{
					{Token: 7, Text: []byte("x"), Logprob: -0.25}, {Token: 8, Text: []byte("\xe2\x82"), Logprob: inf},
					{Token: 9, Logprob: float32(math.NaN())}}}))),
			`{"event":"token","id":"a","text":"","token_id":7,"phase":"think","logprob":-0.25,` +
				`"top_logprobs":[{"token_id":7,"text":"x","logprob":-0.25},` +
				`{"token_id":8,"text":"\ufffd\ufffd","logprob":-9999,"bytes":[226,130]},{"token_id":9,"text":"",` +
				`"logprob":-9999}]}`},
		{"no top", string(payload(t, AppendToken(nil, &Token{ID: "a", HasLogprob: true, Phase: Output}))),
			`{"event":"token","id":"a","text":"","token_id":0,"phase":"output","logprob":0,"top_logprobs":[]}`},
		{"eos, streamed",
			string(payload(t,
				AppendEOS(nil, &EOS{ID: "a", Reason: Stop, StopText: "END", Text: []byte("not sent"), Streamed: true,
					Usage:   Usage{10, 4, 3, 2, TierHost, "diverged at token 4", 7, 5},
					Thought: ThinkSummary{2, 40 * time.Millisecond, "converged", 3},
					Timings: Timings{1500 * time.Microsecond, 20 * time.Millisecond, 18500 * time.Microsecond,
						100 * time.Millisecond}}))),
			`{"event":"eos","id":"a","reason":"stop","stop":"END","think":{"tokens":2,"ms":40,"ended":"converged",` +
				`"probes":3},"usage":{"prompt_tokens":10,"cached_tokens":4,"completion_tokens":3,"think_tokens":2,` +
				`"cache_tier":"host","cache_miss":"diverged at token 4","drafted_tokens":7,"accepted_tokens":5},` +
				`"timings":{"queue_ms":1.5,"ttft_ms":20,"prefill_ms":18.5,"decode_ms":100,"tokens_per_second":20}}`},
		{"eos, whole", string(payload(t,
			AppendEOS(nil, &EOS{ID: "a", Reason: Length, Think: []byte("hm"), Metadata: []byte(`{"k": 1}`),
				Timings: Timings{Queue: -1, TTFT: 1001 * time.Nanosecond}}))),
			`{"event":"eos","id":"a","reason":"length","text":"","think":{"tokens":0,"ms":0,"ended":"","probes":0,` +
				`"text":"hm"},"usage":{"prompt_tokens":0,"cached_tokens":0,"completion_tokens":0,"think_tokens":0,` +
				`"cache_tier":"none"},` +
				`"timings":{"queue_ms":0,"ttft_ms":0.001,"prefill_ms":0,"decode_ms":0,"tokens_per_second":0},` +
				`"metadata":{"k": 1}}`},
		{"error", string(payload(t,
			AppendError(nil, &Error{ID: "a", Code: QueueLimit, Message: "full", RetryAfter: 250 * time.Millisecond}))),
			`{"event":"error","id":"a","code":"E_LIMIT_QUEUE","message":"full","retry_after_ms":250}`},
		{"error without id", string(payload(t, AppendError(nil, &Error{Code: FrameTooLarge, Message: "big"}))),
			`{"event":"error","code":"E_PROTO_FRAME_TOO_LARGE","message":"big"}`},
		{"context", string(payload(t,
			AppendError(nil, &Error{ID: "a", Code: ContextLength, Message: "m", NPrompt: 5000, NCtx: 4096}))),
			`{"event":"error","id":"a","code":"E_CONTEXT_LENGTH_EXCEEDED","message":"m","n_prompt":5000,"n_ctx":4096}`},
		{"progress", string(payload(t,
			AppendProgress(nil, &Progress{ID: "a", Processed: 512, Total: 2048, Elapsed: 1234567 * time.Microsecond}))),
			`{"event":"progress","id":"a","processed":512,"total":2048,"elapsed_ms":1234.567}`},
		{"progress in the queue", string(payload(t, AppendProgress(nil, &Progress{ID: "a", Total: 9, Position: 3}))),
			`{"event":"progress","id":"a","processed":0,"total":9,"elapsed_ms":0,"queue_position":3}`},
		{"report", string(payload(t, AppendReport(nil, KindHealth, "", []byte(`{"status":"ok"}`)))),
			`{"event":"health","health":{"status":"ok"}}`},
		{"report with id", string(payload(t, AppendReport(nil, KindInfo, "7", []byte(`{}`)))),
			`{"event":"info","id":"7","info":{}}`},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, c.got, c.want)
		}
	}
}

// encoded returns s as encoding/json writes it without HTML escaping.
func encoded(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestAppendString(t *testing.T) {
	var all strings.Builder
	for c := range 256 {
		all.WriteByte(byte(c))
	}
	for r := rune(0); r <= utf8.MaxRune; r += 37 {
		all.WriteRune(r)
	}
	for _, s := range []string{"", "plain", "\u2027\u2028\u2029\u202a", "<&>\x7f", "\xe2\x80", "\xe2\x80\xa8",
		"\xed\xa0\x80", "\xf4\x90\x80\x80", "\ufffd", "a\xff", all.String()} {
		if got, want := string(jsontext.AppendString(nil, s)), encoded(t, s); got != want {
			t.Errorf("%q:\n got %s\nwant %s", s, got, want)
		}
		if got, want := string(jsontext.AppendString(nil, []byte(s))), encoded(t, s); got != want {
			t.Errorf("bytes %q:\n got %s\nwant %s", s, got, want)
		}
	}
}

func TestNumbersAreFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for f, want := range map[float32]string{nan: "0", inf: "3.4028235e+38", -inf: "-3.4028235e+38", 0.1: "0.1",
		1e-9: "1e-09", 100: "100"} {
		if got := string(jsontext.AppendFloat32(nil, f)); got != want {
			t.Errorf("%v is written %s, want %s", f, got, want)
		}
	}
	e := EOS{Usage: Usage{CompletionTokens: math.MaxInt}, Timings: Timings{Decode: 1}}
	payload(t, AppendEOS(nil, &e))
}

func sampleEvents() (Token, EOS, Error, Progress) {
	top := []TokenLogprob{{1, []byte(" the"), -0.5}, {2, []byte("\xe2\x82"), -3.25}, {3, []byte("x"), -7}}
	return Token{ID: "01890a5d-ac96-774b-bcce-b302099a8057", Text: []byte(" wörld\n"), TokenID: 12345, Phase: Output,
			HasLogprob: true, Logprob: -0.12345, Top: top},
		EOS{ID: "r-1", Reason: Stop, StopText: "END", Text: bytes.Repeat([]byte("answer \"q\"\n"), 20),
			Think:   []byte("hm"),
			Usage:   Usage{100, 64, 200, 20, TierDisk, "diverged at token 64: another message", 90, 71},
			Thought: ThinkSummary{20, time.Second, "natural", 4},
			Timings: Timings{123 * time.Microsecond, 45 * time.Millisecond, 44 * time.Millisecond,
				1234567 * time.Microsecond}, Metadata: []byte(`{"user": 7}`)},
		Error{ID: "r-1", Code: QueueLimit, Message: "the queue is full", RetryAfter: time.Second},
		Progress{ID: "r-1", Processed: 512, Total: 4096, Elapsed: 98765 * time.Microsecond, Position: 2}
}

// TestEncodersDoNotAllocate: they run in the decode loop, once per generated token.
func TestEncodersDoNotAllocate(t *testing.T) {
	tok, eos, fail, progress := sampleEvents()
	dst := make([]byte, 0, 4096)
	body := []byte(`{"status":"ok"}`)
	call := ToolCallDelta{ID: "r-1", CallID: "call_1", Name: "get_weather", Arguments: []byte(`{"city":"B`)}
	for name, f := range map[string]func(){
		"token":     func() { dst = AppendToken(dst[:0], &tok) },
		"eos":       func() { dst = AppendEOS(dst[:0], &eos) },
		"error":     func() { dst = AppendError(dst[:0], &fail) },
		"progress":  func() { dst = AppendProgress(dst[:0], &progress) },
		"report":    func() { dst = AppendReport(dst[:0], KindHealth, "h", body) },
		"tool_call": func() { dst = AppendToolCall(dst[:0], &call) },
		"cancel":    func() { dst = frames.AppendCancel(dst[:0], "r-1") },
		"end_think": func() { dst = frames.AppendEndThink(dst[:0], "r-1") },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkAppendToken(b *testing.B) {
	tok, _, _, _ := sampleEvents()
	plain := tok
	plain.HasLogprob = false
	for _, c := range []struct {
		name string
		tok  *Token
	}{{"plain", &plain}, {"logprobs", &tok}} {
		b.Run(c.name, func(b *testing.B) {
			dst := AppendToken(nil, c.tok)
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendToken(dst[:0], c.tok)
			}
		})
	}
}

// BenchmarkAppendString compares the escaper with encoding/json's on prose with few escapes.
func BenchmarkAppendString(b *testing.B) {
	text := bytes.Repeat([]byte("He said: \"naïve café\", and left.\n"), 100)
	b.Run("wire", func(b *testing.B) {
		var dst []byte
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			dst = jsontext.AppendString(dst[:0], text)
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := json.Marshal(string(text)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	def := DefaultRequest()
	chat := DefaultRequest()
	chat.ID = "r-1"
	chat.Messages = []Message{{Role: "system", Content: "be brief"},
		{Role: "user", Content: strings.Repeat("Tell me \"more\".\n", 20)}}
	long := DefaultRequest()
	long.ID, long.Prompt = "r-2", strings.Repeat("all work and no play makes a dull prompt\n", 10000)
	for _, c := range []struct {
		name string
		r    *Request
	}{{"chat", &chat}, {"410KB", &long}} {
		in := frames.AppendRequest(nil, c.r, &def)[HeaderBytes:]
		b.Run(c.name, func(b *testing.B) {
			p := new(Parser)
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(p, in, &def); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseEvent(b *testing.B) {
	tok, _, _, _ := sampleEvents()
	tok.HasLogprob = false
	in := AppendToken(nil, &tok)[HeaderBytes:]
	var ev Event
	p := new(frames.Parser)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if err := p.ParseEvent(in, &ev); err != nil {
			b.Fatal(err)
		}
	}
}

func TestMs(t *testing.T) {
	if got := Ms(1234567 * time.Nanosecond); got != 1.235 {
		t.Errorf("Ms: %v", got)
	}
}
