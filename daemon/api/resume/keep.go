package resume

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
)

// Keep returns a handler that keeps the stream which next answers with, if the request has an X-Conversation-Id and
// asks for a stream. Then the end of the client's connection does not end the request.
func (k *Streams) Keep(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(Header)
		if id == "" {
			next(w, r)
			return
		}
		if len(id) > maxIDBytes {
			openai.Fail(k.s.NewWriter(w), api.Refusef("the header %s has %d bytes; it must have at most %d", Header,
				len(id), maxIDBytes))
			return
		}
		raw, err := api.ReadBody(r)
		if err != nil {
			openai.Fail(k.s.NewWriter(w), api.AsError(err))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(raw))
		var in struct {
			Stream bool `json:"stream"`
		}
		if json.Unmarshal(raw, &in) != nil || !in.Stream {
			next(w, r) // next refuses a body that is not JSON
			return
		}
		ctx, stop := api.WithStop(context.WithoutCancel(r.Context()))
		defer stop()
		s := newSession(k.s.Owner(r.Context()), id, k.s.Now(), stop)
		k.add(s)
		t := &tee{w: w, rc: http.NewResponseController(w), to: s}
		next(t, r.WithContext(ctx))
		s.end(k.s.Now())
		if !t.streams { // an error, which is no stream
			k.remove(s)
		}
	}
}

// tee writes an answer to its client, while there is one, and to a session.
type tee struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	to *session

	streams bool // the answer is a stream: it is kept
	gone    bool // the client cannot be written to any more
}

// Header returns the header of the answer.
func (t *tee) Header() http.Header { return t.w.Header() }

// WriteHeader writes the status. Only a stream of events is kept.
func (t *tee) WriteHeader(status int) {
	t.streams = status == http.StatusOK && t.w.Header().Get("Content-Type") == "text/event-stream"
	t.w.WriteHeader(status)
}

// Write never fails for a stream: the session takes what the client does not.
func (t *tee) Write(b []byte) (int, error) {
	if !t.streams {
		return t.w.Write(b)
	}
	t.to.append(b)
	if !t.gone {
		_, err := t.w.Write(b)
		t.gone = err != nil
	}
	return len(b), nil
}

// FlushError sends the buffered bytes, for http.ResponseController.
func (t *tee) FlushError() error {
	if t.gone {
		return nil
	}
	err := t.rc.Flush()
	if !t.streams {
		return err
	}
	t.gone = err != nil
	return nil
}

// SetWriteDeadline bounds the writes to the client, for http.ResponseController.
func (t *tee) SetWriteDeadline(at time.Time) error { return t.rc.SetWriteDeadline(at) }
