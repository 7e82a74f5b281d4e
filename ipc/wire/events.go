package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// EventKind is the type of a server's event.
type EventKind uint8

const (
	EventUnknown EventKind = iota // of a newer server: skip it
	EventToken
	EventEOS
	EventError
	EventProgress
	EventReport   // the answer to an admin question
	EventToolCall // a part of a call that the model makes
	EventEmbedding
)

// Event is one message of the server, read by ParseEvent.
type Event struct {
	Kind EventKind
	ID   string // "" in an error about the connection and in a report on a question without id

	Token    Token         // with EventToken
	ToolCall ToolCallDelta // with EventToolCall
	EOS      EOS           // with EventEOS
	Error    Error         // with EventError
	Progress Progress      // with EventProgress

	Embedding Embedding // with EventEmbedding

	ReportKind Kind   // with EventReport
	Report     []byte // with EventReport: the JSON value the server sent
}

// AppendEvent appends ev as a frame: with AppendToken, AppendEOS and so on.
func AppendEvent(dst []byte, ev *Event) []byte {
	switch ev.Kind {
	case EventToken:
		return AppendToken(dst, &ev.Token)
	case EventEOS:
		return AppendEOS(dst, &ev.EOS)
	case EventError:
		return AppendError(dst, &ev.Error)
	case EventProgress:
		return AppendProgress(dst, &ev.Progress)
	case EventToolCall:
		return AppendToolCall(dst, &ev.ToolCall)
	case EventEmbedding:
		return AppendEmbedding(dst, &ev.Embedding, ev.Embedding.Base64)
	case EventReport:
		return AppendReport(dst, ev.ReportKind, ev.ID, ev.Report)
	}
	return dst
}

// AppendEventLine appends ev as the newline protocol has it: the text of tokens, a line break at the end of an answer,
// an error or a report as a line, and nothing of the other kinds.
func AppendEventLine(dst []byte, ev *Event) []byte {
	switch ev.Kind {
	case EventToken:
		return append(dst, ev.Token.Text...)
	case EventEOS:
		return append(dst, '\n')
	case EventError:
		return AppendErrorLine(dst, &ev.Error)
	case EventReport:
		return append(append(dst, ev.Report...), '\n')
	}
	return dst
}

// AppendErrorLine appends an error in the newline protocol: one line.
func AppendErrorLine(dst []byte, e *Error) []byte {
	dst = append(append(append(dst, "error: "...), e.Code...), ": "...)
	dst = append(dst, strings.NewReplacer("\n", " ", "\r", " ").Replace(e.Message)...)
	if e.RetryAfter > 0 {
		dst = fmt.Appendf(dst, " (try again in %d ms)", e.RetryAfter.Milliseconds())
	}
	return append(dst, '\n')
}

// EOSEvent returns the event of an eos.
func EOSEvent(e *EOS) *Event { return &Event{Kind: EventEOS, ID: e.ID, EOS: *e} }

// ErrorEvent returns the event of an error.
func ErrorEvent(e *Error) *Event { return &Event{Kind: EventError, ID: e.ID, Error: *e} }

// ProgressEvent returns the event of a progress.
func ProgressEvent(p *Progress) *Event { return &Event{Kind: EventProgress, ID: p.ID, Progress: *p} }

// ReportEvent returns the answer to an admin question of kind k; body is a JSON value, id the question's.
func ReportEvent(k Kind, id string, body []byte) *Event {
	return &Event{Kind: EventReport, ID: id, ReportKind: k, Report: body}
}

// JSONEvent is ReportEvent of a value for encoding/json.
func JSONEvent(k Kind, id string, report any) *Event {
	body, err := json.Marshal(report)
	if err != nil {
		// Only a number that is not finite makes encoding/json fail here.
		panic(fmt.Sprintf("wire: %s report %+v: %v", k, report, err))
	}
	return ReportEvent(k, id, body)
}

// Events is a queue of events that owns their memory: Add copies. What Next returns equals what a client reads of the
// event's frame, but for times, which frames round to microseconds. The zero value is empty; a queue that is reset when
// it is empty allocates nothing in the long run.
type Events struct {
	list []Event // Invariant: those of first…n-1 are queued; the others keep the memory of earlier ones.
	n    int
	next int
	size int // Bytes

	text   []byte // of the events, as far as it is not that of earlier, smaller arrays
	top    []TokenLogprob
	values []float32
}

// Bytes returns the memory that ev takes in an Events.
func (ev *Event) Bytes() int {
	n := int(unsafe.Sizeof(*ev))
	switch ev.Kind {
	case EventToken:
		n += len(ev.Token.Text)
		for i := range ev.Token.Top {
			n += int(unsafe.Sizeof(ev.Token.Top[i])) + len(ev.Token.Top[i].Text)
		}
	case EventEOS:
		if !ev.EOS.Streamed {
			n += len(ev.EOS.Text) + len(ev.EOS.Think)
		}
		n += len(ev.EOS.Metadata)
	case EventToolCall:
		n += len(ev.ToolCall.Arguments)
	case EventEmbedding:
		n += 4 * len(ev.Embedding.Values)
	case EventReport:
		n += len(ev.Report)
	}
	return n
}

// Len returns the number of events that Next has not returned.
func (l *Events) Len() int { return l.n - l.next }

// Bytes returns the memory of the events added since Reset.
func (l *Events) Bytes() int { return l.size }

// Add adds a copy of ev.
func (l *Events) Add(ev *Event) {
	if l.n == len(l.list) {
		l.list = append(l.list, Event{})
		l.list = l.list[:cap(l.list)]
	}
	to := &l.list[l.n]
	l.n++
	l.size += ev.Bytes()
	to.Kind, to.ID = ev.Kind, ev.ID
	switch ev.Kind {
	case EventToken:
		t := &to.Token
		*t = ev.Token
		t.Text = l.keep(t.Text)
		if t.HasLogprob {
			l.keepTop(t)
		}
	case EventEOS:
		e := &to.EOS
		*e = ev.EOS
		e.Metadata = l.keep(e.Metadata)
		if e.Streamed {
			e.Text, e.Think, e.ToolCalls = nil, nil, nil
			break
		}
		e.Text, e.Think, e.ToolCalls = l.keep(e.Text), l.keep(e.Think), slices.Clone(e.ToolCalls)
	case EventError:
		to.Error = ev.Error
	case EventProgress:
		to.Progress = ev.Progress
	case EventToolCall:
		to.ToolCall = ev.ToolCall
		to.ToolCall.Arguments = l.keep(ev.ToolCall.Arguments)
	case EventEmbedding:
		from := len(l.values)
		l.values = append(l.values, ev.Embedding.Values...)
		to.Embedding = ev.Embedding
		to.Embedding.Values = l.values[from:len(l.values):len(l.values)]
	case EventReport:
		to.ReportKind, to.Report = ev.ReportKind, l.keep(ev.Report)
	}
}

// keep returns a copy of b.
func (l *Events) keep(b []byte) []byte {
	if b == nil {
		return nil
	}
	from := len(l.text)
	l.text = append(l.text, b...)
	return l.text[from:len(l.text):len(l.text)]
}

// keepTop copies the log-probabilities of t, in the range of those in frames.
func (l *Events) keepTop(t *Token) {
	t.Logprob = finite(t.Logprob)
	from := len(l.top)
	for _, p := range t.Top {
		p.Text, p.Logprob = l.keep(p.Text), finite(p.Logprob)
		l.top = append(l.top, p)
	}
	t.Top = l.top[from:len(l.top):len(l.top)]
}

// finite returns a log-probability as frames have it: between MinLogprob and 0.
func finite(f float32) float32 {
	if !(f >= MinLogprob) { // also NaN
		f = MinLogprob
	}
	return min(f, 0)
}

// Next removes and returns the oldest event, nil if there is none. The event is valid until Reset.
func (l *Events) Next() *Event {
	if l.next == l.n {
		return nil
	}
	l.next++
	return &l.list[l.next-1]
}

// First returns the oldest event without removing it, nil if there is none.
func (l *Events) First() *Event {
	if l.next == l.n {
		return nil
	}
	return &l.list[l.next]
}

// keepEvents and keepText bound what Reset keeps: events, and bytes of their texts.
const (
	keepEvents = 64
	keepText   = 64 << 10
)

// Reset removes all events.
func (l *Events) Reset() {
	if len(l.list) > keepEvents || cap(l.text) > keepText || cap(l.values) > keepText/4 {
		*l = Events{}
		return
	}
	l.n, l.next, l.size = 0, 0, 0
	l.text, l.top, l.values = l.text[:0], l.top[:0], l.values[:0]
}
