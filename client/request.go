package client

import (
	"bytes"
	"encoding/json"
	"math"
)

// Request asks for an answer. What it leaves out has the daemon's default: "", 0 and nil leave a field out. A pointer
// lets a program say 0 (new(0.0)) or false. docs/protocol.md describes each field by its name in JSON and has its
// range; the daemon refuses a value outside it with an error that names the field.
type Request struct {
	ID    string `json:"-"` // unique among the requests in flight on the connection; "" = a new one
	Model string `json:"model,omitempty"`

	// One of these is the question.
	Messages     []Message `json:"messages,omitempty"`
	Prompt       string    `json:"prompt,omitempty"` // raw text, without the chat template
	PromptTokens []int32   `json:"-"`                // raw text as its tokens

	ParseSpecial   bool   `json:"parse_special,omitempty"` // markers in Prompt are single tokens
	Suffix         string `json:"suffix,omitempty"`        // the answer goes between Prompt and Suffix
	TruncatePrompt int    `json:"truncate_prompt_tokens,omitempty"`
	CacheSalt      string `json:"cache_salt,omitempty"`

	// How the chat template renders Messages. Continue is true, false, "content" or "reasoning_content".
	Continue     any            `json:"continue_final_message,omitempty"`
	Opening      *bool          `json:"add_generation_prompt,omitempty"`
	TemplateArgs map[string]any `json:"chat_template_kwargs,omitempty"`
	Verbosity    string         `json:"verbosity,omitempty"`

	// The length of the answer.
	MaxTokens int      `json:"max_tokens,omitempty"`
	FillOnly  bool     `json:"-"` // the prompt is computed and cached, no token is generated
	Stop      []string `json:"stop,omitempty"`
	Indent    int      `json:"n_indent,omitempty"`
	MaxTimeMs int      `json:"t_max_predict_ms,omitempty"`

	Tools             []Tool `json:"tools,omitempty"`
	ToolChoice        string `json:"-"` // "auto", "none", "required", or the name of the tool that must be called
	ParallelToolCalls *bool  `json:"parallel_tool_calls,omitempty"`
	Format            Format `json:"structured_outputs,omitzero"`

	Think  Think  `json:"think,omitzero"`
	Effort string `json:"reasoning_effort,omitempty"` // "minimal", "low", "medium", "high", "xhigh" or "max"

	Sampling
	LoRA    []LoRA `json:"lora,omitzero"` // none, if it is empty and not nil
	Adapter string `json:"lora_path,omitempty"`

	PromptLogprobs int   `json:"prompt_logprobs,omitempty"`  // Stream alone
	EveryToken     bool  `json:"return_token_ids,omitempty"` // Stream returns tokens without text, too
	Progress       *bool `json:"return_progress,omitempty"`  // Stream alone; nil: where the prompt takes long

	Priority  Priority `json:"priority,omitempty"`
	SLO       SLO      `json:"slo,omitzero"`
	Speculate *int     `json:"speculate,omitempty"`

	Traceparent string          `json:"traceparent,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"` // returned in the End, without white space
}

// Sampling chooses the tokens of an answer.
type Sampling struct {
	Temperature      *float64 `json:"temperature,omitempty"` // 0: always the most probable token
	TopK             *int     `json:"top_k,omitempty"`
	TopP             *float64 `json:"top_p,omitempty"`
	MinP             *float64 `json:"min_p,omitempty"`
	TypicalP         *float64 `json:"typical_p,omitempty"`
	TopNSigma        *float64 `json:"top_n_sigma,omitempty"`
	RepeatPenalty    *float64 `json:"repeat_penalty,omitempty"`
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"`
	PresencePenalty  *float64 `json:"presence_penalty,omitempty"`
	PenaltyLastN     *int     `json:"repeat_last_n,omitempty"`
	Seed             *uint64  `json:"seed,omitempty"`

	DynatempRange    *float64 `json:"dynatemp_range,omitempty"`
	DynatempExponent *float64 `json:"dynatemp_exponent,omitempty"`
	XTCProbability   *float64 `json:"xtc_probability,omitempty"`
	XTCThreshold     *float64 `json:"xtc_threshold,omitempty"`
	Mirostat         *int     `json:"mirostat,omitempty"`
	MirostatTau      *float64 `json:"mirostat_tau,omitempty"`
	MirostatEta      *float64 `json:"mirostat_eta,omitempty"`
	DryMultiplier    *float64 `json:"dry_multiplier,omitempty"`
	DryBase          *float64 `json:"dry_base,omitempty"`
	DryAllowedLength *int     `json:"dry_allowed_length,omitempty"`
	DryPenaltyLastN  *int     `json:"dry_penalty_last_n,omitempty"`
	DryBreaks        []string `json:"dry_sequence_breakers,omitzero"` // none, if it is empty and not nil
	Samplers         []string `json:"samplers,omitempty"`             // the stages, in their order

	LogitBias     []Bias   `json:"logit_bias,omitempty"`
	BadWords      []string `json:"bad_words,omitempty"`
	AllowedTokens []int32  `json:"allowed_token_ids,omitempty"`
	StopTokens    []int32  `json:"stop_token_ids,omitempty"`
	MinTokens     *int     `json:"min_tokens,omitempty"`
	IgnoreEOS     bool     `json:"ignore_eos,omitempty"`

	Logprobs     *int `json:"logprobs,omitempty"`
	PostSampling bool `json:"post_sampling_probs,omitempty"` // Logprobs are those of the draw
}

// Bias is added to the logit of a token, or of each token of a text. -Inf forbids them.
type Bias struct {
	Token int32
	Text  string // in the place of Token
	Add   float64
}

// MarshalJSON returns the bias as requests have it.
func (b Bias) MarshalJSON() ([]byte, error) {
	of, add := any(b.Token), any(b.Add)
	if b.Text != "" {
		of = b.Text
	}
	if math.IsInf(b.Add, -1) {
		add = false
	}
	return encode([2]any{of, add})
}

// Think controls the thinking of a model that thinks.
type Think struct {
	Mode             string `json:"mode,omitempty"` // "auto": the model decides; "off"; "on"
	BudgetTokens     int    `json:"budget_tokens,omitempty"`
	SoftBudgetTokens *int   `json:"soft_budget_tokens,omitempty"`
	EarlyExit        string `json:"early_exit,omitempty"` // "off", "eat", "rpdi" or "both"
	AnswerCue        string `json:"answer_cue,omitempty"`
	Preserve         *bool  `json:"preserve,omitempty"` // the thoughts of earlier turns are rendered
}

// Format binds the text of an answer. One field is set; none: any text.
type Format struct {
	JSON    bool            `json:"json_object,omitempty"` // any JSON object
	Schema  json.RawMessage `json:"json,omitempty"`        // JSON that fits this schema
	Regex   string          `json:"regex,omitempty"`
	Choice  []string        `json:"choice,omitempty"`  // one of these
	Grammar string          `json:"grammar,omitempty"` // llama.cpp's GBNF
}

// LoRA is an adapter of the daemon's list, and its strength.
type LoRA struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// Priority is the class of a request. Background requests wait for interactive ones.
type Priority string

// The classes; interactive is the default.
const (
	Interactive Priority = "interactive"
	Background  Priority = "background"
)

// SLO has the latencies that a request asks for, in milliseconds; 0 = none.
type SLO struct {
	TTFTMs float64 `json:"target_ttft_ms,omitempty"` // to the first token
	ITLMs  float64 `json:"target_tbt_ms,omitempty"`  // between two tokens; 0 = the daemon's
	TTOTMs float64 `json:"target_ttot_ms,omitempty"` // from the end of the thought to the first token of the answer
	Strict bool    `json:"strict,omitempty"`         // refuse the request unless all of them will be met
}

// Tool is a function that the model may call.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // the JSON schema of its arguments, an object
	Strict      bool            `json:"strict,omitempty"`     // calls fit Parameters always
	// Deferred: the model sees the tool where the conversation refers to it. Referenced: the conversation has its text.
	Deferred   bool `json:"-"`
	Referenced bool `json:"-"`
}

// MarshalJSON returns the tool as requests have it.
func (t Tool) MarshalJSON() ([]byte, error) {
	type function Tool
	return encode(struct {
		Type       string   `json:"type"`
		Function   function `json:"function"`
		Deferred   bool     `json:"defer_loading,omitempty"`
		Referenced bool     `json:"referenced,omitempty"`
	}{"function", function(t), t.Deferred, t.Referenced})
}

// ToolCall is a call that the model asks for.
type ToolCall struct {
	ID        string `json:"-"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON text, as the model wrote it
}

// MarshalJSON returns the call as messages have it.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	type function ToolCall
	return encode(struct {
		ID       string   `json:"id,omitempty"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{c.ID, "function", function(c)})
}

// Message is one turn of a conversation.
type Message struct {
	Role             string     `json:"role"` // "system", "developer", "user", "assistant" or "tool"
	Content          string     `json:"content"`
	Parts            []Part     `json:"-"` // in the place of Content: texts, pictures and sounds
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	Name             string     `json:"name,omitempty"` // of the speaker, or of the tool
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID       string     `json:"tool_call_id,omitempty"` // with the role "tool": whose result this is
}

// MarshalJSON returns the message as requests have it.
func (m Message) MarshalJSON() ([]byte, error) {
	type plain Message
	if m.Parts == nil {
		return encode(plain(m))
	}
	return encode(struct {
		plain
		Content []Part `json:"content"`
	}{plain(m), m.Parts})
}

// Part is a text, a picture or a sound in a message.
type Part struct {
	kind  string
	value any
}

// Text returns a text.
func Text(text string) Part { return Part{"text", text} }

// Picture returns a picture: a data: URL, base64, or "fd:0", "fd:1", … for a file of StreamFiles.
func Picture(data string) Part { return Part{"image_url", map[string]string{"url": data}} }

// Sound returns a sound. data is as in Picture.
func Sound(data string) Part { return Part{"input_audio", map[string]string{"data": data}} }

// MarshalJSON returns the part as messages have it.
func (p Part) MarshalJSON() ([]byte, error) {
	return encode(map[string]any{"type": p.kind, p.kind: p.value})
}

// System returns a system message: instructions for the whole conversation.
func System(text string) Message { return Message{Role: "system", Content: text} }

// User returns a message of the user.
func User(text string) Message { return Message{Role: "user", Content: text} }

// UserWith returns a message of the user whose text is behind pictures and sounds.
func UserWith(text string, parts ...Part) Message {
	return Message{Role: "user", Parts: append(parts[:len(parts):len(parts)], Text(text))}
}

// Assistant returns an earlier answer. As the last message it is continued.
func Assistant(text string) Message { return Message{Role: "assistant", Content: text} }

// ToolResult returns the result of a call that an answer asked for.
func ToolResult(call ToolCall, text string) Message {
	return Message{Role: "tool", Name: call.Name, ToolCallID: call.ID, Content: text}
}

// NewRequest returns a request for a conversation. For raw text without a chat template, pass no messages and set
// Prompt.
func NewRequest(messages ...Message) *Request { return &Request{Messages: messages} }

// encode returns r as JSON, with stream true or false.
func (r *Request) encode(stream bool) ([]byte, error) {
	type plain Request
	whole := struct {
		*plain
		Prompt     any  `json:"prompt,omitempty"`
		MaxTokens  any  `json:"max_tokens,omitempty"`
		ToolChoice any  `json:"tool_choice,omitempty"`
		Stream     bool `json:"stream"`
	}{plain: (*plain)(r), Stream: stream}
	switch {
	case r.PromptTokens != nil:
		whole.Prompt = r.PromptTokens
	case r.Prompt != "":
		whole.Prompt = r.Prompt
	}
	switch {
	case r.FillOnly:
		whole.MaxTokens = 0
	case r.MaxTokens != 0:
		whole.MaxTokens = r.MaxTokens
	}
	switch r.ToolChoice {
	case "":
	case "auto", "none", "required":
		whole.ToolChoice = r.ToolChoice
	default:
		whole.ToolChoice = map[string]any{"type": "function", "function": map[string]string{"name": r.ToolChoice}}
	}
	return encode(whole)
}

// encode returns v as JSON, with <, > and & as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
