package httpd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

const (
	keepAlive  = 2 * time.Minute // between two requests, without --idle-timeout
	headerSize = 64 << 10
	bodyLinger = time.Second // for a client to read its answer while it still sends a refused body
)

// bounded limits how long a request occupies its connection. It reads the whole body within Config.BodyTimeout before
// it calls next, and ends a response that the client does not read after StallTimeout. A connection may be closed in
// favour of another one (--max-sessions) until its request's body is complete.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Config.StallTimeout > 0 {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.Config.StallTimeout))
		}
		body, e := s.readBody(w, r)
		ctx, done, ok := ipc.Busy(r.Context())
		defer done()
		if !ok {
			<-r.Context().Done() // package ipc is writing the connection's last answer
			panic(http.ErrAbortHandler)
		}
		if e != nil {
			s.Log.Debug("refused", "code", e.Code, "message", e.Message)
			s.Fail(w, r, e)
			return
		}
		if s.Elsewhere != nil && s.Elsewhere(r, body) && ipc.HandBack(w, r, body) == nil {
			return
		}
		switch {
		case r.URL.Path == LivePath:
			ipc.Watched(ctx)
		case ipc.FromFront(ctx):
			w = &asking{w, ipc.Asked(ctx, apiOf(r), r.ProtoAtLeast(1, 1), !NeedsModel(r.Method, r.URL.Path))}
		}
		r = r.WithContext(withTraceparent(ctx, r.Header.Get("Traceparent")))
		if s.uploads(r) {
			r.Body = &upload{r.Body, http.NewResponseController(w), s.Config.BodyTimeout}
		} else {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r)
	})
}

// uploads reports whether a request's handler reads its body, which may be longer than others.
func (s *Server) uploads(r *http.Request) bool {
	return s.Uploads && r.Method == http.MethodPost && (strings.HasPrefix(r.URL.Path, blobPath) ||
		r.URL.Path == filesPath || r.URL.Path == messageBatches)
}

// Paths of files and batches of clients. The body of a new batch of Anthropic's has all of its requests.
const (
	filesPath      = "/v1/files"
	batchesPath    = "/v1/batches"
	messageBatches = "/v1/messages/batches"
)

// readBody returns the body of a request. After an error, and for GET and HEAD, it does not read the rest of the body
// and the connection ends with the answer.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *wire.Error) {
	if r.ContentLength == 0 || s.uploads(r) {
		return nil, nil
	}
	rc := http.NewResponseController(w)
	abandon := func() {
		w.Header().Set("Connection", "close")
		rc.SetReadDeadline(time.Now().Add(bodyLinger))
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		abandon()
		return nil, nil
	}
	limit := int64(s.Config.MaxFrameBytes)
	tooLong := &wire.Error{Code: wire.FrameTooLarge,
		Message: fmt.Sprintf("the body is longer than %d bytes (--max-frame-bytes)", limit)}
	if r.ContentLength > limit {
		abandon()
		return nil, tooLong
	}
	if s.Config.BodyTimeout > 0 {
		rc.SetReadDeadline(time.Now().Add(s.Config.BodyTimeout))
	}
	peer, _ := ipc.PeerOf(r.Context())
	in := &bodyReader{from: io.LimitReader(r.Body, limit+1), budget: &s.bodies, owner: peer.UID}
	defer in.close()
	body, err := io.ReadAll(in)
	switch {
	case errors.Is(err, errBodyBudget):
		abandon()
		return nil, bodyBudgetError()
	case errors.Is(err, os.ErrDeadlineExceeded):
		abandon()
		return nil, wire.Errorf(wire.Timeout, "the body is incomplete after %v: %d bytes have arrived",
			s.Config.BodyTimeout, len(body))
	case err != nil:
		abandon()
		return nil, wire.Errorf(wire.BadRequest, "the body is incomplete: %v after %d bytes", err, len(body))
	case int64(len(body)) > limit:
		abandon()
		return nil, tooLong
	}
	rc.SetReadDeadline(time.Time{})
	return body, nil
}

// upload is the body of a request that its handler reads bit by bit: each part must come within the timeout, the whole
// may take as long as it does.
type upload struct {
	io.ReadCloser
	rc      *http.ResponseController
	timeout time.Duration
}

func (u *upload) Read(p []byte) (int, error) {
	if u.timeout > 0 {
		_ = u.rc.SetReadDeadline(time.Now().Add(u.timeout)) // a connection without deadlines has the server's limits
		_ = u.rc.SetWriteDeadline(time.Now().Add(2 * u.timeout))
	}
	return u.ReadCloser.Read(p)
}

// asking tells the front, when the head of an answer is written, whether a stream follows.
type asking struct {
	http.ResponseWriter
	stream func(mediaType string)
}

func (a *asking) WriteHeader(status int) {
	a.stream(a.Header().Get("Content-Type"))
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the methods of the underlying writer.
func (a *asking) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Flush serves handlers that use the writer as an http.Flusher.
func (a *asking) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }
