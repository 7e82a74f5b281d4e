// Package resume keeps streamed answers for clients that lose their connection: those of requests with the header
// X-Conversation-Id, under that id, as llama-server does. Such an answer runs on without its client, which reads it
// again from any byte with GET /v1/stream, and ends it with DELETE /v1/stream. It works on any API's stream: it knows
// its bytes alone.
package resume

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
)

// Header names a stream.
const Header = "X-Conversation-Id"

// Limits. A stream that is displaced by newer ones, or by one of the same id, is cancelled if it runs.
const (
	maxIDBytes      = 512
	maxSessionBytes = 4 << 20 // kept of a stream, its newest
	maxSessions     = 8       // per owner
	maxAll          = 64      // of all owners: 256 MiB at most
	keptFor         = 5 * time.Minute
	maxLookup       = 1024 // ids of one question
)

// Streams are the streams that are kept.
type Streams struct {
	s *api.Server

	mu       sync.Mutex
	sessions []*session // oldest first
}

// New returns an empty Streams.
func New(s *api.Server) *Streams { return &Streams{s: s} }

// Routes returns the endpoints.
func (k *Streams) Routes() []api.Route {
	return []api.Route{
		{Method: http.MethodGet, Path: "/v1/stream", Handle: k.serveStream},
		{Method: http.MethodDelete, Path: "/v1/stream", Handle: k.serveStop},
		{Method: http.MethodPost, Path: "/v1/streams/lookup", Handle: k.serveLookup},
	}
}

// expire removes streams that ended long ago. Caller holds mu.
func (k *Streams) expire(now time.Time) {
	k.sessions = slices.DeleteFunc(k.sessions, func(s *session) bool {
		_, _, ended := s.state()
		return !ended.IsZero() && now.Sub(ended) >= keptFor
	})
}

// find returns owner's stream of this id, nil if there is none.
func (k *Streams) find(owner uint32, id string) *session {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire(k.s.Now())
	for _, s := range k.sessions {
		if s.owner == owner && s.id == id {
			return s
		}
	}
	return nil
}

// add keeps a stream, and cancels those that it displaces: the one of its id, and the oldest beyond the limits.
func (k *Streams) add(s *session) {
	k.mu.Lock()
	k.expire(s.begun)
	var gone []*session
	own := 1
	for i := len(k.sessions) - 1; i >= 0; i-- {
		o := k.sessions[i]
		if o.owner == s.owner {
			own++
		}
		if o.owner == s.owner && (o.id == s.id || own > maxSessions) {
			gone = append(gone, o)
		}
	}
	k.sessions = slices.DeleteFunc(k.sessions, func(o *session) bool { return slices.Contains(gone, o) })
	if len(k.sessions) >= maxAll {
		gone = append(gone, k.sessions[0])
		k.sessions = k.sessions[1:]
	}
	k.sessions = append(k.sessions, s)
	k.mu.Unlock()
	for _, o := range gone {
		o.stop()
	}
}

// remove forgets a stream.
func (k *Streams) remove(s *session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sessions = slices.DeleteFunc(k.sessions, func(o *session) bool { return o == s })
}

// serveStream answers GET /v1/stream?conv_id=ID&from=N with the bytes of a stream from the N-th on, and those that
// come.
func (k *Streams) serveStream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id, ok := k.idOf(w, r)
	if !ok {
		return
	}
	from, err := int64(0), error(nil)
	if q.Get("from") != "" {
		from, err = strconv.ParseInt(q.Get("from"), 10, 64)
	}
	if err != nil || from < 0 {
		openai.Fail(k.s.NewWriter(w), api.Refusef(`"from" is %.40q; it must be a number of bytes, 0 or more`,
			q.Get("from")))
		return
	}
	s := k.find(k.s.Owner(r.Context()), id)
	if s == nil {
		openai.NotFound(k.s.NewWriter(w), fmt.Sprintf("there is no stream of the id %.100q; a stream is kept for %d "+
			"minutes after its end", id, int(keptFor.Minutes())))
		return
	}
	if total, kept, _ := s.state(); from < kept || from > total {
		openai.Fail(k.s.NewWriter(w), api.Refusef(`"from" is %d; bytes %d to %d of this stream are kept`, from, kept,
			total))
		return
	}
	k.replay(w, r, s, from)
}

// replay writes a stream from an offset on until it ends or its client has gone.
func (k *Streams) replay(w http.ResponseWriter, r *http.Request, s *session, from int64) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	for rc.Flush() == nil {
		b, err := s.read(r.Context(), from)
		if err != nil || b == nil {
			return
		}
		if k.s.StallTimeout > 0 {
			rc.SetWriteDeadline(time.Now().Add(k.s.StallTimeout))
		}
		if _, err := w.Write(b); err != nil {
			return
		}
		from += int64(len(b))
	}
}

// serveStop answers DELETE /v1/stream?conv_id=ID: it ends a stream and forgets it. Those that read it get its last
// event. That there is none is no error.
func (k *Streams) serveStop(w http.ResponseWriter, r *http.Request) {
	id, ok := k.idOf(w, r)
	if !ok {
		return
	}
	if s := k.find(k.s.Owner(r.Context()), id); s != nil {
		k.remove(s)
		s.stop()
	}
	w.WriteHeader(http.StatusNoContent)
}

// idOf returns the id that a query names, or answers that it is missing.
func (k *Streams) idOf(w http.ResponseWriter, r *http.Request) (string, bool) {
	id := r.URL.Query().Get("conv_id")
	if id == "" || len(id) > maxIDBytes {
		openai.Fail(k.s.NewWriter(w), api.Refusef(`"conv_id" has %d bytes; it must be the id of a stream, of 1…%d `+
			`bytes`, len(id), maxIDBytes))
		return "", false
	}
	return id, true
}

// lookedUp describes a stream. Times are in seconds since 1970.
type lookedUp struct {
	ID        string `json:"conversation_id"`
	Done      bool   `json:"is_done"`
	Bytes     int64  `json:"total_bytes"`
	Started   int64  `json:"started_at"`
	Completed int64  `json:"completed_at"` // 0 while it runs
}

// serveLookup answers POST /v1/streams/lookup: the client's streams of these ids, and of these ids followed by "::" and
// a model's name.
func (k *Streams) serveLookup(w http.ResponseWriter, r *http.Request) {
	out := k.s.NewWriter(w)
	raw, err := api.ReadBody(r)
	var in struct {
		IDs []string `json:"conversation_ids"`
	}
	if err == nil {
		if bad := json.Unmarshal(raw, &in); bad != nil {
			err = api.Refuse(`the body must be {"conversation_ids":["ID",…]}: ` + bad.Error())
		} else if len(in.IDs) > maxLookup {
			err = api.Refusef(`field "conversation_ids" has %d entries; it must have at most %d`, len(in.IDs),
				maxLookup)
		}
	}
	if err != nil {
		openai.Fail(out, api.AsError(err))
		return
	}
	owner, found := k.s.Owner(r.Context()), []lookedUp{}
	k.mu.Lock()
	k.expire(k.s.Now())
	sessions := slices.Clone(k.sessions)
	k.mu.Unlock()
	for _, id := range in.IDs {
		for _, s := range sessions {
			if s.owner != owner || id == "" || s.id != id && !strings.HasPrefix(s.id, id+"::") {
				continue
			}
			total, _, ended := s.state()
			l := lookedUp{ID: s.id, Bytes: total, Started: s.begun.Unix()}
			if !ended.IsZero() {
				l.Done, l.Completed = true, ended.Unix()
			}
			found = append(found, l)
		}
	}
	out.JSON(http.StatusOK, found)
}
