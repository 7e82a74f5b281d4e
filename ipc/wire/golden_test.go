package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/sampler"
)

var rewrite = flag.Bool("rewrite", false, "write the golden messages of testdata again; understand the diff before "+
	"committing it")

// golden is one message of testdata: NAME.bin is the frame as it goes over the socket, NAME.json the same payload
// for a reader.
type golden struct {
	name  string
	frame []byte
	check func(t *testing.T, p *parsers, payload []byte) // reads the payload back
}

// parsers are those of both sides.
type parsers struct {
	server Parser
	client frames.Parser
}

func fromClient(name string, frame []byte, want Frame) golden {
	return golden{name, frame, func(t *testing.T, p *parsers, payload []byte) {
		def := DefaultRequest()
		got, err := Parse(&p.server, payload, &def)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v %+v, %v\nwant %+v %+v", got, got.Request, err, want, want.Request)
		}
	}}
}

func fromServer(name string, frame []byte, want Event) golden {
	return golden{name, frame, func(t *testing.T, p *parsers, payload []byte) {
		var got Event
		if err := p.client.ParseEvent(payload, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
	}}
}

func goldens() []golden {
	def := DefaultRequest()
	request := func(name string, change func(*Request)) golden {
		r := DefaultRequest()
		r.ID = "r-1"
		change(&r)
		return fromClient(name, frames.AppendRequest(nil, &r, &def), Frame{Kind: KindRequest, ID: r.ID, Request: &r})
	}
	embed := DefaultEmbed()
	embed.ID, embed.Inputs = "e-1", []EmbedInput{{Text: "Größer als π?"}, {Tokens: []int32{1, 5, 9}}}
	all := []golden{
		fromClient("embed", frames.AppendEmbed(nil, &embed), Frame{Kind: KindEmbed, ID: "e-1", Embed: &embed}),
		fromServer("embedding",
			AppendEmbedding(nil, &Embedding{ID: "e-1", Index: 1, Row: -1, Values: []float32{0.5, -0.25}, Tokens: 3},
				false),
			Event{Kind: EventEmbedding, ID: "e-1", Embedding: Embedding{ID: "e-1", Index: 1, Row: -1,
				Values: []float32{0.5, -0.25}, Tokens: 3}}),
		fromServer("embedding_of_a_token",
			AppendEmbedding(nil, &Embedding{ID: "e-1", Row: 2, Values: []float32{1.5}, Tokens: 99, Truncated: true},
				true),
			Event{Kind: EventEmbedding, ID: "e-1", Embedding: Embedding{ID: "e-1", Row: 2, Values: []float32{1.5},
				Tokens: 99, Truncated: true}}),
		request("request_prompt", func(r *Request) { r.Prompt = "Once upon a time" }),
		request("request_messages", func(r *Request) {
			r.Messages = []Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "What is 2 + 2?"},
				{Role: "assistant", Content: "4", ReasoningContent: "Easy."},
				{Role: "user", Content: "Größer als π? 😀\n\"yes\" or \"no\""}}
		}),
		request("request_full", func(r *Request) {
			r.Speculate, r.SpeculateSet = 4, true
			r.Prompt, r.MaxTokens, r.Stop, r.Stream, r.Progress, r.Priority = "x", 128, []string{"\n\n", "END"}, false,
				true, PriorityBackground
			r.Think = Think{Mode: ThinkOn, BudgetTokens: 512, SoftBudgetTokens: 256, EarlyExit: ExitBoth,
				AnswerCue: "The answer is"}
			r.TargetTTFT, r.TargetITL, r.Metadata = 150*time.Millisecond, 33500*time.Microsecond,
				[]byte(`{"user": 7, "tags": ["a"]}`)
			r.Sampling = sampler.Params{Temperature: 0.7, TopK: 20, TopP: 0.9, MinP: 0.1, RepeatPenalty: 1.1,
				FrequencyPenalty: 0.5, PresencePenalty: -0.5,
				PenaltyLastN: -1, Seed: math.MaxUint64, SeedSet: true, IgnoreEOS: true, Logprobs: 3,
				LogitBias: []sampler.Bias{{Token: 15043, Bias: 1.5}, {Token: 2, Bias: float32(math.Inf(-1))}},
				TopNSigma: 1.5, TypicalP: 0.9, XTCProbability: 0.5, XTCThreshold: 0.25, DynatempRange: 0.5,
				DynatempExponent: 2, Mirostat: 2, MirostatTau: 4, MirostatEta: 0.5,
				DryMultiplier: 0.75, DryBase: 2, DryAllowedLength: 3, DryPenaltyLastN: 1024, MinTokens: 8,
				StopTokens: []int32{2, 13}, AllowedTokens: []int32{13, 29, 31}}
			r.TextBias, r.BadWords, r.DryBreaks = []TextBias{{" yes", 2.5}}, []string{"um", "er\u001b"},
				[]string{"\n", "<|im_end|>"}
		}),
		request("request_continue", func(r *Request) {
			r.Messages = []Message{{Role: "user", Content: "Count."}, {Role: "assistant", Content: "One, two,"}}
			r.Continue, r.NoOpening, r.FillOnly, r.TemplateArgs = ContinueOn, true, true, []byte(`{"style": "short"}`)
		}),
		request("request_tools", func(r *Request) {
			r.Messages = []Message{{Role: "user", Content: "Weather in Bern?"},
				{Role: "assistant",
					ToolCalls: []ToolCall{{ID: "call_1", Name: "get_weather", Arguments: "{\"city\":\"Bern\"}"},
						{Name: "now"}}},
				{Role: "tool", Content: "12 degrees", Name: "get_weather", ToolCallID: "call_1"}}
			r.Tools = []Tool{{Name: "get_weather", Description: "Current weather",
				Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"}}}`), Strict: true},
				{Name: "now"}}
			r.ToolChoice, r.ParallelToolCalls = ToolChoice{ToolNamed, "get_weather"}, false
		}),
		request("request_schema", func(r *Request) {
			r.Prompt, r.Format = "x", Format{Kind: FormatSchema, Payload: `{"type":"object"}`, Name: "thing",
				Strict: true}
		}),
		request("request_choice", func(r *Request) {
			r.PromptTokens, r.Format = []int32{1, 15043}, Format{Kind: FormatChoice, Choices: []string{"yes", "no"}}
		}),
		request("request_grammar", func(r *Request) {
			r.Prompt, r.Suffix, r.Format = "x", "y", Format{Kind: FormatGrammar, Payload: "root ::= \"a\"{5}"}
		}),
		request("request_parse_special", func(r *Request) { r.Prompt, r.ParseSpecial = "<|im_start|>user\nhi", true }),
		request("request_effort", func(r *Request) { r.Prompt, r.Think.Effort = "x", EffortLow }),
		request("request_preserve", func(r *Request) { r.Prompt, r.Think.Preserve = "x", PreserveOn }),
		fromClient("cancel", frames.AppendCancel(nil, "r-1"), Frame{Kind: KindCancel, ID: "r-1"}),
		fromClient("end_think", frames.AppendEndThink(nil, "r-1"), Frame{Kind: KindEndThink, ID: "r-1"}),
		fromClient("why_request", frames.AppendWhyQuestion(nil, "q", &WhyQuestion{Request: "r-1"}),
			Frame{Kind: KindWhy, ID: "q", Why: WhyQuestion{Request: "r-1"}}),
		fromClient("why_last", frames.AppendWhyQuestion(nil, "", &WhyQuestion{Last: 3}),
			Frame{Kind: KindWhy, Why: WhyQuestion{Last: 3}}),
		fromClient("kv_tree", frames.AppendKVQuestion(nil, "q", &KVQuestion{Tree: true}),
			Frame{Kind: KindKV, ID: "q", KV: KVQuestion{Tree: true}}),
		fromClient("kv_pin", frames.AppendKVQuestion(nil, "", &KVQuestion{Op: KVPin, Target: "12"}),
			Frame{Kind: KindKV, KV: KVQuestion{Op: KVPin, Target: "12"}}),
	}
	for k := KindMetrics; k <= KindInfo; k++ {
		all = append(all, fromClient("admin_"+k.String(), frames.AppendAdmin(nil, k, ""), Frame{Kind: k}))
	}
	tok := Token{ID: "r-1", Text: []byte(" Größe"), TokenID: 4711, Phase: Output, Top: []TokenLogprob{}}
	all = append(all,
		fromServer("token", AppendToken(nil, &tok),
			Event{Kind: EventToken, ID: "r-1", Token: Token{ID: "r-1", Text: tok.Text, TokenID: 4711, Phase: Output}}))
	tok.Phase, tok.HasLogprob, tok.Logprob = Thinking, true, -0.105
	tok.Top = []TokenLogprob{{4711, []byte(" Größe"), -0.105}, {220, []byte("\xc3"), -2.5}}
	all = append(all, fromServer("token_logprobs", AppendToken(nil, &tok),
		Event{Kind: EventToken, ID: "r-1", Token: tok}))
	eos := EOS{ID: "r-1", Reason: Stop, StopText: "\n\n", Streamed: true,
		Usage:   Usage{12, 8, 40, 15, TierDevice, "diverged at token 8: another message", 30, 22},
		Thought: ThinkSummary{15, 310 * time.Millisecond, "converged", 4}, Metadata: []byte(`{"user": 7}`),
		Timings: Timings{350 * time.Microsecond, 41200 * time.Microsecond, 40850 * time.Microsecond,
			780 * time.Millisecond}}
	all = append(all, fromServer("eos", AppendEOS(nil, &eos), Event{Kind: EventEOS, ID: "r-1", EOS: eos}))
	eos.Reason, eos.StopText, eos.Streamed, eos.Text, eos.Think = Length, "", false, []byte("The answer\nis"),
		[]byte("Hm.")
	all = append(all, fromServer("eos_not_streamed", AppendEOS(nil, &eos), Event{Kind: EventEOS, ID: "r-1", EOS: eos}))
	eos.Reason, eos.Text, eos.ToolCalls = Calls, []byte{},
		[]ToolCall{{ID: "call_1", Name: "get_weather", Arguments: "{}"}}
	all = append(all, fromServer("eos_tool_calls", AppendEOS(nil, &eos), Event{Kind: EventEOS, ID: "r-1", EOS: eos}))
	call := ToolCallDelta{ID: "r-1", Index: 1, CallID: "call_2", Name: "get_weather", Arguments: []byte(`{"ci`)}
	all = append(all, fromServer("tool_call", AppendToolCall(nil, &call),
		Event{Kind: EventToolCall, ID: "r-1", ToolCall: call}))
	call.CallID, call.Name, call.Arguments = "", "", []byte(`ty": "Bern"}`)
	all = append(all, fromServer("tool_call_more", AppendToolCall(nil, &call),
		Event{Kind: EventToolCall, ID: "r-1", ToolCall: call}))
	target := Error{ID: "r-1", Code: QueueLimit, Message: "slo.target_ttft_ms is 500ms, and 2.1s are predicted",
		RetryAfter: 1600 * time.Millisecond, Predicted: 2100 * time.Millisecond}
	all = append(all, fromServer("error_target", AppendError(nil, &target), Event{Kind: EventError, ID: "r-1",
		Error: target}))
	for _, e := range []Error{
		{ID: "r-1", Code: QueueLimit, Message: "the queue is full: 512 requests wait",
			RetryAfter: 1500 * time.Millisecond},
		{ID: "r-1", Code: ContextLength, Message: "context_length_exceeded: the prompt has 5000 tokens, the context " +
			"4096", NPrompt: 5000, NCtx: 4096},
		{Code: FrameTooLarge, Message: "a frame of 2097152 bytes; --max-frame-bytes is 1048576"},
	} {
		name := "error_" + strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(string(e.Code), "E_"), "PROTO_"))
		all = append(all, fromServer(name, AppendError(nil, &e), Event{Kind: EventError, ID: e.ID, Error: e}))
	}
	progress := Progress{ID: "r-1", Processed: 1024, Total: 8192, Cached: 512, Elapsed: 412 * time.Millisecond,
		Position: 0}
	all = append(all, fromServer("progress", AppendProgress(nil, &progress),
		Event{Kind: EventProgress, ID: "r-1", Progress: progress}))
	progress.Processed, progress.Cached, progress.Position = 0, 0, 3
	all = append(all, fromServer("progress_queued", AppendProgress(nil, &progress),
		Event{Kind: EventProgress, ID: "r-1", Progress: progress}))
	waiting := Progress{ID: "r-1", Elapsed: 3 * time.Second, Waiting: "model_loading", Loaded: 0.425}
	all = append(all, fromServer("progress_waiting", AppendProgress(nil, &waiting),
		Event{Kind: EventProgress, ID: "r-1", Progress: waiting}))
	all = append(all, fromServer("report_health", AppendReport(nil, KindHealth, "", []byte(`{"status":"ok"}`)),
		Event{Kind: EventReport, ReportKind: KindHealth, Report: []byte(`{"status":"ok"}`)}))
	report := func(name string, k Kind) { // package reports has their values
		all = append(all, fromServer(name, AppendReport(nil, k, "q", reportIn(name, k)),
			Event{Kind: EventReport, ID: "q", ReportKind: k, Report: reportIn(name, k)}))
	}
	report("report_why", KindWhy)
	report("report_kv", KindKV)
	report("report_kv_done", KindKV)
	return all
}

// reportIn returns the report within a message of testdata.
func reportIn(name string, k Kind) []byte {
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		panic(err)
	}
	var message map[string]json.RawMessage
	var report bytes.Buffer
	if err := errors.Join(json.Unmarshal(b, &message), json.Compact(&report, message[k.String()])); err != nil {
		panic(err)
	}
	return report.Bytes()
}

func TestGolden(t *testing.T) {
	p := new(parsers)
	known := map[string]bool{}
	for _, g := range goldens() {
		known[g.name] = true
		t.Run(g.name, func(t *testing.T) {
			path := filepath.Join("testdata", g.name)
			var readable bytes.Buffer
			if err := json.Indent(&readable, payload(t, g.frame), "", "  "); err != nil {
				t.Fatal(err)
			}
			readable.WriteByte('\n')
			for ext, got := range map[string][]byte{".bin": g.frame, ".json": readable.Bytes()} {
				if *rewrite {
					if err := os.WriteFile(path+ext, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path + ext)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s%s\n got %q\nwant %q\n(go test ./ipc/wire -run TestGolden -rewrite writes it again)",
						g.name, ext, got, want)
				}
			}
			g.check(t, p, payload(t, g.frame))
		})
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.*"))
	if err != nil || len(files) != 2*len(known) {
		t.Errorf("testdata has %d files for %d messages: %v (%v)", len(files), len(known), files, err)
	}
}
