package loadgen

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/uma-serve/uma-serve/bench/workload"
)

// httpTarget sends requests over HTTP: to llama-server, to ollama, and by OpenAI's protocol.
type httpTarget struct {
	*client
	c    *http.Client
	base string // without a slash at the end
	key  string
}

func newHTTP(c *client, key string) *httpTarget {
	t := &httpTarget{client: c, key: key,
		base: strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(c.job.Address, "/"), "/v1"), "/")}
	tr := &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true, DialContext: c.dial}
	if !strings.Contains(c.job.Address, "://") { // a Unix socket
		t.base = "http://server"
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.dial(ctx, "unix", c.job.Address)
		}
	}
	t.c = &http.Client{Transport: tr}
	return t
}

func (t *httpTarget) close() { t.c.CloseIdleConnections() }

func (t *httpTarget) ask(ctx context.Context, r *workload.Request, messages []workload.Message, rec *Record) error {
	switch {
	case r.Via != "" && r.Via != "http":
		return skipError("only uma-serve speaks " + r.Via)
	case t.job.Target == "ollama":
		return t.ollama(ctx, r, messages, rec)
	case t.job.Target == "llama-server" && len(messages) == 0:
		return t.completion(ctx, r, rec)
	}
	return t.chat(ctx, r, messages, rec)
}

// chunk is one event of any of the streams; the fields that a server lacks stay empty.
type chunk struct {
	// OpenAI.
	Choices []struct {
		Delta struct {
			Content          string
			ReasoningContent string `json:"reasoning_content"`
			Reasoning        string
		}
		Text         string
		FinishReason string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Output struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	Error  json.RawMessage
	Object string // "error" in vLLM's errors

	// llama-server's own.
	Content  *string
	Stop     bool
	StopType string `json:"stop_type"`
	Timings  *struct {
		Cache     int `json:"cache_n"`
		Prompt    int `json:"prompt_n"`
		Predicted int `json:"predicted_n"`
	}

	// ollama.
	Message  *struct{ Content, Thinking string }
	Response *string
	Thinking string
	Done     bool
	Why      string `json:"done_reason"`
	PromptN  int    `json:"prompt_eval_count"`
	EvalN    int    `json:"eval_count"`
}

// post sends a body with the extra fields and hands each JSON event of the answer to each, with its time.
func (t *httpTarget) post(ctx context.Context, path string, body map[string]any, rec *Record,
	each func(*chunk, int64)) error {
	if len(t.job.Extra) > 0 {
		if err := json.Unmarshal(t.job.Extra, &body); err != nil {
			return fmt.Errorf("extra fields: %w", err)
		}
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", t.base+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if t.key != "" {
		req.Header.Set("Authorization", "Bearer "+t.key)
	}
	rec.Sent = t.now()
	resp, err := t.c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if (resp.StatusCode == 404 || resp.StatusCode == 405) && t.job.Target == "uma" {
			return skipError("this uma-serve is older than its HTTP endpoints (no " + path + ")")
		}
		return fmt.Errorf("POST %s: %s: %s", path, resp.Status, complaint(b))
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/json" {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return fmt.Errorf("POST %s: the server did not stream its answer: %s", path, complaint(b))
	}
	// Lines that came with one read have one time.
	from := &stamped{Reader: resp.Body, client: t.client}
	in := bufio.NewReaderSize(from, 64<<10)
	var long []byte
	for {
		part, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) && len(long) < 16<<20 {
			long = append(long, part...)
			continue
		}
		text := part
		if len(long) > 0 {
			text, long = append(long, part...), nil
		}
		text = bytes.TrimSpace(text)
		field, payload, _ := bytes.Cut(text, []byte(":"))
		switch string(field) {
		case "data":
			text = bytes.TrimSpace(payload)
		case "error": // llama-server's until 2025
			return fmt.Errorf("the server answered: %s", complaint(payload))
		default:
			if t.job.Target != "ollama" {
				text = nil // SSE's comments, event names, ids; the empty line behind an event
			}
		}
		if len(text) > 0 && text[0] == '{' {
			var c chunk
			err := json.Unmarshal(text, &c)
			switch {
			case len(c.Error) > 0 && string(c.Error) != "null", c.Object == "error": // whose message is a text
				return fmt.Errorf("the server answered: %s", complaint(text))
			case err != nil:
				return fmt.Errorf("read the server's event %.200q: %w", text, err)
			}
			each(&c, from.at)
		}
		switch {
		case err == io.EOF:
			if rec.Reason == "" {
				return errors.New("the answer ended without a reason: the server broke off")
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// stamped is a reader that notes the time of each read.
type stamped struct {
	io.Reader
	client *client
	at     int64
}

func (s *stamped) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.at = s.client.now()
	return n, err
}

// complaint returns the text of a server's error: the message within any of {"error":{"message":…}}, {"error":"…"} and
// {"message":…}, else the text.
func complaint(b []byte) string {
	type said struct{ Message string }
	var outer struct {
		Error json.RawMessage
		said
	}
	text := strings.TrimSpace(string(b))
	if json.Unmarshal(b, &outer) == nil {
		var inner said
		if len(outer.Error) > 0 && json.Unmarshal(outer.Error, &inner.Message) != nil {
			json.Unmarshal(outer.Error, &inner)
		}
		text = cmp.Or(inner.Message, outer.Message, text)
	}
	return text[:min(len(text), 500)]
}

// tags parses the think tags of a server that leaves them in the text.
type tags struct{ open, closed bool }

// split reports whether a piece of content belongs to the thinking. A tag comes as a separate piece from a server whose
// tokens they are; where it shares one with text, the piece counts as what follows the tag.
func (s *tags) split(text string) (thinking bool, rest string, token bool) {
	trimmed := strings.TrimSpace(text)
	if !s.open && !s.closed && strings.HasPrefix(trimmed, "<think>") {
		s.open = true
		rest := strings.TrimPrefix(trimmed, "<think>")
		return true, rest, rest != ""
	}
	if s.open && !s.closed {
		if _, after, ok := strings.Cut(text, "</think>"); ok {
			s.closed = true
			return false, after, strings.TrimSpace(after) != ""
		}
		return true, text, true
	}
	return false, text, true
}

func (t *httpTarget) sampling(rec *Record) map[string]any {
	return map[string]any{"stream": true, "temperature": t.job.Temperature, "seed": t.job.Seed + uint64(rec.Index)}
}

// chat uses OpenAI's protocol, for raw prompts too.
func (t *httpTarget) chat(ctx context.Context, r *workload.Request, messages []workload.Message, rec *Record) error {
	body, path := t.sampling(rec), "/v1/chat/completions"
	body["max_tokens"] = r.Think + r.Output
	body["stream_options"] = map[string]any{"include_usage": true}
	if t.job.Model != "" {
		body["model"] = t.job.Model
	}
	if len(messages) > 0 {
		body["messages"] = messages
	} else {
		path, body["prompt"] = "/v1/completions", r.Prompt
	}
	switch t.job.Target {
	case "llama-server":
		body["ignore_eos"] = r.Exact
		if r.Kind == workload.Chat { // as for uma-serve's chats; other templates ignore it
			body["chat_template_kwargs"] = map[string]any{"enable_thinking": false}
		}
	case "uma": // the fields that uma.setOptions sets
		body["ignore_eos"] = r.Exact
		if r.Kind == workload.Chat && len(messages) > 0 {
			body["enable_thinking"] = false
		}
	}
	var think tags
	return t.post(ctx, path, body, rec, func(c *chunk, now int64) {
		for _, ch := range c.Choices {
			if ch.Delta.ReasoningContent != "" || ch.Delta.Reasoning != "" {
				rec.Token(now, true, "x", false)
			}
			if text := ch.Delta.Content + ch.Text; text != "" {
				if thinking, rest, token := think.split(text); token {
					rec.Token(now, thinking, rest, true)
				}
			}
			if ch.FinishReason != "" {
				rec.Reason, rec.End = ch.FinishReason, now
			}
		}
		if u := c.Usage; u != nil {
			rec.PromptTokens, rec.CompletionTokens = u.Prompt, u.Completion
			rec.CachedTokens, rec.ThinkTokens = u.Details.Cached, u.Output.Reasoning
			if rec.ThinkTokens == 0 {
				rec.ThinkTokens = len(rec.Think)
			}
		}
		if c.Timings != nil { // llama-server adds them
			rec.CachedTokens = max(rec.CachedTokens, c.Timings.Cache)
		}
	})
}

// completion uses llama-server's /completion to continue a text.
func (t *httpTarget) completion(ctx context.Context, r *workload.Request, rec *Record) error {
	body := t.sampling(rec)
	body["prompt"], body["n_predict"], body["ignore_eos"], body["cache_prompt"] = r.Prompt, r.Output, r.Exact, true
	return t.post(ctx, "/completion", body, rec, func(c *chunk, now int64) {
		if c.Content != nil && (!c.Stop || *c.Content != "") {
			rec.Token(now, false, *c.Content, true)
		}
		if c.Stop {
			rec.Reason, rec.End = "stop", now
			if c.StopType == "limit" {
				rec.Reason = "length"
			}
			if c.Timings != nil {
				rec.PromptTokens, rec.CachedTokens, rec.CompletionTokens = c.Timings.Prompt+c.Timings.Cache,
					c.Timings.Cache, c.Timings.Predicted
			}
		}
	})
}

// ollama uses ollama's protocol, whose events separate thinking from the answer.
func (t *httpTarget) ollama(ctx context.Context, r *workload.Request, messages []workload.Message, rec *Record) error {
	body := map[string]any{"stream": true, "model": t.job.Model,
		"options": map[string]any{"temperature": t.job.Temperature, "seed": t.job.Seed + uint64(rec.Index),
			"num_predict": r.Think + r.Output}}
	path := "/api/chat"
	if len(messages) > 0 {
		body["messages"] = messages
		if r.Kind == workload.Chat {
			body["think"] = false
		}
	} else {
		path, body["prompt"], body["raw"] = "/api/generate", r.Prompt, true
	}
	return t.post(ctx, path, body, rec, func(c *chunk, now int64) {
		thinking, text := c.Thinking, ""
		if c.Message != nil {
			thinking, text = c.Message.Thinking, c.Message.Content
		} else if c.Response != nil {
			text = *c.Response
		}
		if thinking != "" {
			rec.Token(now, true, "x", false)
		}
		if text != "" {
			rec.Token(now, false, text, true)
		}
		if c.Done {
			rec.Reason, rec.End = c.Why, now
			if rec.Reason == "" {
				rec.Reason = "stop"
			}
			rec.PromptTokens, rec.CompletionTokens, rec.ThinkTokens = c.PromptN, c.EvalN, len(rec.Think)
		}
	})
}
