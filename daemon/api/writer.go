package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Writer sends an answer: one JSON value, lines of JSON, an array in parts, or server-sent events. It buffers until
// Flush, so that the events of a decode step take one write.
type Writer struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	out   []byte
	begun bool // the status was written
	lines bool // write lines of JSON, not events
	items int  // elements of the array that were added

	// Array: the answer is an array of JSON, by Item and EndItems.
	Array bool
	// Streams: the answer is a stream of events, which reports how far a model is loaded to clients that wait for it.
	Streams bool
	// Ping is the request's sse_ping_interval: the seconds of silence after which KeepAlive is called; 0 = quietFor,
	// and then aliveEvery, below 0 = never.
	Ping int
	// KeepAlive adds what a client of a stream skips. Follow calls it when nothing was written for a while: a prompt of
	// some thousand tokens takes longer than proxies and clients wait for a byte. Nil: a comment where the answer is a
	// stream of events, else nothing.
	KeepAlive func()

	// mu is held while Follow handles an event, and while a connection is kept alive.
	mu    sync.Mutex
	wrote time.Time // the last write
}

const (
	quietFor   = 3 * time.Second // below 5 s, the shortest usual read timeout of proxies
	aliveEvery = time.Second
)

// NewWriter returns the Writer of one answer.
func (s *Server) NewWriter(w http.ResponseWriter) *Writer {
	return &Writer{w: w, rc: http.NewResponseController(w), stall: s.StallTimeout}
}

// Begun reports whether a part of the answer was written or is buffered.
func (w *Writer) Begun() bool { return w.begun || len(w.out) > 0 }

// Event adds an event; with name "" it has no "event:" line.
func (w *Writer) Event(name string, v any) {
	if name != "" {
		w.out = append(append(append(w.out, "event: "...), name...), '\n')
	}
	w.out = append(w.out, "data: "...)
	w.out = append(AppendJSON(w.out, v), "\n\n"...)
}

// Text adds an event of plain text without a name.
func (w *Writer) Text(data string) {
	w.out = append(append(append(w.out, "data: "...), data...), "\n\n"...)
}

// Waits adds a comment that says what the request waits for: "model_loading 0.42".
func (w *Writer) Waits(p *wire.Progress) {
	w.out = fmt.Appendf(w.out, ": %s %.2f\n\n", p.Waiting, p.Loaded)
}

// Comment adds a comment, which clients skip, to keep the connection alive.
func (w *Writer) Comment() { w.out = append(w.out, ":\n\n"...) }

// Line adds a line of JSON. The answer's type is application/x-ndjson.
func (w *Writer) Line(v any) {
	w.lines = true
	w.out = append(AppendJSON(w.out, v), '\n')
}

// Blank adds an empty line, for clients that do not skip comments. It is white space in JSON, too.
func (w *Writer) Blank() { w.out = append(w.out, '\n') }

// Item adds an element of an array of JSON; the first one begins it. EndItems ends it.
func (w *Writer) Item(v any) {
	sep := byte(',')
	if w.items++; w.items == 1 {
		sep = '['
	}
	w.out = append(AppendJSON(append(w.out, sep), v), '\n')
}

// EndItems ends the array of Item.
func (w *Writer) EndItems() { w.out = append(w.out, ']', '\n') }

// Bare adds a line of JSON to a stream of events, outside of an event.
func (w *Writer) Bare(v any) { w.out = append(AppendJSON(w.out, v), "\n\n"...) }

// JSON answers with one value.
func (w *Writer) JSON(status int, v any) {
	w.out = append(AppendJSON(w.out[:0], v), '\n')
	w.begin(status, "application/json")
	w.Flush()
}

// Refuse prepares the answer for e: it sets the Retry-After header if e has a time, and tells the server the code.
func (w *Writer) Refuse(e *Error) {
	for at := w.w; at != nil; {
		if counts, ok := at.(interface{ Refused(wire.Code) }); ok {
			counts.Refused(e.Code)
			break
		}
		wraps, ok := at.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		at = wraps.Unwrap()
	}
	if e.RetryAfter > 0 {
		w.w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
}

func (w *Writer) begin(status int, contentType string) {
	if !w.begun {
		w.w.Header().Set("Content-Type", contentType)
		w.w.Header().Set("Cache-Control", "no-store")
		if contentType != "application/json" {
			w.w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer events
		}
		w.w.WriteHeader(status)
		w.begun = true
	}
}

// Flush writes the buffer. It returns an error if the client reads nothing for the stall timeout.
func (w *Writer) Flush() error {
	if len(w.out) == 0 {
		return nil
	}
	switch {
	case w.lines:
		w.begin(http.StatusOK, "application/x-ndjson")
	case w.Array:
		w.begin(http.StatusOK, "application/json")
	default:
		w.begin(http.StatusOK, "text/event-stream")
	}
	w.wrote = time.Now()
	if w.stall > 0 {
		w.rc.SetWriteDeadline(w.wrote.Add(w.stall))
	}
	_, err := w.w.Write(w.out)
	if w.out = w.out[:0]; err == nil {
		err = w.rc.Flush()
	}
	return err
}

// Follow passes the events of a stream to handle until they end or handle returns false, and flushes w when no further
// event is ready. It returns an error of writing to the client.
func (s *Server) Follow(w *Writer, in Stream, handle func(*wire.Event) (more bool)) error {
	defer w.keepAlive()()
	for {
		ev := in.Next()
		more, err := w.handle(ev, in, handle)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.Log.Debug("an HTTP client does not read: cancelling its request")
		}
		if !more || err != nil {
			return err
		}
	}
}

func (w *Writer) handle(ev *wire.Event, in Stream, handle func(*wire.Event) (more bool)) (more bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ev != nil && ev.Kind == wire.EventProgress && ev.Progress.Waiting != "" {
		if w.Streams {
			w.Waits(&ev.Progress)
		}
		return true, w.Flush()
	}
	more = ev != nil && handle(ev)
	if more && in.Ready() {
		return true, nil
	}
	return more, w.Flush()
}

// keepAlive begins to keep the connection alive, until stop.
func (w *Writer) keepAlive() (stop func()) {
	add := w.KeepAlive
	first, next := quietFor, aliveEvery
	if w.Ping > 0 {
		first = time.Duration(w.Ping) * time.Second
		next = first
	}
	switch {
	case w.Ping < 0:
		return func() {}
	case add == nil && w.Streams:
		add = w.Comment
	case add == nil:
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrote = time.Now()
	var (
		timer *time.Timer
		kept  time.Time // the last write of this function
		ended bool
	)
	timer = time.AfterFunc(first, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if ended {
			return
		}
		limit := first
		if w.wrote.Equal(kept) {
			limit = next
		}
		if quiet := time.Since(w.wrote); quiet < limit {
			timer.Reset(limit - quiet)
			return
		}
		if add(); w.Flush() == nil {
			kept = w.wrote
			timer.Reset(next)
		}
	})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		ended = true
		timer.Stop()
	}
}

// AppendJSON appends v without HTML escapes and without a newline.
func AppendJSON(dst []byte, v any) []byte {
	e := encoders.Get().(*encoder)
	e.out.Reset()
	if err := e.json.Encode(v); err != nil {
		panic("api: an answer: " + err.Error()) // plain structs of finite numbers and strings
	}
	dst = append(dst, bytes.TrimSuffix(e.out.Bytes(), []byte{'\n'})...)
	if e.out.Cap() <= keepEncoder {
		encoders.Put(e)
	}
	return dst
}

// encoder is an encoder with its buffer, which each event of a stream needs.
type encoder struct {
	out  bytes.Buffer
	json *json.Encoder
}

// keepEncoder is the largest buffer that an encoder keeps for the next value, in bytes.
const keepEncoder = 64 << 10

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.json = json.NewEncoder(&e.out)
	e.json.SetEscapeHTML(false)
	return e
}}

// Empty answers with a status and no body.
func (w *Writer) Empty(status int) {
	w.begun = true
	w.w.Header().Set("Content-Length", "0")
	w.w.WriteHeader(status)
}
