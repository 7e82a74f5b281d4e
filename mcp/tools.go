package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// chatMessage is a message of chat's conversation.
type chatMessage struct {
	Role    string `json:"role" jsonschema:"system, user or assistant"`
	Content string `json:"content"`
}

// chatIn are the arguments of chat.
type chatIn struct {
	Prompt      string        `json:"prompt,omitempty" jsonschema:"the user's message; messages is the alternative"`
	Messages    []chatMessage `json:"messages,omitempty" jsonschema:"a conversation; prompt is the alternative"`
	System      string        `json:"system,omitempty" jsonschema:"instructions before the conversation"`
	Model       string        `json:"model,omitempty" jsonschema:"a name of the tool models; default: the server's"`
	MaxTokens   int           `json:"max_tokens,omitempty" jsonschema:"at most so many tokens; default 1024"`
	Temperature *float64      `json:"temperature,omitempty" jsonschema:"0 is greedy"`
	Background  bool          `json:"background,omitempty" jsonschema:"give way to interactive requests"`
}

// completeIn are the arguments of complete.
type completeIn struct {
	Prompt      string   `json:"prompt" jsonschema:"raw text without a chat template, which the answer continues"`
	Suffix      string   `json:"suffix,omitempty" jsonschema:"text after the answer, of models that can fill in"`
	Stop        []string `json:"stop,omitempty" jsonschema:"the answer ends before any of these texts"`
	Model       string   `json:"model,omitempty" jsonschema:"a name of the tool models; default: the server's"`
	MaxTokens   int      `json:"max_tokens,omitempty" jsonschema:"at most so many tokens; default 1024"`
	Temperature *float64 `json:"temperature,omitempty" jsonschema:"0 is greedy"`
	Background  bool     `json:"background,omitempty" jsonschema:"give way to interactive requests"`
}

// answerOut is the structured result of chat and complete.
type answerOut struct {
	Text         string  `json:"text"`
	Thinking     string  `json:"thinking,omitempty" jsonschema:"the text before the answer, of models that think"`
	Request      string  `json:"request" jsonschema:"the request's id, for the tool why"`
	Reason       string  `json:"reason" jsonschema:"why the answer ended"`
	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens int     `json:"cached_tokens" jsonschema:"tokens of the prompt that were not computed again"`
	AnswerTokens int     `json:"answer_tokens"`
	TokensPerSec float64 `json:"tokens_per_second"`
	TTFTMs       float64 `json:"ttft_ms" jsonschema:"time to the first token, in ms"`
}

// whyIn are the arguments of why.
type whyIn struct {
	Request string `json:"request,omitempty" jsonschema:"the id of one request"`
	Last    int    `json:"last,omitempty" jsonschema:"so many of the newest requests, 1 to 64; default 5"`
}

// kvIn are the arguments of kv.
type kvIn struct {
	Tree bool `json:"tree,omitempty" jsonschema:"with the prefix tree as text"`
}

// noneIn are the arguments of a tool without any.
type noneIn struct{}

// addTools declares the tools.
func (s *Server) addTools() {
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(bool)}
	asks := &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)}
	sdk.AddTool(s.sdk, &sdk.Tool{Name: "chat", Title: "Chat with the local model", Annotations: asks,
		InputSchema: arguments[chatIn](),
		Description: "Ask the model that runs on this machine. Sends a prompt or a conversation and returns the " +
			"answer."},
		s.chat)
	sdk.AddTool(s.sdk, &sdk.Tool{Name: "complete", Title: "Continue a text", Annotations: asks,
		InputSchema: arguments[completeIn](),
		Description: "Continue a raw text with the model that runs on this machine, without a chat template."},
		s.complete)
	sdk.AddTool(s.sdk, &sdk.Tool{Name: "why", Title: "Why was it slow?", Annotations: reads,
		Description: "The scheduler's decisions about requests: what they waited for, how long each phase took, and " +
			"what ran beside them."}, s.askWhy)
	sdk.AddTool(s.sdk, &sdk.Tool{Name: "kv", Title: "KV cache", Annotations: reads,
		Description: "The contents of the KV cache: cells in use, cached prefixes, snapshots in memory and on disk."},
		s.askKV)
	sdk.AddTool(s.sdk, &sdk.Tool{Name: "models", Title: "Models", Annotations: reads,
		Description: "The models that the daemon serves, with their size, context and state."}, s.models)
}

// arguments returns the schema of a tool's arguments. Each has one type: a list with "null" is legal, but clients that
// pass the schema on as an OpenAPI schema, as for Gemini, refuse the tool. An argument that may be null may be left
// out.
func arguments[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic("mcp: " + err.Error()) // the types are this file's
	}
	for _, p := range s.Properties {
		if i := slices.Index(p.Types, "null"); i >= 0 && len(p.Types) == 2 {
			p.Type, p.Types = p.Types[1-i], nil
		}
	}
	return s
}

// tokensOf returns max_tokens, or an error that names the limits.
func tokensOf(n int) (int, error) {
	switch {
	case n == 0:
		return DefaultAnswerTokens, nil
	case n < 0 || n > MaxAnswerTokens:
		return 0, fmt.Errorf("max_tokens is %d; it must be 1…%d", n, MaxAnswerTokens)
	}
	return n, nil
}

// request fills in what chat and complete have in common.
func (s *Server) request(r *client.Request, model string, maxTokens int, temperature *float64, background bool) error {
	var err error
	if r.MaxTokens, err = tokensOf(maxTokens); err != nil {
		return err
	}
	n := len(r.Prompt) + len(r.Suffix)
	for _, m := range r.Messages {
		n += len(m.Content)
	}
	if n > MaxPromptBytes {
		return fmt.Errorf("the prompt has %d bytes; it must have at most %d", n, MaxPromptBytes)
	}
	r.Temperature = temperature
	if background {
		r.Priority = client.Background
	}
	if r.Model = model; model == "" {
		r.Model = s.Model
	}
	r.ID = "mcp-" + strings.ToLower(rand.Text()[:16]) // names it for why, among those of all connections
	return nil
}

func (s *Server) chat(ctx context.Context, call *sdk.CallToolRequest, in chatIn) (*sdk.CallToolResult, *answerOut,
	error) {
	if (in.Prompt == "") == (len(in.Messages) == 0) {
		return nil, nil, errors.New(`give either "prompt" or "messages"`)
	}
	var messages []client.Message
	if in.System != "" {
		messages = append(messages, client.System(in.System))
	}
	for i, m := range in.Messages {
		if m.Role != "system" && m.Role != "user" && m.Role != "assistant" {
			return nil, nil, fmt.Errorf(`messages[%d].role is %.40q; it must be "system", "user" or "assistant"`, i,
				m.Role)
		}
		messages = append(messages, client.Message{Role: m.Role, Content: m.Content})
	}
	if in.Prompt != "" {
		messages = append(messages, client.User(in.Prompt))
	}
	r := client.NewRequest(messages...)
	if err := s.request(r, in.Model, in.MaxTokens, in.Temperature, in.Background); err != nil {
		return nil, nil, err
	}
	return s.answer(ctx, call, r)
}

func (s *Server) complete(ctx context.Context, call *sdk.CallToolRequest, in completeIn) (*sdk.CallToolResult,
	*answerOut, error) {
	if in.Prompt == "" {
		return nil, nil, errors.New(`"prompt" is empty; it must be the text that the answer continues`)
	}
	r := client.NewRequest()
	r.Prompt, r.Suffix, r.Stop = in.Prompt, in.Suffix, in.Stop
	if err := s.request(r, in.Model, in.MaxTokens, in.Temperature, in.Background); err != nil {
		return nil, nil, err
	}
	return s.answer(ctx, call, r)
}

// progressEvery is the interval of progress notifications.
const progressEvery = time.Second

// answer sends a request and collects its answer. A client that gave a progress token hears how many tokens there are.
func (s *Server) answer(ctx context.Context, call *sdk.CallToolRequest, r *client.Request) (*sdk.CallToolResult,
	*answerOut, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	c, err := s.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	st, err := c.Stream(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	out := &answerOut{Request: r.ID}
	var text, thinking strings.Builder
	tokens, told := 0, time.Now()
	token := call.Params.GetProgressToken()
	for {
		ev, err := st.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		if ev.Token != nil {
			tokens++
			if ev.Token.Phase == client.Thinking {
				thinking.Write(ev.Token.Text)
			} else {
				text.Write(ev.Token.Text)
			}
			if text.Len()+thinking.Len() > MaxResultBytes {
				return nil, nil, fmt.Errorf("the answer has more than %d bytes; ask for fewer tokens", MaxResultBytes)
			}
		}
		if now := time.Now(); token != nil && now.Sub(told) >= progressEvery {
			told = now
			// A client that does not take it loses this notification alone.
			_ = call.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token,
				Progress: float64(tokens), Total: float64(r.MaxTokens), Message: fmt.Sprintf("%d tokens", tokens)})
		}
	}
	end := st.End()
	out.Text, out.Thinking, out.Reason = text.String(), thinking.String(), string(end.Reason)
	out.PromptTokens, out.CachedTokens, out.AnswerTokens = end.Usage.PromptTokens, end.Usage.CachedTokens,
		end.Usage.CompletionTokens
	out.TokensPerSec, out.TTFTMs = end.TokensPerSecond(), end.Timings.TTFT.Seconds()*1000
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: out.Text}}}, out, nil
}

func (s *Server) askWhy(ctx context.Context, _ *sdk.CallToolRequest, in whyIn) (*sdk.CallToolResult, any, error) {
	switch {
	case in.Request != "" && in.Last != 0:
		return nil, nil, errors.New(`give either "request" or "last"`)
	case in.Request == "" && in.Last == 0:
		in.Last = defaultLast
	case in.Request == "" && (in.Last < 1 || in.Last > wire.MaxLast):
		return nil, nil, fmt.Errorf("last is %d; it must be 1…%d", in.Last, wire.MaxLast)
	}
	return s.result(s.why(in.Request, in.Last)(ctx))
}

// defaultLast is the number of requests in an answer of why without arguments.
const defaultLast = 5

func (s *Server) askKV(ctx context.Context, _ *sdk.CallToolRequest, in kvIn) (*sdk.CallToolResult, any, error) {
	return s.result(s.kv(in.Tree)(ctx))
}

func (s *Server) models(ctx context.Context, _ *sdk.CallToolRequest, _ noneIn) (*sdk.CallToolResult, any, error) {
	return s.result(s.report((*client.Client).Models)(ctx))
}

// result returns the result of a tool that returns a report.
func (s *Server) result(report []byte, err error) (*sdk.CallToolResult, any, error) {
	if err != nil {
		return nil, nil, err
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(report)}}}, nil, nil
}

// report returns a function that asks the daemon a question on a new connection.
func (s *Server) report(ask func(*client.Client, context.Context) (client.Report, error)) reader {
	return func(ctx context.Context) ([]byte, error) {
		ctx, leave, err := s.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		c, err := s.dial(ctx)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return bounded(ask(c, ctx))
	}
}

// reader returns a report as JSON.
type reader func(ctx context.Context) ([]byte, error)

// why returns a reader of the decisions about a request, or about the newest requests.
func (s *Server) why(request string, last int) reader {
	return s.report(func(c *client.Client, ctx context.Context) (client.Report, error) {
		return c.Why(ctx, request, last)
	})
}

func (s *Server) kv(tree bool) reader {
	return s.report(func(c *client.Client, ctx context.Context) (client.Report, error) { return c.KV(ctx, tree) })
}

// bounded refuses a report that is too large for a client's context.
func bounded(raw []byte, err error) ([]byte, error) {
	if err == nil && len(raw) > MaxResultBytes {
		return nil, fmt.Errorf("the report has %d bytes; a result has at most %d: ask for less, for example for one "+
			"request", len(raw), MaxResultBytes)
	}
	return raw, err
}
