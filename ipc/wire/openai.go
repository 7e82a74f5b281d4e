package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// OpenAI's API, in terms of this protocol: a body becomes the payload of a request, events become chunks. The fields
// are those of chat completions and of the older completions, with the extensions that llama-server's clients read
// (reasoning_content, timings, prompt_progress).

// OpenAIWants is what a body asks of its answer beyond what a request of this protocol holds.
type OpenAIWants struct {
	Stream bool // chunks while it runs, not one object at the end
	Usage  bool // stream_options.include_usage
}

// OpenAIOverhead is the most bytes by which a request is longer than the body that it was made of, for an id of
// MaxIDBytes.
const OpenAIOverhead = len(`{"stream":true,"id":"",}`) + 6*MaxIDBytes

// ParseOpenAI turns the body of POST /v1/chat/completions (chat) or /v1/completions into the payload of a request that
// streams and has this id. Each field goes over as the client wrote it and is checked by Parse, from the one table of
// fields; what is refused here has no place there. The error is a RequestError.
func ParseOpenAI(p *Parser, id string, body []byte, chat bool) (payload []byte, w OpenAIWants, err error) {
	refuse := func(code Code, format string, args ...any) ([]byte, OpenAIWants, error) {
		return nil, w, &RequestError{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	defer p.release(body)
	if bad := p.scan.scan(body); bad != "" {
		return refuse(InvalidJSON, "%s", bad)
	}
	in := json.NewDecoder(bytes.NewReader(body))
	if kind := jsonKind(bytes.TrimLeft(body, " \t\r\n")); kind != "an object" {
		return refuse(BadRequest, "the body is %s; it must be a JSON object", kind)
	} else if _, err := in.Token(); err != nil {
		return refuse(InvalidJSON, "%v", err)
	}
	payload = appendString([]byte(`{"stream":true,"id":`), id)
	seen := map[string]bool{}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return refuse(InvalidJSON, "%v", err)
		}
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return refuse(InvalidJSON, "%v", err)
		}
		key, _ := name.(string)
		if string(raw) == "null" {
			continue
		}
		pass, err := w.field(key, &raw, chat, seen[key])
		if err != nil {
			return refuse(BadRequest, "%v", err)
		}
		if seen[key] = true; pass {
			payload = append(append(appendString(append(payload, ','), key), ':'), raw...)
		}
	}
	switch {
	case chat && !seen["messages"]:
		return refuse(BadRequest, `field "messages" is missing; it must be an array of {"role":…,"content":…}`)
	case !chat && !seen["prompt"]:
		return refuse(BadRequest, `field "prompt" is missing; it must be a string`)
	}
	return append(payload, '}'), w, nil
}

// field reads what is said about the answer and reports whether the field goes over to the request.
func (w *OpenAIWants) field(key string, raw *json.RawMessage, chat, again bool) (pass bool, err error) {
	switch key {
	case "stream":
		if !again {
			return false, unmarshal(key, *raw, &w.Stream, "true or false")
		}
	case "stream_options":
		if !again {
			var options struct {
				IncludeUsage json.RawMessage `json:"include_usage"`
			}
			if err := unmarshal(key, *raw, &options, "an object"); err != nil || options.IncludeUsage == nil {
				return false, err
			}
			return false, unmarshal("stream_options.include_usage", options.IncludeUsage, &w.Usage, "true or false")
		}
	case "id", "metadata": // of OpenAI's own records; nothing of them comes back
		return false, nil
	case "event", "type":
		return false, fmt.Errorf("field %q belongs to the framed protocol; leave it out", key)
	case "messages":
		if !chat {
			return false, fmt.Errorf(`field "messages" belongs to /v1/chat/completions; here it is "prompt"`)
		}
		return true, nil
	case "prompt":
		if chat {
			return false, fmt.Errorf(`field "prompt" belongs to /v1/completions; here it is "messages"`)
		}
		var one []json.RawMessage
		if json.Unmarshal(*raw, &one) == nil {
			if len(one) != 1 || jsonKind(one[0]) != "a string" {
				return false, fmt.Errorf(`field "prompt" is an array; it must be a string, or an array of one string`)
			}
			*raw = one[0]
		}
		return true, nil
	default:
		return true, nil
	}
	return false, fmt.Errorf("field %q is given twice", key)
}

// unmarshal reads a value that must be of dst's type.
func unmarshal(name string, raw json.RawMessage, dst any, must string) error {
	if err := json.Unmarshal(raw, dst); err != nil {
		return fmt.Errorf("field %q is %s; it must be %s", name, jsonKind(raw), must)
	}
	return nil
}

// jsonKind names the type of a JSON value by its first byte.
func jsonKind(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "empty"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 't' || raw[0] == 'f':
		return "a boolean"
	case raw[0] == 'n':
		return "null"
	}
	return "a number"
}

// OpenAIAnswer writes the answer to one request. Its methods append JSON objects without a line's end; they allocate
// nothing while dst and what is kept for a whole answer have room.
type OpenAIAnswer struct {
	ID      string // of the answer: "chatcmpl-…"
	Model   string
	Created time.Time
	Chat    bool // chat completions; otherwise completions

	begun  bool // a chunk has named the role
	offset int  // characters of text so far, for completions' logprobs

	// Of an answer that comes whole.
	text, think, logprobs, legacy []byte
}

func (a *OpenAIAnswer) head(dst []byte, object string) []byte {
	if a.Chat {
		object = "chat." + object
	}
	dst = appendString(append(dst, `{"id":`...), a.ID)
	dst = append(append(append(dst, `,"object":"`...), object...), `","created":`...)
	dst = strconv.AppendInt(dst, a.Created.Unix(), 10)
	return appendString(append(dst, `,"model":`...), a.Model)
}

func (a *OpenAIAnswer) chunk(dst []byte) []byte {
	if a.Chat {
		return a.head(dst, "completion.chunk")
	}
	return a.head(dst, "text_completion")
}

// AppendToken appends the chunk of a token. Completions have no place for thinking: there it is left out, and the chunk
// is empty.
func (a *OpenAIAnswer) AppendToken(dst []byte, t *Token) []byte {
	if !a.Chat && t.Phase == Thinking || len(t.Text) == 0 && !t.HasLogprob {
		return dst
	}
	dst = append(a.chunk(dst), `,"choices":[{"index":0,`...)
	if a.Chat {
		dst = append(dst, `"delta":{`...)
		if !a.begun {
			dst = append(dst, `"role":"assistant",`...)
			a.begun = true
		}
		if t.Phase == Thinking {
			dst = append(dst, `"reasoning_content":`...)
		} else {
			dst = append(dst, `"content":`...)
		}
		dst = append(appendString(dst, t.Text), '}')
	} else {
		dst = appendString(append(dst, `"text":`...), t.Text)
	}
	dst = append(dst, `,"logprobs":`...)
	switch {
	case !t.HasLogprob || t.Phase == Thinking:
		dst = append(dst, "null"...)
	case a.Chat:
		dst = append(appendContentLogprob(append(dst, `{"content":[`...), t), "]}"...)
	default:
		dst = appendString(append(dst, `{"tokens":[`...), t.Text)
		dst = appendLogprob(append(dst, `],"token_logprobs":[`...), t.Logprob)
		dst = append(appendTopObject(append(dst, `],"top_logprobs":[`...), t), `],"text_offset":[`...)
		dst = append(strconv.AppendInt(dst, int64(a.offset), 10), "]}"...)
	}
	a.offset += utf8.RuneCount(t.Text)
	return append(dst, `,"finish_reason":null}]}`...)
}

// appendContentLogprob appends an entry of a chat completion's logprobs.content.
func appendContentLogprob(dst []byte, t *Token) []byte {
	entry := func(dst, text []byte, p float32) []byte {
		dst = appendString(append(dst, `{"token":`...), text)
		dst = appendLogprob(append(dst, `,"logprob":`...), p)
		dst = append(dst, `,"bytes":[`...)
		for i, c := range text {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(c), 10)
		}
		return append(dst, ']')
	}
	dst = append(entry(dst, t.Text, t.Logprob), `,"top_logprobs":[`...)
	for i := range t.Top {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(entry(dst, t.Top[i].Text, t.Top[i].Logprob), '}')
	}
	return append(dst, "]}"...)
}

// appendTopObject appends an entry of a completion's top_logprobs: texts and their logarithms. Of two tokens with one
// text the more probable counts.
func appendTopObject(dst []byte, t *Token) []byte {
	dst = append(dst, '{')
next:
	for i := range t.Top {
		for _, before := range t.Top[:i] {
			if bytes.Equal(before.Text, t.Top[i].Text) {
				continue next
			}
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendLogprob(append(appendString(dst, t.Top[i].Text), ':'), t.Top[i].Logprob)
	}
	return append(dst, '}')
}

// AppendProgress appends a chunk that says how much of the prompt is computed.
func (a *OpenAIAnswer) AppendProgress(dst []byte, p *Progress) []byte {
	dst = append(a.chunk(dst), `,"choices":[],"prompt_progress":{`...)
	dst = appendInt(dst, `"total":`, p.Total)
	dst = appendInt(dst, `,"processed":`, p.Processed)
	return append(appendMs(dst, `,"time_ms":`, p.Elapsed), "}}"...)
}

// AppendLast appends the chunk that ends the answer, with the reason.
func (a *OpenAIAnswer) AppendLast(dst []byte, e *EOS) []byte {
	dst = append(a.chunk(dst), `,"choices":[{"index":0,`...)
	if a.Chat {
		dst = append(dst, `"delta":{`...)
		if !a.begun {
			dst = append(dst, `"role":"assistant","content":""`...)
		}
		dst = append(dst, `},`...)
	} else {
		dst = append(dst, `"text":"",`...)
	}
	dst = appendString(append(dst, `"logprobs":null,"finish_reason":`...), string(e.Reason))
	return append(appendTimings(append(dst, "}],"...), e), '}')
}

// AppendUsage appends the chunk that stream_options.include_usage asks for, after the last.
func (a *OpenAIAnswer) AppendUsage(dst []byte, e *EOS) []byte {
	return append(appendUsage(append(a.chunk(dst), `,"choices":[],`...), e), '}')
}

// Keep adds a token to an answer that comes whole.
func (a *OpenAIAnswer) Keep(t *Token) {
	if t.Phase == Thinking {
		a.think = append(a.think, t.Text...)
		return
	}
	if t.HasLogprob {
		if a.Chat {
			if len(a.logprobs) > 0 {
				a.logprobs = append(a.logprobs, ',')
			}
			a.logprobs = appendContentLogprob(a.logprobs, t)
		} else { // four arrays, kept apart by lines, which JSON has none of
			if len(a.legacy) > 0 {
				a.legacy = append(a.legacy, '\n')
			}
			a.legacy = append(appendString(a.legacy, t.Text), '\t')
			a.legacy = append(appendLogprob(a.legacy, t.Logprob), '\t')
			a.legacy = append(appendTopObject(a.legacy, t), '\t')
			a.legacy = strconv.AppendInt(a.legacy, int64(a.offset), 10)
		}
	}
	a.text = append(a.text, t.Text...)
	a.offset += utf8.RuneCount(t.Text)
}

// AppendWhole appends the whole answer.
func (a *OpenAIAnswer) AppendWhole(dst []byte, e *EOS) []byte {
	if a.Chat {
		dst = appendString(append(a.head(dst, "completion"), `,"choices":[{"index":0,"message":{"role":"assistant","content":`...), a.text)
		if len(a.think) > 0 {
			dst = appendString(append(dst, `,"reasoning_content":`...), a.think)
		}
		dst = append(dst, '}')
	} else {
		dst = appendString(append(a.head(dst, "text_completion"), `,"choices":[{"index":0,"text":`...), a.text)
	}
	dst = append(dst, `,"logprobs":`...)
	switch {
	case len(a.logprobs) > 0:
		dst = append(append(append(dst, `{"content":[`...), a.logprobs...), "]}"...)
	case len(a.legacy) > 0:
		for i, name := range []string{`{"tokens":[`, `],"token_logprobs":[`, `],"top_logprobs":[`, `],"text_offset":[`} {
			dst = append(dst, name...)
			for j, line := range bytes.Split(a.legacy, []byte{'\n'}) {
				if j > 0 {
					dst = append(dst, ',')
				}
				dst = append(dst, bytes.Split(line, []byte{'\t'})[i]...)
			}
		}
		dst = append(dst, "]}"...)
	default:
		dst = append(dst, "null"...)
	}
	dst = appendString(append(dst, `,"finish_reason":`...), string(e.Reason))
	dst = append(appendUsage(append(dst, "}],"...), e), ',')
	return append(appendTimings(dst, e), '}')
}

func appendUsage(dst []byte, e *EOS) []byte {
	u := &e.Usage
	dst = appendInt(append(dst, `"usage":{`...), `"prompt_tokens":`, u.PromptTokens)
	dst = appendInt(dst, `,"completion_tokens":`, u.CompletionTokens)
	dst = appendInt(dst, `,"total_tokens":`, u.PromptTokens+u.CompletionTokens)
	dst = appendInt(dst, `,"prompt_tokens_details":{"cached_tokens":`, u.CachedTokens)
	return append(appendInt(dst, `},"completion_tokens_details":{"reasoning_tokens":`, u.ThinkTokens), "}}"...)
}

// appendTimings appends llama-server's timings: what was computed, how long it took.
func appendTimings(dst []byte, e *EOS) []byte {
	rate := func(n int, d time.Duration) int64 { // in thousandths
		if n <= 0 || d <= 0 {
			return 0
		}
		return int64(min(float64(n)/d.Seconds(), 1e12) * 1000)
	}
	n := e.Usage.PromptTokens - e.Usage.CachedTokens
	dst = appendInt(append(dst, `"timings":{`...), `"cache_n":`, e.Usage.CachedTokens)
	dst = appendInt(dst, `,"prompt_n":`, n)
	dst = appendMs(dst, `,"prompt_ms":`, e.Timings.Prefill)
	dst = appendThousandths(append(dst, `,"prompt_per_second":`...), rate(n, e.Timings.Prefill))
	dst = appendInt(dst, `,"predicted_n":`, e.Usage.CompletionTokens)
	dst = appendMs(dst, `,"predicted_ms":`, e.Timings.Decode)
	dst = appendThousandths(append(dst, `,"predicted_per_second":`...), rate(e.Usage.CompletionTokens-1, e.Timings.Decode))
	dst = appendMs(dst, `,"queue_ms":`, e.Timings.Queue)
	return append(appendMs(dst, `,"ttft_ms":`, e.Timings.TTFT), '}')
}

// AppendOpenAIError appends an error as OpenAI's clients read it.
func AppendOpenAIError(dst []byte, e *Error) []byte {
	status, kind := OpenAIStatus(e.Code)
	dst = appendInt(append(dst, `{"error":{`...), `"code":`, status)
	dst = appendString(append(dst, `,"type":`...), kind)
	dst = appendString(append(dst, `,"message":`...), e.Message)
	dst = appendString(append(dst, `,"uma_code":`...), string(e.Code))
	if e.Code == ContextLength {
		dst = appendInt(dst, `,"n_prompt_tokens":`, e.NPrompt)
		dst = appendInt(dst, `,"n_ctx":`, e.NCtx)
	}
	return append(dst, "}}"...)
}

// OpenAIStatus is the HTTP status of an error, and its type in the body.
func OpenAIStatus(c Code) (status int, kind string) {
	switch c {
	case BadRequest, InvalidJSON, DuplicateID:
		return 400, "invalid_request_error"
	case ContextLength:
		return 400, "exceed_context_size_error"
	case PromptTooLarge, FrameTooLarge:
		return 413, "invalid_request_error"
	case QueueLimit, SessionLimit:
		return 429, "rate_limit_error"
	case ModelUnready, ShuttingDown:
		return 503, "unavailable_error"
	}
	return 500, "server_error"
}
