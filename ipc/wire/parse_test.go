package wire_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/sampler"
)

func parse(t testing.TB, payload string) (Frame, error) {
	t.Helper()
	def := DefaultRequest()
	return Parse(new(Parser), []byte(payload), &def)
}

func TestParseRequest(t *testing.T) {
	request := func(change func(*Request)) *Request {
		r := DefaultRequest()
		r.ID, r.Prompt = "a", "hi"
		change(&r)
		return &r
	}
	ninf := float32(math.Inf(-1))
	for _, c := range []struct {
		fields string // after {"id":"a","prompt":"hi"
		want   func(*Request)
	}{
		{``, func(*Request) {}},
		{`,"user":{"prompt":[1,null]},"model":["m"]`, func(*Request) {}},
		{`,"model":"m"`, func(r *Request) { r.Model = "m" }},
		{`,"max_tokens":7,"max_completion_tokens":7.0,"n_predict":7`, func(r *Request) { r.MaxTokens = 7 }},
		{`,"max_tokens":0`, func(r *Request) { r.FillOnly = true }},
		{`,"stop":""`, func(*Request) {}},
		{`,"stop":["","a"]`, func(r *Request) { r.Stop = []string{"a"} }},
		{`,"seed":-2`, func(r *Request) { r.Sampling.Seed, r.Sampling.SeedSet = math.MaxUint64-1, true }},
		{`,"seed":-1.0`, func(*Request) {}},
		{`,"n_probs":3,"logprobs":3`, func(r *Request) { r.Sampling.Logprobs = 3 }},
		{`,"logit_bias":{"the end":-1,"7":2}`, func(r *Request) {
			r.Sampling.LogitBias, r.TextBias = []sampler.Bias{{Token: 7, Bias: 2}}, []TextBias{{"the end", -1}}
		}},
		{`,"logit_bias":[["7",false]]`, func(r *Request) { r.TextBias = []TextBias{{"7", ninf}} }},
		{`,"logit_bias":{"+0":2}`, func(r *Request) { r.TextBias = []TextBias{{"+0", 2}} }},
		{`,"stop_token_ids":[1,2.0],"allowed_token_ids":[3],"bad_words":["a","","b"],"min_tokens":4`, func(r *Request) {
			r.Sampling.StopTokens, r.Sampling.AllowedTokens, r.BadWords, r.Sampling.MinTokens = []int32{1, 2},
				[]int32{3}, []string{"a", "b"}, 4
		}},
		{`,"stop_token_ids":[],"bad_words":[]`, func(*Request) {}},
		{`,"typical_p":0.5,"top_n_sigma":1,"xtc_probability":0.25,"xtc_threshold":0.5,"dynatemp_range":1,` +
			`"dynatemp_exponent":2`, func(r *Request) {
			s := &r.Sampling
			s.TypicalP, s.TopNSigma, s.XTCProbability, s.XTCThreshold, s.DynatempRange, s.DynatempExponent = 0.5, 1,
				0.25, 0.5, 1, 2
		}},
		{`,"mirostat":2,"mirostat_tau":4,"mirostat_eta":0.5,"dry_multiplier":1,"dry_base":2,"dry_allowed_length":3,` +
			`"dry_penalty_last_n":100,"dry_sequence_breakers":["x"]`, func(r *Request) {
			s := &r.Sampling
			s.Mirostat, s.MirostatTau, s.MirostatEta, s.DryMultiplier, s.DryBase, s.DryAllowedLength, s.DryPenaltyLastN,
				r.DryBreaks = 2, 4, 0.5, 1, 2, 3, 100, []string{"x"}
		}},
		{`,"samplers":["top_k","temperature"],"repeat_penalty":1.5`, func(r *Request) {
			r.Sampling.TopP, r.Sampling.MinP = 1, 0
		}},
		{`,"samplers":"edskypmxt"`, func(*Request) {}},
		{`,"samplers":["top_k","top_p","infill"]`, func(r *Request) {
			s := &r.Sampling
			s.MinP, s.Temperature = 0, 1
			s.Order = []sampler.Stage{sampler.TopK, sampler.TopP, sampler.Infill}
		}},
		{`,"n_indent":4,"t_max_predict_ms":1500,"t_max_prompt_ms":500`, func(r *Request) {
			r.Indent, r.MaxTime = 4, 1500*time.Millisecond
		}},
		{`,"n_indent":0,"t_max_predict_ms":-1`, func(*Request) {}},
		{`,"verbose":true`, func(r *Request) { r.Verbose = true }},
		{`,"sse_ping_interval":30`, func(r *Request) { r.Ping = 30 }},
		{`,"sse_ping_interval":0`, func(r *Request) { r.Ping = -1 }},
		{`,"samplers":"tk"`, func(r *Request) {
			s := &r.Sampling
			s.TopP, s.MinP, s.Order = 1, 0, []sampler.Stage{sampler.Temperature, sampler.TopK}
		}},
		{`,"samplers":[]`, func(r *Request) { s := &r.Sampling; s.TopK, s.TopP, s.MinP, s.Temperature = 0, 1, 0, 1 }},
		{`,"add_generation_prompt":true,"continue_final_message":false`, func(r *Request) { r.Continue = ContinueOff }},
		{`,"add_generation_prompt":false,"chat_template_kwargs":{ "a":[1,"\u001b"],"thinking":true }`,
			func(r *Request) {
				r.NoOpening, r.TemplateArgs, r.Think.Mode = true, []byte(`{ "a":[1,"\u001b"],"thinking":true }`),
					ThinkOn
			}},
		{`,"max_tokens":7`, func(r *Request) { r.MaxTokens = 7 }},
		{`,"max_tokens":7.0`, func(r *Request) { r.MaxTokens = 7 }},
		{`,"max_tokens":1e2`, func(r *Request) { r.MaxTokens = 100 }},
		{`,"max_completion_tokens":7`, func(r *Request) { r.MaxTokens = 7 }},
		{`,"n_predict":-1`, func(r *Request) { r.MaxTokens = 0 }},
		{`,"max_tokens":null,"n_predict":3`, func(r *Request) { r.MaxTokens = 3 }},
		{`,"temperature":0,"top_p":1,"top_k":-1,"min_p":0.125`, func(r *Request) {
			r.Sampling.Temperature, r.Sampling.TopP, r.Sampling.TopK, r.Sampling.MinP = 0, 1, 0, 0.125
		}},
		{`,"repetition_penalty":1.1,"frequency_penalty":-0.5,"presence_penalty":2,"repeat_last_n":-1`,
			func(r *Request) {
				r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty, r.Sampling.PresencePenalty,
					r.Sampling.PenaltyLastN = 1.1, -0.5, 2, -1
			}},
		{`,"seed":18446744073709551615`, func(r *Request) {
			r.Sampling.Seed, r.Sampling.SeedSet = math.MaxUint64,
				true
		}},
		{`,"seed":42.0`, func(r *Request) { r.Sampling.Seed, r.Sampling.SeedSet = 42, true }},
		{`,"seed":0`, func(r *Request) { r.Sampling.Seed, r.Sampling.SeedSet = 0, true }},
		{`,"seed":-1`, func(*Request) {}},
		{`,"stop":"END"`, func(r *Request) { r.Stop = []string{"END"} }},
		{`,"stop":["\n\n","é\u00e9"]`, func(r *Request) { r.Stop = []string{"\n\n", "éé"} }},
		{`,"stop":[]`, func(*Request) {}},
		{`,"stream":false`, func(r *Request) { r.Stream = false }},
		{`,"logit_bias":{"5":-100,"6":false,"7":1.5}`, func(r *Request) {
			r.Sampling.LogitBias = []sampler.Bias{{Token: 5, Bias: -100}, {Token: 6, Bias: ninf}, {Token: 7, Bias: 1.5}}
		}},
		{`,"logit_bias":[[5,2],[6,false]]`, func(r *Request) {
			r.Sampling.LogitBias = []sampler.Bias{{Token: 5, Bias: 2}, {Token: 6, Bias: ninf}}
		}},
		{`,"logprobs":5`, func(r *Request) { r.Sampling.Logprobs = 5 }},
		{`,"logprobs":true`, func(r *Request) { r.Sampling.Logprobs = 1 }},
		{`,"logprobs":true,"top_logprobs":3`, func(r *Request) { r.Sampling.Logprobs = 3 }},
		{`,"top_logprobs":3,"logprobs":false`, func(*Request) {}},
		{`,"top_logprobs":0`, func(*Request) {}},
		{`,"post_sampling_probs":true`, func(r *Request) { r.Sampling.PostSampling = true }},
		{`,"ignore_eos":true`, func(r *Request) { r.Sampling.IgnoreEOS = true }},
		{`,"truncate_prompt_tokens":12`, func(r *Request) { r.TruncatePrompt = 12 }},
		{`,"truncate_prompt_tokens":-1`, func(r *Request) { r.TruncatePrompt = -1 }},
		{`,"return_token_ids":true`, func(r *Request) { r.EveryToken = true }},
		{`,"priority":"background"`, func(r *Request) { r.Priority = PriorityBackground }},
		{`,"priority":1`, func(r *Request) { r.Priority = PriorityBackground }},
		{`,"priority":-3`, func(*Request) {}},
		{`,"service_tier":"flex"`, func(r *Request) { r.Priority = PriorityBackground }},
		{`,"service_tier":"flex","priority":"interactive"`, func(*Request) {}},
		{`,"priority":"background","service_tier":"auto"`, func(r *Request) { r.Priority = PriorityBackground }},
		{`,"slo":{"target_ttft_ms":150,"target_tbt_ms":33.25,"x":1}`, func(r *Request) {
			r.TargetTTFT, r.TargetITL = 150*time.Millisecond, 33250*time.Microsecond
		}},
		{`,"slo":{"target_ttot_ms":80,"strict":true,"target_ttft_ms":null}`, func(r *Request) {
			r.TargetTTOT, r.Strict = 80*time.Millisecond, true
		}},
		{`,"slo":{"strict":false}`, func(*Request) {}},
		{`,"metadata": {"a" : [1.0, "\u00e9"]}  `, func(r *Request) { r.Metadata = []byte(`{"a" : [1.0, "\u00e9"]}`) }},
		{`,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`, func(r *Request) {
			r.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		}},
		{`,"metadata":"x "`, func(r *Request) { r.Metadata = []byte(`"x "`) }},
		{`,"metadata":null`, func(*Request) {}},
		{`,"return_progress":true`, func(r *Request) { r.Progress = true }},
		{`,"tools":[],"n":1,"thinking_budget_tokens":-1,"chat_template_kwargs":{},"reasoning_format":"auto",` +
			`"response_format":{"type":"text"},"grammar":"","format":"","guided_json_object":false,` +
			`"tool_choice":"auto","suffix":""`, func(*Request) {}},
	} {
		f, err := parse(t, `{"id":"a","prompt":"hi"`+c.fields+`}`)
		if err != nil {
			t.Errorf("%s: %v", c.fields, err)
			continue
		}
		if want := request(c.want); f.Kind != KindRequest || f.ID != "a" || !reflect.DeepEqual(f.Request, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.fields, f.Request, want)
		}
	}
}

func TestParseIDs(t *testing.T) {
	for in, want := range map[string]string{
		`"x"`: "x", `17`: "17", `-3`: "-3", `123456789012345678901234567890`: "123456789012345678901234567890",
		`"\ud83d\ude00"`: "😀", `"a\"b"`: `a"b`,
	} {
		f, err := parse(t, `{"prompt":"hi","id":`+in+`}`)
		if err != nil || f.ID != want || f.Request.ID != want {
			t.Errorf("id %s: %q, %v; want %q", in, f.ID, err, want)
		}
	}
}

func TestParseMessages(t *testing.T) {
	f, err := parse(t, `{"id":1,"messages":[
		{"role":"system","content":"be brief"},
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b\u2028"}],"name":"x"},
		{"role":"assistant","content":null,"reasoning":"hm","tool_calls":[]},
		{"role":"tool","content":""},
		{"role":"developer","content":"c","reasoning_content":"r"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Message{{Role: "system", Content: "be brief"}, {Role: "user", Content: "a\nb\u2028", Name: "x"},
		{Role: "assistant", ReasoningContent: "hm"}, {Role: "tool"},
		{Role: "developer", Content: "c", ReasoningContent: "r"}}
	if !reflect.DeepEqual(f.Request.Messages, want) || f.Request.Prompt != "" {
		t.Fatalf("got %+v", f.Request.Messages)
	}
}

// TestPartsOfAContinuedMessage: an answer that is continued has its parts joined by empty lines, in any order of the
// fields; other messages have theirs joined by newlines.
func TestPartsOfAContinuedMessage(t *testing.T) {
	const parts = `[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"é"}]`
	for in, want := range map[string]string{
		`{"content":` + parts + `,"role":"assistant"}]`:                                "a\n\n\n\né",
		`{"role":"assistant","content":` + parts + `}],"continue_final_message":true`:  "a\n\n\n\né",
		`{"role":"assistant","content":` + parts + `}],"continue_final_message":false`: "a\n\né",
		`{"role":"user","content":` + parts + `}]`:                                     "a\n\né",
		`{"role":"user","content":` + parts + `},{"role":"assistant","content":"x"}]`:  "x",
		`{"role":"assistant","content":` + parts + `},{"role":"user","content":"x"}]`:  "x",
		`{"role":"assistant","content":[{"type":"text","text":"x"}]}]`:                 "x",
	} {
		f, err := parse(t, `{"id":1,"messages":[`+in+`}`)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		m := f.Request.Messages
		if got := m[len(m)-1].Content; got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
		if len(m) == 2 && m[0].Content != "a\n\né" {
			t.Errorf("%s: the first is %q", in, m[0].Content)
		}
	}
}

func TestParseControl(t *testing.T) {
	for in, want := range map[string]Frame{
		`{"event":"cancel","id":"a"}`:                      {Kind: KindCancel, ID: "a"},
		`{"id":7,"event":"cancel","prompt":3}`:             {Kind: KindCancel, ID: "7"},
		`{"type":"metrics"}`:                               {Kind: KindMetrics},
		`{"event":"end_think","id":"a"}`:                   {Kind: KindEndThink, ID: "a"},
		`{"event":"why"}`:                                  {Kind: KindWhy, Why: WhyQuestion{Last: 1}},
		`{"event":"why","request":12,"id":3,"op":"drop"}`:  {Kind: KindWhy, ID: "3", Why: WhyQuestion{Request: "12"}},
		`{"event":"kv","op":"show","tree":false,"last":0}`: {Kind: KindKV},
		`{"event":"kv","op":"save","target":7}`:            {Kind: KindKV, KV: KVQuestion{Op: KVSave, Target: "7"}},
		`{"type":"health","id":"h"}`:                       {Kind: KindHealth, ID: "h"},
		" {\"type\" : \"info\" , \"event\":null}\n":        {Kind: KindInfo},

		`{"\u0074ype":"info","temperature":"ignored for info"}`: {Kind: KindInfo},
	} {
		if f, err := parse(t, in); err != nil || f != want {
			t.Errorf("%s: %+v, %v; want %+v", in, f, err, want)
		}
	}
}

// TestParseThink: every spelling says the same.
func TestParseThink(t *testing.T) {
	for in, want := range map[string]Think{
		`"think":{}`:                                           {},
		`"think":null,"reasoning_effort":null`:                 {},
		`"think":true`:                                         {Mode: ThinkOn},
		`"think":false`:                                        {Mode: ThinkOff},
		`"think":"high"`:                                       {Effort: EffortHigh},
		`"think":{"mode":"auto"}`:                              {Mode: ThinkAuto},
		`"think":{"mode":"on","budget_tokens":40}`:             {Mode: ThinkOn, BudgetTokens: 40},
		`"think":{"budget_tokens":0}`:                          {Mode: ThinkOff},
		`"think":{"budget_tokens":-1}`:                         {},
		`"think":{"soft_budget_tokens":0}`:                     {SoftBudgetTokens: -1},
		`"think":{"soft_budget_tokens":-1}`:                    {},
		`"think":{"soft_budget_tokens":7}`:                     {SoftBudgetTokens: 7},
		`"think":{"preserve":true,"mode":"off"}`:               {Preserve: PreserveOn, Mode: ThinkOff},
		`"think":{"preserve":false}`:                           {Preserve: PreserveOff},
		`"preserve_thinking":true`:                             {Preserve: PreserveOn},
		`"thinking":{"type":"enabled","clear_thinking":false}`: {Preserve: PreserveOn, Mode: ThinkOn},
		`"chat_template_kwargs":{"preserve_thinking":true}`:    {Preserve: PreserveOn},
		`"chat_template_kwargs":{"clear_thinking":true}`:       {Preserve: PreserveOff},
		`"chat_template_kwargs":{"keep_past_thinking":false}`:  {Preserve: PreserveOff},

		`"chat_template_kwargs":{"drop_thinking":false},"preserve_thinking":true`: {
			Preserve: PreserveOn},

		`"think":{"early_exit":"off"}`:                           {EarlyExit: ExitOff},
		`"think":{"early_exit":"rpdi"}`:                          {EarlyExit: ExitRPDI},
		`"think":{"answer_cue":"So: "}`:                          {AnswerCue: "So: "},
		`"reasoning_effort":"none"`:                              {Mode: ThinkOff},
		`"reasoning_effort":"minimal"`:                           {Effort: EffortMinimal},
		`"reasoning_effort":"xhigh"`:                             {Effort: EffortXHigh},
		`"reasoning_budget_tokens":300`:                          {BudgetTokens: 300},
		`"reasoning_budget":-1`:                                  {},
		`"reasoning_budget":0`:                                   {Mode: ThinkOff},
		`"thinking_budget_tokens":300.0`:                         {BudgetTokens: 300},
		`"thinking_token_budget":300`:                            {BudgetTokens: 300},
		`"enable_thinking":true`:                                 {Mode: ThinkOn},
		`"chat_template_kwargs":{"thinking":false}`:              {Mode: ThinkOff},
		`"chat_template_kwargs":{"thinking_budget":9}`:           {BudgetTokens: 9},
		`"reasoning_effort":"max"`:                               {Effort: EffortMax},
		`"chat_template_kwargs":{"thinking_effort":"max"}`:       {Effort: EffortMax},
		`"chat_template_kwargs":{"reasoning_strength":"low"}`:    {Effort: EffortLow},
		`"chat_template_kwargs":{"reasoning_effort":"no_think"}`: {Mode: ThinkOff},
		`"chat_template_kwargs":{"thinking_mode":"disabled"}`:    {Mode: ThinkOff},
		`"chat_template_kwargs":{"thinking_mode":"adaptive"}`:    {Mode: ThinkAuto},
		`"chat_template_kwargs":{"thinking_mode":"enabled","reasoning_effort":"high"}`: {
			Mode: ThinkOn, Effort: EffortHigh},
		`"chat_template_kwargs":{"enable_thinking":false,"reasoning_effort":"none"},"think":false`: {Mode: ThinkOff},

		`"enable_thinking":true,"reasoning_effort":"low","think":{"soft_budget_tokens":5,"mode":"on"}`: {Mode: ThinkOn,
			Effort: EffortLow, SoftBudgetTokens: 5},

		`"reasoning_budget_tokens":300,"thinking_budget_tokens":300,"thinking_token_budget":300,"think":"none"`: {},
	} {
		f, err := parse(t, `{"id":"a","prompt":"hi",`+in+`}`)
		if strings.Contains(in, `300,"think`) { // off and a budget
			if err == nil {
				t.Errorf("%s is accepted", in)
			}
			continue
		}
		if err != nil || f.Request.Think != want {
			t.Errorf("%s: %+v, %v; want %+v", in, f.Request, err, want)
		}
	}
	// A request goes over the server's defaults, of which it names only one half.
	for _, c := range []struct {
		def  Think
		in   string
		want Think
	}{
		{Think{Mode: ThinkOff}, `"think":{"budget_tokens":9}`, Think{BudgetTokens: 9}},
		{Think{BudgetTokens: 7, EarlyExit: ExitEAT}, `"think":false`, Think{Mode: ThinkOff, EarlyExit: ExitEAT}},
		{Think{Preserve: PreserveOn}, `"preserve_thinking":false`, Think{Preserve: PreserveOff}},
		{Think{Preserve: PreserveOn}, `"think":true`, Think{Mode: ThinkOn, Preserve: PreserveOn}},
		{Think{Effort: EffortHigh}, `"thinking_budget_tokens":9`, Think{BudgetTokens: 9}},
	} {
		def := DefaultRequest()
		def.Think = c.def
		f, err := Parse(new(Parser), []byte(`{"id":"a","prompt":"hi",`+c.in+`}`), &def)
		if err != nil || f.Request.Think != c.want {
			t.Errorf("%+v, %s: %+v, %v; want %+v", c.def, c.in, f.Request, err, c.want)
		}
	}
}

func TestThinkBudget(t *testing.T) {
	for _, c := range []struct {
		think        Think
		budget, soft int
	}{
		{Think{}, NoBudget, NoBudget},
		{Think{Mode: ThinkOff}, 0, NoBudget},
		{Think{BudgetTokens: 7, SoftBudgetTokens: 3}, 7, 3},
		{Think{SoftBudgetTokens: -1}, NoBudget, 0},
		{Think{Effort: EffortMinimal}, 100, NoBudget},
		{Think{Effort: EffortLow}, 200, NoBudget},
		{Think{Effort: EffortMedium}, 500, NoBudget},
		{Think{Effort: EffortHigh}, 800, NoBudget},
		{Think{Effort: EffortXHigh}, 950, NoBudget},
	} {
		if b, s := c.think.Budget(1000), c.think.SoftBudget(); b != c.budget || s != c.soft {
			t.Errorf("%+v: %d, %d; want %d, %d", c.think, b, s, c.budget, c.soft)
		}
	}
	if b := (&Think{Effort: EffortLow}).Budget(3); b != 1 {
		t.Errorf("a low effort of 3 tokens is %d", b)
	}
}

// TestParseErrors: the message names the field, what it is, and what it may be.
func TestParseErrors(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		in   string
		id   string
		code Code
		want string // part of the message
	}{
		{``, "", InvalidJSON, "ends too early"},
		{`{`, "", InvalidJSON, "ends too early, after 1 bytes"},
		{`{"id":"a","prompt":"hi"`, "a", InvalidJSON, "ends too early"},
		{`{"id":"a","prompt":"hi}`, "a", InvalidJSON, "the string has no end"},
		{`{"id":"a","prompt":"hi",}`, "a", InvalidJSON, `byte 24: a key in double quotes expected, not "}"`},
		{`{"id":"a" "prompt"`, "a", InvalidJSON, "a comma or } expected"},
		{`{"id":12,"x":tru}`, "12", InvalidJSON, "byte 13: a value expected"},
		{`{"id":"a","x":01}`, "a", InvalidJSON, "byte 14: not a JSON number"},
		{`{"id":"a","x":NaN}`, "a", InvalidJSON, "a value expected"},
		{`{"id":"a","x":1-2}`, "a", InvalidJSON, "a comma or } expected"},
		{`{"id":"a","x":[1}`, "a", InvalidJSON, "a comma or ] expected"},
		{`{"id":"a","prompt":"hi"} {}`, "a", InvalidJSON, "the end expected"},
		{"{\"prompt\":\"\xff\",\"id\":\"a\"}", "a", InvalidJSON, "not valid UTF-8, from byte 11 on"},
		{"{\"prompt\":\"a\nb\",\"id\":\"a\"}", "a", InvalidJSON, "raw control character 0x0a"},
		{`{"id":tru}`, "", InvalidJSON, "a value expected"},
		{`{"id":`, "", InvalidJSON, "ends too early"},
		{`{"prompt":"\x","id":"a"}`, "", InvalidJSON, "an unknown escape"},
		{`{"prompt":"\u12g4","id":"a"}`, "", InvalidJSON, "four hexadecimal digits"},
		{`{"id":"a","prompt":` + strings.Repeat("[", 65), "a", InvalidJSON, "deeper than 64 levels"},
		{strings.Repeat("[", 1<<20), "", InvalidJSON, "deeper than 64 levels"},
		{`{"id":"a","x":[` + strings.Repeat("0,", jsontext.MaxValues) + `0]}`, "a", InvalidJSON,
			"more than 131072 JSON values"},
		{`[]`, "", BadRequest, "the message is an array; it must be a JSON object"},
		{`3`, "", BadRequest, "the message is a number; it must be a JSON object"},
		{`"\u0000"`, "", BadRequest, "the message is a string"},

		{`{}`, "", BadRequest, `field "id" is missing; it must be a string of 1…128 bytes`},
		{`{"prompt":"hi"}`, "", BadRequest, `field "id" is missing`},
		{`{"id":"","prompt":"hi"}`, "", BadRequest, `field "id" has 0 bytes`},
		{`{"id":"` + long + `","prompt":"hi"}`, "", BadRequest, `field "id" has 300 bytes`},
		{`{"id":"a\u0000b","prompt":"hi"}`, "", BadRequest, `field "id" has 3 bytes`},
		{`{"id":1.5,"prompt":"hi"}`, "", BadRequest, `field "id" is 1.5; it must be`},
		{`{"id":{},"prompt":"hi"}`, "", BadRequest, `field "id" is an object; it must be`},
		{`{"id":"a"}`, "a", BadRequest, `fields "prompt" and "messages" are missing`},
		{`{"id":"a","prompt":"x","messages":[{"role":"user","content":"x"}]}`, "a", BadRequest, `both given`},
		{`{"prompt":7,"id":"a"}`, "a", BadRequest, `field "prompt" is a number; it must be a string`},
		{`{"prompt":"a\u0000b","id":"a"}`, "a", BadRequest, `field "prompt" holds a NUL, at byte 1; leave it out`},
		{`{"prompt":"","id":"a"}`, "a", BadRequest, `field "prompt" is empty`},
		{`{"prompt":"a","prompt":"b","id":"a"}`, "a", BadRequest, `field "prompt" is given twice`},
		{`{"prompt":"a","\u0070rompt":"b","id":"a"}`, "a", BadRequest, `field "prompt" is given twice`},
		{`{"id":"a","id":"b","prompt":"x"}`, "a", BadRequest, `field "id" is given twice`},
		{`{"id":"a","prompt":"x","max_tokens":1,"n_predict":2}`, "a", BadRequest,
			`fields "max_tokens" and "n_predict" are the same field and hold different values`},
		{`{"id":"a","prompt":"x","max_tokens":1,"max_tokens":1}`, "a", BadRequest, `field "max_tokens" is given twice`},
		{`{"id":"a","prompt":"x","allowed_token_ids":[]}`, "a", BadRequest, `field "allowed_token_ids" is empty: ` +
			`that forbids every token`},
		{`{"id":"a","prompt":"x","allowed_token_ids":[1.5]}`, "a", BadRequest, `field "allowed_token_ids[0]" is 1.5; ` +
			`it must be an integer`},
		{`{"id":"a","prompt":"x","stop_token_ids":7}`, "a", BadRequest, `field "stop_token_ids" is a number; it must ` +
			`be an array of up to 1024 token ids`},
		{`{"id":"a","prompt":"x","bad_words":"a"}`, "a", BadRequest, `field "bad_words" is a string; it must be an ` +
			`array of up to 1024 strings`},
		{`{"id":"a","prompt":"x","dry_base":-1}`, "a", BadRequest, `field "dry_base" is -1; it must be a number of ` +
			`0…100`},
		{`{"id":"a","prompt":"x","mirostat":3}`, "a", BadRequest, `field "mirostat" is 3; it must be an integer of ` +
			`0…2`},
		{`{"id":"a","prompt":"x","samplers":"` + strings.Repeat("k", 33) + `"}`, "a", BadRequest,
			`field "samplers" has more than 32 entries`},
		{`{"id":"a","prompt":"x","samplers":["warp"]}`, "a", BadRequest, `field "samplers[0]" is "warp"; it must be ` +
			`an array of up to 32 of the names penalties`},
		{`{"id":"a","prompt":"x","continue_final_message":true}`, "a", BadRequest,
			`field "continue_final_message" is true without messages`},
		{`{"id":"a","messages":[{"role":"user","content":"x"}],"continue_final_message":true}`, "a", BadRequest,
			`the last message is not an assistant's`},
		{`{"id":"a","messages":[{"role":"assistant","content":"x"}],"continue_final_message":true,` +
			`"add_generation_prompt":true}`, "a", BadRequest, `fields "continue_final_message" and ` +
			`"add_generation_prompt" are both set`},
		{`{"id":"a","messages":[{"role":"assistant","content":"x"}],"continue_final_message":"thought"}`, "a",
			BadRequest, `field "continue_final_message" must be true, false, "content" or "reasoning_content"`},
		{`{"id":"a","messages":[{"role":"assistant","content":"x","reasoning_content":"y"}],` +
			`"continue_final_message":"reasoning_content"}`, "a", BadRequest, `field "continue_final_message" is ` +
			`"reasoning_content", but the last message has no thought or has content behind it`},

		{`{"id":"a","messages":{}}`, "a", BadRequest, `field "messages" is an object; it must be an array`},
		{`{"id":"a","messages":[]}`, "a", BadRequest, `field "messages" is empty`},
		{`{"id":"a","messages":["x"]}`, "a", BadRequest, `field "messages[0]" is a string; it must be an object`},
		{`{"id":"a","messages":[{"role":"user","content":"x"},{"content":"x"}]}`, "a", BadRequest,
			`field "messages[1].role" is missing`},
		{`{"id":"a","messages":[{"role":"boss","content":"x"}]}`, "a", BadRequest,
			`field "messages[0].role" is "boss"; it must be "system"`},
		{`{"id":"a","messages":[{"role":"user"}]}`, "a", BadRequest, `field "messages[0].content" is missing`},
		{`{"id":"a","messages":[{"role":"user","content":7}]}`, "a", BadRequest,
			`field "messages[0].content" is a number`},
		{`{"id":"a","messages":[{"role":"user","content":[7]}]}`, "a", BadRequest,
			`field "messages[0].content[0]" is a number`},
		{`{"id":"a","messages":[{"role":"user","content":[{"text":"x"}]}]}`, "a", BadRequest,
			`"messages[0].content[0].type" is missing`},
		{`{"id":"a","messages":[{"role":"user","content":[{"type":"text"}]}]}`, "a", BadRequest,
			`"messages[0].content[0].text" is missing`},
		{`{"id":"a","messages":[{"role":"assistant","content":"","tool_calls":[{}]}]}`, "a", BadRequest,
			`"messages[0].tool_calls[0].function.name" is missing`},

		{`{"id":"a","prompt":"x","max_tokens":"7"}`, "a", BadRequest, `field "max_tokens" is a string; it must be an ` +
			`integer of -1…134217728`},
		{`{"id":"a","prompt":"x","max_tokens":1.5}`, "a", BadRequest, `field "max_tokens" is 1.5; it must be an ` +
			`integer`},
		{`{"id":"a","prompt":"x","max_tokens":99999999999999999999}`, "a", BadRequest, `it must be an integer of`},
		{`{"id":"a","prompt":"x","n_predict":-2}`, "a", BadRequest, `field "n_predict" is -2`},
		{`{"id":"a","prompt":"x","temperature":true}`, "a", BadRequest, `field "temperature" is a boolean; it must ` +
			`be a number of -100…100`},
		{`{"id":"a","prompt":"x","temperature":-100.1}`, "a", BadRequest, `field "temperature" is -100.1; it must be ` +
			`a number of -100…100`},
		{`{"id":"a","prompt":"x","temperature":1e999}`, "a", BadRequest, `field "temperature" is 1e999`},
		{`{"id":"a","prompt":"x","temperature":1` + long[:0] + strings.Repeat("0", 5000) + `}`, "a", BadRequest,
			`00…; it must be a number of -100…100`},
		{`{"id":"a","prompt":"x","top_p":1.01}`, "a", BadRequest, `field "top_p" is 1.01; it must be a number of 0…1`},
		{`{"id":"a","prompt":"x","top_k":-2}`, "a", BadRequest, `field "top_k" is -2`},
		{`{"id":"a","prompt":"x","repeat_penalty":0}`, "a", BadRequest, `field "repeat_penalty" is 0; it must be a ` +
			`number of 0.01…10`},
		{`{"id":"a","prompt":"x","seed":-9223372036854775809}`, "a", BadRequest,
			`field "seed" is -9223372036854775809`},
		{`{"id":"a","prompt":"x","seed":18446744073709551616}`, "a", BadRequest,
			`field "seed" is 18446744073709551616`},
		{`{"id":"a","prompt":"x","stop":7}`, "a", BadRequest, `field "stop" is a number; it must be a string or an ` +
			`array of up to 16 strings`},
		{`{"id":"a","prompt":"x","stop":[7]}`, "a", BadRequest, `field "stop[0]" is a number; it must be a string`},
		{`{"id":"a","prompt":"x","stop":["` + long + `"]}`, "a", BadRequest, `field "stop[0]" has 300 bytes; it must ` +
			`have 1…256`},
		{`{"id":"a","prompt":"x","stop":["` + strings.Repeat(`a","`, 16) + `a"]}`, "a", BadRequest,
			`field "stop" has 17 entries`},
		{`{"id":"a","prompt":"x","stream":"yes"}`, "a", BadRequest, `field "stream" is a string; it must be true or ` +
			`false`},
		{`{"id":"a","prompt":"x","logit_bias":7}`, "a", BadRequest, `field "logit_bias" is a number`},
		{`{"id":"a","prompt":"x","logit_bias":{"":1}}`, "a", BadRequest, `field "logit_bias" has a text of 0 bytes`},
		{`{"id":"a","prompt":"x","logit_bias":{"the":true}}`, "a", BadRequest,
			`field "logit_bias of \"the\"" is a boolean`},
		{`{"id":"a","prompt":"x","logit_bias":{"9999999999":1}}`, "a", BadRequest, `has the key "9999999999"`},
		{`{"id":"a","prompt":"x","logit_bias":{"-1":1}}`, "a", BadRequest, `has the key "-1"`},
		{`{"id":"a","prompt":"x","logit_bias":{"1":true}}`, "a", BadRequest,
			`field "logit_bias of token 1" is a boolean`},
		{`{"id":"a","prompt":"x","logit_bias":[[1]]}`, "a", BadRequest, `field "logit_bias[0]" has 1 entries`},
		{`{"id":"a","prompt":"x","logit_bias":[[true,1]]}`, "a", BadRequest, `field "logit_bias[0][0]" is a boolean`},
		{`{"id":"a","prompt":"x","logit_bias":[[1,1e9]]}`, "a", BadRequest, `it must be a number of -1000…1000`},
		{`{"id":"a","prompt":"x","logit_bias":[` + strings.Repeat(`[1,1],`, 1024) + `[1,1]]}`, "a", BadRequest,
			`field "logit_bias" has 1025 entries`},
		{`{"id":"a","prompt":"x","logprobs":21}`, "a", BadRequest, `field "logprobs" is 21; it must be an integer of ` +
			`0…20`},
		{`{"id":"a","prompt":"x","logprobs":"yes"}`, "a", BadRequest, `field "logprobs" is a string`},
		{`{"id":"a","prompt":"x","priority":"high"}`, "a", BadRequest, `field "priority" is "high"; it must be ` +
			`"interactive"`},
		{`{"id":"a","prompt":"x","priority":[]}`, "a", BadRequest, `field "priority" is an array`},
		{`{"id":"a","prompt":"x","service_tier":"gold"}`, "a", BadRequest, `field "service_tier" is "gold"; it must ` +
			`be "auto"`},
		{`{"id":"a","prompt":"x","slo":5}`, "a", BadRequest, `field "slo" is a number; it must be an object`},
		{`{"id":"a","prompt":"x","slo":{"target_tbt_ms":-1}}`, "a", BadRequest, `field "slo.target_tbt_ms" is -1; it ` +
			`must be a number of 0…3600000 milliseconds`},
		{`{"id":"a","prompt":"x","metadata":"` + strings.Repeat("x", 4096) + `"}`, "a", BadRequest,
			`field "metadata" has 4098 bytes of JSON; it must be at most 4096`},
		{`{"id":"a","prompt":"x","metadat\u0061":1}`, "a", BadRequest, `without escapes`},
		{`{"id":"a","prompt":"x","functions":[{}]}`, "a", BadRequest, `field "functions" is not supported`},
		{`{"id":"a","prompt":"x","reasoning_format":"none"}`, "a", BadRequest,
			`field "reasoning_format" is not supported`},
		{`{"id":"a","prompt":"x","think":7}`, "a", BadRequest, `field "think" is a number; it must be an object, a ` +
			`boolean or an effort`},
		{`{"id":"a","prompt":"x","think":"hard"}`, "a", BadRequest, `field "think" is "hard"; it must be "none", ` +
			`"minimal"`},
		{`{"id":"a","prompt":"x","think":{"mode":"maybe"}}`, "a", BadRequest,
			`field "think.mode" is "maybe"; it must be one of ["auto" "off" "on"]`},
		{`{"id":"a","prompt":"x","think":{"mode":3}}`, "a", BadRequest, `field "think.mode" is a number; it must be ` +
			`one of`},
		{`{"id":"a","prompt":"x","think":{"budget":3}}`, "a", BadRequest, `field "think.budget" is not known; it ` +
			`must be mode, budget_tokens`},
		{`{"id":"a","prompt":"x","think":{"` + long + `":3}}`, "a", BadRequest, `is not known`},
		{`{"id":"a","prompt":"x","think":{"budget_tokens":-2}}`, "a", BadRequest,
			`field "think.budget_tokens" is -2; it must be an integer of -1…134217728`},
		{`{"id":"a","prompt":"x","think":{"budget_tokens":10,"budget_tokens":10}}`, "a", BadRequest,
			`field "think.budget_tokens" is given twice`},
		{`{"id":"a","prompt":"x","think":{"budget_tokens":10,"soft_budget_tokens":11}}`, "a", BadRequest,
			`field "think.soft_budget_tokens" is 11; it must not be above the budget of 10 tokens`},
		{`{"id":"a","prompt":"x","think":{"early_exit":"yes"}}`, "a", BadRequest,
			`field "think.early_exit" is "yes"; it must be one of ["off" "eat" "rpdi" "both"]`},
		{`{"id":"a","prompt":"x","think":{"answer_cue":"` + long + `"}}`, "a", BadRequest,
			`field "think.answer_cue" has 300 bytes; it must have at most 256`},
		{`{"id":"a","prompt":"x","think":{"preserve":1}}`, "a", BadRequest,
			`field "think.preserve" is a number; it must be true or false`},
		{`{"id":"a","prompt":"x","preserve_thinking":true,"thinking":{"clear_thinking":true}}`, "a", BadRequest,
			`fields "preserve_thinking" and "thinking.clear_thinking" disagree about the thoughts of earlier turns; ` +
				`send one of them`},
		{`{"id":"a","prompt":"x","think":{"mode":"on"},"enable_thinking":false}`, "a", BadRequest,
			`field "enable_thinking" says thinking is off, field "think.mode" says on; send one of them`},
		{`{"id":"a","prompt":"x","think":{"mode":"on","budget_tokens":0}}`, "a", BadRequest,
			`field "think.budget_tokens" says thinking is off, field "think.mode" says on`},
		{`{"id":"a","prompt":"x","reasoning_effort":"low","thinking_budget_tokens":9}`, "a", BadRequest,
			`fields "reasoning_effort" and "thinking_budget_tokens" name different thinking budgets`},
		{`{"id":"a","prompt":"x","enable_thinking":false,"reasoning_effort":"low"}`, "a", BadRequest,
			`field "enable_thinking" turns thinking off, field "reasoning_effort" names a budget for it`},
		{`{"id":"a","prompt":"x","enable_thinking":"yes"}`, "a", BadRequest, `field "enable_thinking" is a string; ` +
			`it must be true or false`},
		{`{"id":"a","prompt":"x","chat_template_kwargs":{"enable_thinking":1}}`, "a", BadRequest,
			`field "chat_template_kwargs.enable_thinking" is a number; it must be true or false`},
		{`{"id":"a","prompt":"x","chat_template_kwargs":{"tools":1}}`, "a", BadRequest,
			`field "chat_template_kwargs.tools" is not supported`},
		{`{"id":"a","prompt":"x","reasoning_effort":"huge"}`, "a", BadRequest, `field "reasoning_effort" is "huge"; ` +
			`it must be "none", "minimal", "low", "medium", "high", "xhigh" or "max"`},
		{`{"id":"a","prompt":"x","max_think_tokens":5}`, "a", BadRequest, `field "max_think_tokens" is not known; ` +
			`thinking is asked for with "think"`},
		{`{"id":"a","prompt":"x","reasoning":{"effort":"low"}}`, "a", BadRequest,
			`field "reasoning" is not known; thinking is asked for with "think"`},
		{`{"id":"a","messages":[{"role":"user","content":"x","content":"y"}]}`, "a", BadRequest,
			`field "messages[0].content" is given twice`},
		{`{"id":"a","messages":[{"role":"user","role":"system","content":"y"}]}`, "a", BadRequest,
			`field "messages[0].role" is given twice`},
		{`{"id":"a","messages":[{"role":"user","content":"y","reasoning":"a","reasoning_content":"b"}]}`, "a",
			BadRequest, `differs from the message's other reasoning`},
		{`{"id":"a","prompt":"x","slo":{"target_tbt_ms":1,"target_tbt_ms":2}}`, "a", BadRequest,
			`field "slo.target_tbt_ms" is given twice`},
		{`{"id":"a","prompt":"x","slo":{"strict":true,"target_ttot_ms":0}}`, "a", BadRequest,
			`field "slo" has strict and no target`},
		{`{"id":"a","prompt":"x","traceparent":"00-00000000000000000000000000000000-00f067aa0ba902b7-01"}`, "a",
			BadRequest, `field "traceparent" is a string`},
		{`{"id":"a","prompt":"x","traceparent":1}`, "a", BadRequest, `field "traceparent" is a number`},
		{`{"id":"a","prompt":"x","slo":{"strict":1}}`, "a", BadRequest, `field "slo.strict" is a number`},
		{`{"id":"a","prompt":"x","slo":{"strict":true,"strict":true,"target_ttft_ms":1}}`, "a", BadRequest,
			`field "slo.strict" is given twice`},
		{`{"id":"a","prompt":"x","n":2}`, "a", BadRequest, `field "n" is not supported`},

		{`{"event":"cancel"}`, "", BadRequest, `field "id" is missing`},
		{`{"event":"stop","id":"a"}`, "a", BadRequest, `field "event" is "stop"; it must be "embed", "cancel", ` +
			`"end_think", "why" or "kv"`},
		{`{"event":"end_think"}`, "", BadRequest, `field "id" is missing`},
		{`{"type":"why","id":"a"}`, "a", BadRequest, `field "type" is "why"; it must be "metrics"`},
		{`{"event":"why","id":"a","last":0}`, "a", BadRequest, `field "last" is 0; it must be an integer of 1…64`},
		{`{"event":"why","id":"a","last":2,"request":"b"}`, "a", BadRequest, `fields "request" and "last" are both ` +
			`given`},
		{`{"event":"why","id":"a","last":2,"last":2}`, "a", BadRequest, `field "last" is given twice`},
		{`{"event":"why","id":"a","request":""}`, "a", BadRequest, `field "request" has 0 bytes, ""; it must be a ` +
			`string of 1…128 bytes`},
		{`{"event":"kv","id":"a","op":"burn"}`, "a", BadRequest, `field "op" is "burn"; it must be one of ["show" ` +
			`"drop" "pin" "unpin" "save"]`},
		{`{"event":"kv","id":"a","op":"drop"}`, "a", BadRequest, `field "target" is missing; op drop needs the name ` +
			`of an entry, or "all"`},
		{`{"event":"kv","id":"a","target":"x"}`, "a", BadRequest, `field "target" is given without an op`},
		{`{"event":"kv","id":"a","op":"pin","target":"x","tree":true}`, "a", BadRequest,
			`field "tree" is given with op pin`},
		{`{"event":"kv","id":"a","tree":1}`, "a", BadRequest, `field "tree" is a number; it must be true or false`},
		{`{"event":5,"id":"a"}`, "a", BadRequest, `field "event" is a number; it must be "embed", "cancel"`},
		{`{"type":"cancel","id":"a"}`, "a", BadRequest, `field "type" is "cancel"; it must be "metrics"`},
		{`{"type":"info","event":"cancel","id":"a"}`, "a", BadRequest, `not two`},
	} {
		name := c.in
		if len(name) > 60 {
			name = name[:60] + "…"
		}
		_, err := parse(t, c.in)
		var re *RequestError
		if !errors.As(err, &re) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if re.ID != c.id || re.Code != c.code || !strings.Contains(re.Message, c.want) {
			t.Errorf("%s:\n got id %q, %s: %s\nwant id %q, %s: …%s…", name, re.ID, re.Code, re.Message, c.id, c.code,
				c.want)
		}
		if len(re.Message) > 400 {
			t.Errorf("%s: a message of %d bytes", name, len(re.Message))
		}
	}
}

func TestParsePromptLimit(t *testing.T) {
	def := DefaultRequest()
	p := &Parser{MaxPromptBytes: 10}
	for in, field := range map[string]string{
		`{"id":"a","prompt":"%s"}`: "prompt",
		`{"id":"a","messages":[{"role":"user","content":"01234"},{"role":"user","content":"%s"}]}`: "messages",
	} {
		room := 10
		if field == "messages" {
			room = 5
		}
		if _, err := Parse(p, fmt.Appendf(nil, in, strings.Repeat("é", room/2)+strings.Repeat("x", room%2)),
			&def); err != nil {
			t.Errorf("%s at the limit: %v", field, err)
		}
		_, err := Parse(p, fmt.Appendf(nil, in, strings.Repeat("x", room+1)), &def)
		var re *RequestError
		if !errors.As(err, &re) || re.Code != PromptTooLarge || re.ID != "a" ||
			!strings.Contains(re.Message, `"`+field+`" has 11 bytes of text; --max-prompt-bytes is 10`) {
			t.Errorf("%s over the limit: %v", field, err)
		}
	}
}

// TestRequestOwnsItsMemory: a parsed request outlives the frame and the parser's next message.
func TestRequestOwnsItsMemory(t *testing.T) {
	def := DefaultRequest()
	p := new(Parser)
	in := []byte(`{"id":"abc","messages":[{"role":"user","content":"a\nb"},
		{"role":"user","content":[{"type":"text","text":"plain"}]}],
		"stop":["one","t\"wo"],"metadata":{"k":"value"},"logit_bias":{"3":1},"seed":7}`)
	f, err := Parse(p, in, &def)
	if err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprintf("%+v", *f.Request)
	for i := range in {
		in[i] = '#'
	}
	if _, err := Parse(p, []byte(`{"id":"`+strings.Repeat("z", 100)+`","prompt":"`+strings.Repeat("Z", 300)+
		`","stop":["qqqqqqqqqqqqqq"]}`), &def); err != nil {
		t.Fatal(err)
	}
	if after := fmt.Sprintf("%+v", *f.Request); after != before {
		t.Errorf("changed:\nbefore %s\nafter  %s", before, after)
	}
}

// Parts that cannot be read leave a placeholder: a client sends its history again with every request.
func TestPartsThatCannotBeReadLeaveAPlaceholder(t *testing.T) {
	def := DefaultRequest()
	f, err := Parse(new(Parser), []byte(`{"id":"a","messages":[
		{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:"}},
			{"type":"input_audio"},{"type":"image_url"}]},
		{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},
			{"type":"text","text":"so"},{"type":"refusal","refusal":"no"}]},
		{"role":"user","content":"x","images":["a"]},
		{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{"}},
		{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":null}},
			{"function":{"name":"f","arguments":[1]}}]},
		{"role":"assistant","content":null,"refusal":"never"}]}`), &def)
	if err != nil {
		t.Fatal(err)
	}
	m := f.Request.Messages
	for i := range m {
		m[i].LeaveOut(func(bool) bool { return false }, &f.Request.Notes) // as for a model that reads none
	}
	const image = "[image_url left out: this server reads text]"
	if m[0].Content != "look\n"+image+"\n[input_audio left out: this server reads text]\n"+image ||
		m[1].Content != "so\nno" || m[1].ReasoningContent != "hm" ||
		m[2].Content != "[images left out: this server reads text]\nx" ||
		m[3].ToolCalls[0].Arguments != "{" || m[4].ToolCalls[0].Arguments != "" ||
		m[4].ToolCalls[1].Arguments != "[1]" || m[5].Content != "never" {
		t.Errorf("%q", m)
	}
	if n := f.Request.Notes; len(n) != 3 || n[1].Times != 2 || n[0].Reason != "part_left_out" {
		t.Errorf("%+v", n)
	}
}

// TestNotesAreBounded: the types of parts are the client's words, of any number and length.
func TestNotesAreBounded(t *testing.T) {
	var list Notes
	for i := range 1000 {
		_, n := LeftOut(fmt.Sprint("kind ", i%500))
		list.Add(n)
	}
	if last := list[MaxNotes-1]; len(list) != MaxNotes || list[0].Times != 2 || last.Times != 1000-2*(MaxNotes-1) ||
		last.Reason != "more_left_out" {
		t.Errorf("%+v", list)
	}
	text, n := LeftOut(strings.Repeat("x", MaxNameBytes-1) + "é")
	if !utf8.ValidString(text) || !utf8.ValidString(n.Text) || len(n.Text) > MaxNameBytes+100 {
		t.Errorf("%q, %q", text, n.Text)
	}
}
