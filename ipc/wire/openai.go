package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/valyala/fastjson"
)

// OpenAI's API, in terms of this protocol: a body becomes the payload of a request, events become chunks. The fields
// are those of chat completions and of the older completions, with the extensions that llama-server's clients read
// (reasoning_content, timings, prompt_progress).

// OpenAIRequestID is the id of the request that a body becomes: the connection it goes over carries nothing else.
const OpenAIRequestID = "http"

// OpenAIWants is what a body asks of its answer beyond what a request of this protocol holds.
type OpenAIWants struct {
	Stream bool // chunks while it runs, not one object at the end
	Usage  bool // stream_options.include_usage
}

// ParseOpenAI turns the body of POST /v1/chat/completions (chat) or /v1/completions into the payload of a request that
// streams. The fields themselves are checked by whoever parses the payload; what is refused here has no place there.
// The error is a RequestError.
func ParseOpenAI(p *Parser, body []byte, chat bool) (payload []byte, w OpenAIWants, err error) {
	root, bad := p.tree(body)
	defer p.release(body)
	if bad != nil {
		bad.ID = ""
		return nil, w, bad
	}
	refuse := func(format string, args ...any) ([]byte, OpenAIWants, error) {
		return nil, w, &RequestError{Code: BadRequest, Message: fmt.Sprintf(format, args...)}
	}
	obj, e := root.Object()
	if e != nil {
		return refuse("the body is %s; it must be a JSON object", typeName(root))
	}
	payload = appendString([]byte(`{"stream":true,"id":`), OpenAIRequestID)
	seen := map[string]bool{}
	var wrong error
	obj.Visit(func(name []byte, v *fastjson.Value) {
		key := string(name)
		if v.Type() == fastjson.TypeNull || wrong != nil {
			return
		}
		switch key {
		case "stream", "stream_options", "id":
			if seen[key] {
				wrong = fmt.Errorf("field %q is given twice", key)
			}
		case "event", "type":
			wrong = fmt.Errorf("field %q belongs to the framed protocol; leave it out", key)
		case "messages":
			if !chat {
				wrong = fmt.Errorf(`field "messages" belongs to /v1/chat/completions; here it is "prompt"`)
			}
		case "prompt":
			if chat {
				wrong = fmt.Errorf(`field "prompt" belongs to /v1/completions; here it is "messages"`)
			} else if a, err := v.Array(); err == nil {
				if len(a) != 1 || a[0].Type() != fastjson.TypeString {
					wrong = fmt.Errorf(`field "prompt" is an array; it must be a string, or an array of one string`)
				} else {
					v = a[0]
				}
			}
		case "echo":
			if v.Type() != fastjson.TypeFalse {
				wrong = fmt.Errorf(`field "echo" is not supported by this server; leave it out`)
			}
		case "suffix":
			if !emptyString(v) {
				wrong = fmt.Errorf(`field "suffix" is not supported by this server; leave it out`)
			}
		case "best_of":
			if !isNumber(v, 1) {
				wrong = fmt.Errorf(`field "best_of" is not supported by this server; leave it out`)
			}
		}
		seen[key] = true
		switch key {
		case "stream":
			if wrong == nil {
				w.Stream, wrong = wantsTrue(key, v)
			}
			return
		case "stream_options":
			o, err := v.Object()
			if err != nil && wrong == nil {
				wrong = wrongType(key, v, "an object")
			} else if u := o.Get("include_usage"); u != nil && u.Type() != fastjson.TypeNull && wrong == nil {
				w.Usage, wrong = wantsTrue("stream_options.include_usage", u)
			}
			return
		case "id":
			return
		}
		payload = append(appendString(append(payload, ','), key), ':')
		payload = v.MarshalTo(payload)
	})
	switch {
	case wrong != nil:
		return refuse("%v", wrong)
	case chat && !seen["messages"]:
		return refuse(`field "messages" is missing; it must be an array of {"role":…,"content":…}`)
	case !chat && !seen["prompt"]:
		return refuse(`field "prompt" is missing; it must be a string`)
	}
	return append(payload, '}'), w, nil
}

func wantsTrue(name string, v *fastjson.Value) (bool, error) {
	b, err := v.Bool()
	if err != nil {
		return false, wrongType(name, v, "true or false")
	}
	return b, nil
}

// OpenAIAnswer writes the answer to one request. Its methods append JSON objects without a line's end; they allocate
// nothing while dst and what is kept for a whole answer have room.
type OpenAIAnswer struct {
	ID      string // of the answer: "chatcmpl-…"
	Model   string
	Created time.Time
	Chat    bool // chat completions; otherwise completions

	begun  bool // a chunk has named the role
	offset int  // bytes of text so far, for completions' logprobs

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
	a.offset += len(t.Text)
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
			a.legacy = strconv.AppendInt(a.legacy, int64(len(a.text)), 10)
		}
	}
	a.text = append(a.text, t.Text...)
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
