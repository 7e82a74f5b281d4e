package client_test

import (
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// TestRequestFields: every field arrives with its meaning.
func TestRequestFields(t *testing.T) {
	var got wire.Request
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		got = r.Request
		c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop})
	}}).Start(t)
	c := dial(t, s)
	for _, q := range []struct {
		ask  client.Request
		want func(r *wire.Request)
	}{
		{client.Request{Prompt: "a"}, func(r *wire.Request) { r.Prompt = "a" }},
		{client.Request{PromptTokens: []int32{1, 2}, FillOnly: true, MaxTokens: 9}, func(r *wire.Request) {
			r.PromptTokens, r.FillOnly = []int32{1, 2}, true
		}},
		{client.Request{ID: "mine", Model: "m", Prompt: "<&>\u2028", ParseSpecial: true, Suffix: "s",
			TruncatePrompt: -1, CacheSalt: "c", MaxTokens: 5, Stop: []string{"x"}, Indent: 2, MaxTimeMs: 3,
			Format: client.Format{Choice: []string{"<a>"}}, Effort: "low", LoRA: []client.LoRA{{ID: 1, Scale: 0.5}},
			PromptLogprobs: 2, EveryToken: true, Progress: new(false), Priority: client.Background,
			SLO:       client.SLO{TTFTMs: 1, ITLMs: 2, TTOTMs: 3, Strict: true},
			Speculate: new(0), Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			Metadata: []byte(`{"a": "<"}`)}, func(r *wire.Request) {
			r.ID, r.Model, r.Prompt, r.ParseSpecial, r.Suffix = "mine", "m", "<&>\u2028", true, "s"
			r.TruncatePrompt, r.CacheSalt, r.MaxTokens, r.Stop = -1, "c", 5, []string{"x"}
			r.Indent, r.MaxTime = 2, 3*time.Millisecond
			r.Format = wire.Format{Kind: wire.FormatChoice, Choices: []string{"<a>"}}
			r.Think.Effort, r.LoRA, r.PromptLogprobs = wire.EffortLow, []wire.LoRA{{ID: 1, Scale: 0.5}}, 2
			r.EveryToken, r.NoProgress, r.Priority, r.SpeculateSet = true, true, wire.PriorityBackground, true
			r.Targets = slo.Targets{TargetTTFT: time.Millisecond, TargetITL: 2 * time.Millisecond,
				TargetTTOT: 3 * time.Millisecond, Strict: true}
			r.Traceparent, r.Metadata = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", []byte(`{"a":"<"}`)
		}},
		{client.Request{Messages: []client.Message{client.System("s"), {Role: "user", Name: "n", Parts: []client.Part{
			client.Text("see"), client.Picture("data:1"), client.Sound("fd:0"), client.Text("?")}},
			{Role: "assistant", ReasoningContent: "hm",
				ToolCalls: []client.ToolCall{{ID: "1", Name: "f", Arguments: "{}"}}},
			client.ToolResult(client.ToolCall{ID: "1", Name: "f"}, "<r>")},
			Continue: false, Opening: new(false), TemplateArgs: map[string]any{"k": "<v>"}, Verbosity: "high",
			Tools: []client.Tool{
				{Name: "f", Description: "<d>", Parameters: []byte(`{"type": "object"}`), Strict: true},
				{Name: "g", Deferred: true, Referenced: true}}, ToolChoice: "f", ParallelToolCalls: new(false),
			Format: client.Format{Schema: []byte(`{"enum": ["<"]}`)},
			Think: client.Think{Mode: "on", BudgetTokens: 9, SoftBudgetTokens: new(0), EarlyExit: "eat", AnswerCue: "c",
				Preserve: new(false)}, Adapter: "a"}, func(r *wire.Request) {
			r.Messages = []wire.Message{{Role: "system", Content: "s"},
				{Role: "user", Name: "n", Content: "see" + wire.ImageMark + wire.ImageMark + "?",
					Images: []wire.Image{{Kind: "image_url", Data: "data:1"}, {Kind: wire.KindSound, Data: "fd:0"}}},
				{Role: "assistant", ReasoningContent: "hm",
					ToolCalls: []wire.ToolCall{{ID: "1", Name: "f", Arguments: "{}"}}},
				{Role: "tool", Name: "f", ToolCallID: "1", Content: "<r>"}}
			r.Continue, r.NoOpening, r.TemplateArgs = wire.ContinueOff, true, []byte(`{"k":"<v>"}`)
			r.Verbosity, r.ParallelToolCalls = "high", false
			r.Tools = []wire.Tool{
				{Name: "f", Description: "<d>", Parameters: []byte(`{"type":"object"}`), Strict: true},
				{Name: "g", Deferred: true, Referenced: true}}
			r.ToolChoice = wire.ToolChoice{Mode: wire.ToolNamed, Name: "f"}
			r.Format = wire.Format{Kind: wire.FormatSchema, Payload: `{"enum":["<"]}`}
			r.Think = wire.Think{Mode: wire.ThinkOn, BudgetTokens: 9, SoftBudgetTokens: -1, EarlyExit: wire.ExitEAT,
				AnswerCue: "c", Preserve: wire.PreserveOff}
			r.LoRA = []wire.LoRA{{Name: "a"}}
		}},
		{client.Request{Prompt: "a", ToolChoice: "none", Format: client.Format{JSON: true}, Sampling: client.Sampling{
			Temperature: new(0.0), TopK: new(3), TopP: new(0.25), MinP: new(0.0), TypicalP: new(0.5),
			TopNSigma: new(2.0), RepeatPenalty: new(1.5), FrequencyPenalty: new(0.5), PresencePenalty: new(-0.5),
			PenaltyLastN: new(-1),
			Seed:         new(uint64(math.MaxUint64)), DynatempRange: new(0.5), DynatempExponent: new(2.0),
			XTCProbability: new(0.5), XTCThreshold: new(0.25), Mirostat: new(2), MirostatTau: new(4.0),
			MirostatEta: new(0.5), DryMultiplier: new(0.5), DryBase: new(2.0), DryAllowedLength: new(3),
			DryPenaltyLastN: new(7), DryBreaks: []string{}, Samplers: []string{"top_k", "temperature"},
			LogitBias: []client.Bias{{Token: 5, Add: math.Inf(-1)}, {Token: 6, Add: 1.5}, {Text: "<t>", Add: -1}},
			BadWords:  []string{"<w>"}, AllowedTokens: []int32{5}, StopTokens: []int32{6}, MinTokens: new(2),
			IgnoreEOS: true, Logprobs: new(3), PostSampling: true}}, func(r *wire.Request) {
			r.Prompt, r.Format, r.ToolChoice.Mode = "a", wire.Format{Kind: wire.FormatJSON}, wire.ToolNone
			r.DryBreaks, r.BadWords, r.TextBias = []string{}, []string{"<w>"}, []wire.TextBias{{Text: "<t>", Bias: -1}}
			r.Sampling = sampler.Params{TopK: 3, TopP: 0.25, TypicalP: 0.5, TopNSigma: 2, RepeatPenalty: 1.5,
				FrequencyPenalty: 0.5, PresencePenalty: -0.5, PenaltyLastN: -1, Seed: math.MaxUint64, SeedSet: true,
				DynatempRange: 0.5, DynatempExponent: 2, XTCProbability: 0.5, XTCThreshold: 0.25, Mirostat: 2,
				MirostatTau: 4, MirostatEta: 0.5, DryMultiplier: 0.5, DryBase: 2, DryAllowedLength: 3,
				DryPenaltyLastN: 7, Order: []sampler.Stage{sampler.TopK, sampler.Temperature},
				LogitBias:     []sampler.Bias{{Token: 5, Bias: float32(math.Inf(-1))}, {Token: 6, Bias: 1.5}},
				AllowedTokens: []int32{5}, StopTokens: []int32{6}, MinTokens: 2, IgnoreEOS: true, Logprobs: 3,
				PostSampling: true}
		}},
	} {
		if _, err := c.Chat(t.Context(), &q.ask); err != nil {
			t.Errorf("%+v: %v", q.ask, err)
			continue
		}
		want := wire.DefaultRequest()
		want.Stream, want.ID = false, got.ID
		if q.want(&want); !reflect.DeepEqual(got, want) {
			t.Errorf("sent    %+v\narrived %+v", want, got)
		}
	}
	if _, err := c.Chat(t.Context(), &client.Request{Prompt: "a", Metadata: []byte("{")}); err == nil ||
		!strings.Contains(err.Error(), "request: ") {
		t.Errorf("JSON that is none: %v", err)
	}
}

// elsewhere are the protocol's fields that are not in Request by their own names, and what stands for them.
var elsewhere = map[string]string{
	"id": "ID", "stream": "Stream and Chat", "event": "methods", "type": "methods", "tool_choice": "ToolChoice",
	"service_tier": "Priority", "top_logprobs": "Logprobs", "verbose": "HTTP", "sse_ping_interval": "HTTP",
	"response_format": "Format", "json_schema": "Format", "guided_json": "Format", "format": "Format",
	"guided_json_object": "Format", "guided_regex": "Format", "guided_choice": "Format", "grammar": "Format",
	"reasoning_budget_tokens": "Think", "reasoning_budget": "Think", "thinking_budget_tokens": "Think",
	"thinking_token_budget": "Think", "enable_thinking": "Think", "thinking": "Think", "preserve_thinking": "Think",
}

// TestRequestHasEveryField holds Request against the table of docs/protocol.md.
func TestRequestHasEveryField(t *testing.T) {
	names := map[string]bool{}
	var add func(ty reflect.Type, before string)
	add = func(ty reflect.Type, before string) {
		for f := range ty.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous {
				add(f.Type, before)
			}
			names[before+name] = true
		}
	}
	add(reflect.TypeFor[client.Request](), "")
	add(reflect.TypeFor[client.Message](), "messages[].")
	add(reflect.TypeFor[client.Think](), "think.")
	add(reflect.TypeFor[client.SLO](), "slo.")
	text, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "|---|---|---|---|---|\n")
	rows := 0
	for line := range strings.Lines(table) {
		rest, found := strings.CutPrefix(line, "| `")
		if !found {
			break
		}
		name, _, _ := strings.Cut(rest, "`")
		rows++
		if stands, ok := elsewhere[name]; ok == names[name] {
			t.Errorf("field %q: in Request is %v, and elsewhere is %q", name, names[name], stands)
		}
	}
	if rows < 90 {
		t.Errorf("the table has %d rows: the test does not find it", rows)
	}
}
