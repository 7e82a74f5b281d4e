package wire

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// Every Append function of this file appends one complete frame, header included, and allocates nothing when dst has
// room: they run once per generated token.

// AppendToken appends a token event.
func AppendToken(dst []byte, t *Token) []byte {
	dst, start := BeginFrame(dst)
	dst = appendHead(dst, `{"event":"token","id":`, t.ID)
	dst = append(dst, `,"text":`...)
	dst = appendString(dst, t.Text)
	dst = append(dst, `,"token_id":`...)
	dst = strconv.AppendInt(dst, int64(t.TokenID), 10)
	dst = append(dst, `,"phase":`...)
	dst = appendString(dst, string(t.Phase))
	if t.HasLogprob {
		dst = append(dst, `,"logprob":`...)
		dst = appendLogprob(dst, t.Logprob)
		dst = append(dst, `,"top_logprobs":[`...)
		for i := range t.Top {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendTop(dst, &t.Top[i])
		}
		dst = append(dst, ']')
	}
	return EndFrame(append(dst, '}'), start)
}

// appendTop appends an alternative. A token that is only a part of a character is not valid UTF-8; its bytes are sent
// too.
func appendTop(dst []byte, t *TokenLogprob) []byte {
	dst = append(dst, `{"token_id":`...)
	dst = strconv.AppendInt(dst, int64(t.Token), 10)
	dst = append(dst, `,"text":`...)
	dst = appendString(dst, t.Text)
	dst = append(dst, `,"logprob":`...)
	dst = appendLogprob(dst, t.Logprob)
	if !utf8.Valid(t.Text) {
		dst = append(dst, `,"bytes":[`...)
		for i, c := range t.Text {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(c), 10)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// AppendToolCall appends a tool_call event.
func AppendToolCall(dst []byte, c *ToolCallPart) []byte {
	dst, start := BeginFrame(dst)
	dst = appendHead(dst, `{"event":"tool_call","id":`, c.ID)
	dst = appendInt(dst, `,"index":`, c.Index)
	if c.Name != "" {
		dst = appendHead(dst, `,"call_id":`, c.CallID)
		dst = appendHead(dst, `,"name":`, c.Name)
	}
	dst = append(dst, `,"arguments":`...)
	dst = appendString(dst, c.Arguments)
	return EndFrame(append(dst, '}'), start)
}

// AppendEOS appends an eos event.
func AppendEOS(dst []byte, e *EOS) []byte {
	dst, start := BeginFrame(dst)
	dst = appendHead(dst, `{"event":"eos","id":`, e.ID)
	dst = append(dst, `,"reason":`...)
	dst = appendString(dst, string(e.Reason))
	if e.StopText != "" {
		dst = append(dst, `,"stop":`...)
		dst = appendString(dst, e.StopText)
	}
	if !e.Streamed {
		dst = append(dst, `,"text":`...)
		dst = appendString(dst, e.Text)
	}
	if t := &e.Thought; *t != (ThinkSummary{}) || !e.Streamed && len(e.Think) > 0 {
		dst = appendInt(dst, `,"think":{"tokens":`, t.Tokens)
		dst = appendMs(dst, `,"ms":`, t.Time)
		dst = append(dst, `,"ended":`...)
		dst = appendString(dst, t.Ended)
		dst = appendInt(dst, `,"probes":`, t.Probes)
		if !e.Streamed {
			dst = append(dst, `,"text":`...)
			dst = appendString(dst, e.Think)
		}
		dst = append(dst, '}')
	}
	if !e.Streamed && len(e.ToolCalls) > 0 {
		dst = appendCalls(append(dst, `,"tool_calls":`...), e.ToolCalls)
	}
	dst = appendInt(dst, `,"usage":{"prompt_tokens":`, e.Usage.PromptTokens)
	dst = appendInt(dst, `,"cached_tokens":`, e.Usage.CachedTokens)
	dst = appendInt(dst, `,"completion_tokens":`, e.Usage.CompletionTokens)
	dst = appendInt(dst, `,"think_tokens":`, e.Usage.ThinkTokens)
	dst = append(dst, `,"cache_tier":`...)
	dst = appendString(dst, e.Usage.CacheTier.String())
	if e.Usage.CacheMiss != "" {
		dst = append(dst, `,"cache_miss":`...)
		dst = appendString(dst, e.Usage.CacheMiss)
	}
	if e.Usage.DraftedTokens > 0 {
		dst = appendInt(dst, `,"drafted_tokens":`, e.Usage.DraftedTokens)
		dst = appendInt(dst, `,"accepted_tokens":`, e.Usage.AcceptedTokens)
	}
	dst = appendMs(dst, `},"timings":{"queue_ms":`, e.Timings.Queue)
	dst = appendMs(dst, `,"ttft_ms":`, e.Timings.TTFT)
	dst = appendMs(dst, `,"prefill_ms":`, e.Timings.Prefill)
	dst = appendMs(dst, `,"decode_ms":`, e.Timings.Decode)
	dst = append(dst, `,"tokens_per_second":`...)
	dst = appendThousandths(dst, int64(math.Round(min(e.TokensPerSecond(), 1e12)*1000)))
	dst = append(dst, '}')
	if len(e.Metadata) > 0 {
		dst = append(dst, `,"metadata":`...)
		dst = append(dst, e.Metadata...)
	}
	return EndFrame(append(dst, '}'), start)
}

// AppendError appends an error event. An empty ID is left out: the error is about the connection.
func AppendError(dst []byte, e *Error) []byte {
	dst, start := BeginFrame(dst)
	if e.ID == "" {
		dst = append(dst, `{"event":"error"`...)
	} else {
		dst = appendHead(dst, `{"event":"error","id":`, e.ID)
	}
	dst = append(dst, `,"code":`...)
	dst = appendString(dst, string(e.Code))
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, e.Message)
	if e.RetryAfter > 0 {
		dst = appendMs(dst, `,"retry_after_ms":`, e.RetryAfter)
	}
	if e.Predicted > 0 {
		dst = appendMs(dst, `,"predicted_ms":`, e.Predicted)
	}
	if e.Code == ContextLength {
		dst = appendInt(dst, `,"n_prompt":`, e.NPrompt)
		dst = appendInt(dst, `,"n_ctx":`, e.NCtx)
	}
	return EndFrame(append(dst, '}'), start)
}

// AppendProgress appends a progress event.
func AppendProgress(dst []byte, p *Progress) []byte {
	dst, start := BeginFrame(dst)
	dst = appendHead(dst, `{"event":"progress","id":`, p.ID)
	dst = appendInt(dst, `,"processed":`, p.Processed)
	dst = appendInt(dst, `,"total":`, p.Total)
	if p.Cached > 0 {
		dst = appendInt(dst, `,"cached":`, p.Cached)
	}
	dst = appendMs(dst, `,"elapsed_ms":`, p.Elapsed)
	if p.Position > 0 {
		dst = appendInt(dst, `,"queue_position":`, p.Position)
	}
	if p.Waiting != "" {
		dst = appendString(append(dst, `,"waiting":`...), p.Waiting)
		dst = append(dst, `,"load_progress":`...)
		dst = appendThousandths(dst, int64(math.Round(1000*min(max(p.Loaded, 0), 1))))
	}
	return EndFrame(append(dst, '}'), start)
}

// AppendReport appends the answer to an admin question of kind k: {"event":"metrics","metrics":…} and the same for
// health, info, why and kv. body is a JSON value; id is the question's, "" if it had none.
func AppendReport(dst []byte, k Kind, id string, body []byte) []byte {
	dst, start := BeginFrame(dst)
	dst = append(dst, `{"event":`...)
	dst = appendString(dst, k.String())
	if id != "" {
		dst = appendHead(dst, `,"id":`, id)
	}
	dst = append(dst, ',')
	dst = appendString(dst, k.String())
	dst = append(dst, ':')
	dst = append(dst, body...)
	return EndFrame(append(dst, '}'), start)
}

func appendHead(dst []byte, head, id string) []byte {
	return appendString(append(dst, head...), id)
}

func appendInt(dst []byte, key string, n int) []byte {
	return strconv.AppendInt(append(dst, key...), int64(n), 10)
}

// appendMs appends a duration in milliseconds with the three decimals a microsecond needs.
func appendMs(dst []byte, key string, d time.Duration) []byte {
	return appendThousandths(append(dst, key...), max(d, 0).Round(time.Microsecond).Microseconds())
}

// appendThousandths appends n/1000 in its shortest form, n ≥ 0.
func appendThousandths(dst []byte, n int64) []byte {
	dst = strconv.AppendInt(dst, n/1000, 10)
	frac := n % 1000
	if frac == 0 {
		return dst
	}
	dst = append(dst, '.', byte('0'+frac/100), byte('0'+frac/10%10), byte('0'+frac%10))
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// fromMs is the inverse of appendMs.
func fromMs(ms float64) time.Duration {
	return time.Duration(math.Round(ms*1000)) * time.Microsecond
}

// MinLogprob stands for the logarithm of zero, as in OpenAI's API: JSON has no infinity.
const MinLogprob = -9999

func appendLogprob(dst []byte, f float32) []byte {
	return appendFloat32(dst, finite(f))
}

// appendFloat32 appends the shortest text that reads back as f. JSON has no infinities: they become the largest
// finite numbers, and what is not a number 0.
func appendFloat32(dst []byte, f float32) []byte {
	switch x := float64(f); {
	case math.IsNaN(x):
		f = 0
	case math.IsInf(x, 1):
		f = math.MaxFloat32
	case math.IsInf(x, -1):
		f = -math.MaxFloat32
	}
	return strconv.AppendFloat(dst, float64(f), 'g', -1, 32)
}

// ordinary are the bytes that stand for themselves in a JSON string of ours.
var ordinary = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return
}()

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string, byte for byte what encoding/json makes of it without HTML escaping:
// invalid UTF-8 becomes U+FFFD, and U+2028 and U+2029 are escaped, which some readers of lines take for ends of
// lines.
func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if ordinary[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = append(dst, s[from:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			case '\b':
				dst = append(dst, '\\', 'b')
			case '\f':
				dst = append(dst, '\\', 'f')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			from = i
			continue
		}
		r, n := decodeRune(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(append(dst, s[from:i]...), `\ufffd`...)
			from = i + n
		case r == '\u2028', r == '\u2029':
			dst = append(append(dst, s[from:i]...), `\u202`...)
			dst = append(dst, hexDigits[r&15])
			from = i + n
		}
		i += n
	}
	return append(append(dst, s[from:]...), '"')
}

func decodeRune[T string | []byte](s T) (rune, int) {
	var b [utf8.UTFMax]byte
	return utf8.DecodeRune(b[:copy(b[:], s)])
}
