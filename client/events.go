package client

import (
	"encoding/json"
	"io"
	"iter"
	"time"

	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Stream delivers the events of one request, in order. Read it to its end, cancel its context, or Close it.
type Stream struct {
	s   *wireclient.Stream
	end *End // nil before the end event

	// The event that Next returned last.
	event    Event
	token    Token
	toolCall ToolCallPart
	progress Progress
}

// Event is one of the following; the others are nil. An event of a kind that only a newer daemon knows has none.
type Event struct {
	Token    *Token
	ToolCall *ToolCallPart
	Progress *Progress
	End      *End
}

// Token is a token of the answer. Text is complete UTF-8. It may be empty, when a token ends inside a character or when
// a stop string may be forming.
type Token struct {
	Text    []byte
	TokenID int32
	Phase   Phase

	HasLogprob bool // Logprob and Top are there
	Logprob    float32
	Top        []TokenLogprob // the most probable tokens, descending
}

// Phase tells which part of an answer a token belongs to.
type Phase string

// The phases.
const (
	Thinking Phase = "think"
	Output   Phase = "output"
	InPrompt Phase = "prompt" // a token of the prompt, with PromptLogprobs
)

// TokenLogprob is a token and its log-probability.
type TokenLogprob struct {
	Token   int32
	Text    []byte
	Logprob float32
}

// ToolCallPart is the beginning of a call that the model makes, or more of its arguments.
type ToolCallPart struct {
	Index     int    // of the call in its answer, from 0
	CallID    string // in the first part of the call, "" later
	Name      string // likewise
	Arguments []byte // text that continues the JSON of the arguments
}

// Progress tells how much of a prompt is computed.
type Progress struct {
	Processed int // tokens
	Total     int
	Cached    int // of Total: not computed for this request, as far as it is known
	Elapsed   time.Duration
	Position  int // place in the queue, 1 = next; 0 = running

	Waiting string  // the reason for which the request waits for its model; "" once it has one
	Loaded  float64 // with Waiting: loaded fraction of the model, 0…1
}

// Reason is the cause of an answer's end.
type Reason string

// The reasons.
const (
	Stop      Reason = "stop"       // end of generation, or a stop string
	Length    Reason = "length"     // MaxTokens or the context is full
	Calls     Reason = "tool_calls" // the answer calls tools
	Cancelled Reason = "cancelled"  // the client asked
	Shutdown  Reason = "shutdown"   // the daemon ends
)

// End tells how an answer ended, and its cost.
type End struct {
	Reason   Reason
	StopText string // the stop string that matched, "" otherwise
	Thought  Thought
	Usage    Usage
	Timings  Timings
	Metadata json.RawMessage // of the request
}

// Thought sums up the thinking; the zero value means that there was none.
type Thought struct {
	Tokens int           // without the tags
	Time   time.Duration // from the opening to the closing tag
	Ended  string        // "natural", "converged", "hard_cap", … (docs/protocol.md)
	Probes int           // measurements of whether the answer is settled
}

// Usage counts the tokens of a request.
type Usage struct {
	PromptTokens     int
	CachedTokens     int // of PromptTokens: not computed for this request
	CompletionTokens int
	ThinkTokens      int    // of CompletionTokens
	CacheTier        string // the slowest that CachedTokens came from: "device", "host", "disk", "fabric"; "" = none
	CacheMiss        string // place and reason at which the cached part ends; "" = none
	DraftedTokens    int    // guessed and computed before they were sampled
	AcceptedTokens   int    // of DraftedTokens: the sampled token was the guess
}

// Timings of a request, measured by the daemon.
type Timings struct {
	Queue   time.Duration // arrival → first prefill chunk
	TTFT    time.Duration // arrival → first token
	Prefill time.Duration // first chunk → first token
	Decode  time.Duration // first token → last token
}

// TokensPerSecond returns the decode speed: the tokens after the first over the time they took, 0 for fewer than two.
func (e *End) TokensPerSecond() float64 {
	if e.Usage.CompletionTokens < 2 || e.Timings.Decode <= 0 {
		return 0
	}
	return float64(e.Usage.CompletionTokens-1) / e.Timings.Decode.Seconds()
}

func usageOf(u *wire.Usage) Usage {
	return Usage{u.PromptTokens, u.CachedTokens, u.CompletionTokens, u.ThinkTokens, string(u.CacheTier), u.CacheMiss,
		u.DraftedTokens, u.AcceptedTokens}
}

func endOf(e *wire.EOS) *End {
	return &End{Reason(e.Reason), e.StopText, Thought(e.Thought), usageOf(&e.Usage), Timings(e.Timings), e.Metadata}
}

// ID returns the request's id.
func (s *Stream) ID() string { return s.s.ID() }

// Cancel asks the daemon to end the answer. The caller continues to call Next: it returns the events on their way and
// then the End, with the reason Cancelled and the usage. Any goroutine may call Cancel.
func (s *Stream) Cancel() error { return public(s.s.Cancel()) }

// EndThink asks the daemon to end the thinking and to begin the answer. Any goroutine may call EndThink.
func (s *Stream) EndThink() error { return public(s.s.EndThink()) }

// Close cancels the request and drops its remaining events. After the end of the stream it does nothing. It belongs to
// the goroutine that calls Next.
func (s *Stream) Close() error { return public(s.s.Close()) }

// End returns how the answer ended, or nil while it has not.
func (s *Stream) End() *End { return s.end }

// Next waits for the next event. It returns io.EOF after the End, *ServerError when the daemon refused or failed the
// request, the context's cause when the context ended, ErrClosed (wrapped) when the connection ended first, and
// ErrStreamClosed after Close. The event and its slices are valid until the next call.
func (s *Stream) Next() (*Event, error) {
	ev, err := s.s.Next()
	if err != nil {
		return nil, public(err)
	}
	s.event = Event{}
	switch ev.Kind {
	case wire.EventToken:
		t := &ev.Token
		top := s.token.Top[:0]
		for _, l := range t.Top {
			top = append(top, TokenLogprob(l))
		}
		s.token = Token{t.Text, t.TokenID, Phase(t.Phase), t.HasLogprob, t.Logprob, top}
		s.event.Token = &s.token
	case wire.EventToolCall:
		c := &ev.ToolCall
		s.toolCall = ToolCallPart{c.Index, c.CallID, c.Name, c.Arguments}
		s.event.ToolCall = &s.toolCall
	case wire.EventProgress:
		p := &ev.Progress
		s.progress = Progress{p.Processed, p.Total, p.Cached, p.Elapsed, p.Position, p.Waiting, p.Loaded}
		s.event.Progress = &s.progress
	case wire.EventEOS:
		s.end = endOf(&ev.EOS)
		s.event.End = s.end
	}
	return &s.event, nil
}

// Tokens returns the answer's tokens. The loop ends after the last token, or with an error as in Next. Leaving the
// loop early closes the stream. A token and its slices are valid for one iteration. The parts of tool calls are no
// tokens: Next returns them.
func (s *Stream) Tokens() iter.Seq2[*Token, error] {
	return func(yield func(*Token, error) bool) {
		for {
			ev, err := s.Next()
			switch {
			case err == io.EOF:
				return
			case err != nil:
				yield(nil, err)
				return
			case ev.Token != nil && !yield(ev.Token, nil):
				s.Close()
				return
			}
		}
	}
}
