package telemetry

import "time"

// Request collects the facts about one request for its trace. The decode loop owns it until Exporter.Ended. A nil
// *Request records nothing.
type Request struct {
	//lint:ignore U1000 a build with the tag otlp reads it
	parent parentSpan

	ID    string // the client's
	Class string // interactive, background
	Ended string // an eos event's reason, or an error code
	Error string // message of an error; "" = the request ended with an eos

	// Times; zero = it did not come to that. Think is the opening of the first thought, Thought the end of the newest
	// one.
	Arrived, Started, First, Think, Thought, Answer, Last, End time.Time

	PromptTokens, CachedTokens, ThinkTokens, CompletionTokens int
	CacheTier                                                 string

	spans   []Span
	dropped int
}

// Span is a phase of a request that comes several times.
type Span struct {
	Name     string // prefill.chunk, restore, preempted
	From, To time.Time
	Tokens   int
	Tier     string // of a restore
}

// maxSpans bounds the spans of a trace: a long prompt beside answers has hundreds of chunks.
const maxSpans = 128

// Add adds a span. It does not allocate once the slice has grown; spans beyond the 128th are counted.
func (r *Request) Add(p Span) {
	switch {
	case r == nil:
	case len(r.spans) == maxSpans:
		r.dropped++
	default:
		r.spans = append(r.spans, p)
	}
}

// Resumed ends the newest preemption at t.
func (r *Request) Resumed(t time.Time) {
	if r == nil {
		return
	}
	for i := len(r.spans) - 1; i >= 0; i-- {
		if p := &r.spans[i]; p.Name == preempted && p.To.IsZero() {
			p.To = t
			return
		}
	}
}

// Preempted begins a preemption at t.
func (r *Request) Preempted(t time.Time) { r.Add(Span{Name: preempted, From: t}) }

const preempted = "preempted"
