package wire

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// A frame is a uint32, little-endian, that counts the bytes of the JSON text which follows.
const headerBytes = 4

const (
	// DefaultMaxFrameBytes is the default of --max-frame-bytes, the most payload bytes of a client's frame.
	DefaultMaxFrameBytes = 1 << 20
	// MaxFrameBytes is the most --max-frame-bytes can be. The fourth byte of a connection that starts with a frame
	// is therefore 0, which neither an HTTP method nor a line of text has there: see split.Sniff.
	MaxFrameBytes = 1<<24 - 1
	// MaxEventBytes is a client's limit for events. The server's frames need not be distinguishable from text.
	MaxEventBytes = 1 << 30
)

// BeginFrame reserves a frame's header at the end of dst and returns where the frame starts, for EndFrame.
func BeginFrame(dst []byte) (frame []byte, start int) {
	return append(dst, 0, 0, 0, 0), len(dst)
}

// EndFrame writes into the header reserved at start how many bytes were appended after it.
func EndFrame(frame []byte, start int) []byte {
	binary.LittleEndian.PutUint32(frame[start:], uint32(len(frame)-start-headerBytes))
	return frame
}

// AppendFrame appends payload as a frame.
func AppendFrame(dst, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}

// Every Append function below appends one complete frame, header included, and allocates nothing when dst has
// room: they run once per generated token.

// AppendToken appends a token event.
func AppendToken(dst []byte, t *Token) []byte {
	dst, start := BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"event":"token","id":`, t.ID)
	dst = append(dst, `,"text":`...)
	dst = jsontext.AppendString(dst, t.Text)
	dst = append(dst, `,"token_id":`...)
	dst = strconv.AppendInt(dst, int64(t.TokenID), 10)
	dst = append(dst, `,"phase":`...)
	dst = jsontext.AppendString(dst, string(t.Phase))
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
	dst = jsontext.AppendString(dst, t.Text)
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
func AppendToolCall(dst []byte, c *ToolCallDelta) []byte {
	dst, start := BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"event":"tool_call","id":`, c.ID)
	dst = jsontext.AppendInt(dst, `,"index":`, c.Index)
	if c.Name != "" {
		dst = jsontext.AppendHead(dst, `,"call_id":`, c.CallID)
		dst = jsontext.AppendHead(dst, `,"name":`, c.Name)
	}
	dst = append(dst, `,"arguments":`...)
	dst = jsontext.AppendString(dst, c.Arguments)
	return EndFrame(append(dst, '}'), start)
}

// AppendEOS appends an eos event.
func AppendEOS(dst []byte, e *EOS) []byte {
	dst, start := BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"event":"eos","id":`, e.ID)
	dst = append(dst, `,"reason":`...)
	dst = jsontext.AppendString(dst, string(e.Reason))
	if e.StopText != "" {
		dst = append(dst, `,"stop":`...)
		dst = jsontext.AppendString(dst, e.StopText)
	}
	if !e.Streamed {
		dst = append(dst, `,"text":`...)
		dst = jsontext.AppendString(dst, e.Text)
	}
	if t := &e.Thought; *t != (ThinkSummary{}) || !e.Streamed && len(e.Think) > 0 {
		dst = jsontext.AppendInt(dst, `,"think":{"tokens":`, t.Tokens)
		dst = jsontext.AppendMs(dst, `,"ms":`, t.Time)
		dst = append(dst, `,"ended":`...)
		dst = jsontext.AppendString(dst, t.Ended)
		dst = jsontext.AppendInt(dst, `,"probes":`, t.Probes)
		if !e.Streamed {
			dst = append(dst, `,"text":`...)
			dst = jsontext.AppendString(dst, e.Think)
		}
		dst = append(dst, '}')
	}
	if !e.Streamed && len(e.ToolCalls) > 0 {
		dst = AppendCalls(append(dst, `,"tool_calls":`...), e.ToolCalls)
	}
	dst = jsontext.AppendInt(dst, `,"usage":{"prompt_tokens":`, e.Usage.PromptTokens)
	dst = jsontext.AppendInt(dst, `,"cached_tokens":`, e.Usage.CachedTokens)
	dst = jsontext.AppendInt(dst, `,"completion_tokens":`, e.Usage.CompletionTokens)
	dst = jsontext.AppendInt(dst, `,"think_tokens":`, e.Usage.ThinkTokens)
	dst = append(dst, `,"cache_tier":`...)
	dst = jsontext.AppendString(dst, e.Usage.CacheTier.String())
	if e.Usage.CacheMiss != "" {
		dst = append(dst, `,"cache_miss":`...)
		dst = jsontext.AppendString(dst, e.Usage.CacheMiss)
	}
	if e.Usage.DraftedTokens > 0 {
		dst = jsontext.AppendInt(dst, `,"drafted_tokens":`, e.Usage.DraftedTokens)
		dst = jsontext.AppendInt(dst, `,"accepted_tokens":`, e.Usage.AcceptedTokens)
	}
	dst = jsontext.AppendMs(dst, `},"timings":{"queue_ms":`, e.Timings.Queue)
	dst = jsontext.AppendMs(dst, `,"ttft_ms":`, e.Timings.TTFT)
	dst = jsontext.AppendMs(dst, `,"prefill_ms":`, e.Timings.Prefill)
	dst = jsontext.AppendMs(dst, `,"decode_ms":`, e.Timings.Decode)
	dst = append(dst, `,"tokens_per_second":`...)
	dst = jsontext.AppendThousandths(dst, int64(math.Round(min(e.TokensPerSecond(), 1e12)*1000)))
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
		dst = jsontext.AppendHead(dst, `{"event":"error","id":`, e.ID)
	}
	dst = append(dst, `,"code":`...)
	dst = jsontext.AppendString(dst, string(e.Code))
	dst = append(dst, `,"message":`...)
	dst = jsontext.AppendString(dst, e.Message)
	if e.RetryAfter > 0 {
		dst = jsontext.AppendMs(dst, `,"retry_after_ms":`, e.RetryAfter)
	}
	if e.Predicted > 0 {
		dst = jsontext.AppendMs(dst, `,"predicted_ms":`, e.Predicted)
	}
	if e.Code == ContextLength {
		dst = jsontext.AppendInt(dst, `,"n_prompt":`, e.NPrompt)
		dst = jsontext.AppendInt(dst, `,"n_ctx":`, e.NCtx)
	}
	return EndFrame(append(dst, '}'), start)
}

// AppendProgress appends a progress event.
func AppendProgress(dst []byte, p *Progress) []byte {
	dst, start := BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"event":"progress","id":`, p.ID)
	dst = jsontext.AppendInt(dst, `,"processed":`, p.Processed)
	dst = jsontext.AppendInt(dst, `,"total":`, p.Total)
	if p.Cached > 0 {
		dst = jsontext.AppendInt(dst, `,"cached":`, p.Cached)
	}
	dst = jsontext.AppendMs(dst, `,"elapsed_ms":`, p.Elapsed)
	if p.Position > 0 {
		dst = jsontext.AppendInt(dst, `,"queue_position":`, p.Position)
	}
	if p.Waiting != "" {
		dst = jsontext.AppendString(append(dst, `,"waiting":`...), p.Waiting)
		dst = append(dst, `,"load_progress":`...)
		dst = jsontext.AppendThousandths(dst, int64(math.Round(1000*min(max(p.Loaded, 0), 1))))
	}
	return EndFrame(append(dst, '}'), start)
}

// AppendReport appends the answer to an admin question of kind k: {"event":"metrics","metrics":…} and the same for
// health, info, why and kv. body is a JSON value; id is the question's, "" if it had none.
func AppendReport(dst []byte, k Kind, id string, body []byte) []byte {
	dst, start := BeginFrame(dst)
	dst = append(dst, `{"event":`...)
	dst = jsontext.AppendString(dst, k.String())
	if id != "" {
		dst = jsontext.AppendHead(dst, `,"id":`, id)
	}
	dst = append(dst, ',')
	dst = jsontext.AppendString(dst, k.String())
	dst = append(dst, ':')
	dst = append(dst, body...)
	return EndFrame(append(dst, '}'), start)
}

// Ms returns a duration as reports have it: in milliseconds, rounded to the microsecond.
func Ms(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

// MinLogprob stands for the logarithm of zero, as in OpenAI's API: JSON has no infinity.
const MinLogprob = -9999

func appendLogprob(dst []byte, f float32) []byte {
	return jsontext.AppendFloat32(dst, finite(f))
}
