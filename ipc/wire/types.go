package wire

import (
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// Message is one turn of a conversation, as the chat template sees it.
type Message struct {
	Role             string
	Content          string
	ReasoningContent string     // past thinking, where a client sends it back (also read from "reasoning")
	Name             string     // of the speaker, or of the tool whose result this is; "" = not said
	ToolCalls        []ToolCall // an assistant's calls; Content may be empty beside them
	Images           []Image    // where ImageMark is in Content, in order
	ToolCallID       string     // with Role "tool": the id of the call that this is the result of; "" = not said
}

// Priority is the class a client asks for.
type Priority uint8

const (
	PriorityInteractive Priority = iota
	PriorityBackground
)

// Note describes a change to a conversation before it was rendered.
type Note struct {
	Reason string // short and stable
	Text   string // a sentence
	Times  int
}

// Notes are the notes of a conversation, each text once.
type Notes []Note

// MaxNotes bounds them: their texts hold words of the client. The last one counts the notes that have no place.
const MaxNotes = 16

// Add adds n, or counts it if there is one of its text.
func (list *Notes) Add(n Note) {
	if len(*list) == MaxNotes-1 && !slices.ContainsFunc(*list, func(o Note) bool { return o.Text == n.Text }) {
		*list = append(*list, Note{Reason: "more_left_out", Text: "Other parts or tools were left out, too."})
	}
	for i := range *list {
		if o := &(*list)[i]; o.Text == n.Text || i == MaxNotes-1 {
			o.Times += n.Times
			return
		}
	}
	*list = append(*list, n)
}

// LeftOut returns the text that replaces a part of a kind that this server cannot read in a conversation, and its note.
func LeftOut(kind string) (text string, n Note) {
	kind = short(kind)
	return "[" + kind + " left out: this server reads text]", Note{Reason: "part_left_out", Times: 1,
		Text: "A part of type " + kind + " was left out of the conversation: this server reads text."}
}

// ToolLeftOut returns the note of a tool that other servers run and this one does not offer.
func ToolLeftOut(kind string) Note {
	return Note{Reason: "tool_left_out", Times: 1,
		Text: "A tool of type " + short(kind) + " was left out: this server runs no tools."}
}

// short returns the beginning of a client's word, at most MaxNameBytes.
func short(kind string) string { return strings.ToValidUTF8(kind[:min(len(kind), MaxNameBytes)], "") }

// Request is one generation request of the framed protocol, complete: fields that the client left out have the server's
// defaults. It owns its memory; nothing in it aliases the frame. docs/protocol.md has the range of every field.
type Request struct {
	ID           string  // 1…128 bytes, unique among the connection's requests in flight
	Model        string  // the name of the model that is asked; "" = the default one
	Prompt       string  // raw text, no template; exclusive with Messages and PromptTokens
	PromptTokens []int32 // the prompt as token ids; nil = not given so
	// the markers in Prompt ("<|im_start|>") are single tokens; otherwise they are text like any other
	ParseSpecial bool
	Suffix       string    // the answer is between Prompt and Suffix; "" = the answer continues Prompt
	Messages     []Message // rendered with the model's chat template
	MaxTokens    int       // 0 = the server's default
	// 0: none; N: log-probability of each prompt token, and of the N most probable in its place
	PromptLogprobs int
	Indent         int           // n_indent: the answer ends at a line that is indented by less; 0 = none
	MaxTime        time.Duration // t_max_predict_ms: the answer ends at the first newline after it; 0 = none
	FillOnly       bool          // max_tokens 0: the prompt is computed and cached, no token is generated
	Sampling       sampler.Params

	// The server converts these to tokens and adds them to Sampling.
	TextBias  []TextBias // of logit_bias: by text instead of token id
	BadWords  []string   // each 1…256 bytes
	DryBreaks []string   // nil = DefaultDryBreaks

	// Tools that the model may call, and the format that its answer must have.
	Tools             []Tool
	ToolChoice        ToolChoice
	ParallelToolCalls bool // one answer may have several calls; true unless the client says otherwise
	Format            Format

	// How the rendering of Messages ends.
	Continue     Continue
	NoOpening    bool   // add_generation_prompt false: without the opening of an answer
	Notes        Notes  // changes that an API has made to Messages, for why; no field of the protocol
	TemplateArgs []byte // the JSON object of chat_template_kwargs, when it has members besides those about thinking

	// TruncatePrompt keeps the last tokens of a longer prompt: a number, or -1 for as many as fit before MaxTokens; 0 =
	// a longer prompt is an error
	TruncatePrompt int
	EveryToken     bool // return_token_ids: a token event for each token, also those without text

	// CacheSalt divides the user's cached prefixes; "" = those without a salt.
	CacheSalt string
	LoRA      []LoRA // adapters; nil: those of the model's name, or those that apply to every request
	Verbosity string // "low", "medium", "high", for templates that know it; "" = not said

	Stop   []string // in the client's order; each 1…256 bytes
	Stream bool     // token events while it runs; otherwise the eos event holds the text
	// sse_ping_interval: seconds after which a silent HTTP stream gets a comment; 0 = the server's choice, -1 = never
	Ping     int
	Verbose  bool // verbose: over HTTP the answer has llama-server's own form beside OpenAI's
	Progress bool // wants progress events from a prompt's first step on ("return_progress": true)
	// wants none ("return_progress": false); a streaming request without either gets them when its prompt takes long
	NoProgress bool
	// Speculate is the most tokens that a step computes on the guess that they follow, where SpeculateSet; 0 = none
	Speculate    int
	SpeculateSet bool
	Priority     Priority
	Think        Think // wishes about thinking; the zero value has none
	slo.Targets        // field "slo"; see sched/slo
	// of W3C Trace Context, for the server's traces ([telemetry]); "" = none
	Traceparent string
	Metadata    []byte // the JSON value of "metadata", echoed as it came; nil = none
}

// TextBias is added to the logit of each token of a text. -Inf forbids them.
type TextBias struct {
	Text string
	Bias float32
}

// Continue selects whether the last message, an assistant's, is continued or closed.
type Continue uint8

const (
	ContinueLast Continue = iota // if it is an assistant's
	ContinueOn                   // it must be one
	ContinueOff
	ContinueThought // its thought is continued: it has no content
	ContinueContent // its thought is closed
)

// String returns the value of "continue_final_message", "" for ContinueLast, which no value says.
func (c Continue) String() string {
	return [...]string{ContinueOn: "true", ContinueOff: "false", ContinueThought: `"reasoning_content"`,
		ContinueContent: `"content"`}[c]
}

// DefaultDryBreaks are llama-server's.
var DefaultDryBreaks = []string{"\n", ":", "\"", "*"}

// Kind is the type of a client frame.
type Kind uint8

const (
	KindRequest  Kind = iota + 1
	KindCancel        // {"event":"cancel","id":…}
	KindEndThink      // {"event":"end_think","id":…}
	KindMetrics       // {"type":"metrics"}
	KindHealth        // {"type":"health"}
	KindInfo          // {"type":"info"}
	KindWhy           // {"event":"why","request":…} or {"event":"why","last":…}
	KindKV            // {"event":"kv"}, {"event":"kv","op":…,"target":…}
	KindEmbed         // {"event":"embed","id":…,"input":…}
)

// String returns the value of "type" or "event" that asks for k.
func (k Kind) String() string {
	switch k {
	case KindRequest:
		return "request"
	case KindCancel:
		return "cancel"
	case KindEndThink:
		return "end_think"
	case KindMetrics:
		return "metrics"
	case KindHealth:
		return "health"
	case KindInfo:
		return "info"
	case KindWhy:
		return "why"
	case KindKV:
		return "kv"
	case KindEmbed:
		return "embed"
	}
	return "unknown"
}

// Frame is one message of a client.
type Frame struct {
	Kind Kind
	// of the request, of the one to cancel or to end thinking in, or an admin question's own ("" = it has none)
	ID      string
	Request *Request    // with KindRequest
	Why     WhyQuestion // with KindWhy
	KV      KVQuestion  // with KindKV
	Embed   *Embed      // with KindEmbed
}

// Code is an error code of the protocol; docs/protocol.md says for each what the client should do.
type Code string

const (
	FrameTooLarge   Code = "E_PROTO_FRAME_TOO_LARGE"
	InvalidJSON     Code = "E_PROTO_INVALID_JSON"
	BadRequest      Code = "E_PROTO_BAD_REQUEST"
	DuplicateID     Code = "E_PROTO_DUPLICATE_ID"
	Timeout         Code = "E_PROTO_TIMEOUT"
	PromptTooLarge  Code = "E_LIMIT_PROMPT_TOO_LARGE"
	SessionLimit    Code = "E_LIMIT_SESSIONS"
	QueueLimit      Code = "E_LIMIT_QUEUE"
	ContextLength   Code = "E_CONTEXT_LENGTH_EXCEEDED"
	RuntimeDecode   Code = "E_RUNTIME_DECODE"
	ShuttingDown    Code = "E_SHUTTING_DOWN"
	ModelUnready    Code = "E_MODEL_LOADING"
	NotSupported    Code = "E_NOT_SUPPORTED"
	ModelNotFound   Code = "E_MODEL_NOT_FOUND"
	ModelTooLarge   Code = "E_MODEL_TOO_LARGE"
	EngineCrashed   Code = "E_ENGINE_CRASHED"
	InternalFailure Code = "E_INTERNAL"
)

// Codes are all error codes.
var Codes = []Code{FrameTooLarge, InvalidJSON, BadRequest, DuplicateID, Timeout, PromptTooLarge, SessionLimit,
	QueueLimit, ContextLength, RuntimeDecode, ShuttingDown, ModelUnready, ModelNotFound, ModelTooLarge, EngineCrashed,
	NotSupported, InternalFailure}

// Reason is the cause of a generation's end, the "reason" of an eos event.
type Reason string

const (
	Stop      Reason = "stop"       // end of generation, or a stop string
	Length    Reason = "length"     // max_tokens or the context is full
	Calls     Reason = "tool_calls" // the answer calls tools
	Cancelled Reason = "cancelled"  // the client asked
	Shutdown  Reason = "shutdown"   // the server's --shutdown-timeout passed
)

// Reasons are all reasons of an eos event.
var Reasons = []Reason{Stop, Length, Calls, Cancelled, Shutdown}

// Phase of a token event.
type Phase string

const (
	Thinking Phase = "think"
	Output   Phase = "output"
	InPrompt Phase = "prompt" // a token of the prompt, with prompt_logprobs
)

// TokenLogprob is one entry of "logprobs".
type TokenLogprob struct {
	Token   int32
	Text    []byte // the token's bytes
	Logprob float32
}

// Token is a token event. Text is complete UTF-8 and may be empty when TokenID ends inside a character or while a
// stop string may be forming.
type Token struct {
	ID      string
	Text    []byte
	TokenID int32
	Phase   Phase
	Logprob float32        // with HasLogprob
	Top     []TokenLogprob // with HasLogprob: the most probable tokens, descending

	HasLogprob bool
}

// ToolCallDelta is a tool_call event: the beginning of a call, or more of its arguments. The deltas of one answer
// come in the order of Index, and their text is in no token event.
type ToolCallDelta struct {
	ID        string // of the request
	Index     int    // of the call in its answer, from 0
	CallID    string // of the call, with its first delta; "" later
	Name      string // of the tool, with its first delta; "" later
	Arguments []byte // text that this delta adds to the JSON of the arguments
}

// CacheTier is a tier of the prefix cache, as the source of the cached part of a prompt.
type CacheTier string

const (
	TierNone   CacheTier = "" // written "none"
	TierDevice CacheTier = "device"
	TierHost   CacheTier = "host"
	TierDisk   CacheTier = "disk"
	TierFabric CacheTier = "fabric"
)

// CacheTiers are all tiers that hold something, the fastest first.
var CacheTiers = []CacheTier{TierDevice, TierHost, TierDisk, TierFabric}

// String returns the word of the protocol.
func (t CacheTier) String() string {
	if t == TierNone {
		return "none"
	}
	return string(t)
}

// MarshalText and UnmarshalText write TierNone as "none" in reports.
func (t CacheTier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

func (t *CacheTier) UnmarshalText(b []byte) error {
	*t = CacheTierOf(b)
	return nil
}

// CacheTierOf is the inverse of String.
func CacheTierOf(b []byte) CacheTier {
	if string(b) == "none" {
		return TierNone
	}
	return CacheTier(b)
}

// Usage counts a request's tokens.
type Usage struct {
	PromptTokens     int
	CachedTokens     int // of PromptTokens: not computed for this request
	CompletionTokens int
	ThinkTokens      int       // of CompletionTokens
	CacheTier        CacheTier // the slowest that CachedTokens came from
	CacheMiss        string    // place and reason at which the cached part ends: "diverged at token 812: …"; "" = none
	DraftedTokens    int       // guessed and computed before they were sampled
	AcceptedTokens   int       // of DraftedTokens: the sampled token was the guess
}

// ThinkSummary sums up a request's thinking; the zero value means that it never thought.
type ThinkSummary struct {
	Tokens int           // without the tags
	Time   time.Duration // from the opening to the closing tag
	Ended  string        // one of ThinkEnds
	Probes int           // EAT probes: measurements of whether the answer is settled
}

// ThinkEnds are the values of an eos event's think.ended: how thinking ended.
var ThinkEnds = []string{"natural", "converged", "stalled", "overthinking", "hard_cap", "soft_cap", "user", "eog",
	"length"}

// Timings of a finished request, measured by the server.
type Timings struct {
	Queue   time.Duration // arrival → first prefill chunk
	TTFT    time.Duration // arrival → first token
	Prefill time.Duration // first chunk → first token
	Decode  time.Duration // first token → last token
}

// EOS ends a request; exactly one eos or error is sent for each.
type EOS struct {
	ID        string
	Reason    Reason
	StopText  string     // the stop string that matched, "" otherwise
	Text      []byte     // the answer when the request did not stream
	Think     []byte     // the thinking's text when the request did not stream
	ToolCalls []ToolCall // the calls when the request did not stream
	Streamed  bool       // the text went out as token events: Text, Think and ToolCalls are not sent
	Thought   ThinkSummary
	Usage     Usage
	Timings   Timings
	Metadata  []byte // echoed
}

// TokensPerSecond returns the decode speed: the tokens after the first over the time they took, 0 for fewer than two.
func (e *EOS) TokensPerSecond() float64 {
	if e.Usage.CompletionTokens < 2 || e.Timings.Decode <= 0 {
		return 0
	}
	return float64(e.Usage.CompletionTokens-1) / e.Timings.Decode.Seconds()
}

// Error answers a request, or, with an empty ID, a broken frame.
type Error struct {
	ID         string
	Code       Code
	Message    string
	RetryAfter time.Duration // 0 = not sent
	NPrompt    int           // with ContextLength
	NCtx       int           // with ContextLength
	Predicted  time.Duration // with QueueLimit, of a strict target that would be missed; 0 = not sent
}

// Progress is a progress event: the computed part of a prompt, and the place in the queue.
type Progress struct {
	ID        string
	Processed int
	Total     int
	Cached    int // of Total: not computed for this request, as far as it is known
	Elapsed   time.Duration
	Position  int // place in the queue, 1 = next; 0 = running

	// Waiting is the reason of the decision (see Decision) for which a request waits for its model; "" once it has one.
	// Total is 0 as long as it waits.
	Waiting string
	Loaded  float64 // with Waiting: loaded fraction of the model, 0…1
}
